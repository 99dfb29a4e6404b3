"""bfloat16 in ONNX Runtime, which computes it in float32 and rounds each result."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx

from model_texts import parse
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.engines.precision.bfloat16 import with_float32_kernels
from trtnode.engines.precision.float16 import to_half

CHAIN = "g (float[2,32] x) => (float[2,8] y) { a = MatMul(x, w) b = Relu(a) c = MatMul(b, v) y = Add(c, c) }"


def chain() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Two layers in float32, and their weights."""
    rng = np.random.default_rng(1)
    weights = {n: rng.normal(size=s).astype(np.float32) for n, s in (("w", (32, 16)), ("v", (16, 8)))}
    model = parse(CHAIN, **weights)
    return model, weights


def rounded(values: np.ndarray) -> np.ndarray:
    return values.astype(ml_dtypes.bfloat16).astype(np.float32)


def test_each_result_is_rounded_once_and_sums_are_float32() -> None:
    model, weights = chain()
    x = np.random.default_rng(2).normal(size=(2, 32)).astype(np.float32)
    hidden = np.maximum(rounded(rounded(x) @ rounded(weights["w"])), 0)
    product = rounded(hidden @ rounded(weights["v"]))

    (result,) = NativeSession(with_float32_kernels(to_half(model, "bf16"))).run({"x": x})

    np.testing.assert_allclose(result, rounded(product + product), rtol=2**-7)  # sums may round the other way
    assert np.mean(result == rounded(product + product)) > 0.8
    assert not np.array_equal(result, NativeSession(model).run({"x": x})[0])


def test_interface_keeps_its_names_and_types() -> None:
    model = parse("g (bfloat16[2,4] x) => (bfloat16[2,4] y) { y = Relu(x) }")

    form = with_float32_kernels(model)

    onnx.checker.check_model(form, full_check=True)
    interface = [(v.name, v.type.tensor_type.elem_type) for v in (*form.graph.input, *form.graph.output)]
    assert interface == [("x", onnx.TensorProto.BFLOAT16), ("y", onnx.TensorProto.BFLOAT16)]


def test_model_without_bfloat16_stays_as_it_is() -> None:
    model, _ = chain()

    assert with_float32_kernels(model) is model
