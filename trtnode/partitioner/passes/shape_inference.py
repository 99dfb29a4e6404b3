"""Infers static and symbolic dimensions of every tensor with ONNX's own shape inference."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import onnx
import onnx_ir as ir

from trtnode.partitioner.graph.extraction import serialize_constant
from trtnode.partitioner.model import protobuf_walk
from trtnode.partitioner.model.value_types import TypeReader, TypeWriter
from trtnode.partitioner.model.values import (
    SHAPE_DTYPES,
    all_nodes,
    count_elements,
    is_unknown,
    serialize_imports,
    serialize_value,
)

logger = logging.getLogger(__name__)

SMALL_INITIALIZER_ELEMENTS = 1024
"""Limit of initializers whose data inference sees. Larger ones hold no shapes, and weights are never copied."""

SMALL_SCALES_ELEMENTS = 64
"""The same for floats, which hold scales of dimensions and bounds of ranges at most."""

MAX_PROPAGATED_ELEMENTS = 2**20
"""Limit of the elements of shapes that inference computes with. A few bytes of nodes can ask for any number."""

MAY_HOLD_SHAPES = frozenset((None, *SHAPE_DTYPES))
"""Element types of shape arithmetic, and of values of unknown type."""

PROPAGATING = frozenset("Add Cast Concat Gather Mul Size Slice Squeeze Sub Unsqueeze".split())
"""Operators for which inference takes each element of a vector that they read; Shape alone needs none."""

PROPAGATING_OPSET = 18
"""A version of ONNX whose rules propagate through all operators above; those before 13 had none for some."""

NOT_CONVERTED = (onnx.version_converter.ConvertError, onnx.shape_inference.InferenceError, RuntimeError, ValueError)
"""Errors of the conversion to another version."""

HIDDEN = ":hidden"
"""Ends the names of inputs that stand for long vectors while shapes are inferred."""

LIKELY_RANK = 16
"""Taken for tensors of unknown rank."""


def infer_shapes(model: ir.Model, *, with_defaults: bool = False, written: onnx.ModelProto | None = None) -> None:
    """Infer the element type and shape of every value of a model, subgraphs included, in place.

    Inference never fails here. A value that ONNX's rules don't cover stays untyped.

    Args:
        model: The model to change.
        with_defaults: True if inputs with a default keep it. Otherwise requests may replace it.
        written: The protobuf that ``load_with_protobuf`` has just read the model from. It is used up.
    """
    proto = skeleton(model) if written is None else _skeleton_of(written, model)
    if not with_defaults:
        inputs = {info.name for info in proto.graph.input}
        constants = [tensor for tensor in proto.graph.initializer if tensor.name not in inputs]
        del proto.graph.initializer[:]
        proto.graph.initializer.extend(constants)
    if any(_has_unknown_length(value) for op in all_nodes(model.graph) for value in op.outputs):
        _infer_types(proto, model, propagate=False)  # types and lengths tell which values hold no shapes
    if propagates_little(model):
        _hide_long_vectors(proto, model)
        _infer_types(proto, model, propagate=True)


def _infer_types(proto: onnx.ModelProto, model: ir.Model, *, propagate: bool) -> None:
    inferred = _infer(proto, propagate=propagate)
    if inferred != proto:  # equal where the file declares all types, as exporters of large graphs do
        _write_types(inferred.graph, model.graph, TypeReader())
    is_old = (model.graph.opset_imports.get("") or PROPAGATING_OPSET) < PROPAGATING_OPSET
    if propagate and is_old and any(map(is_unknown, _results(model.graph))):
        _infer_by_newer_rules(inferred, model.graph)


def _infer_by_newer_rules(proto: onnx.ModelProto, graph: ir.Graph) -> None:
    """Complete the types of values whose rank follows from values that old versions of operators don't propagate."""
    try:
        newer = onnx.version_converter.convert_version(proto, PROPAGATING_OPSET)
    except NOT_CONVERTED as error:
        logger.debug("Shapes are inferred by the rules of the model's own version alone: %s", error)
        return
    inferred = _infer(newer, propagate=True).graph
    known = {v.name: v.type for v in (*inferred.value_info, *inferred.output)}
    types = TypeReader()
    for value in filter(is_unknown, _results(graph)):
        if value.name in known:
            _set_type(value, known[value.name], types)


def _results(graph: ir.Graph) -> Iterator[ir.Value]:
    return (value for op in graph for value in op.outputs if value.name)


def _has_unknown_length(value: ir.Value) -> bool:
    """Return whether a value may be a vector of any length, as far as is known."""
    return bool(value.name) and (value.shape is None or (len(value.shape) == 1 and not value.shape.is_static()))


def _hide_long_vectors(proto: onnx.ModelProto, model: ir.Model) -> None:
    """Make operators that propagate values read a vector of unknown length in place of a long one, which is no shape.

    Inference would hold each element of it, in 70 bytes or more. Of what they make, fixed sizes are known by now.
    """
    hidden: dict[str, ir.DataType] = {}
    results: list[ir.Value] = []
    for op in all_nodes(model.graph):
        if op.op_type in PROPAGATING:
            long = {v.name: v.dtype for v in op.inputs if v is not None and v.name and v.dtype and _may_be_long(v)}
            hidden |= long
            results += op.outputs if long else ()
    if not hidden:
        return
    for node in protobuf_walk.nodes_within(proto.graph.node):
        if node.op_type in PROPAGATING and not hidden.keys().isdisjoint(node.input):
            node.input[:] = [f"{name}{HIDDEN}" if name in hidden else name for name in node.input]
    for name, dtype in hidden.items():
        proto.graph.input.append(onnx.helper.make_tensor_value_info(f"{name}{HIDDEN}", int(dtype), [None]))
    declared = {info.name for info in (*proto.graph.value_info, *proto.graph.output)}
    fixed = [v for v in results if v.shape is not None and v.shape.is_static() and v.name not in declared]
    proto.graph.value_info.extend(map(serialize_value, fixed))


def _may_be_long(value: ir.Value) -> bool:
    """Return whether a value is a vector longer than shapes are, or an integer one that may come to be one."""
    limit = SMALL_INITIALIZER_ELEMENTS if value.dtype in MAY_HOLD_SHAPES else SMALL_SCALES_ELEMENTS
    if value.shape is not None and (len(value.shape) != 1 or value.shape.is_static()):
        return len(value.shape) == 1 and value.shape.numpy()[0] > limit
    producer = value.producer()
    return value.dtype in MAY_HOLD_SHAPES and producer is not None and producer.op_type not in (*PROPAGATING, "Shape")


def _write_types(inferred: onnx.GraphProto, graph: ir.Graph, types: TypeReader) -> None:
    known = {v.name: v.type for v in (*inferred.value_info, *inferred.output)}
    for index, op in enumerate(graph):
        for value in op.outputs:
            if value.name in known:
                _set_type(value, known[value.name], types)
        for name, attribute in op.attributes.items():
            if attribute.type == ir.AttributeType.GRAPH:
                body = next(held.g for held in inferred.node[index].attribute if held.name == name)
                _write_types(body, attribute.as_graph(), types)


def _infer(proto: onnx.ModelProto, *, propagate: bool) -> onnx.ModelProto:
    """Infer shapes. If shapes that the file declares contradict ONNX's rules, drop them."""
    try:
        return onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=propagate)
    except onnx.shape_inference.InferenceError as error:
        contradiction = next((line for line in str(error).splitlines() if "existing" in line), "")
    if contradiction:
        logger.warning("Shapes that the model declares are wrong: %s. They are inferred anew", contradiction)
        del proto.graph.value_info[:]
        for value in proto.graph.output:
            value.type.tensor_type.ClearField("shape")
    try:
        return onnx.shape_inference.infer_shapes(proto, data_prop=propagate)
    except onnx.shape_inference.InferenceError as error:
        logger.info("Shapes can't be inferred: %s", error)
        return proto


def propagates_little(model: ir.Model) -> bool:
    """Return whether inference, which propagates values without a limit of its own, will compute few elements."""
    lengths: dict[ir.Value, int] = {}
    total = 0
    for op in itertools.chain(all_nodes(model.graph), *map(all_nodes, model.functions.values())):
        outputs = op.outputs
        total += len(outputs)
        if MAY_HOLD_SHAPES.isdisjoint([value.dtype for value in outputs]) or not any(map(_may_hold_shape, outputs)):
            continue
        inputs = [_held_elements(v, lengths) for v in op.inputs if v is not None]
        length = sum(inputs) if op.op_type in ("Concat", "Unsqueeze") else max(inputs, default=1)
        if op.op_type == "Shape" and op.inputs and op.inputs[0] is not None:
            length = max(length, LIKELY_RANK if op.inputs[0].shape is None else len(op.inputs[0].shape))
        lengths.update(dict.fromkeys(op.outputs, min(length, MAX_PROPAGATED_ELEMENTS + 1)))
        total += sum(_held_elements(value, lengths) - 1 for value in op.outputs)
    return total <= MAX_PROPAGATED_ELEMENTS


def _may_hold_shape(value: ir.Value) -> bool:
    return value.dtype in MAY_HOLD_SHAPES and (value.shape is None or len(value.shape) <= 1)


def _held_elements(value: ir.Value, lengths: Mapping[ir.Value, int]) -> int:
    """Return a bound of the elements that inference holds of a value: next to none of what is surely no shape."""
    if not _may_hold_shape(value):
        return 1
    if value.const_value is not None:
        return min(count_elements(value.const_value), SMALL_INITIALIZER_ELEMENTS)
    shape = value.shape
    length = shape[0] if shape is not None and len(shape) == 1 else 1
    known = length if isinstance(length, int) and length <= SMALL_INITIALIZER_ELEMENTS else 1  # longer ones are hidden
    return max(known, lengths.get(value, 1))


def skeleton(model: ir.Model) -> onnx.ModelProto:
    """Return the model without the data of large initializers, which become inputs of the same type."""
    imports = serialize_imports(model.graph.opset_imports)
    proto = onnx.ModelProto(ir_version=model.ir_version, opset_import=imports)
    proto.functions.extend(ir.serde.serialize_function(f) for f in model.functions.values())
    graph = proto.graph
    graph.name = model.graph.name or "graph"
    for op in model.graph:
        _add_node(graph.node, op)
    declared = _declare_inputs(graph, model.graph)
    types = TypeWriter()
    for op in model.graph:
        for value in op.outputs:
            if value.name and value.type is not None and value.name not in declared:
                types.add(graph.value_info, value)
    return proto


def _skeleton_of(written: onnx.ModelProto, model: ir.Model) -> onnx.ModelProto:
    """Make the protobuf that a plain model was just read from its skeleton, in place: copies take much longer."""
    graph = written.graph
    for field in ("initializer", "input", "output"):
        graph.ClearField(field)
    held = model.graph.initializers
    of_constants = [index for index, info in enumerate(graph.value_info) if info.name in held] if held else []
    for index in reversed(of_constants):
        del graph.value_info[index]
    _declare_inputs(graph, model.graph)
    return written


def _declare_inputs(proto: onnx.GraphProto, graph: ir.Graph) -> set[str]:
    """Write inputs, outputs and initializers of a graph. Returns the names of inputs and outputs."""
    proto.input.extend(serialize_value(v) for v in graph.inputs)
    proto.output.extend(serialize_value(v) for v in graph.outputs)
    declared = {v.name for v in proto.input} | {v.name for v in proto.output}
    types = TypeWriter()
    for value in graph.initializers.values():
        tensor = value.const_value
        limit = SMALL_INITIALIZER_ELEMENTS if value.dtype in MAY_HOLD_SHAPES else SMALL_SCALES_ELEMENTS
        if tensor is not None and count_elements(tensor) <= limit:
            proto.initializer.append(serialize_constant(value))
        elif value.name not in declared:
            types.add(proto.input, value)
    return declared


def _add_node(nodes: Any, op: ir.Node) -> None:
    """Add a node to a repeated field of ``NodeProto``. onnx_ir takes thrice the time for one without attributes."""
    if op.attributes:
        ir.serde.serialize_node_into(nodes.add(), op)
        return
    nodes.add(
        op_type=op.op_type,
        domain=op.domain,
        overload=op.overload,
        name=op.name,
        input=["" if value is None else value.name for value in op.inputs],
        output=[value.name or "" for value in op.outputs],
    )


def _set_type(value: ir.Value, proto: onnx.TypeProto, types: TypeReader) -> None:
    kind, shape = types.read(proto)
    if kind is None:
        return
    value.type = kind
    if shape is not None:
        value.shape = shape
