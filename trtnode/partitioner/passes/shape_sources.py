"""Shapes that ONNX's inference gives up on, taken from other sources: an engine library, a runtime.

Labels and shapes to build for follow from them, but no value that the model computes: nothing is folded with them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

import onnx
import onnx_ir as ir

from trtnode.partitioner.graph.extraction import serialize_constant
from trtnode.partitioner.graph.view import Graph, TensorSpec
from trtnode.partitioner.model.values import (
    INFERRED_SHAPE,
    ONNX_DOMAINS,
    Dimension,
    dimensions,
    has_subgraphs,
    is_constant,
    is_unknown,
    serialize_value,
)
from trtnode.partitioner.passes.constant_folding import MAX_ELEMENTS
from trtnode.partitioner.passes.shape_inference import infer_shapes
from trtnode.partitioner.wording import counted

logger = logging.getLogger(__name__)

ShapeSource = Callable[[Graph], Mapping[str, TensorSpec]]
"""Returns types and shapes of tensors of a graph, by name; a dimension is None where it varies."""


def incomplete_values(graph: Graph) -> list[ir.Value]:
    """Return the values that a source may complete, in topological order.

    They have no type or no rank. Where all inputs have fixed shapes, those with an unknown dimension count too, but not
    the outputs of the graph: their shapes are declared.
    """
    static = _is_static(graph)
    outputs = set(graph.outputs)
    produced = (value for node in graph.nodes for value in node.op.outputs if value.name)
    return [v for v in produced if is_unknown(v) or (static and v not in outputs and _varies(v))]


def lacks_types(graph: Graph) -> bool:
    """Return whether ONNX's inference gives some value no type or no rank."""
    return any(value.name and is_unknown(value) for node in graph.kinds for value in node.op.outputs)


def foreign_values(graph: Graph) -> list[ir.Value]:
    """Return the outputs of operators outside ONNX that have no type or no rank, in topological order.

    Where all inputs have fixed shapes, those whose rank was completed and whose sizes vary count too.
    """
    static = _is_static(graph)
    foreign = (node for node in graph.nodes if node.domain not in ONNX_DOMAINS)
    produced = (value for node in foreign for value in node.op.outputs if value.name)
    return [v for v in produced if is_unknown(v) or (static and INFERRED_SHAPE in v.meta and _varies(v))]


def complete_shapes(graph: Graph, source: ShapeSource, *, native: bool = False) -> Graph:
    """Complete types and shapes from a source, in place, and infer what follows from them.

    ONNX's own inference has the last word: what the source says against it is left out.

    Args:
        graph: The cleaned graph.
        source: It is asked only if something is unknown.
        native: True if the source is native execution itself. Only then are its shapes written into native models.

    Returns:
        The graph, or a new view of its model if something was completed.
    """
    incomplete = set(incomplete_values(graph))
    before = {value: dimensions(value) for node in graph.nodes for value in node.op.outputs}
    found = source(graph) if incomplete else {}
    completed = 0
    for node in graph.nodes if found else ():
        if not incomplete.isdisjoint(node.op.outputs):
            completed += sum([_complete(value, spec) for value, spec in _specs_of(node.op, found, incomplete)])
    if not completed:
        return graph
    logger.info("Other sources than ONNX's inference completed %s", counted(completed, "shape"))
    declared = [(value, value.shape) for value in graph.outputs if value.shape is not None]
    infer_shapes(graph.model)
    for value, shape in declared:
        value.shape = shape
    for value, inferred in before.items() if not native else ():
        if dimensions(value) != inferred:
            value.meta.setdefault(INFERRED_SHAPE, inferred)
    return Graph.of(graph.model)


def _is_static(graph: Graph) -> bool:
    return all(TensorSpec.of(value).static_shape is not None for value in graph.inputs)


def _varies(value: ir.Value) -> bool:
    return value.shape is not None and not value.shape.is_static()


def _specs_of(
    op: ir.Node, found: Mapping[str, TensorSpec], incomplete: set[ir.Value]
) -> Iterator[tuple[ir.Value, TensorSpec]]:
    """Yield what is known of a node's incomplete outputs: ONNX's answer for its completed inputs, and the source's."""
    inferred = _infer(op)
    for value in op.outputs:
        if value in incomplete and value.name:
            spec = _joined(_spec(value.name, inferred.get(value.name)), found.get(value.name))
            if spec is not None:
                yield value, spec


def _infer(op: ir.Node) -> Mapping[str, onnx.TypeProto]:
    """Infer the types of one node's outputs by ONNX's rules, from those of its inputs."""
    if op.domain or op.graph is None or has_subgraphs(op):
        return {}
    return infer_types(ir.serde.serialize_node(op), op.inputs, op.version or op.graph.opset_imports.get("", 0))


def infer_types(node: onnx.NodeProto, inputs: Sequence[ir.Value | None], opset: int) -> Mapping[str, onnx.TypeProto]:
    """Infer the types of the outputs of a node of ONNX's own domain that reads values; none where a rule fails."""
    given = [value for value in dict.fromkeys(inputs) if value is not None and value.name]
    if any(value.type is None for value in given):
        return {}
    constants = [v for v in given if is_constant(v) and v.const_value and v.const_value.size <= MAX_ELEMENTS]
    try:
        return onnx.shape_inference.infer_node_outputs(
            onnx.defs.get_schema(node.op_type, opset, ""),
            node,
            {value.name or "": serialize_value(value).type for value in given},
            {value.name or "": serialize_constant(value) for value in constants},
            opset_imports=[onnx.OperatorSetIdProto(domain="", version=opset)],
        )
    except Exception as error:  # the schema, the checker of deprecated operators, and each rule raise their own
        logger.debug("ONNX infers nothing for %s: %s", node.op_type, error)
        return {}


def _spec(name: str, kind: onnx.TypeProto | None) -> TensorSpec | None:
    if kind is None or not kind.HasField("tensor_type"):
        return None
    shape = ir.serde.deserialize_type_proto_for_shape(kind)
    return TensorSpec(
        name=name,
        dtype=ir.DataType(kind.tensor_type.elem_type) if kind.tensor_type.elem_type else None,
        shape=None if shape is None else tuple(d if isinstance(d, int) else d.value for d in shape),
    )


def _joined(onnx_says: TensorSpec | None, source_says: TensorSpec | None) -> TensorSpec | None:
    """Return ONNX's answer, completed by the source's where both agree on all that both know."""
    if onnx_says is None or source_says is None:
        return source_says if onnx_says is None else onnx_says
    dtype = onnx_says.dtype or source_says.dtype
    shape = _joined_shapes(onnx_says.shape, source_says.shape)
    return TensorSpec(name=onnx_says.name, dtype=dtype, shape=shape)


def _joined_shapes(
    first: tuple[Dimension, ...] | None, second: tuple[Dimension, ...] | None
) -> tuple[Dimension, ...] | None:
    """Return the first shape with the sizes that only the second has; the first alone where they contradict."""
    if first is None or second is None:
        return second if first is None else first
    if len(first) != len(second):
        return first
    pairs = list(zip(first, second, strict=True))
    if any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
        return first
    return tuple(b if isinstance(b, int) and not isinstance(a, int) else a for a, b in pairs)


def _complete(value: ir.Value, spec: TensorSpec) -> bool:
    """Set what a value lacks. Returns whether anything changed."""
    before = (value.type, dimensions(value))
    if value.type is None and spec.dtype is not None:
        value.type = ir.TensorType(spec.dtype)
    shape = _joined_shapes(dimensions(value), spec.shape)
    if isinstance(value.type, ir.TensorType) and shape is not None:
        value.shape = ir.Shape(shape)
    return (value.type, dimensions(value)) != before
