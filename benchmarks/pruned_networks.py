"""Networks with blocks of zeros in their weights."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from trtnode.bench.networks.builder import IR_VERSION, OPSET
from trtnode.bench.networks.mobilenet import V1_LAYERS, mobilenetv1
from trtnode.engines.sparse.pruning import prune_model

FIRST_CHANNELS, FIRST_SIDE = 32, 112
"""Shape of the input of MobileNetV1's first depthwise convolution."""

STEPS, INPUTS, CLASSES = 100, 256, 64
"""Of the pair of LSTMs: length of a sequence, values of each step, results of each step."""


def pruned_mobilenetv1(zeros: float, block: int) -> onnx.ModelProto:
    """Return MobileNetV1, pruned by magnitude."""
    model = ir.to_proto(mobilenetv1())
    prune_model(model, zeros, block)
    return model


def pruned_pointwise(zeros: float, block: int) -> onnx.ModelProto:
    """Return MobileNetV1's thirteen 1 x 1 convolutions without what is between them.

    Layers on images of one size follow each other, and four pixels of their results are averaged: what a request hands
    in and out would otherwise take as long as the layers, and an average of all pixels a fifth of it.
    """
    rng = np.random.default_rng(0)
    nodes, inputs, outputs, weights = [], [], [], []
    channels, side, value = FIRST_CHANNELS, FIRST_SIDE, ""

    def average() -> None:
        strides = [side, side]
        nodes.append(helper.make_node("AveragePool", [value], [f"{value}_mean"], kernel_shape=[2, 2], strides=strides))
        outputs.append(helper.make_tensor_value_info(f"{value}_mean", onnx.TensorProto.FLOAT, [1, channels, 1, 1]))

    for index, (rows, stride) in enumerate(V1_LAYERS):
        if stride == 2:
            average()
        side //= stride
        if stride == 2 or not value:
            value = f"x{index}"
            inputs.append(helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, [1, channels, side, side]))
        matrix = blocks_of_zeros(rng, rows, channels, zeros, block).reshape(rows, channels, 1, 1)
        weights.append(numpy_helper.from_array(matrix, f"w{index}"))
        nodes.append(helper.make_node("Conv", [value, f"w{index}"], [f"c{index}"]))
        nodes.append(helper.make_node("Relu", [f"c{index}"], [f"y{index}"]))
        channels, value = rows, f"y{index}"
    average()
    graph = helper.make_graph(nodes, "pointwise", inputs, outputs, weights)
    return onnx.ModelProto(ir_version=IR_VERSION, opset_import=[helper.make_opsetid("", OPSET)], graph=graph)


def pruned_lstms(hidden: int, zeros: float, block: int) -> onnx.ModelProto:
    """Return two LSTMs of ``hidden`` units and a product behind them, over ``STEPS`` steps of one sequence."""
    rng = np.random.default_rng(0)

    def gates(columns: int) -> np.ndarray:
        return blocks_of_zeros(rng, 4 * hidden, columns, zeros, block)[None]

    text = f"""lstms (float[{STEPS},1,{INPUTS}] x) => (float[{STEPS},1,{CLASSES}] y) {{
        p = LSTM<hidden_size={hidden}>(x, w0, r0) q = Squeeze(p, axis)
        s = LSTM<hidden_size={hidden}>(q, w1, r1) t = Squeeze(s, axis) y = MatMul(t, v)
    }}"""
    model: onnx.ModelProto = onnx.parser.parse_model(f'<ir_version: {IR_VERSION}, opset_import: ["": {OPSET}]> {text}')
    weights = {"w0": gates(INPUTS), "r0": gates(hidden), "w1": gates(hidden), "r1": gates(hidden)}
    weights["v"] = np.ascontiguousarray(blocks_of_zeros(rng, CLASSES, hidden, zeros, block).T)
    weights["axis"] = np.array([1])
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return model


def blocks_of_zeros(rng: np.random.Generator, rows: int, columns: int, zeros: float, block: int) -> np.ndarray:
    """Return weights ``float32[rows, columns]``, of whose blocks a share is zero."""
    kept = np.repeat(rng.random((rows // block, columns)) >= zeros, block, axis=0)
    weights: np.ndarray = rng.standard_normal((rows, columns)) * kept / np.sqrt(columns)
    return weights.astype(np.float32)
