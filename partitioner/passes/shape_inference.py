"""Infers static and symbolic dimensions of every tensor with ONNX's own shape inference."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping

import onnx
import onnx_ir as ir

from partitioner.graph.extraction import serialize_constant
from partitioner.model.values import SHAPE_DTYPES, holds_map, serialize_value

logger = logging.getLogger(__name__)

SMALL_INITIALIZER_ELEMENTS = 1024
"""Limit of initializers whose data inference sees. Larger ones hold no shapes, and weights are never copied."""

MAX_PROPAGATED_ELEMENTS = 2**20
"""Limit of the elements of shapes that inference computes with. A few bytes of nodes can ask for any number."""

LIKELY_RANK = 16
"""Taken for tensors of unknown rank."""


def infer_shapes(model: ir.Model, *, with_defaults: bool = False) -> None:
    """Infer the element type and shape of every value of a model, subgraphs included, in place.

    Inference never fails here. A value that ONNX's rules don't cover stays untyped.

    Args:
        model: The model to change.
        with_defaults: True if inputs with a default keep it. Otherwise requests may replace it.
    """
    proto = skeleton(model)
    if not with_defaults:
        inputs = {info.name for info in proto.graph.input}
        constants = [tensor for tensor in proto.graph.initializer if tensor.name not in inputs]
        del proto.graph.initializer[:]
        proto.graph.initializer.extend(constants)
    propagate = propagates_little(model)
    if not propagate:  # types tell which values hold no shapes
        _write_types(_infer(proto, propagate=False).graph, model.graph)
        propagate = propagates_little(model)
    if propagate:
        _write_types(_infer(proto, propagate=True).graph, model.graph)


def _write_types(inferred: onnx.GraphProto, graph: ir.Graph) -> None:
    known = {v.name: v.type for v in [*inferred.value_info, *inferred.output]}
    for proto, op in zip(inferred.node, graph, strict=True):
        for value in op.outputs:
            if value.name in known:
                _set_type(value, known[value.name])
        by_name = {attribute.name: attribute for attribute in proto.attribute}
        for name, attribute in op.attributes.items():
            if attribute.type == ir.AttributeType.GRAPH:
                _write_types(by_name[name].g, attribute.as_graph())


def _infer(proto: onnx.ModelProto, *, propagate: bool) -> onnx.ModelProto:
    """Infer shapes. If the file's own ``value_info`` contradicts ONNX's rules, drop it."""
    try:
        return onnx.shape_inference.infer_shapes(proto, data_prop=propagate)
    except onnx.shape_inference.InferenceError as error:
        logger.info("Shapes stored in the model are wrong (%s); they are inferred anew", error)
    del proto.graph.value_info[:]
    try:
        return onnx.shape_inference.infer_shapes(proto, data_prop=propagate)
    except onnx.shape_inference.InferenceError as error:
        logger.info("Shapes can't be inferred: %s", error)
        return proto


def propagates_little(model: ir.Model) -> bool:
    """Return whether inference, which propagates values without a limit of its own, will compute few elements."""
    lengths: dict[ir.Value, int] = {}
    for op in itertools.chain(model.graph.all_nodes(), *(f.all_nodes() for f in model.functions.values())):
        inputs = [_held_elements(v, lengths) for v in op.inputs if v is not None]
        length = sum(inputs) if op.op_type in ("Concat", "Unsqueeze") else max(inputs, default=1)
        if op.op_type == "Shape" and op.inputs and op.inputs[0] is not None:
            length = max(length, LIKELY_RANK if op.inputs[0].shape is None else len(op.inputs[0].shape))
        lengths.update(dict.fromkeys(op.outputs, min(length, MAX_PROPAGATED_ELEMENTS + 1)))
    return sum(_held_elements(value, lengths) for value in lengths) <= MAX_PROPAGATED_ELEMENTS


def _held_elements(value: ir.Value, lengths: Mapping[ir.Value, int]) -> int:
    """Return a bound of the elements that inference holds of a value: next to none of what is surely no shape."""
    if value.dtype not in (None, *SHAPE_DTYPES) or (value.shape is not None and len(value.shape) > 1):
        return 1
    if value.const_value is not None:
        return min(value.const_value.size, SMALL_INITIALIZER_ELEMENTS)
    return lengths.get(value, 1)


def skeleton(model: ir.Model) -> onnx.ModelProto:
    """Return the model without the data of large initializers, which become inputs of the same type."""
    proto = onnx.ModelProto(ir_version=model.ir_version)
    proto.opset_import.extend(
        onnx.OperatorSetIdProto(domain=domain, version=version) for domain, version in model.graph.opset_imports.items()
    )
    proto.functions.extend(ir.serde.serialize_function(f) for f in model.functions.values())
    graph = proto.graph
    graph.name = model.graph.name or "graph"
    graph.node.extend(ir.serde.serialize_node(op) for op in model.graph)
    graph.input.extend(serialize_value(v) for v in model.graph.inputs)
    graph.output.extend(serialize_value(v) for v in model.graph.outputs)
    declared = {v.name for v in graph.input} | {v.name for v in graph.output}
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is not None and tensor.size <= SMALL_INITIALIZER_ELEMENTS:
            graph.initializer.append(serialize_constant(value))
        elif value.name not in declared:
            graph.input.append(serialize_value(value))
    for op in model.graph:
        graph.value_info.extend(
            serialize_value(v) for v in op.outputs if v.name and v.type is not None and v.name not in declared
        )
    return proto


def _set_type(value: ir.Value, proto: onnx.TypeProto) -> None:
    kind = None if holds_map(proto) else ir.serde.deserialize_type_proto_for_type(proto)
    if kind is None:
        return
    value.type = kind
    shape = ir.serde.deserialize_type_proto_for_shape(proto)
    if shape is not None:
        value.shape = shape
