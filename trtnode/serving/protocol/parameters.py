"""Parameters of requests and tensors: the settings that the protocol leaves open.

Unknown ones are meant for the model and ignored, as Triton does. What asks for a part of the protocol that this server
doesn't have, such as sequences, is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import NamedTuple

from trtnode.protos import InferParameter
from trtnode.serving.errors import InvalidRequestError
from trtnode.serving.protocol.shared_memory import MemorySlice

EMPTY_FINAL_RESPONSE = "triton_enable_empty_final_response"
"""Asks for an empty response after the last one of models that answer several times. Here each answers once, so that
it has no effect; perf_analyzer sets it on every request."""


SEQUENCE_ID = "sequence_id"
SEQUENCE_FLAGS = ("sequence_start", "sequence_end")
SEQUENCE_KEYS = (SEQUENCE_ID, *SEQUENCE_FLAGS)


class SequenceMark(NamedTuple):
    """The place of a request in its sequence.

    Attributes:
        identity: Of the sequence; 0 or empty for none.
        start: Whether it is the first one.
        end: Whether it is the last one.
    """

    identity: int | str
    start: bool
    end: bool


NO_SEQUENCE = SequenceMark(0, start=False, end=False)


def queue_options(parameters: Mapping[str, InferParameter]) -> tuple[int, int]:
    """Return a request's priority and timeout in microseconds, each 0 where it has none.

    Raises:
        InvalidRequestError: A name is reserved for the server, a value isn't of its type, or the request is a part of a
            sequence: those of a model that keeps state are taken out before.
    """
    priority = timeout_us = 0
    for key in parameters:
        if key == "priority":
            priority = _count(key, parameters[key], "uint64_param", "int64_param")
        elif key == "timeout":
            timeout_us = _count(key, parameters[key], "int64_param")
        elif key == EMPTY_FINAL_RESPONSE:
            _flag(key, parameters[key])
        elif key in SEQUENCE_KEYS:
            _check_no_sequence(key, parameters[key])
        elif key.startswith("triton_"):
            raise InvalidRequestError(f"the parameter {key!r} is reserved, and unknown to this server")
    return priority, timeout_us


def tensor_place(name: str, parameters: Mapping[str, InferParameter]) -> MemorySlice | None:
    """Return where in shared memory an input or output stands, None if it travels in the message.

    Raises:
        InvalidRequestError: A parameter about shared memory is missing or of another type.
    """
    if not any(key.startswith("shared_memory_") for key in parameters):
        return None
    region = parameters.get("shared_memory_region")
    if region is None or not region.string_param or "shared_memory_byte_size" not in parameters:
        raise InvalidRequestError(
            f"tensor {name!r} should have the parameters 'shared_memory_region', as string_param, and "
            "'shared_memory_byte_size' to be in shared memory"
        )
    return MemorySlice(
        region.string_param,
        _optional_count(parameters, "shared_memory_offset"),
        _optional_count(parameters, "shared_memory_byte_size"),
    )


def class_count(name: str, parameters: Mapping[str, InferParameter]) -> int:
    """Return how many of its best classes an output is asked for; 0 if it is asked for as it is.

    Raises:
        InvalidRequestError: The number is of another type or not above 0, or the classes should go to shared memory.
    """
    if "classification" not in parameters:
        return 0
    count = _count("classification", parameters["classification"], "int64_param")
    if not count:
        raise InvalidRequestError(f"the parameter 'classification' of output {name!r} should be a number from 1")
    if "shared_memory_region" in parameters:
        raise InvalidRequestError(f"output {name!r} can't be a classification and in shared memory; leave one out")
    return count


def take_sequence(parameters: MutableMapping[str, InferParameter]) -> SequenceMark:
    """Take what a request says of its sequence out of its parameters, so that requests of all sequences look alike.

    Raises:
        InvalidRequestError: A value isn't of its type.
    """
    identity = _identity(parameters[SEQUENCE_ID]) if SEQUENCE_ID in parameters else 0
    start, end = (_flag(key, parameters[key]) if key in parameters else False for key in SEQUENCE_FLAGS)
    for key in SEQUENCE_KEYS:
        if key in parameters:
            del parameters[key]
    return SequenceMark(identity, start, end)


def _check_no_sequence(key: str, parameter: InferParameter) -> None:
    if _flag(key, parameter) if key in SEQUENCE_FLAGS else _identity(parameter):
        raise InvalidRequestError(f"the model has no sequences; send the request without the parameter {key!r}")


def _identity(parameter: InferParameter) -> int | str:
    field = parameter.WhichOneof("parameter_choice")
    if field == "string_param":
        return str(parameter.string_param)
    if field not in ("int64_param", "uint64_param"):
        raise InvalidRequestError(f"the parameter {SEQUENCE_ID!r} should be an int64_param or a string_param")
    return int(getattr(parameter, field)) % 2**64  # clients in C++ send large numbers as negative ones


def _flag(key: str, parameter: InferParameter) -> bool:
    if not parameter.HasField("bool_param"):
        raise InvalidRequestError(f"the parameter {key!r} should be a bool_param")
    return bool(parameter.bool_param)


def _optional_count(parameters: Mapping[str, InferParameter], key: str) -> int:
    return _count(key, parameters[key], "int64_param") if key in parameters else 0


def _count(key: str, parameter: InferParameter, *fields: str) -> int:
    """Return a number from 0, which is in one of the fields.

    Raises:
        InvalidRequestError: It is in another one, or negative.
    """
    field = parameter.WhichOneof("parameter_choice")
    value = getattr(parameter, field) if field in fields else -1
    if value < 0:
        raise InvalidRequestError(f"the parameter {key!r} should be a number from 0, as {' or '.join(fields)}")
    return int(value)
