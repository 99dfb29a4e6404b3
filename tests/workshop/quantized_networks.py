"""Networks to quantize, ways to run them, and looks into quantized models."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import onnx

from model_texts import parse
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.engines.openvino.library import ov
from trtnode.engines.quantization.planner import plan_quantization
from trtnode.engines.quantization.qdq_writer import prepare, quantize
from trtnode.engines.quantization.schemes import SCHEMES, QuantizationScheme
from trtnode.engines.quantization.table import CalibrationTable

QUANTIZED_OPS = ("QuantizeLinear", "DequantizeLinear")

RESIDUAL = """
net (float[N, 4, 8, 8] x) => (float[N, 4, 8, 8] y)
<float[4, 4, 3, 3] w1, float[4] b1, float[4, 4, 3, 3] w2> {
  c1 = Conv <pads = [1, 1, 1, 1]> (x, w1, b1)
  r1 = Relu (c1)
  c2 = Conv <pads = [1, 1, 1, 1]> (r1, w2)
  sum = Add (c2, r1)
  y = Relu (sum)
}
"""


def network(text: str, *, opset: int = 17, **weights: np.ndarray) -> onnx.ModelProto:
    """A graph in ONNX's own language; the values it declares behind its inputs and outputs are weights, maybe given."""
    model = parse(text, opset=opset, ir_version=8)
    rng = np.random.default_rng(5)
    for value in model.graph.value_info:
        values = weights.get(value.name, rng.standard_normal(dims(value)).astype(np.float32))
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, value.name))
    del model.graph.value_info[:]
    onnx.checker.check_model(model, full_check=True)
    return model


def kept(
    model: onnx.ModelProto, table: CalibrationTable, scheme: QuantizationScheme, keep: Collection[str] = ()
) -> dict[str, str]:
    """The reason why nodes stay float, by name."""
    work, names = prepare(model)
    return plan_quantization(work.graph, names, table, scheme, keep).kept


@dataclasses.dataclass
class Example:
    """A network with its ranges on some samples, and other samples to try it on."""

    model: onnx.ModelProto
    table: CalibrationTable
    feeds: dict[str, np.ndarray]

    def quantized(self, scheme: str, **options: Any) -> onnx.ModelProto:
        model = quantize(self.model, self.table, SCHEMES[scheme].reduced(), **options)
        onnx.checker.check_model(model, full_check=True)
        return model

    def kept(self, scheme: str, **options: Any) -> dict[str, str]:
        return kept(self.model, self.table, SCHEMES[scheme], **options)


Run = Callable[[onnx.ModelProto, Mapping[str, np.ndarray]], np.ndarray]
Prepare = Callable[..., Example]


def dims(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    return tuple(d.dim_value for d in value.type.tensor_type.shape.dim)


def simulate(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> np.ndarray:
    """Every QuantizeLinear and DequantizeLinear as written, everything between in float."""
    return np.asarray(NativeSession(model, optimize=False).run(feeds)[0])


def run_in_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.asarray(NativeSession(model).run(feeds)[0])


def run_in_openvino(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.array(compiled_by_openvino(model)(list(feeds.values()))[0])


def compiled_by_openvino(model: onnx.ModelProto) -> ov.CompiledModel:
    source = ov.Core().read_model(model.SerializeToString())
    return ov.Core().compile_model(source, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.vdot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b)))


def readers(model: onnx.ModelProto, op_type: str) -> list[list[str]]:
    """For each node of a type, the operators that make its inputs; empty where nothing does."""
    makers = {name: node.op_type for node in model.graph.node for name in node.output}
    return [[makers.get(i, "") for i in node.input] for node in model.graph.node if node.op_type == op_type]


def constants(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}


def zero_points(model: onnx.ModelProto) -> list[np.ndarray]:
    values = constants(model)
    return [values[node.input[2]] for node in model.graph.node if node.op_type in QUANTIZED_OPS]


NETWORKS = {
    "residual": RESIDUAL,
    "depthwise": """net (float[N, 4, 6, 6] x) => (float[N, 4, 6, 6] y) <float[4, 1, 3, 3] w> {
        c = Conv <group = 4, pads = [1, 1, 1, 1]> (x, w)  y = Clip (c) }""",
    "transposed": """net (float[N, 3, 4, 4] x) => (float[N, 2, 8, 8] y) <float[3, 2, 2, 2] w, float[2] b> {
        y = ConvTranspose <strides = [2, 2]> (x, w, b) }""",
    "fully-connected": """net (float[N, 8] x) => (float[N, 5] y) <float[8, 6] w1, float[6] b1, float[5, 6] w2> {
        h = Gemm (x, w1, b1)  r = Relu (h)  y = Gemm <transB = 1, alpha = 0.5> (r, w2) }""",
    "attention": """net (float[2, 3, 8] x) => (float[2, 3, 8] y) <float[8, 8] wq, float[8, 8] wk> {
        q = MatMul (x, wq)  k = MatMul (x, wk)  t = Transpose <perm = [0, 2, 1]> (k)
        s = MatMul (q, t)  p = Softmax (s)  y = MatMul (p, x) }""",
    "pools": """net (float[N, 3, 8, 8] x) => (float[N, 4] y) <float[4, 3, 3, 3] w1, float[4, 4] w2> {
        c = Conv (x, w1)  r = Relu (c)  m = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
        g = GlobalAveragePool (m)  f = Flatten (g)  y = MatMul (f, w2) }""",
    "branches": """net (float[N, 4, 6, 6] x) => (float[N, 2, 6, 6] y)
        <float[4, 4, 1, 1] w1, float[4, 4, 1, 1] w2, float[2, 8, 1, 1] w3> {
        a = Conv (x, w1)  b = Conv (x, w2)  tenfold = Constant <value_float = 10.0> ()
        big = Mul (b, tenfold)  c = Concat <axis = 1> (a, big)  y = Conv (c, w3) }""",
    "normalized": """net (float[N, 3, 6, 6] x) => (float[N, 4, 6, 6] y)
        <float[4, 3, 1, 1] w, float[4] scale, float[4] shift, float[4] mean, float[4] variance> {
        c = Conv (x, w)  y = BatchNormalization (c, scale, shift, mean, variance) }""",
    "padded-average": """net (float[N, 4, 6, 6] x) => (float[N, 4, 6, 6] y)
        <float[4, 4, 1, 1] w1, float[4, 4, 1, 1] w2> {
        c = Conv (x, w1)
        p = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 1> (c)
        y = Conv (p, w2) }""",
}


def positive_variance() -> dict[str, np.ndarray]:
    return {"variance": np.array([0.5, 1, 2, 3], np.float32)}
