"""Reads inference requests and writes the responses. Clients repeat themselves, so what was made out once is kept.

Two requests have the same form if they differ in nothing but the id and the bytes of their tensors: what is left of the
message then is the key under which the form is remembered. Reading a request of a known form takes a third as long.
Two responses of a model have the same head if they have the same outputs in the same shapes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from protos import ModelInferRequest, ModelInferResponse
from serving import tensors
from serving.parameters import queue_wishes
from serving.shared_memory import SharedMemory, Window
from serving.signature import BOOL, Signature, WireTensor

KEPT = 256
"""How many forms, and how many heads, a model remembers. One that is asked in more begins anew, which costs little."""
KEY_BYTES = 1024
"""Forms with a longer key are not remembered."""

_NO_WINDOWS: Mapping[str, Window] = {}


class Asked(NamedTuple):
    """What a request asks for.

    Attributes:
        feeds: Arrays by input name.
        names: The outputs; empty for all.
        windows: The shared memory of the outputs that go there, by name.
        priority: See ``QueueTerms``.
        timeout_us: See ``QueueTerms``.
    """

    feeds: dict[str, np.ndarray]
    names: Sequence[str]
    windows: Mapping[str, Window]
    priority: int
    timeout_us: int


class RawInput(NamedTuple):
    """An input in raw contents that any bytes of the right number are valid for."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    nbytes: int


class Form(NamedTuple):
    """What requests with the same key have in common; the attributes are those of ``Asked``."""

    inputs: tuple[RawInput, ...]
    names: Sequence[str]
    priority: int
    timeout_us: int

    def read(self, raw: Sequence[bytes]) -> Asked | None:
        """Read the raw contents of a request of this form; return None where they haven't the size of its tensors."""
        if len(raw) != len(self.inputs):
            return None
        feeds = {}
        for (name, dtype, shape, nbytes), data in zip(self.inputs, raw, strict=True):
            if len(data) != nbytes:
                return None
            feeds[name] = np.frombuffer(data, dtype).reshape(shape)
        return Asked(feeds, self.names, _NO_WINDOWS, self.priority, self.timeout_us)


def read_request(request: ModelInferRequest, signature: Signature, memory: SharedMemory) -> Asked:
    """Return what a request asks for, and take its raw contents out of it.

    Raises:
        InvalidRequestError: An input is unknown, twice there or missing, its type, shape or data don't fit, or a
            parameter is not what it should be.
        NotFoundError: A region of shared memory isn't registered.
        UnsupportedError: It asks for something that this server doesn't have, or that is off.
    """
    raw = request.raw_input_contents[:]
    if not raw:
        return _read(request, raw, signature, memory)
    identity = request.id
    request.ClearField("raw_input_contents")
    request.ClearField("id")
    key = request.SerializeToString()
    request.id = identity  # log lines have it
    form = signature.forms.get(key)
    asked = form.read(raw) if form is not None else None
    if asked is None:
        asked = _read(request, raw, signature, memory)
        if len(key) <= KEY_BYTES and _is_plain(request, signature):
            _remember(key, asked, signature)
    return asked


def _read(request: ModelInferRequest, raw: Sequence[bytes], signature: Signature, memory: SharedMemory) -> Asked:
    priority, timeout_us = queue_wishes(request.parameters)
    feeds = tensors.read_inputs(request, raw, signature, memory)
    wishes = [(output.name, output.parameters) for output in request.outputs[:]]
    windows = tensors.output_windows(wishes, memory)
    return Asked(feeds, [name for name, _ in wishes], windows, priority, timeout_us)


def _is_plain(request: ModelInferRequest, signature: Signature) -> bool:
    """Whether nothing but sizes is to be checked of the next request of this form."""
    return not any(output.parameters for output in request.outputs[:]) and all(
        not wire.parameters and _takes_any_bytes(signature.inputs[wire.name]) for wire in request.inputs[:]
    )


def _takes_any_bytes(tensor: WireTensor) -> bool:
    return tensor.datatype is not BOOL and not tensor.datatype.numpy.hasobject


def _remember(key: bytes, asked: Asked, signature: Signature) -> None:
    inputs = tuple(RawInput(name, array.dtype, array.shape, array.nbytes) for name, array in asked.feeds.items())
    _keep(signature.forms, key, Form(inputs, asked.names, asked.priority, asked.timeout_us))


def write_response(
    response: ModelInferResponse,
    signature: Signature,
    version: str,
    outputs: Sequence[WireTensor],
    arrays: Sequence[np.ndarray],
    windows: Mapping[str, Window],
) -> None:
    """Fill in all of an empty response but its id.

    Args:
        response: To a request.
        signature: The model's.
        version: The model's.
        outputs: Those that were asked for.
        arrays: Of each output.
        windows: The shared memory of the outputs that go there, by name.

    Raises:
        InvalidOutputError: An array isn't of its tensor's type.
        SharedMemoryError: An array is larger than its window.
        InvalidRequestError: The object of a window has shrunk since the request began.
    """
    if windows:
        response.model_name, response.model_version = signature.model, version
        tensors.write_outputs(response, outputs, arrays, windows)
        return
    key = (outputs, *[array.shape for array in arrays])
    head = signature.heads.get(key)
    if head is None:
        head = _head(signature.model, version, outputs, arrays)
        _keep(signature.heads, key, head)
    response.MergeFromString(head)
    response.raw_output_contents.extend(map(tensors.to_raw, outputs, arrays))


def _head(model: str, version: str, outputs: Sequence[WireTensor], arrays: Sequence[np.ndarray]) -> bytes:
    response = ModelInferResponse(model_name=model, model_version=version)
    for tensor, array in zip(outputs, arrays, strict=True):
        response.outputs.add(name=tensor.name, datatype=tensor.datatype.name, shape=array.shape)
    return bytes(response.SerializeToString())


def _keep(memory: dict[Any, Any], key: object, value: object) -> None:
    if len(memory) >= KEPT:
        memory.clear()
    memory[key] = value
