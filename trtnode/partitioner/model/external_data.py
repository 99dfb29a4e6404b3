"""Tensor data in files beside the model (ONNX external data)."""

from __future__ import annotations

import dataclasses
import functools
import logging
import mmap
import pathlib
import re
from collections.abc import Iterable, Iterator

import onnx
import onnx_ir as ir
from google.protobuf.message import Message

from trtnode.partitioner.errors import DataOutsideError, ExternalDataError
from trtnode.partitioner.model import protobuf_walk
from trtnode.partitioner.model.declared_sizes import size_bytes
from trtnode.partitioner.model.mapped_weights import MappedTensor, data_outside, is_mappable, map_file, place_outside
from trtnode.partitioner.model.protobuf_walk import Parts
from trtnode.partitioner.model.regular_files import open_regular, without_links

logger = logging.getLogger(__name__)

_NUMBER = re.compile("[0-9]{1,18}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Position of a tensor's data: file, first byte, number of bytes."""

    file: pathlib.Path
    offset: int
    size_bytes: int


def check_external_data(path: pathlib.Path, proto: onnx.ModelProto, parts: Parts) -> None:
    """Refuse external data that is missing, too short, or outside the model's folder.

    An initializer of the graph that nothing reads is taken out instead: ONNX Runtime doesn't look for its data.

    Raises:
        ExternalDataError: The data can't be used. The message names the tensor and its location.
    """
    own, read, problems = len(proto.graph.initializer), set[str](), dict[int, ExternalDataError]()
    for index, tensor in enumerate(parts.tensors()):  # the graph's initializers come first
        if onnx.external_data_helper.uses_external_data(tensor):
            try:
                _find(path, tensor)
            except ExternalDataError as error:
                read = read or _read_names(proto)
                if index >= own or tensor.name in read:
                    raise
                problems[index] = error
    for index in reversed(problems):
        del proto.graph.initializer[index]
    if problems:
        first = next(iter(problems.values()))
        logger.warning("%s But nothing reads it, so it is left out (%d tensors).", first, len(problems))


def _read_names(proto: onnx.ModelProto) -> set[str]:
    """Return the names that nodes, subgraphs and outputs read."""
    names = {name for node in protobuf_walk.nodes(proto) for name in node.input}
    return names.union(value.name for graph in protobuf_walk.graphs(proto) for value in graph.output)


def take_data_inside(path: pathlib.Path, tensors: Iterable[onnx.TensorProto]) -> None:
    """Read the external data of tensors of the model at ``path`` into the tensors.

    Raises:
        ExternalDataError: As ``check_external_data``.
    """
    for tensor in tensors:
        if onnx.external_data_helper.uses_external_data(tensor):
            tensor.raw_data = read_external_data(path, tensor)
            tensor.ClearField("data_location")
            tensor.ClearField("external_data")


def leave_weights_outside(path: pathlib.Path, model: onnx.ModelProto) -> None:
    """Name the files of large initializers of the model at ``path`` by absolute paths; read all other external data.

    Raises:
        ExternalDataError: As ``check_external_data``.
    """
    for tensor in filter(onnx.external_data_helper.uses_external_data, model.graph.initializer):
        if is_mappable(tensor):
            place = _find(path, tensor)
            tensor.ClearField("external_data")
            place_outside(tensor, str(place.file.absolute()), place.offset)
    take_data_inside(path, (tensor for tensor in protobuf_walk.tensors(model) if data_outside(tensor) is None))


def read_external_data(path: pathlib.Path, tensor: onnx.TensorProto) -> bytes:
    """Read the external data of a tensor of the model at ``path``.

    Raises:
        ExternalDataError: As ``check_external_data``.
    """
    place = _find(path, tensor)
    with open_regular(place.file) as file:
        file.seek(place.offset)
        return file.read(place.size_bytes)


def read_self_contained(data: bytes | memoryview) -> onnx.ModelProto:
    """Read a model from bytes. There is no folder that its tensors could have their data in.

    Raises:
        DecodeError: The bytes are no model.
        DataOutsideError: A tensor, wherever it is in the model, has its data in a file.
    """
    model = onnx.ModelProto.FromString(data)  # type: ignore[arg-type]  # it takes a view, too
    for tensor in filter(_names_file, _tensors_within(model)):
        raise DataOutsideError(tensor.name, {entry.key: entry.value for entry in tensor.external_data}.get("location"))
    return model


def _names_file(tensor: onnx.TensorProto) -> bool:
    return bool(tensor.external_data) or onnx.external_data_helper.uses_external_data(tensor)


def _tensors_within(message: Message) -> Iterator[onnx.TensorProto]:
    """Yield every tensor of a message, by the format's own description: no place for one is left out."""
    for field, content in message.ListFields():
        if field.message_type is not None:
            for part in content if field.is_repeated else (content,):
                if isinstance(part, onnx.TensorProto):
                    yield part
                else:
                    yield from _tensors_within(part)


class OutsideData:
    """The external data of one model. Large tensors are mapped into memory, others are read at each access."""

    def __init__(self, path: pathlib.Path, data: mmap.mmap | None = None) -> None:
        """Open nothing yet.

        Args:
            path: The model.
            data: Bytes of its file, if that is mapped already: what is read later must be what was read first.
        """
        self._path = path
        self._maps = {path.resolve(): data} if data is not None else {}

    def take_rest_inside(self, tensors: Iterable[onnx.TensorProto]) -> None:
        """Read the external data of tensors into them, but for data in the model's own file.

        Raises:
            ExternalDataError: As ``check_external_data``.
        """
        take_data_inside(self._path, (tensor for tensor in tensors if not self._is_own(tensor)))

    def map_attributes(self, graph: ir.Graph) -> None:
        """Map the tensors in attributes of a graph's nodes whose data is in the model's own file."""
        for op in graph if self._maps else ():
            for name, attribute in op.attributes.items():
                if isinstance(attribute.value, ir.ExternalTensor):
                    held = self.tensor(ir.serde.serialize_tensor(attribute.value))
                    op.attributes[name] = ir.AttrTensor(name, held)

    def _is_own(self, tensor: onnx.TensorProto) -> bool:
        location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
        return bool(self._maps) and location == self._path.name

    def tensor(self, tensor: onnx.TensorProto) -> ir.TensorProtocol:
        """Return a tensor without reading its data.

        Raises:
            ExternalDataError: As ``check_external_data``.
        """
        if not is_mappable(tensor):
            return ir.LazyTensor(
                functools.partial(self._read, tensor),
                ir.DataType(tensor.data_type),
                ir.Shape(tensor.dims),
                name=tensor.name,
            )
        place = _find(self._path, tensor)
        if place.file not in self._maps:
            self._maps[place.file] = map_file(place.file)
        return MappedTensor(tensor, place.file, self._maps[place.file], place.offset)

    def _read(self, tensor: onnx.TensorProto) -> ir.TensorProtocol:
        inside = onnx.TensorProto()
        inside.CopyFrom(tensor)
        take_data_inside(self._path, [inside])
        return ir.serde.deserialize_tensor(inside)


def _find(path: pathlib.Path, tensor: onnx.TensorProto) -> _Place:
    """Check and return the place of a tensor's data. Links may stay in the folder of the model or of its own link."""
    info = {entry.key: entry.value for entry in tensor.external_data}
    location = info.get("location", "")
    try:
        file = without_links(path.parent / location.replace("\0", ""))
        is_file = file.is_file()
    except OSError:  # too long
        raise ExternalDataError(path, tensor.name, location, "there is no such file") from None
    folders = (path.parent.resolve(), path.resolve().parent)
    if not location or "\0" in location or not any(file.is_relative_to(folder) for folder in folders):
        raise ExternalDataError(path, tensor.name, location, "that is outside the model's folder")
    if not is_file:
        raise ExternalDataError(path, tensor.name, location, "there is no such file")
    offset, length = info.get("offset", "0"), info.get("length", "0")
    if not (_NUMBER.fullmatch(offset) and _NUMBER.fullmatch(length)):
        problem = f"offset {offset[:40]!r} or length {length[:40]!r} is no number of bytes"
        raise ExternalDataError(path, tensor.name, location, problem)
    place = _Place(file=file, offset=int(offset), size_bytes=size_bytes(tensor.data_type, tensor.dims))
    needed = place.offset + max(int(length), place.size_bytes)
    if file.stat().st_size < needed:
        problem = f"that file has {file.stat().st_size} bytes of the {needed} that are needed"
        raise ExternalDataError(path, tensor.name, location, problem)
    return place
