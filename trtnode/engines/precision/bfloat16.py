"""Computes bfloat16 in float32. ONNX Runtime casts from and to bfloat16 on a CPU, and has no other kernels for it."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from trtnode.partitioner.model.new_values import new_names


def with_float32_kernels(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose operators on bfloat16 compute in float32 and round their results to bfloat16.

    A GPU does the same: it multiplies bfloat16, adds up in float32, and rounds at the end. Subgraphs stay as they are.

    Args:
        model: With the types of its values.

    Returns:
        The model itself where nothing in it is bfloat16.
    """
    work = ir.from_proto(model)
    widened: dict[ir.Value, ir.Value] = {}
    computing = [op for op in work.graph if op.op_type != "Cast"]
    for op in computing:
        _widen_inputs(work.graph, op, widened)
    for op in computing:
        for value in op.outputs:
            if value.dtype == ir.DataType.BFLOAT16:
                _round_output(work.graph, op, value)
    return ir.to_proto(work) if widened else model


def _widen_inputs(graph: ir.Graph, op: ir.Node, widened: dict[ir.Value, ir.Value]) -> None:
    for index, value in enumerate(op.inputs):
        if value is None or value.dtype != ir.DataType.BFLOAT16:
            continue
        if value not in widened:
            cast = _cast(graph, value, ir.DataType.FLOAT, new_names(graph)(f"{value.name}__widened"))
            graph.insert_before(op, cast)
            widened[value] = cast.outputs[0]
        op.replace_input_with(index, widened[value])


def _round_output(graph: ir.Graph, op: ir.Node, value: ir.Value) -> None:
    name = value.name or ""
    value.name, value.dtype = new_names(graph)(f"{name}__unrounded"), ir.DataType.FLOAT
    cast = _cast(graph, value, ir.DataType.BFLOAT16, name)
    ir.convenience.replace_all_uses_with(value, cast.outputs[0], replace_graph_outputs=True)
    cast.replace_input_with(0, value)
    graph.insert_after(op, cast)


def _cast(graph: ir.Graph, value: ir.Value, dtype: ir.DataType, name: str) -> ir.Node:
    result = ir.Value(name=name, type=ir.TensorType(dtype), shape=value.shape)
    return ir.node("Cast", [value], {"to": dtype.value}, outputs=[result], name=new_names(graph)(f"{name}/cast"))
