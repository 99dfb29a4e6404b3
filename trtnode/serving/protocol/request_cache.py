"""Inference requests and responses of one model as arrays, with what repeats itself kept.

Two requests have the same template if they differ in nothing but the id and the bytes of their tensors. What is left of
the message is the key under which the template is remembered. Two responses have the same head if they have the same
outputs in the same shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from trtnode.protos import ModelInferRequest, ModelInferResponse
from trtnode.serving.protocol import tensors, wire_format
from trtnode.serving.protocol.classification import classified
from trtnode.serving.protocol.element_bounds import check_answer
from trtnode.serving.protocol.parameters import queue_options
from trtnode.serving.protocol.shared_memory import SharedMemory, Window
from trtnode.serving.protocol.wire_signature import BOOL, WireSignature, WireTensor

MAX_ENTRIES = 256
"""Templates, and heads, that a model remembers. With more, it forgets all and begins anew, which costs little."""
KEY_BYTES = 1024
"""Templates with a longer key are not remembered."""

COPIED_BYTES = 16 << 10
"""Tensors up to this size are copied once more on their way into a response, which costs less than a view of them."""

ID_FIELD = ModelInferResponse.ID_FIELD_NUMBER
RAW_FIELD = ModelInferResponse.RAW_OUTPUT_CONTENTS_FIELD_NUMBER

VARIANT = "trtnode_variant"
"""The parameter of a response that names the variant that has answered."""

_NO_WINDOWS: Mapping[str, Window] = {}


class ParsedRequest(NamedTuple):
    """An inference request that fits its model.

    Attributes:
        feeds: Arrays by input name.
        outputs: The outputs to give, in the model's order.
        windows: The shared memory of the outputs that go there, by name.
        priority: See ``RequestOptions``.
        timeout_us: See ``RequestOptions``.
        classes: How many classes are wanted of each output that is wanted as a classification, by name.
    """

    feeds: Mapping[str, np.ndarray]
    outputs: tuple[WireTensor, ...]
    windows: Mapping[str, Window]
    priority: int
    timeout_us: int
    classes: Mapping[str, int] = {}


class RawInput(NamedTuple):
    """An input in raw contents that any bytes of the right number are valid for."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    nbytes: int


class RequestTemplate(NamedTuple):
    """The part that requests with the same key share. See ``ParsedRequest`` for all attributes but ``inputs``."""

    inputs: tuple[RawInput, ...]
    outputs: tuple[WireTensor, ...]
    priority: int
    timeout_us: int

    def read(self, raw: Sequence[bytes | memoryview], *, is_copied: bool) -> ParsedRequest | None:
        """Read the raw contents of a request of this template; return None where their sizes differ from its own.

        Args:
            raw: The contents.
            is_copied: Whether arrays need not be aligned, since they are copied before they are computed with.
        """
        if len(raw) != len(self.inputs):
            return None
        feeds = {}
        for (name, dtype, shape, nbytes), data in zip(self.inputs, raw, strict=True):
            if len(data) != nbytes:
                return None
            array = np.frombuffer(data, dtype).reshape(shape)
            feeds[name] = array if is_copied else tensors.aligned(array)
        return ParsedRequest(feeds, self.outputs, _NO_WINDOWS, self.priority, self.timeout_us)


class RequestCache:
    """Reads the requests of one model version and writes its responses. Thread-safe.

    Attributes:
        signature: The model's.
        version: The model's, decimal.
        parameters: Of every response: the name of the variant that answers, if the model has variants.
        is_batched: Whether its requests are joined along axis 0. Arrays of such requests need not be aligned.
    """

    __slots__ = ("_heads", "_templates", "is_batched", "parameters", "signature", "version")

    def __init__(self, signature: WireSignature, version: str, *, variant: str = "", is_batched: bool = False) -> None:
        self.signature = signature
        self.version = version
        self.parameters = {VARIANT: variant} if variant else {}
        self.is_batched = is_batched
        self._templates: dict[bytes, RequestTemplate] = {}
        self._heads: dict[tuple[Any, ...], bytes] = {}

    def read(
        self, request: ModelInferRequest, memory: SharedMemory, raw: Sequence[bytes | memoryview] = ()
    ) -> ParsedRequest:
        """Read a request, and take its raw contents out of it.

        Args:
            request: The request.
            memory: The regions that inputs may be in.
            raw: Its raw contents, where they were cut out of it before.

        Raises:
            InvalidRequestError: An input is unknown, twice there or missing, its type, shape or data don't fit, an
                output is unknown, or a parameter is not what it should be.
            NotFoundError: A region of shared memory isn't registered.
            UnsupportedError: It asks for shared memory, which is off.
        """
        raw = raw or request.raw_input_contents[:]
        if not raw:
            return self._read(request, raw, memory)
        identity = request.id
        request.ClearField("raw_input_contents")
        request.ClearField("id")
        key = request.SerializeToString()
        request.id = identity  # log lines have it
        template = self._templates.get(key)
        parsed = template.read(raw, is_copied=self.is_batched) if template is not None else None
        if parsed is None:
            parsed = self._read(request, raw, memory)
            if len(key) <= KEY_BYTES and self._is_plain(request):
                self._remember(key, parsed)
        return parsed

    def encode(self, request: ParsedRequest, arrays: Sequence[np.ndarray], identity: str = "") -> bytes:
        """Return the response to a request, as the bytes of a ``ModelInferResponse``.

        The bytes of a message's fields may stand in any order, so those of a head, an id and tensors are joined.

        Args:
            request: The request.
            arrays: Of each output that it asks for.
            identity: The request's id.

        Raises:
            InvalidOutputError: An array isn't of its tensor's type.
            TooManyElementsError: A message can't hold the outputs.
            SharedMemoryError: An array is larger than its window.
            InvalidRequestError: The object of a window has shrunk since the request began, or an output can't be a
                classification.
        """
        parts: list[bytes | memoryview] = [self._head(request, arrays)]
        if identity:
            encoded = identity.encode()
            parts += wire_format.field_head(ID_FIELD, len(encoded)), encoded
        size = 0
        if not (request.windows or request.classes):
            for tensor, array in zip(request.outputs, arrays, strict=True):
                raw = tensors.raw_view(tensor, array) if array.nbytes > COPIED_BYTES else tensors.to_raw(tensor, array)
                parts += wire_format.field_head(RAW_FIELD, len(raw)), raw
                size += len(raw)
            if size > COPIED_BYTES:
                check_answer(self.signature, size)
        return b"".join(parts)

    def _read(
        self, request: ModelInferRequest, raw: Sequence[bytes | memoryview], memory: SharedMemory
    ) -> ParsedRequest:
        priority, timeout_us = queue_options(request.parameters)
        feeds = tensors.read_inputs(request, raw, self.signature, memory)
        requested = [(output.name, output.parameters) for output in request.outputs[:]]
        windows = tensors.output_windows(requested, memory)
        outputs = self.signature.select([name for name, _ in requested])
        return ParsedRequest(feeds, outputs, windows, priority, timeout_us, tensors.class_counts(requested))

    def _is_plain(self, request: ModelInferRequest) -> bool:
        """Return whether nothing but sizes is to be checked of the next request of this template."""
        inputs = self.signature.inputs
        return not any(output.parameters for output in request.outputs[:]) and all(
            not wire.parameters and _takes_any_bytes(inputs[wire.name]) for wire in request.inputs[:]
        )

    def _remember(self, key: bytes, parsed: ParsedRequest) -> None:
        inputs = tuple(RawInput(name, array.dtype, array.shape, array.nbytes) for name, array in parsed.feeds.items())
        _keep(self._templates, key, RequestTemplate(inputs, parsed.outputs, parsed.priority, parsed.timeout_us))

    def _head(self, request: ParsedRequest, arrays: Sequence[np.ndarray]) -> bytes:
        """Return all of a response but its id and, unless they go elsewhere, the contents of its outputs."""
        outputs = request.outputs
        if request.windows or request.classes:
            response = self._begun()
            given, arrays = classified(outputs, arrays, request.classes, is_batched=self.is_batched)
            tensors.write_outputs(response, given, arrays, request.windows)
            return bytes(response.SerializeToString())
        key = (outputs, *[array.shape for array in arrays])
        head = self._heads.get(key)
        if head is None:
            response = self._begun()
            for tensor, array in zip(outputs, arrays, strict=True):
                response.outputs.add(name=tensor.name, datatype=tensor.datatype.name, shape=array.shape)
            head = bytes(response.SerializeToString())
            _keep(self._heads, key, head)
        return head

    def _begun(self) -> ModelInferResponse:
        response = ModelInferResponse(model_name=self.signature.model, model_version=self.version)
        for name, value in self.parameters.items():
            response.parameters[name].string_param = value
        return response


def _takes_any_bytes(tensor: WireTensor) -> bool:
    return tensor.datatype is not BOOL and not tensor.datatype.numpy.hasobject


def _keep(memory: dict[Any, Any], key: object, value: object) -> None:
    if len(memory) >= MAX_ENTRIES:
        memory.clear()
    memory[key] = value
