"""Converts plain models from protobuf to onnx_ir in one pass over their nodes, faster than onnx_ir itself.

A model is plain without functions, subgraphs, quantization annotations and devices. Most models are, and all very
large ones.
"""

from __future__ import annotations

import sys
from collections.abc import Container

import onnx
import onnx_ir as ir

from trtnode.partitioner.model.protobuf_walk import Parts
from trtnode.partitioner.model.value_types import TypeReader


def is_plain(proto: onnx.ModelProto, parts: Parts) -> bool:
    """Return whether ``read_plain_model`` reads a model of these parts."""
    special = proto.functions or proto.configuration or proto.graph.quantization_annotation
    return not special and len(parts.graphs) == 1


def read_plain_model(proto: onnx.ModelProto) -> tuple[ir.Model, bool]:
    """Convert a plain model. What ``onnx_ir.from_proto`` makes of it is equal.

    Returns:
        The model, and whether each value that a node reads is there before the node.

    Raises:
        ValueError: Two nodes, or one of them twice, make the same value.
    """
    types = TypeReader()
    values: dict[str, ir.Value] = {}
    inputs = [ir.serde.deserialize_value_info_proto(info, None) for info in proto.graph.input]
    values.update((value.name or "", value) for value in inputs)
    initializers = [_initializer(tensor, values) for tensor in proto.graph.initializer if tensor.name]
    values.update((value.name or "", value) for value in initializers)
    nodes, in_order = _nodes(proto.graph, values, given=set(values))
    outputs = [values.get(info.name) or ir.Value(name=info.name) for info in proto.graph.output]
    for value, info in zip(outputs, proto.graph.output, strict=True):
        ir.serde.deserialize_value_info_proto(info, value)
    bounds = {*inputs, *outputs}
    for info in proto.graph.value_info:
        known = values.get(info.name)
        if known is not None and known not in bounds:
            types.declare(known, info)
    graph = ir.Graph(
        inputs,
        outputs,
        nodes=nodes,
        initializers=initializers,
        doc_string=_optional(proto.graph, "doc_string"),
        opset_imports=ir.serde.deserialize_opset_import(proto.opset_import),
        name=_optional(proto.graph, "name"),
        metadata_props=ir.serde.deserialize_metadata_props(proto.graph.metadata_props),
    )
    model = ir.Model(
        graph,
        ir_version=proto.ir_version,
        producer_name=_optional(proto, "producer_name"),
        producer_version=_optional(proto, "producer_version"),
        domain=_optional(proto, "domain"),
        model_version=proto.model_version if proto.HasField("model_version") else None,
        doc_string=_optional(proto, "doc_string"),
        metadata_props=ir.serde.deserialize_metadata_props(proto.metadata_props),
    )
    return model, in_order


def _initializer(tensor: onnx.TensorProto, values: dict[str, ir.Value]) -> ir.Value:
    data = ir.serde.deserialize_tensor(tensor)
    value = values.get(tensor.name)
    if value is None:
        kind = ir.TensorType(data.dtype)
        return ir.Value(name=tensor.name, type=kind, shape=data.shape, const_value=data)  # type: ignore[arg-type]
    value.const_value = data
    return value


def _nodes(graph: onnx.GraphProto, values: dict[str, ir.Value], given: Container[str]) -> tuple[list[ir.Node], bool]:
    """Convert the nodes of a graph. A value that is read before it is made, if ever, is added to ``values`` too.

    Returns:
        The nodes, and whether there was no such value.
    """
    nodes, in_order = [], True
    for node in graph.node:
        domain = node.domain
        if domain == "ai.onnx":
            node.domain = domain = ""  # a synonym, which ONNX's shape inference doesn't know
        reads = [values.get(name) for name in node.input[:]]  # a slice is read at once
        if None in reads:
            in_order = in_order and all(name in values for name in node.input if name)
            reads = [values.setdefault(name, ir.Value(name=name)) if name else None for name in node.input]
        makes = [_made(name, values, given) for name in node.output[:]]
        if len(makes) > 1 and len({*makes}) < len(makes):
            raise ValueError(f"Node {node.name!r} makes a value twice. The model is invalid")
        attributes, properties = node.attribute, node.metadata_props
        op = ir.Node(
            domain,
            sys.intern(node.op_type),
            reads,
            [ir.serde.deserialize_attribute(attribute) for attribute in attributes] if attributes else (),
            overload=node.overload,
            outputs=makes,
            name=node.name,
            doc_string=node.doc_string if node.HasField("doc_string") else None,
            metadata_props=ir.serde.deserialize_metadata_props(properties) if properties else None,
        )
        nodes.append(op)
    return nodes, in_order


def _made(name: str, values: dict[str, ir.Value], given: Container[str]) -> ir.Value:
    """Return the value that a node makes.

    Raises:
        ValueError: It is there already.
    """
    new = ir.Value(name=name)
    value = values.setdefault(name, new) if name else new
    if value is not new and (value.producer() is not None or name in given):
        raise ValueError(f"Output {name!r} is redeclared in the current graph scope. The model is invalid")
    return value


def _optional(proto: onnx.ModelProto | onnx.GraphProto | onnx.NodeProto, field: str) -> str | None:
    text: str | None = getattr(proto, field) if proto.HasField(field) else None
    return text
