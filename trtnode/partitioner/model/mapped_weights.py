"""Reads and writes large ONNX files around their weights, which stay in files until somebody needs their values.

protobuf would copy all of them into memory, and needs the whole file there first. So a model in memory names the file
of large weights and engines by its absolute path, which no model in a file may.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import pathlib
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import Message

from trtnode.partitioner.model.declared_sizes import size_bytes
from trtnode.partitioner.model.regular_files import open_regular

LARGE_FILE_BYTES = 64 << 20
"""Smaller files are read whole."""
LARGE_TENSOR_BYTES = 256 << 10
"""Smaller tensors are read with the rest."""

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_GRAPH = onnx.ModelProto.GRAPH_FIELD_NUMBER
_BEFORE_GRAPH = [field.name for field in onnx.ModelProto.DESCRIPTOR.fields if field.number < _GRAPH]
_BEHIND_GRAPH = [field.name for field in onnx.ModelProto.DESCRIPTOR.fields if field.number > _GRAPH]
_INITIALIZER = onnx.GraphProto.INITIALIZER_FIELD_NUMBER
_RAW_DATA = onnx.TensorProto.RAW_DATA_FIELD_NUMBER


class MappedTensor(ir.Tensor[np.ndarray]):
    """A tensor whose values lie in a file.

    Attributes:
        file: The file.
        data: All of it.
        offset: Of their first byte.
    """

    __slots__ = ("data", "file", "offset")

    def __init__(self, tensor: onnx.TensorProto, file: pathlib.Path, data: mmap.mmap, offset: int) -> None:
        """Describe a tensor of whole bytes.

        Args:
            tensor: It without its data.
            file: The file.
            data: All of it.
            offset: Of its first byte there.
        """
        dtype = ir.DataType(tensor.data_type)
        kind = np.dtype(dtype.numpy()).newbyteorder("<")
        values = np.frombuffer(data, kind, math.prod(tensor.dims), offset)
        super().__init__(values.reshape(tuple(tensor.dims)), dtype=dtype, name=tensor.name)
        self.file = file
        self.data = data
        self.offset = offset


def release_pages(model: ir.Model) -> None:
    """Let go of the memory that holds what was read of mapped weights; it would be read again."""
    tensors = (value.const_value for value in model.graph.initializers.values())
    for data in {tensor.data for tensor in tensors if isinstance(tensor, MappedTensor)}:
        data.madvise(mmap.MADV_DONTNEED)


_POPULATE_READ = 22
"""MADV_POPULATE_READ of Linux 5.14 and later, which Python does not name."""


def map_pages(data: mmap.mmap, offset: int = 0, size: int | None = None) -> None:
    """Map pages of a file that are to be read: one by one as they are read, that takes longer than their copy."""
    begin = offset - offset % mmap.PAGESIZE
    with contextlib.suppress(OSError):  # an older system, or no memory
        data.madvise(_POPULATE_READ, begin, (len(data) if size is None else offset + size) - begin)


_mapped: weakref.WeakValueDictionary[tuple[int, ...], mmap.mmap] = weakref.WeakValueDictionary()
"""Mappings that somebody still reads. Each holds a descriptor, and a file may have thousands of tensors."""


def map_file(path: pathlib.Path) -> mmap.mmap:
    """Map a file into memory, once for all who read it.

    Raises:
        OSError: It can't be opened, is empty, or is no regular file.
    """
    with open_regular(path) as file:
        facts = os.fstat(file.fileno())
        key = facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns
        found = _mapped.get(key)
        if found is None:
            found = _mapped[key] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return found


def place_outside(tensor: onnx.TensorProto, location: str, offset: int) -> None:
    """Say in a tensor that its data lies in a file; that of the tensor goes."""
    size = size_bytes(tensor.data_type, tensor.dims)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entries = {"location": location, "offset": str(offset), "length": str(size)}
    tensor.external_data.extend(onnx.StringStringEntryProto(key=k, value=v) for k, v in entries.items())


def data_outside(tensor: onnx.TensorProto) -> memoryview | None:
    """Return the data of a tensor that names a file by its absolute path; None for others.

    Raises:
        OSError: The file can't be opened.
    """
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return None
    entries = {entry.key: entry.value for entry in tensor.external_data}
    file = pathlib.Path(entries["location"])
    if not file.is_absolute():
        return None
    offset = int(entries["offset"])
    return memoryview(map_file(file))[offset : offset + int(entries["length"])]


def serialized(model: onnx.ModelProto) -> list[bytes | memoryview]:
    """Return a model's bytes in pieces, with data that lies in other files in its place.

    Raises:
        OSError: Such a file can't be opened.
    """
    pieces: list[bytes | memoryview] = [_bytes_of(_without(model.graph, "node", "initializer"))]
    for node in model.graph.node:
        pieces += _field(onnx.GraphProto.NODE_FIELD_NUMBER, _node(node))
    for tensor in model.graph.initializer:
        pieces += _field(_INITIALIZER, _tensor(tensor))
    # OpenVINO takes a file for none of ONNX where operator sets stand before the graph.
    before, behind = _without(model, "graph", *_BEHIND_GRAPH), _without(model, "graph", *_BEFORE_GRAPH)
    return [_bytes_of(before), *_field(_GRAPH, pieces), _bytes_of(behind)]


def _node(node: onnx.NodeProto) -> list[bytes | memoryview]:
    outside = [a for a in node.attribute if a.HasField("t") and a.t.data_location == onnx.TensorProto.EXTERNAL]
    if not outside:
        return [_bytes_of(node)]
    bare = _without(node, "attribute")
    bare.attribute.extend(attribute for attribute in node.attribute if attribute not in outside)
    pieces: list[bytes | memoryview] = [_bytes_of(bare)]
    for attribute in outside:
        head = onnx.AttributeProto(name=attribute.name, type=attribute.type)
        tensor = _field(onnx.AttributeProto.T_FIELD_NUMBER, _tensor(attribute.t))
        pieces += _field(onnx.NodeProto.ATTRIBUTE_FIELD_NUMBER, [_bytes_of(head), *tensor])
    return pieces


def _tensor(tensor: onnx.TensorProto) -> list[bytes | memoryview]:
    data = data_outside(tensor)
    if data is None:
        return [_bytes_of(tensor)]
    head = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    return [_bytes_of(head), *_field(_RAW_DATA, [data])]


def _field(number: int, pieces: list[bytes | memoryview]) -> list[bytes | memoryview]:
    return [_number(number << 3 | _LENGTH_DELIMITED) + _number(sum(map(len, pieces))), *pieces]


def _number(value: int) -> bytes:
    groups = max(1, -(-value.bit_length() // 7))
    return bytes(value >> 7 * place & 0x7F | (0x80 if place < groups - 1 else 0) for place in range(groups))


def _without(message: Any, *fields: str) -> Any:
    """Return a copy of a message without some of its fields, which are never copied."""
    kept = {field.name: value for field, value in message.ListFields() if field.name not in fields}
    return type(message)(**kept)


def _bytes_of(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)


def read_around_weights(
    path: pathlib.Path, *, least_bytes: int | None = None
) -> tuple[onnx.ModelProto, mmap.mmap] | None:
    """Read a model without the data of its graph's large tensors, which becomes external data in the same file.

    Args:
        path: The file.
        least_bytes: Size of a file that isn't small; None for ``LARGE_FILE_BYTES``.

    Returns:
        The model, and the file's bytes. None for a file that is small, or isn't laid out as one with such data is: it
        is to be read whole.

    Raises:
        OSError: The file can't be read.
        DecodeError: It is no model.
    """
    if path.stat().st_size < max(1, LARGE_FILE_BYTES if least_bytes is None else least_bytes):
        return None
    data, model = map_file(path), onnx.ModelProto()
    try:
        for number, start, begin, end in _fields(data, 0, len(data)):
            if number == _GRAPH:
                _read(model.graph, data, begin, end, path.name)
            else:
                model.MergeFromString(data[start:end])
    except ValueError:
        return None
    return model, data


def _read(message: Any, data: mmap.mmap, begin: int, end: int, location: str) -> None:
    """Read a message that stands in a file, around the data of large tensors in it."""
    large = _LARGE.get(type(message), {})
    for number, start, inside, after in _fields(data, begin, end):
        if number not in large or after - inside < LARGE_TENSOR_BYTES or _is_other_attribute(message):
            message.MergeFromString(data[start:after])
        elif isinstance(message, onnx.TensorProto):
            _take_data(message, data, inside, after, location)
        else:
            part = getattr(message, large[number])
            _read(part if isinstance(part, onnx.TensorProto) else part.add(), data, inside, after, location)


ENGINE_PARTS = frozenset(("engine", "engine_file", "engine_references", "envelope"))
"""Attributes of a TrtNode that belong to one engine."""


def engine_part(name: str) -> tuple[str, str]:
    """Split the name of a TrtNode's attribute: what it holds, and the suffix of its engine, empty for the first."""
    part, dot, number = name.partition(".")
    return part, dot + number


def _is_other_attribute(message: Any) -> bool:
    """Return whether a message is an attribute that holds no engine."""
    return isinstance(message, onnx.AttributeProto) and engine_part(message.name)[0] != "engine"


_LARGE = {
    onnx.GraphProto: {_INITIALIZER: "initializer", onnx.GraphProto.NODE_FIELD_NUMBER: "node"},
    onnx.NodeProto: {onnx.NodeProto.ATTRIBUTE_FIELD_NUMBER: "attribute"},
    onnx.AttributeProto: {onnx.AttributeProto.T_FIELD_NUMBER: "t"},
    onnx.TensorProto: {_RAW_DATA: "raw_data"},
}
"""Fields that may hold much, by number."""


def _take_data(tensor: onnx.TensorProto, data: mmap.mmap, begin: int, end: int, location: str) -> None:
    if is_mappable(tensor) and size_bytes(tensor.data_type, tensor.dims) == end - begin:
        place_outside(tensor, location, begin)
    else:
        tensor.raw_data = data[begin:end]


def is_mappable(tensor: onnx.TensorProto) -> bool:
    """Return whether a tensor's values are many, and whole bytes each, and nothing else describes its data."""
    size, elements = size_bytes(tensor.data_type, tensor.dims), math.prod(tensor.dims)
    plain = ("name", "dims", "data_type", "doc_string", "data_location", "external_data")
    return (
        size >= LARGE_TENSOR_BYTES
        and not size % elements
        and bool(tensor.name)
        and all(field.name in plain for field, _ in tensor.ListFields())
    )


_Field = tuple[int, int, int, int]
"""Number of a field, where it starts, where its contents begin, and where they end."""


def _fields(data: mmap.mmap, position: int, end: int) -> Iterator[_Field]:
    """Yield the fields of a message, of which only tags and lengths are read.

    Raises:
        ValueError: The bytes are no message.
    """
    while position < end:
        start = position
        tag, position = _varint(data, position)
        begin, kind = position, tag & 7
        if kind == _LENGTH_DELIMITED:
            size, begin = _varint(data, position)
            position = begin + size
        elif kind == _VARINT:
            _, position = _varint(data, position)
        elif kind in (_FIXED64, _FIXED32):
            position += 8 if kind == _FIXED64 else 4
        else:
            raise ValueError("a group")
        if position > end:
            raise ValueError("it is cut short")
        yield tag >> 3, start, begin, position


def _varint(data: mmap.mmap, position: int) -> tuple[int, int]:
    value = 0
    for bits in range(0, 70, 7):
        byte = data[position] if position < len(data) else 0x80
        position += 1
        value |= (byte & 0x7F) << bits
        if byte < 0x80:
            return value, position
    raise ValueError("a number without an end")
