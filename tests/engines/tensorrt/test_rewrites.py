"""Each rewrite for TensorRT's parser gives a model that computes the same, told by plain ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from trtnode.engines.errors import BuildError
from trtnode.engines.tensorrt.labelling.operators import OPSETS
from trtnode.engines.tensorrt.labelling.rewrites import (
    PASSES,
    center_uint8,
    fold_integer_biases,
    multiply_as_matrices,
    narrow_doubles,
    narrow_uint8,
    prepare,
    write_slice_axes,
)

SCALE = 0.1
PAIR = (
    "g (float[N] x) => (float[N] y) <float s = {0.1}, uint8 z = {#}>"
    " { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }"
)
SPREAD = np.linspace(-30, 30, 1001, dtype=np.float32)


def parse(text: str, opset: int = 21) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {text}')
    return onnx.shape_inference.infer_shapes(model)


def run(model: onnx.ModelProto, **feeds: np.ndarray) -> np.ndarray:
    (result,) = run_all(model, **feeds)
    return result


def run_all(model: onnx.ModelProto, **feeds: np.ndarray) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return [np.asarray(result) for result in session.run(None, feeds)]


def types(model: onnx.ModelProto) -> set[int]:
    """Element types of the constants, and of what QuantizeLinear gives."""
    return {tensor.data_type for tensor in model.graph.initializer if tensor.name.endswith("zero_point")}


def rewritten(model: onnx.ModelProto, rewrite: Callable[[ir.Model], None]) -> onnx.ModelProto:
    view = ir.from_proto(model)
    rewrite(view)
    return ir.to_proto(view)


def test_uint8_around_the_middle_becomes_int8_with_the_same_numbers() -> None:
    model = parse(PAIR.replace("#", "128"))

    result = rewritten(model, center_uint8)

    assert types(result) == {onnx.TensorProto.INT8}
    np.testing.assert_array_equal(run(result, x=SPREAD), run(model, x=SPREAD))


def test_uint8_from_zero_becomes_int8_within_one_and_a_half_steps() -> None:
    model = parse(PAIR.replace("#", "0"))

    result = rewritten(model, narrow_uint8)

    assert types(result) == {onnx.TensorProto.INT8}
    np.testing.assert_allclose(run(result, x=SPREAD), run(model, x=SPREAD), rtol=0, atol=1.5 * SCALE + 1e-6)


BIASED = (
    "g (float[1,2,3,3] x) => (#) <float[2,2,1,1] w = {1, 2, 3, 4}, int32[2] q = {-70000, 123456}, float s = {0.001}>"
    " { b = DequantizeLinear(q, s) y = Conv(x, w, b) }"
)


@pytest.mark.parametrize(
    ("results", "operators"),
    [
        pytest.param("float[1,2,3,3] y", ["Conv"], id="inside"),
        pytest.param("float[1,2,3,3] y, float[2] b", ["Identity", "Conv"], id="result"),
    ],
)
def test_a_bias_in_int32_becomes_a_float_constant(results: str, operators: list[str]) -> None:
    model = parse(BIASED.replace("#", results))
    image = np.random.default_rng(0).standard_normal((1, 2, 3, 3), np.float32)

    result = rewritten(model, fold_integer_biases)

    assert [node.op_type for node in result.graph.node] == operators
    for found, wanted in zip(run_all(result, x=image), run_all(model, x=image), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_bias_in_int32_with_a_scale_for_each_channel_becomes_a_float_constant() -> None:
    model = parse(
        "g (float[2] x) => (float[2] y) <int32[2] q = {-5, 7}, float[2] s = {0.5, 0.25}, int32[2] z = {0, 0}>"
        " { b = DequantizeLinear<axis = 0>(q, s, z) y = Add(x, b) }"
    )

    result = rewritten(model, fold_integer_biases)

    assert [node.op_type for node in result.graph.node] == ["Add"]
    np.testing.assert_array_equal(run(result, x=np.zeros(2, np.float32)), [-2.5, 1.75])


INSIDE = (
    "g (float[N] x, bool c) => (float[N] y) <float s = {0.1}, uint8 z = {#}, int32[1] b = {5}> {"
    " y = If(c) <then_branch = t () => (float[N] a) { q = QuantizeLinear(x, s, z) a = DequantizeLinear(q, s, z) },"
    " else_branch = e () => (float[N] d) { k = DequantizeLinear(b, s) d = Add(x, k) }> }"
)


@pytest.mark.parametrize(("zero_point", "atol"), [("128", 0), ("0", 1.5 * SCALE + 1e-6)])
@pytest.mark.parametrize("taken", [True, False])
def test_quantization_in_bodies_is_rewritten_too(zero_point: str, atol: float, taken: bool) -> None:
    model = parse(INSIDE.replace("#", zero_point))

    result = prepare(model, PASSES)

    bodies = [attribute.g for node in result.graph.node for attribute in node.attribute]
    assert [node.op_type for node in bodies[1].node] == ["Add"]
    assert "UINT8" not in {onnx.TensorProto.DataType.Name(t.data_type) for b in bodies for t in b.initializer}
    feeds = {"x": SPREAD, "c": np.array(taken)}
    np.testing.assert_allclose(run(result, **feeds), run(model, **feeds), rtol=0, atol=atol)


def test_the_largest_number_of_uint8_is_not_clipped_to_half() -> None:
    result = rewritten(parse(PAIR.replace("#", "0")), narrow_uint8)

    assert run(result, x=np.array([25.5], np.float32)) == pytest.approx([25.5])


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param("r = Neg(x)", ["Neg", "Relu", "QuantizeLinear", "DequantizeLinear"], id="may-be-negative"),
        pytest.param("r = Relu(x)", ["Relu", "QuantizeLinear", "DequantizeLinear"], id="never-negative"),
    ],
)
def test_what_uint8_clips_at_zero_is_clipped_by_a_relu_where_needed(source: str, expected: list[str]) -> None:
    model = parse(PAIR.replace("#", "0").replace("{ q", f"{{ {source} q").replace("Linear(x", "Linear(r"))

    result = rewritten(model, narrow_uint8)

    assert [node.op_type for node in result.graph.node] == expected


def test_zero_points_that_are_left_out_mean_uint8_from_zero() -> None:
    model = parse(
        "g (float[N] x) => (float[N] y) <float s = {0.1}> { q = QuantizeLinear(x, s) y = DequantizeLinear(q, s) }"
    )

    result = rewritten(model, narrow_uint8)

    assert types(result) == {onnx.TensorProto.INT8}
    np.testing.assert_allclose(run(result, x=SPREAD), run(model, x=SPREAD), rtol=0, atol=1.5 * SCALE + 1e-6)


def test_a_scale_that_other_nodes_read_as_well_stays_as_it_is_for_them() -> None:
    model = parse(PAIR.replace("#", "0").replace("y = Dequ", "d = Dequ").replace("z) }", "z) y = Mul(d, s) }"))

    result = rewritten(model, narrow_uint8)

    np.testing.assert_allclose(run(result, x=SPREAD), run(model, x=SPREAD), rtol=0, atol=1.5 * SCALE**2 + 1e-6)


@pytest.mark.parametrize("zero", ["0", "128"])
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("(float[N] x) => (uint8[N] q) # { q = QuantizeLinear(x, s, z) }", id="first-end"),
        pytest.param("(uint8[N] x) => (float[N] y) # { y = DequantizeLinear(x, s, z) }", id="second-end"),
        pytest.param(
            "(float[N] x) => (uint8[N] q, float[N] y) #"
            " { q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = Neg(d) }",
            id="one-of-two-readers",
        ),
    ],
)
def test_uint8_quantization_that_is_cut_in_two_is_computed_in_floats(text: str, zero: str) -> None:
    model = parse(f"g {text.replace('#', f'<float s = {{0.1}}, uint8 z = {{{zero}}}>')}")
    x = np.arange(256, dtype=np.uint8) if "uint8[N] x" in text else SPREAD

    result = prepare(model, PASSES)

    assert not {"QuantizeLinear", "DequantizeLinear"} & {node.op_type for node in result.graph.node}
    assert [v.name for v in result.graph.output] == [v.name for v in model.graph.output]
    for ours, before in zip(run_all(result, x=x), run_all(model, x=x), strict=True):
        np.testing.assert_array_equal(ours, before)


def test_uint8_weights_are_not_built() -> None:
    model = parse(
        "g () => (float[2] y) <uint8[2] x = {1, 2}, float s = {0.1}, uint8 z = {0}> { y = DequantizeLinear(x, s, z) }"
    )

    with pytest.raises(BuildError, match="is uint8, which TensorRT misreads"):
        prepare(model, PASSES)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("g (double[N] x) => (double[N] y) <double c = {0.1}> { y = Mul(x, c) }", id="constants"),
        pytest.param(
            "g (double[N] x) => (double[N] y) { s = Shape(x) o = ConstantOfShape<value = double[1] {3.0}>(s)"
            " f = Cast<to = 1>(x) d = Cast<to = 11>(f) y = Add(d, o) }",
            id="attributes",
        ),
        pytest.param(
            "g (double[N] x, bool b) => (double[N] y) { y = If(b) <then_branch = t () => (double[N] a)"
            " <double c = {0.5}> { a = Mul(x, c) }, else_branch = e () => (double[N] n) { n = Neg(x) }> }",
            id="bodies",
        ),
    ],
)
def test_float64_becomes_float32_and_keeps_seven_digits(text: str) -> None:
    model = parse(text)
    extra = {"b": np.array(True)} if "bool b" in text else {}

    result = rewritten(model, narrow_doubles)

    narrow = run(result, x=SPREAD, **extra)
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, run(model, x=SPREAD.astype(np.float64), **extra), rtol=1e-6)


@pytest.mark.parametrize(("opset", "stamped"), [(7, OPSETS[0]), (17, 17), (25, OPSETS[-1])])
def test_a_segment_states_an_opset_that_the_parser_knows(opset: int, stamped: int) -> None:
    model = parse("g (float[N] x) => (float[N] y) { y = Relu(x) }", opset)

    result = prepare(model, PASSES)

    assert [entry.version for entry in result.opset_import] == [stamped]
    np.testing.assert_array_equal(run(result, x=SPREAD), np.maximum(SPREAD, 0))


def test_a_model_that_tensorrt_wrote_is_read_like_any_other() -> None:
    model = parse("g (float[N] x) => (float[N] y) { y = Relu(x) }")
    model.producer_name = "TensorRT"

    assert prepare(model, PASSES).producer_name == "trtnode"


def test_names_of_inputs_and_outputs_stay() -> None:
    result = prepare(parse(PAIR.replace("#", "0")), PASSES)

    assert ([v.name for v in result.graph.input], [v.name for v in result.graph.output]) == (["x"], ["y"])


@pytest.mark.parametrize(
    "inputs",
    [
        pytest.param("x, a, b", id="axes-left-out"),
        pytest.param("x, a, b, , t", id="axes-left-out-before-steps"),
    ],
)
def test_slice_names_the_axes_that_it_leaves_out(inputs: str) -> None:
    model = parse(
        "g (float[4,5] x) => (float[c,5] y) <int64[1] a = {-3}, int64[1] b = {4}, int64[1] t = {2}>"
        f" {{ y = Slice({inputs}) }}"
    )
    x = np.arange(20, dtype=np.float32).reshape(4, 5)

    result = rewritten(model, write_slice_axes)

    (node,) = result.graph.node
    (axes,) = (t for t in result.graph.initializer if t.name == node.input[3])
    assert onnx.numpy_helper.to_array(axes).tolist() == [0]
    np.testing.assert_array_equal(run(result, x=x), run(model, x=x))


@pytest.mark.parametrize("batch", [(2,), (2, 3)])
def test_vector_times_matrices_becomes_a_row_times_matrices(batch: tuple[int, ...]) -> None:
    sizes = ",".join(map(str, batch))
    model = parse(f"g (float[4] x, float[{sizes},4,5] w) => (float[{sizes},5] y) {{ y = MatMul(x, w) }}")
    w = np.arange(20 * np.prod(batch), dtype=np.float32).reshape(*batch, 4, 5)
    x = np.arange(4, dtype=np.float32)

    result = rewritten(model, multiply_as_matrices)

    assert [node.op_type for node in result.graph.node] == ["Reshape", "MatMul", "Reshape"]
    np.testing.assert_array_equal(run(result, x=x, w=w), run(model, x=x, w=w))


def test_multiplications_that_the_parser_knows_stay() -> None:
    model = parse(
        "g (float[4] x, float[4,5] w, float[2,3,4] z) => (float[5] y, float[2,3] v)"
        " { y = MatMul(x, w) v = MatMul(z, x) }"
    )

    assert [node.op_type for node in rewritten(model, multiply_as_matrices).graph.node] == ["MatMul", "MatMul"]
