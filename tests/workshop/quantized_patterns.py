"""Models of one quantized operator each, whose sums saturate where a processor adds products in 16 bits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

SHAPES = {"Conv": ((1, 8, 12, 12), (8, 8, 5, 5), 0), "MatMul": ((4, 64), (64, 16), 1), "Gemm": ((4, 64), (16, 64), 0)}
"""Shapes of input and weights, and the axis of output channels, by operator."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pattern:
    """A model with input values.

    Attributes:
        quantum: The difference that one step of the result makes.
    """

    model: onnx.ModelProto
    feeds: Mapping[str, np.ndarray]
    quantum: float

    @property
    def expected(self) -> np.ndarray:
        return np.asarray(ReferenceEvaluator(self.model).run(None, dict(self.feeds))[0])

    def steps_away(self, actual: Any) -> float:
        """The largest difference from onnx.reference, in quanta."""
        assert (actual.shape, actual.dtype) == (self.expected.shape, self.expected.dtype)
        return float(np.abs(actual.astype(np.float64) - self.expected.astype(np.float64)).max() / self.quantum)


def qdq(op: str, *, kind: type = np.uint8, zero: int = 0, channels: bool = False, weights: type = np.int8,
        group: int = 1) -> Pattern:  # fmt: skip
    """QuantizeLinear and DequantizeLinear around an operator."""
    rng, (shape, weight, axis) = np.random.default_rng(0), SHAPES[op]
    weight = (weight[0], weight[1] // group, *weight[2:]) if op == "Conv" else weight
    values = _weights(rng, weight, weights)
    size = weight[axis] if channels else ()
    steps = np.float32(rng.random(size) * 0.006 + 0.002)
    sums = 64 * 0.005 * np.sqrt(values.size / weight[axis])
    attributes = {"Conv": {"group": group}, "Gemm": {"transB": 1}}.get(op, {})
    nodes = [
        onnx.helper.make_node("QuantizeLinear", ["x", "step", "zero"], ["q"]),
        onnx.helper.make_node("DequantizeLinear", ["q", "step", "zero"], ["d"]),
        onnx.helper.make_node("DequantizeLinear", ["w", "steps", "zeros"], ["dw"], axis=axis),
        onnx.helper.make_node(op, ["d", "dw"], ["c"], **attributes),
        onnx.helper.make_node("QuantizeLinear", ["c", "out_step", "out_zero"], ["p"]),
        onnx.helper.make_node("DequantizeLinear", ["p", "out_step", "out_zero"], ["y"]),
    ]
    constants = {
        "w": values, "steps": steps, "zeros": np.full(size, 128 if weights == np.uint8 else 0, weights),
        "step": np.float32(1 / 255), "zero": kind(zero), "out_step": np.float32(sums / 32), "out_zero": _middle(kind),
    }  # fmt: skip
    lowest = np.iinfo(kind).min - zero
    x = np.float32((rng.random(shape) * 255 + lowest) / 255)
    return Pattern(model=_model(nodes, constants, x, np.float32), feeds={"x": x}, quantum=float(sums / 32))


def integer(op: str, *, kind: type = np.uint8, zero: int = 0) -> Pattern:
    """ConvInteger or MatMulInteger."""
    rng, (shape, weight, _) = np.random.default_rng(1), SHAPES[op]
    x = _activations(rng, shape, kind)
    node = onnx.helper.make_node(f"{op}Integer", ["x", "w", "zero", "zeros"], ["y"])
    constants = {"w": _weights(rng, weight, np.int8), "zero": kind(zero), "zeros": np.int8(0)}
    return Pattern(model=_model([node], constants, x, np.int32), feeds={"x": x}, quantum=1)


def qlinear(op: str, *, kind: type = np.uint8, zero: int = 0, channels: bool = False, group: int = 1) -> Pattern:
    """QLinearConv or QLinearMatMul."""
    rng, (shape, weight, axis) = np.random.default_rng(2), SHAPES[op]
    weight = (weight[0], weight[1] // group, *weight[2:]) if op == "Conv" else weight
    x, size = _activations(rng, shape, kind), weight[axis] if channels else ()
    constants = {
        "step": np.float32(1 / 255), "zero": kind(zero), "w": _weights(rng, weight, np.int8),
        "steps": np.float32(rng.random(size) * 0.006 + 0.002), "zeros": np.zeros(size, np.int8),
        "out_step": np.float32(64 * 0.005 * np.sqrt(np.prod(weight) / weight[axis]) / 32), "out_zero": _middle(kind),
    }  # fmt: skip
    names = ["x", "step", "zero", "w", "steps", "zeros", "out_step", "out_zero"]
    node = onnx.helper.make_node(f"QLinear{op}", names, ["y"], **({"group": group} if op == "Conv" else {}))
    return Pattern(model=_model([node], constants, x, kind), feeds={"x": x}, quantum=1)


PATTERNS: Mapping[str, Callable[[], Pattern]] = {
    **{f"qdq-{op}".lower(): lambda op=op: qdq(op) for op in SHAPES},
    **{f"qdq-{op}-signed".lower(): lambda op=op: qdq(op, kind=np.int8) for op in SHAPES},
    **{f"qdq-{op}-per-channel".lower(): lambda op=op: qdq(op, channels=True) for op in SHAPES},
    **{f"qdq-{op}-asymmetric".lower(): lambda op=op: qdq(op, zero=100) for op in SHAPES},
    **{f"qdq-{op}-unsigned-weights".lower(): lambda op=op: qdq(op, weights=np.uint8) for op in SHAPES},
    "qdq-conv-depthwise": lambda: qdq("Conv", group=8),
    "qdq-conv-depthwise-signed": lambda: qdq("Conv", kind=np.int8, group=8),
    "qdq-conv-groups": lambda: qdq("Conv", group=2),
    **{f"{op}integer".lower(): lambda op=op: integer(op) for op in ("Conv", "MatMul")},
    **{f"{op}integer-signed".lower(): lambda op=op: integer(op, kind=np.int8) for op in ("Conv", "MatMul")},
    **{f"{op}integer-asymmetric".lower(): lambda op=op: integer(op, zero=100) for op in ("Conv", "MatMul")},
    **{f"qlinear{op}".lower(): lambda op=op: qlinear(op) for op in ("Conv", "MatMul")},
    **{f"qlinear{op}-signed".lower(): lambda op=op: qlinear(op, kind=np.int8) for op in ("Conv", "MatMul")},
    **{f"qlinear{op}-asymmetric".lower(): lambda op=op: qlinear(op, zero=100) for op in ("Conv", "MatMul")},
    **{f"qlinear{op}-per-channel".lower(): lambda op=op: qlinear(op, channels=True) for op in ("Conv", "MatMul")},
    "qlinearconv-depthwise": lambda: qlinear("Conv", group=8),
}  # fmt: skip


def _weights(rng: np.random.Generator, shape: tuple[int, ...], kind: type) -> np.ndarray:
    info = np.iinfo(kind)
    return rng.integers(info.min, info.max, shape, endpoint=True).astype(kind)


def _activations(rng: np.random.Generator, shape: tuple[int, ...], kind: type) -> np.ndarray:
    return _weights(rng, shape, kind)


def _middle(kind: type) -> Any:
    return kind(128 if kind == np.uint8 else 0)


def _model(nodes: list[onnx.NodeProto], constants: Mapping[str, Any], x: np.ndarray, result: type) -> onnx.ModelProto:
    shape = onnx.helper.np_dtype_to_tensor_dtype
    inputs = [onnx.helper.make_tensor_value_info("x", shape(x.dtype), x.shape)]
    outputs = [onnx.helper.make_tensor_value_info("y", shape(np.dtype(result)), None)]
    initializers = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = onnx.GraphProto(name="g", node=nodes, input=inputs, output=outputs, initializer=initializers)
    model = onnx.ModelProto(ir_version=10, graph=graph, opset_import=[onnx.OperatorSetIdProto(version=21)])
    return onnx.shape_inference.infer_shapes(model)
