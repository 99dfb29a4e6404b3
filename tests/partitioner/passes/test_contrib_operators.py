"""Operators of ONNX Runtime's own domain that clean-up replaces by ONNX operators."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from model_texts import clean, parse
from plain_runtime import passes_checker, run
from trtnode.partitioner.compiled.trtnode import embed_engines

FORMULA = ["Div", "Erf", "Add", "Mul", "Mul"]


def gelus(opset: int) -> onnx.ModelProto:
    """Two in a row: the type between them follows from the first one's replacement. Another is in a subgraph."""
    return parse(f"""<ir_version: 8, opset_import: ["": {opset}, "com.microsoft": 1]>
    g (float[2,3] x, bool c) => (float[2,3] y) {{
        a = com.microsoft.Gelu(x)
        b = Neg(a)
        d = com.microsoft.Gelu(b)
        y = If (c) <
            then_branch = then () => (float[2,3] t) {{ t = com.microsoft.Gelu(d) }},
            else_branch = else () => (float[2,3] e) {{ e = Abs(d) }}
        >
    }}""")


@pytest.mark.parametrize(
    ("opset", "expected"), [pytest.param(20, ["Gelu"], id="onnx-has-gelu"), pytest.param(12, FORMULA, id="formula")]
)
@pytest.mark.parametrize("condition", [True, False])
def test_gelu_of_onnx_runtime_becomes_onnx_operators_of_the_same_meaning(
    opset: int, expected: list[str], condition: bool
) -> None:
    source = gelus(opset)
    feeds = {"x": np.linspace(-4, 4, 6, dtype=np.float32).reshape(2, 3), "c": np.array(condition)}

    graph = clean(source)

    assert [node.op_type for node in graph.nodes] == [*expected, "Neg", *expected, "If"]
    assert all(op.domain == "" for op in graph.model.graph.all_nodes())
    written = embed_engines(graph, (), {})
    assert passes_checker(written)
    np.testing.assert_allclose(run(written, feeds)[0], run(source, feeds)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("opset", "dtype"), [pytest.param(8, "float", id="before-erf"), pytest.param(17, "float16", id="other-type")]
)
def test_gelu_that_has_no_formula_stays(opset: int, dtype: str) -> None:
    graph = clean(f"""<ir_version: 8, opset_import: ["": {opset}, "com.microsoft": 1]>
    g ({dtype}[3] x) => ({dtype}[3] y) {{ y = com.microsoft.Gelu(x) }}""")

    assert [(node.domain, node.op_type) for node in graph.nodes] == [("com.microsoft", "Gelu")]


def fused(attributes: str, inputs: str = "x, w, b") -> onnx.ModelProto:
    """Two in a row, with ONNX's Abs behind them."""
    model = parse(f"""<ir_version: 8, opset_import: ["": 11, "com.microsoft": 1]>
    g (float[1,2,5,5] x) => (float[1,2,5,5] y) {{
        f = com.microsoft.FusedConv <pads = [1, 1, 1, 1], {attributes}> ({inputs})
        a = com.microsoft.FusedConv <pads = [1, 1, 1, 1], {attributes}> ({inputs.replace("x", "f", 1)})
        y = Abs(a)
    }}""")
    rng = np.random.default_rng(0)
    arrays = {"w": rng.standard_normal((2, 2, 3, 3)), "b": rng.standard_normal(2)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a.astype(np.float32), n) for n, a in arrays.items())
    return model


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(fused('activation = "Relu"'), ["Conv", "Relu"], id="relu"),
        pytest.param(
            fused('activation = "LeakyRelu", activation_params = [0.2]'), ["Conv", "LeakyRelu"], id="activation-params"
        ),
        pytest.param(fused('activation = "Tanh"', "x, w, b, x"), ["Conv", "Add", "Tanh"], id="sum"),
    ],
)
def test_a_fused_convolution_of_onnx_runtime_becomes_the_nodes_that_it_joined(
    source: onnx.ModelProto, expected: list[str]
) -> None:
    feeds = {"x": np.linspace(-4, 4, 50, dtype=np.float32).reshape(1, 2, 5, 5)}

    graph = clean(source)

    assert [node.op_type for node in graph.nodes] == [*expected, *expected, "Abs"]
    assert all(v.dtype == ir.DataType.FLOAT for op in graph.model.graph for v in op.outputs)
    written = embed_engines(graph, (), {})
    assert passes_checker(written)
    np.testing.assert_allclose(run(written, feeds)[0], run(source, feeds)[0], rtol=1e-5, atol=1e-5)


def test_a_fused_convolution_of_an_unknown_activation_stays() -> None:
    graph = clean(fused('activation = "Clip", activation_params = [0.0, 6.0]'))

    assert [node.op_type for node in graph.nodes] == ["FusedConv", "FusedConv", "Abs"]


def test_names_stay_unique_where_several_are_replaced() -> None:
    graph = clean(gelus(17))

    names = [v.name for op in graph.model.graph.all_nodes() for v in op.outputs]
    assert len(names) == len(set(names))
