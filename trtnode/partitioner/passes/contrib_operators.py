"""Replaces operators of ONNX Runtime's own domain by ONNX operators of the same meaning, which engines take."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from trtnode.partitioner.model.new_values import add_constant, new_names
from trtnode.partitioner.model.values import Dimension, all_nodes, dimensions, input_of
from trtnode.partitioner.passes.shape_inference import infer_shapes
from trtnode.partitioner.passes.shape_sources import infer_types

CONTRIB_DOMAIN = "com.microsoft"

FIRST_OPSET_WITH_GELU = 20
FIRST_OPSET_WITH_ERF = 9

ACTIVATIONS: Mapping[str, Sequence[str]] = {
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
}
"""Activations of FusedConv, with the attributes that ``activation_params`` stands for, in order."""

CONV_ATTRIBUTES = frozenset({"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"})


def replace_contrib_gelu(model: ir.Model) -> None:
    """Replace Gelu of ONNX Runtime's domain, in place: by ONNX's own, or before opset 20 by x (1 + erf(x / √2)) / 2.

    The formula holds constants of the input's type, so only float32 gets it. The types behind such a node follow from
    its replacement.
    """
    opset = model.graph.opset_imports.get("", 0)
    if opset >= FIRST_OPSET_WITH_GELU:
        for op in (known := list(_gelus(model))):
            op.domain = ""
            op.version = None
        if known:
            infer_shapes(model)
    elif opset >= FIRST_OPSET_WITH_ERF:
        while known := [op for op in _gelus(model) if _reads_float32(op)]:
            for op in known:
                _write_formula(op)
            infer_shapes(model)


def replace_fused_convolutions(model: ir.Model) -> None:
    """Replace FusedConv, in place, by the nodes that ONNX Runtime has joined: ``activation(Conv(x, w, b) + z)``.

    Files that ONNX Runtime has optimized hold such nodes. Engines don't know them, and no types behind them can be
    inferred. ONNX Runtime joins the nodes again. FusedConv refuses a z of another shape, which Add would broadcast, so
    the shapes must be known to be the same.
    """
    names_agree = len(model.graph.inputs) == 1  # of several inputs, sizes of one name may differ in a request
    while known := [op for op in _fused(model) if _activation(op) is not None and _adds_alike(op, names_agree)]:
        for op in known:
            _separate(op)
        infer_shapes(model)


def _fused(model: ir.Model) -> Iterator[ir.Node]:
    return (op for op in all_nodes(model.graph) if op.op_type == "FusedConv" and op.domain == CONTRIB_DOMAIN)


def _adds_alike(op: ir.Node, names_agree: bool) -> bool:
    added = input_of(op, 3)
    if added is None:
        return True
    sizes = dimensions(added)
    known = sizes is not None and all(isinstance(size, int) or (names_agree and size) for size in sizes)
    return known and sizes == _convolved(op)


def _convolved(op: ir.Node) -> tuple[Dimension, ...] | None:
    """Return the shape of a convolution's result before anything is added."""
    assert op.graph is not None
    node = ir.serde.serialize_node(op)
    kept = [attribute for attribute in node.attribute if attribute.name in CONV_ATTRIBUTES]
    conv = onnx.helper.make_node("Conv", node.input[:3], ["y"])
    conv.attribute.extend(kept)
    found = infer_types(conv, op.inputs[:3], op.graph.opset_imports.get("", 0)).get("y")
    shape = None if found is None else ir.serde.deserialize_type_proto_for_shape(found)
    return None if shape is None else tuple(d if isinstance(d, int) else d.value for d in shape)


def _activation(op: ir.Node) -> tuple[str, Mapping[str, float]] | None:
    """Return the activation of a FusedConv, and its attributes; None where ONNX's form isn't known."""
    name, given = op.attributes.get_string("activation", ""), op.attributes.get_floats("activation_params", ())
    wanted = ACTIVATIONS.get(name)
    return None if wanted is None or len(wanted) != len(given) else (name, dict(zip(wanted, given, strict=True)))


def _separate(op: ir.Node) -> None:
    graph, result, activation = op.graph, op.outputs[0], _activation(op)
    assert isinstance(graph, ir.Graph)
    assert activation is not None
    nodes: list[ir.Node] = []

    def apply(op_type: str, *inputs: ir.Value | None, **attributes: float) -> ir.Value:
        node = ir.node(op_type, inputs, attributes, name=new_names(graph)(f"{op.name or result.name}/{op_type}"))
        node.outputs[0].name = new_names(graph)(f"{result.name}/{op_type}")
        nodes.append(node)
        return node.outputs[0]

    made = apply("Conv", *op.inputs[:3])
    nodes[0].attributes.update({name: value for name, value in op.attributes.items() if name in CONV_ATTRIBUTES})
    if input_of(op, 3) is not None:
        made = apply("Add", made, op.inputs[3])
    made = apply(activation[0], made, **activation[1])
    made.type, made.shape = result.type, result.shape
    ir.convenience.replace_nodes_and_values(graph, op, [op], nodes, [result], [made])
    nodes[-1].name = op.name


def _gelus(model: ir.Model) -> Iterator[ir.Node]:
    nodes = list(all_nodes(model.graph))
    return (op for op in nodes if op.op_type == "Gelu" and op.domain == CONTRIB_DOMAIN)


def _reads_float32(op: ir.Node) -> bool:
    return len(op.inputs) == 1 and op.inputs[0] is not None and op.inputs[0].dtype == ir.DataType.FLOAT


def _write_formula(op: ir.Node) -> None:
    graph, (x,), result = op.graph, op.inputs, op.outputs[0]
    assert isinstance(graph, ir.Graph)
    assert x is not None
    nodes: list[ir.Node] = []

    def constant(name: str, number: float) -> ir.Value:
        return add_constant(graph, f"{result.name}/{name}", np.array(number, np.float32))

    def apply(op_type: str, *inputs: ir.Value) -> ir.Value:
        node = ir.Node("", op_type, inputs, name=new_names(graph)(f"{op.name or result.name}/{op_type}_{len(nodes)}"))
        node.outputs[0].name = new_names(graph)(f"{result.name}/{op_type}_{len(nodes)}")
        nodes.append(node)
        return node.outputs[0]

    error = apply("Erf", apply("Div", x, constant("root_of_2", math.sqrt(2))))
    product = apply("Mul", x, apply("Add", error, constant("one", 1.0)))
    half = apply("Mul", product, constant("half", 0.5))
    ir.convenience.replace_nodes_and_values(graph, op, [op], nodes, [result], [half])
