"""Parameters of requests and tensors: the settings that the protocol leaves open.

Unknown ones are meant for the model and ignored, as Triton does. What asks for a part of the protocol that this server
doesn't have is refused.
"""

from collections.abc import Mapping

from protos import InferParameter
from serving.errors import InvalidRequestError, UnsupportedError

WITHOUT_EFFECT = "triton_enable_empty_final_response"
"""Asks for a last, empty message of models that answer several times; perf_analyzer sets it on every request."""


def check_request_parameters(parameters: Mapping[str, InferParameter]) -> None:
    """Refuse parameters of a request that nothing here knows.

    Raises:
        InvalidRequestError: A name is reserved for the server.
    """
    for key in parameters:
        if key.startswith("triton_") and key != WITHOUT_EFFECT:
            raise InvalidRequestError(f"the parameter {key!r} is reserved, and unknown to this server")


def count_parameter(parameters: Mapping[str, InferParameter], key: str, *fields: str) -> int:
    """Return a parameter that counts something, 0 where it is absent.

    Args:
        parameters: Those of a request.
        key: Its name.
        fields: The types that it may have, such as ``int64_param``.

    Raises:
        InvalidRequestError: It is of another type, or negative.
    """
    if key not in parameters:
        return 0
    field = parameters[key].WhichOneof("parameter_choice")
    value = getattr(parameters[key], field) if field in fields else -1
    if value < 0:
        raise InvalidRequestError(f"the parameter {key!r} should be a number from 0, as {' or '.join(fields)}")
    return int(value)


def check_tensor_parameters(name: str, parameters: Mapping[str, InferParameter]) -> None:
    """Refuse parameters of an input or output that ask for what this server doesn't do.

    Raises:
        UnsupportedError: Shared memory, or a classification.
    """
    for key in parameters:
        if key.startswith("shared_memory_"):
            raise UnsupportedError(f"tensor {name!r} is in shared memory, which this server doesn't have; send it raw")
        if key == "classification":
            raise UnsupportedError(f"output {name!r} asks for a classification, which this server doesn't do")
