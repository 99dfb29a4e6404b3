"""Tensors of REST requests to numpy arrays and back: in JSON, or raw behind it (the binary tensor extension).

FP16 and BF16 have no form in JSON, as in the protocol. NaN and infinities are ``NaN``, ``Infinity`` and ``-Infinity``,
as Python's JSON and Triton's have them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pydantic

from trtnode.serving.errors import InvalidRequestError
from trtnode.serving.protocol.parameters import tensor_place
from trtnode.serving.protocol.shared_memory import SharedMemory, Window
from trtnode.serving.protocol.tensors import (
    check_count,
    class_counts,
    declared_input,
    from_raw,
    output_windows,
    raw_view,
    shaped,
    write_window,
)
from trtnode.serving.protocol.wire_signature import BYTES, IMAGES, WireSignature, WireTensor
from trtnode.serving.rest.body import check_json
from trtnode.serving.rest.json_messages import infer_parameters

BINARY_SIZE = "binary_data_size"

Parameters = dict[str, bool | int | float | str | None]
"""A null is the same as no such parameter, as for all that may be left out."""


class _Part(pydantic.BaseModel):
    """A JSON object of the protocol. Keys that are not in it are ignored."""

    model_config = pydantic.ConfigDict(strict=True)


class RestInput(_Part):
    """An input of a request. Exactly one of data, BINARY_SIZE and shared memory holds its elements."""

    name: str
    shape: list[int]
    datatype: str
    parameters: Parameters | None = None
    data: list[Any] | None = None


class RestOutput(_Part):
    """An output that a request asks for."""

    name: str
    parameters: Parameters | None = None


class RestRequest(_Part):
    """The JSON of an inference request."""

    id: str | None = None
    parameters: Parameters | None = None
    inputs: list[RestInput]
    outputs: list[RestOutput] | None = None

    @property
    def output_names(self) -> list[str]:
        """The outputs that it names; none stands for all."""
        return [output.name for output in self.outputs or ()]


def parse_request(text: bytes, signature: WireSignature) -> RestRequest:
    """Return what a request's JSON says.

    Args:
        text: The JSON.
        signature: The model's.

    Raises:
        InvalidRequestError: It is no JSON, or lacks a field, or has one of another type, or too many values.
    """
    check_json(text, signature.row_elements)
    try:
        return _read(text)
    except pydantic.ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        problem = ": ".join(filter(None, (".".join(map(str, fault["loc"])), fault["msg"])))
        raise InvalidRequestError(f"the body is no inference request: {problem}") from None


def _read(text: bytes) -> RestRequest:
    """Read a request. What is nested deeper than pydantic reads takes Python's parser, which is slower."""
    try:
        return RestRequest.model_validate_json(text)
    except pydantic.ValidationError as error:
        if "recursion limit" not in str(error):
            raise
        with contextlib.suppress(ValueError, RecursionError):
            return RestRequest.model_validate(json.loads(text))
        raise


def raw_request(binary: memoryview, signature: WireSignature, *, is_batched: bool) -> tuple[RestRequest, memoryview]:
    """Return the request that a body of nothing but the data of the model's only input stands for, as in Triton.

    A batch of it has one row, and the size leaves one other dimension to find. Data of BYTES is one element, without
    its length before it, which it gets here. The outputs come raw as well.

    Raises:
        InvalidRequestError: The model has several inputs, the size gives no shape, or BYTES have another one than [1].
    """
    if len(signature.required) != 1:
        raise InvalidRequestError(
            f"a body without JSON is the data of one input, but model {signature.model!r} has {len(signature.required)}"
        )
    (tensor,) = (signature.inputs[name] for name in signature.required)
    declared = list(tensor.shape if tensor.shape is not None else (-1,))
    if is_batched:
        declared[0] = 1
    if not tensor.datatype.numpy.hasobject:
        elements = len(binary) // tensor.datatype.numpy.itemsize
    elif set(declared) <= {1}:
        binary, elements = memoryview(struct.pack("<I", len(binary)) + binary), 1
    else:
        raise InvalidRequestError(
            f"{tensor.label} has shape {declared}; a body without JSON is one element of BYTES, for shape [1] in dims"
        )
    known = math.prod(size for size in declared if size != -1)
    if declared.count(-1) > 1 or (-1 in declared and (known == 0 or elements % known)):
        raise InvalidRequestError(
            f"{tensor.label} has {len(binary)} bytes of data, from which no shape like {declared} follows"
        )
    shape = [elements // known if size == -1 else size for size in declared]
    size: Parameters = {BINARY_SIZE: len(binary)}
    given = RestInput(name=tensor.name, shape=shape, datatype=tensor.datatype.name, parameters=size)
    return RestRequest(inputs=[given], parameters={"binary_data_output": True}), binary


def read_inputs(
    request: RestRequest, binary: memoryview, signature: WireSignature, memory: SharedMemory
) -> dict[str, np.ndarray]:
    """Return the request's arrays by input name. Raw elements become read-only views.

    Args:
        request: The JSON.
        binary: What follows it.
        signature: The model's.
        memory: The regions that clients have registered.

    Raises:
        InvalidRequestError: An input is unknown, twice there or missing, or its type, shape or data don't fit.
        NotFoundError: An input is in a region of shared memory that isn't registered.
        UnsupportedError: An input is in shared memory, which is off.
    """
    signature.check_counts(len(request.inputs), len(request.outputs or ()))
    feeds: dict[str, np.ndarray] = {}
    for wire in request.inputs:
        shape = tuple(wire.shape)
        tensor = declared_input(signature, feeds, wire.name, wire.datatype, shape)
        size = (wire.parameters or {}).get(BINARY_SIZE)
        place = tensor_place(wire.name, infer_parameters(wire.parameters)) if wire.parameters else None
        if [size, place, wire.data].count(None) != 2:
            raise InvalidRequestError(
                f"{tensor.label} should have either 'data' or the parameter {BINARY_SIZE!r}, or be in shared memory"
            )
        if place is not None:
            feeds[wire.name] = from_raw(tensor, shape, memory.read(place))
        elif wire.data is not None:
            feeds[wire.name] = _from_json(tensor, shape, wire.data)
        elif type(size) is int and 0 <= size <= len(binary):
            feeds[wire.name] = from_raw(tensor, shape, binary[:size])
            binary = binary[size:]
        else:
            raise InvalidRequestError(
                f"{tensor.label} has {BINARY_SIZE} {size!r}, but {len(binary)} bytes follow the JSON for it"
            )
    if binary:
        raise InvalidRequestError(f"{len(binary)} bytes follow the last tensor; check {BINARY_SIZE} of each")
    signature.check_present(feeds)
    return feeds


@dataclasses.dataclass(frozen=True, slots=True)
class OutputFormats:
    """The form in which a request wants each output.

    Attributes:
        windows: Shared memory of those that go there, by name.
        raw: Names of those that follow the JSON.
        classes: How many classes are wanted of those that are wanted as classifications, by name.
    """

    windows: Mapping[str, Window]
    raw: frozenset[str]
    classes: Mapping[str, int]

    @classmethod
    def of(cls, request: RestRequest, outputs: Sequence[WireTensor], memory: SharedMemory) -> OutputFormats:
        """Read the requested.

        Args:
            request: The JSON.
            outputs: Those that it asks for.
            memory: The regions that clients have registered.

        Raises:
            InvalidRequestError: An output can't be had in the form asked for.
            NotFoundError: A region of shared memory isn't registered.
            UnsupportedError: Shared memory is off.
        """
        named = request.outputs or ()
        requested = {output.name: infer_parameters(output.parameters) for output in named}
        default = _flag(request.parameters, "binary_data_output", default=False)
        asked = {one.name: _flag(one.parameters, "binary_data", default=default) for one in named}
        windows, classes = output_windows(requested.items(), memory), class_counts(requested.items())
        raw = frozenset(one.name for one in outputs if one.name not in windows and asked.get(one.name, default))
        for tensor in outputs:
            if tensor.datatype.contents is None and tensor.name not in (raw | windows.keys() | classes.keys()):
                raise InvalidRequestError(
                    f"{tensor.label} has type {tensor.datatype.name}, which JSON can't carry; ask for it with the "
                    "parameter 'binary_data'"
                )
        return cls(windows, raw, classes)


def write_outputs(
    tensors: Sequence[WireTensor], arrays: Sequence[np.ndarray], formats: OutputFormats
) -> tuple[list[dict[str, Any]], list[memoryview]]:
    """Return the outputs as JSON objects, and the elements that follow the JSON.

    Raises:
        InvalidOutputError: An array isn't of its tensor's type.
        SharedMemoryError: An array is larger than its window.
    """
    outputs: list[dict[str, Any]] = []
    raw: list[memoryview] = []
    for tensor, array in zip(tensors, arrays, strict=True):
        output: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype.name, "shape": array.shape}
        window = formats.windows.get(tensor.name)
        if window is not None:
            output["parameters"] = {
                "shared_memory_region": window.place.region,
                "shared_memory_offset": window.place.offset,
                "shared_memory_byte_size": write_window(tensor, array, window),
            }
        elif tensor.name in formats.raw:
            raw.append(raw_view(tensor, array))
            output["parameters"] = {BINARY_SIZE: len(raw[-1])}
        else:
            output["data"] = array.ravel().tolist()
        outputs.append(output)
    return outputs, raw


def _flag(parameters: Parameters | None, name: str, *, default: bool) -> bool:
    value = (parameters or {}).get(name)
    value = default if value is None else value
    if not isinstance(value, bool):
        raise InvalidRequestError(f"the parameter {name!r} should be true or false")
    return value


_JSON_KINDS: Mapping[str, frozenset[type]] = {
    "b": frozenset({bool}),
    "i": frozenset({int}),
    "u": frozenset({int}),
    "f": frozenset({int, float}),
    "O": frozenset({str}),
}
"""Types of elements in JSON, by numpy's kind of it."""


def _from_json(tensor: WireTensor, shape: tuple[int, ...], data: list[Any]) -> np.ndarray:
    """Return the array of elements in JSON: a flat list, or lists in lists, row-major.

    Raises:
        InvalidRequestError: Elements are of another type or outside its range, or there are more or fewer.
    """
    datatype = tensor.datatype
    if datatype.contents is None or datatype is IMAGES:
        kind = "holds images" if datatype is IMAGES else f"has type {datatype.name}"
        raise InvalidRequestError(f"{tensor.label} {kind}, which JSON can't carry; send it raw")
    flat, kinds = _flattened(data)
    if not kinds <= _JSON_KINDS[datatype.numpy.kind]:
        found = ", ".join(sorted(json.dumps(kind.__name__) for kind in kinds))
        raise InvalidRequestError(f"{tensor.label} of type {datatype.name} has elements of these types: {found}")
    check_count(tensor, shape, len(flat))
    if datatype is BYTES:
        array = np.empty(len(flat), object)
        array[:] = flat
        return shaped(tensor, array, shape)
    return shaped(tensor, _numbers(tensor, flat), shape)


def _flattened(data: list[Any]) -> tuple[list[Any], set[type]]:
    """Return the elements of lists in lists, however deep, as Triton does, and their types."""
    kinds = set(map(type, data))
    while kinds == {list}:
        data = list(itertools.chain.from_iterable(data))
        kinds = set(map(type, data))
    return data, kinds


def _numbers(tensor: WireTensor, flat: list[Any]) -> np.ndarray:
    try:
        if tensor.datatype.numpy.kind != "f":
            return np.array(flat, tensor.datatype.numpy)
        wide = np.array(flat, np.float64)
        with np.errstate(over="ignore"):
            array = wide.astype(tensor.datatype.numpy)
        if np.array_equal(np.isinf(wide), np.isinf(array)):
            return array
    except OverflowError:
        pass
    raise InvalidRequestError(f"{tensor.label} has an element outside the range of {tensor.datatype.name}")
