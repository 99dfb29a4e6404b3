"""Questions about the values of an onnx_ir graph: shape, constness, what a node reads, what its bodies capture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
import onnx_ir as ir

Dimension = int | str | None

RANDOM_OPS = frozenset("Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split())

SHAPE_DTYPES = (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL)
"""What shape arithmetic computes in."""

DECLARED_TYPE = "trtnode.declared_type"
"""Key of ``ir.Value.meta``: the ``onnx.TypeProto`` of a value whose type onnx_ir can't hold."""


def dimensions(value: ir.Value) -> tuple[Dimension, ...] | None:
    """Shape of a value with plain entries: a size, a symbol, or None."""
    if value.shape is None:
        return None
    return tuple(d if isinstance(d, int) else d.value for d in value.shape)


def is_constant(value: ir.Value) -> bool:
    """Whether a value is an initializer that no request can replace.

    From IR version 4 an initializer that is also a graph input is only a default; see
    https://github.com/onnx/onnx/blob/main/docs/IR.md#graphs.
    """
    return value.is_initializer() and not value.is_graph_input()


def comes_from_shape(value: ir.Value) -> bool:
    """Whether a value comes from Shape or Size through integer operators and constants alone."""
    pending, seen = [value], set[ir.Value]()
    while pending:
        current = pending.pop()
        if current.const_value is not None or current in seen:
            continue
        seen.add(current)
        producer = current.producer()
        if producer is None or current.dtype not in SHAPE_DTYPES:
            return False
        if producer.op_type not in ("Shape", "Size"):
            pending.extend(v for v in producer.inputs if v is not None)
    return True


def names_of(values: Iterable[ir.Value]) -> list[str]:
    """Names of values that are all named."""
    return [v.name or "" for v in values]


def serialize_value(value: ir.Value) -> onnx.ValueInfoProto:
    """A value's name and type as protobuf."""
    proto = ir.serde.serialize_value(value)
    if DECLARED_TYPE in value.meta:
        proto.type.CopyFrom(value.meta[DECLARED_TYPE])
    return proto


def holds_map(kind: onnx.TypeProto) -> bool:
    """Whether a type is a map, or a sequence or optional of maps."""
    if kind.HasField("sequence_type"):
        return holds_map(kind.sequence_type.elem_type)
    if kind.HasField("optional_type"):
        return holds_map(kind.optional_type.elem_type)
    return kind.HasField("map_type")


def read_values(op: ir.Node) -> Iterator[ir.Value]:
    """Every value that a node reads: its inputs, then what its bodies capture from outside."""
    yield from (v for v in op.inputs if v is not None)
    for body in bodies(op):
        yield from _captured(body)


def bodies(op: ir.Node) -> Iterator[ir.Graph]:
    """The subgraphs of a node (branches of If, bodies of Loop and Scan)."""
    for attribute in op.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def is_random(op: ir.Node) -> bool:
    """Whether a node, or one in its bodies, computes something else each time."""
    return op.op_type in RANDOM_OPS or any(is_random(inner) for body in bodies(op) for inner in body)


def _captured(body: ir.Graph) -> Iterator[ir.Value]:
    inside = {*body.inputs, *body.initializers.values()}
    for op in body:
        yield from (v for v in read_values(op) if v not in inside)
        inside.update(op.outputs)
    yield from (v for v in body.outputs if v not in inside)
