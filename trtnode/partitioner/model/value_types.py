"""Types and shapes of many values, from protobuf and to it.

Large graphs have few distinct ones, so each is converted once.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import onnx
import onnx_ir as ir

from trtnode.partitioner.model.values import holds_map, serialize_value


class TypeReader:
    """Gives values the types that protobuf declares. Values of equal shapes share one, which is frozen."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[ir.DataType, ir.Shape | None]] = {}

    def read(self, proto: onnx.TypeProto) -> tuple[ir.TypeProtocol | None, ir.Shape | None]:
        """Return a type, which nothing else holds, and a shape; nothing for maps, which onnx_ir has no type for."""
        key = proto.SerializeToString()
        known = self._known.get(key)
        if known is not None:
            return ir.TensorType(known[0]), known[1]
        if holds_map(proto):
            return None, None
        forget_negative_sizes(proto)
        key = proto.SerializeToString()
        kind = ir.serde.deserialize_type_proto_for_type(proto)
        shape = ir.serde.deserialize_type_proto_for_shape(proto)
        if isinstance(kind, ir.TensorType) and not kind.denotation:
            self._known[key] = kind.dtype, shape
        return kind, shape

    def declare(self, value: ir.Value, info: onnx.ValueInfoProto) -> None:
        """Give a value all that protobuf says of it."""
        value.type, value.shape = self.read(info.type)
        if info.metadata_props:
            value.metadata_props.update(ir.serde.deserialize_metadata_props(info.metadata_props) or {})
        if info.doc_string:
            value.doc_string = info.doc_string


class TypeWriter:
    """Adds the types of values to a protobuf, while none of them changes."""

    def __init__(self) -> None:
        self._known: dict[Hashable, onnx.TypeProto] = {}

    def add(self, infos: Any, value: ir.Value) -> None:
        """Add the name and type of a value to a repeated field of ``ValueInfoProto``."""
        sizes = None if value.shape is None else value.shape.dims
        plain = type(value.type) is ir.TensorType and not value.type.denotation
        key = (value.dtype, sizes) if plain else id(value)
        if key not in self._known:
            self._known[key] = serialize_value(value).type
        infos.add(name=value.name).type.CopyFrom(self._known[key])


def forget_negative_sizes(kind: onnx.TypeProto) -> None:
    """Clear dimensions of -1, in place: some exporters mean an unknown one, but shape inference computes with it."""
    for dimension in kind.tensor_type.shape.dim if kind.HasField("tensor_type") else ():
        if dimension.dim_value < 0:
            dimension.Clear()
