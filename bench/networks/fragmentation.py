"""Inserts nodes that no engine takes into a network, so that it needs several engines."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

PLACES = 4
"""Number of places. A network of supported nodes then has five segments."""

WEIGHT_LAYERS = ("Conv", "Gemm", "MatMul")


def fragment(model: ir.Model) -> None:
    """Pass some tensors through a sequence of one element, in place; every value stays the same.

    SequenceConstruct and SequenceAt copy tensors of any shape, and run natively alone. They are inserted before layers
    with weights, evenly over the network, so that no convolution is separated from its activation.
    """
    reads = dict.fromkeys(op.inputs[0] for op in model.graph if op.op_type in WEIGHT_LAYERS)
    tensors = [value for value in reads if value is not None and value.producer() is not None]
    for place in range(PLACES):
        value = tensors[(2 * place + 1) * len(tensors) // (2 * PLACES)]
        _pass_through_sequence(model.graph, value, f"fragment_{place}")


def _pass_through_sequence(graph: ir.Graph, value: ir.Value, name: str) -> None:
    producer = value.producer()
    assert producer is not None
    assert value.type is not None
    position = ir.val(f"{name}_position", ir.DataType.INT64, [])
    sequence = ir.val(f"{name}_sequence", type=ir.SequenceType(value.type))
    result = ir.val(f"{name}_result", type=value.type, shape=value.shape)
    ir.convenience.replace_all_uses_with(value, result)
    zero = {"value": ir.tensor(np.array(0, np.int64))}
    nodes = [
        ir.node("Constant", [], zero, outputs=[position], name=f"{name}_constant"),
        ir.node("SequenceConstruct", [value], outputs=[sequence], name=f"{name}_construct"),
        ir.node("SequenceAt", [sequence, position], outputs=[result], name=f"{name}_at"),
    ]
    graph.insert_after(producer, nodes)
