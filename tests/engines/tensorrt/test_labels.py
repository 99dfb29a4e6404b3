"""Labels of TensorRT by tables and rules: TensorRT itself is not needed, and was not asked."""

from __future__ import annotations

from typing import Any

import pytest

from tensorrt_labels import BASE_CASES, IMAGE, verdicts, view
from trtnode.engines.tensorrt.labelling.labels import label
from trtnode.engines.tensorrt.labelling.operators import DATA_DEPENDENT
from trtnode.partitioner.cut.labels import ReasonCode, Verdict, label_nodes
from trtnode.partitioner.cut.options import Allowance, PartitionOptions


def refused(op: str, graph: str, code: ReasonCode, detail: str, name: str, opset: int = 24) -> Any:
    return pytest.param(op, graph, code, detail, opset, id=f"{op}-{name}")


DTYPE, INPUT, ATTRIBUTE = ReasonCode.UNSUPPORTED_DTYPE, ReasonCode.UNSUPPORTED_INPUT, ReasonCode.UNSUPPORTED_ATTRIBUTE
RANK, OP, BODY = ReasonCode.UNSUPPORTED_RANK, ReasonCode.UNSUPPORTED_OP, ReasonCode.CONTROL_FLOW
QUANTIZED = "<float s = {{0.1}}, {0} z = {{{1}}}>"


@pytest.mark.parametrize(
    ("op", "graph", "code", "detail", "opset"),
    [
        refused("Det", "g (float[3,3] x) => (float y) { y = Det(x) }", OP, "has no Det", "operator"),
        refused("Swish", "g (float[2] x) => (float[2] y) { y = Swish(x) }", OP, "has no Swish", "before-it-was", 21),
        refused("Add", "g (float[2] x) => (float[2] y) { y = Add(x, x) }", OP, "opset 6 is another", "opset", 6),
        refused("Exp", "g (double[3] x) => (double[3] y) { y = Exp(x) }", DTYPE, "'x' is double", "double"),
        refused("Add", "g (uint16[3] x) => (uint16[3] y) { y = Add(x, x) }", DTYPE, "does not have", "uint16"),
        refused("Clip", "g (int32[3] x) => (int32[3] y) { y = Clip(x) }", DTYPE, "no Clip for it", "integers"),
        refused("Mish", "g (bfloat16[3] x) => (bfloat16[3] y) { y = Mish(x) }", DTYPE, "no Mish for it", "bfloat16"),
        refused("Pad", "g (bool[2] x) => (bool[4] y) <int64[2] p = {1,1}> { y = Pad(x, p) }", DTYPE, "bool", "bool"),
        refused("Add", "g (int8[3] x) => (int8[3] y) { y = Add(x, x) }", DTYPE, "only between", "int8"),
        refused("Reshape", "g (uint8[4] x) => (uint8[2,2] y) <int64[2] s = {2,2}> { y = Reshape(x, s) }", DTYPE,
                "only between", "uint8"),
        refused("Cast", "g (float[3] x) => (string[3] y) { y = Cast<to = 8>(x) }", DTYPE, "'y' is string", "to-string"),
        refused("Cast", "g (float[3] x) => (int8[3] y) { y = Cast<to = 3>(x) }", DTYPE, "only between", "to-int8"),
        refused("Resize", f"g ({IMAGE} x, double[4] f) => (float[a,b,c,d] y) {{ y = Resize(x, f, f) }}", DTYPE, "'f'",
                "double-beside-it", 10),
        refused("Relu", "g (float[1,1,1,1,1,1,1,1,2] x) => (float[1,1,1,1,1,1,1,1,2] y) { y = Relu(x) }", RANK,
                "9 dimensions", "rank"),
        refused("Relu", "g (float[0,3] x) => (float[0,3] y) { y = Relu(x) }", RANK, "no elements", "empty"),
        refused("MaxPool", "g (float[1,2,8] x) => (float[1,2,4] y) { y = MaxPool<kernel_shape=[2], strides=[2]>(x) }",
                RANK, "takes rank 4 or 5", "1-D"),
        refused("GridSample", "g (float[1,1,2,2,2] x, float[1,2,2,2,3] p) => (float[1,1,2,2,2] y)"
                " { y = GridSample(x, p) }", RANK, "takes rank 4", "3-D"),
        refused("Attention", "g (float[1,3,8] q) => (float[1,3,8] y)"
                " { y = Attention<q_num_heads = 2, kv_num_heads = 2>(q, q, q) }", RANK, "takes rank 4", "3-D"),
        refused("Attention", "g (float[1,2,3,4] q) => (float[1,2,3,4] y) { y = Attention<softcap = 2.0>(q, q, q) }",
                ATTRIBUTE, "softcap 0.0, not 2.0", "softcap"),
        refused("Attention", "g (float[1,2,3,4] q) => (float[1,2,3,4] y, float[1,2,6,4] k, float[1,2,6,4] v)"
                " { y, k, v = Attention(q, q, q, , q, q) }", INPUT, "no input 4", "past"),
        refused("ReduceSum", "g (float[2,3] x, int64[1] a) => (float[b,c] y) { y = ReduceSum(x, a) }", INPUT,
                "must be a constant", "axes-of-a-run"),
        refused("CumSum", "g (float[2] x, int64 a) => (float[2] y) { y = CumSum(x, a) }", INPUT, "constant", "axis"),
        refused("OneHot", "g (int64[2] x, int64 d) => (float[2,N] y) <float[2] v = {0, 1}> { y = OneHot(x, d, v) }",
                INPUT, "must be a constant", "depth-of-a-run"),
        refused("Reshape", "g (float[6] x, int64[2] s) => (float[a,b] y) { y = Reshape(x, s) }", INPUT,
                "constant or come from Shape", "shape-of-a-run"),
        refused("Range", "g (int64 a) => (int64[N] y) <int64 o = {0}, int64 i = {1}> { y = Range(o, a, i) }", INPUT,
                "come from Shape", "length-of-a-run"),
        refused("TopK", "g (float[4] x, int64[1] k) => (float[N] y, int64[N] i) { y, i = TopK(x, k) }", INPUT,
                "must be a constant", "k-of-a-run"),
        refused("TopK", "g (float[9999] x) => (float[4000] y, int64[4000] i) <int64[1] k = {4000}>"
                " { y, i = TopK(x, k) }", INPUT, "at most 3839 elements, not 4000", "large"),
        refused("TopK", "g (float[9] x) => (float[4] y, int64[4] i) <int64[1] k = {4}>"
                " { y, i = TopK<sorted = 0>(x, k) }", ATTRIBUTE, "sorted 1, not 0", "unsorted"),
        refused("MaxPool", f"g ({IMAGE} x) => (float[1,2,6,6] y)"
                " { y = MaxPool<kernel_shape = [2,2], dilations = [2,2]>(x) }", ATTRIBUTE, "no dilations", "dilated"),
        refused("MaxPool", f"g ({IMAGE} x) => (float[1,2,7,7] y, int64[1,2,7,7] i)"
                " { y, i = MaxPool<kernel_shape = [2,2]>(x) }", ATTRIBUTE, "first output alone", "indices"),
        refused("BatchNormalization", f"g ({IMAGE} x, float[2] s) => ({IMAGE} y, float[2] m, float[2] v)"
                " { y, m, v = BatchNormalization<training_mode = 1>(x, s, s, s, s) }", ATTRIBUTE, "training_mode",
                "training"),
        refused("LayerNormalization", "g (float[2,3] x, float[3] s) => (float[2,3] y, float[2,1] m)"
                " { y, m = LayerNormalization(x, s) }", ATTRIBUTE, "first output alone", "mean"),
        refused("Dropout", "g (float[3] x) => (float[3] y) <float r = {0.5}, bool t = {1}> { y = Dropout(x, r, t) }",
                ATTRIBUTE, "inference form", "training"),
        refused("DeformConv", f"g ({IMAGE} x, float[1,2,3,3] w, float[1,18,7,7] o) => (float[1,1,7,7] y)"
                " { y = DeformConv<group = 2, pads = [0,0,1,1]>(x, w, o) }", ATTRIBUTE, "both ends alike", "pads"),
        refused("Einsum", 'g (float[2,3] x) => (float[2] y) { y = Einsum<equation = "IJ->I">(x) }', ATTRIBUTE,
                "letters a to z", "capitals"),
        refused("EyeLike", "g (float[N,3] x) => (float[N,3] y) { y = EyeLike(x) }", ReasonCode.DYNAMIC_SHAPE,
                "at the build", "dynamic"),
        refused("Hardmax", "g (float[2,N] x) => (float[2,N] y) { y = Hardmax(x) }", ReasonCode.DYNAMIC_SHAPE,
                "at the build", "dynamic"),
        refused("LSTM", "g (float[2,1,3] x, float[2,16,3] w, float[2,16,4] r) => (float[2,2,1,4] y) { y = LSTM"
                '<hidden_size = 4, direction = "bidirectional",'
                ' activations = ["Sigmoid","Tanh","Tanh","Sigmoid","Tanh","Relu"]>(x, w, r) }', ATTRIBUTE,
                "same activations", "activations"),
        refused("LSTM", "g (float[2,1,3] x, float[1,16,3] w, float[1,16,4] r) => (float[2,1,1,4] y)"
                " { y = LSTM<hidden_size = 4, input_forget = 1>(x, w, r) }", ATTRIBUTE, "input_forget", "coupled"),
        refused("LpPool", f"g ({IMAGE} x) => (float[1,2,7,7] y) {{ y = LpPool<kernel_shape = [2,2], p = 3>(x) }}",
                ATTRIBUTE, "p 1 or 2, not 3", "p"),
        refused("RandomNormal", "g () => (float[2] y) { y = RandomNormal<shape = [2], seed = 1.0>() }", ATTRIBUTE,
                "ignores seed", "seed"),
        refused("Resize", f"g ({IMAGE} x) => (float[1,2,16,16] y) <float[4] f = {{1, 1, 2, 2}}>"
                ' { y = Resize<mode = "cubic">(x, , f) }', ATTRIBUTE, "not cubic", "cubic"),
        refused("Resize", f"g ({IMAGE} x) => (float[1,2,4,4] y) <float[4] f = {{1, 1, 0.5, 0.5}}>"
                ' { y = Resize<mode = "linear", antialias = 1>(x, , f) }', ATTRIBUTE, "antialias", "antialias"),
        refused("Resize", f"g ({IMAGE} x) => (float[1,2,16,16] y) <float[4] f = {{1, 1, 2, 2}}> {{ y = Resize"
                '<coordinate_transformation_mode = "tf_half_pixel_for_nn", nearest_mode = "ceil">(x, , f) }',
                ATTRIBUTE, "round_prefer_floor alone", "half-pixel"),
        refused("ReverseSequence", "g (float[4,4] x, int64[4] n) => (float[4,4] y)"
                " { y = ReverseSequence<batch_axis = 0, time_axis = 0>(x, n) }", ATTRIBUTE, "different axes", "axes"),
        refused("STFT", BASE_CASES["STFT"].replace("#", "STFT").replace("64,1]", "64,2]"), INPUT, "real", "complex"),
        refused("ScatterND", "g (float[4] x, int64[2,1] i, float[2] u) => (float[4] y)"
                ' { y = ScatterND<reduction = "add">(x, i, u) }', ATTRIBUTE, "reduction none, not add", "sum"),
        refused("TensorScatter", "g (float[1,2,4,3] p, float[1,2,4,1] u) => (float[1,2,4,3] y)"
                " { y = TensorScatter<axis = -1>(p, u) }", ATTRIBUTE, "axis -2, not -1", "axis"),
        refused("QuantizeLinear", f"g (float[2] x) => (int8[2] y) {QUANTIZED.format('int8', 3)}"
                " { y = QuantizeLinear(x, s, z) }", INPUT, "must be zero", "zero-point"),
        refused("QuantizeLinear", "g (float[2] x, float s) => (int8[2] y) <int8 z = {0}>"
                " { y = QuantizeLinear(x, s, z) }", INPUT, "must be a constant", "scale-of-a-run"),
        refused("QuantizeLinear", "g (float[2] x) => (int8[2] y) <float s = {-1}, int8 z = {0}>"
                " { y = QuantizeLinear(x, s, z) }", INPUT, "greater than zero", "negative-scale"),
        refused("QuantizeLinear", "g (float[2,2] x) => (int8[2,2] y) <float[2] s = {1, 2}, int8[2] z = {0, 0}>"
                " { y = QuantizeLinear(x, s, z) }", INPUT, "on weights alone", "scale-for-each-channel"),
        refused("QuantizeLinear", f"g (float[2] x) => (uint8[2] y) {QUANTIZED.format('uint8', 0)}"
                " { y = QuantizeLinear(x, s, z) }", INPUT, "reads uint8 as int8", "uint8-that-leaves"),
        refused("DequantizeLinear", f"g (uint8[2] x) => (float[2] y) {QUANTIZED.format('uint8', 0)}"
                " { y = DequantizeLinear(x, s, z) }", INPUT, "reads uint8 as int8", "uint8-that-enters"),
        refused("DequantizeLinear", f"g (uint16[2] x) => (float[2] y) {QUANTIZED.format('uint16', 0)}"
                " { y = DequantizeLinear(x, s, z) }", DTYPE, "does not have", "16-bit"),
        refused("DequantizeLinear", f"g (int32[2] x) => (float[2] y) {QUANTIZED.format('int32', 0)}"
                " { y = DequantizeLinear(x, s, z) }", DTYPE, "int32", "int32"),
        refused("If", "g (bool c, float[2] x) => (float[a] y) { y = If(c) <then_branch = t () => (float[2] a)"
                " { a = Relu(x) }, else_branch = e () => (float[1,2] b) <int64[1] n = {0}> { b = Unsqueeze(x, n) }> }",
                BODY, "equal ranks", "ranks"),
        refused("Loop", "g (float[2] x, int64 n) => (float[2] y, float[N,2] z) <bool c = {1}> { y, z = Loop(n, c, x)"
                " <body = b (int64 i, bool k, float[2] a) => (bool l, float[2] d, float[2] e)"
                " { l = Identity(k) d = Relu(a) e = Neg(a) }> }", BODY, "fixed number of turns", "stacks"),
    ],
)  # fmt: skip
def test_node_outside_a_restriction_is_refused_with_a_reason(
    op: str, graph: str, code: ReasonCode, detail: str, opset: int
) -> None:
    verdict = verdicts(graph, opset=opset)[op]

    assert verdict.code == code
    assert detail in verdict.detail


@pytest.mark.parametrize("op", sorted(DATA_DEPENDENT))
def test_data_dependent_operators_run_natively_unless_allowed(op: str) -> None:
    graph = BASE_CASES[op].replace("#", op)

    assert verdicts(graph)[op].code == ReasonCode.DATA_DEPENDENT
    assert verdicts(graph, [Allowance.DATA_DEPENDENT])[op].supported


def test_float64_is_taken_only_where_the_user_lets_it_be_narrowed() -> None:
    graph = "g (double[2] x) => (double[2] y) { y = Exp(x) }"

    assert not verdicts(graph)["Exp"].supported
    assert verdicts(graph, [Allowance.NARROW_DOUBLE])["Exp"].supported


@pytest.mark.parametrize(
    ("graph", "opset"),
    [
        pytest.param("g (uint8[2] x) => (float[2] y) { y = Cast<to = 1>(x) }", 24, id="bytes-that-enter"),
        pytest.param("g (float[2] x) => (uint8[2] y) { y = Cast<to = 2>(x) }", 24, id="bytes-that-leave"),
        pytest.param("g (uint8[N] x) => (int64[1] y) { y = Shape(x) }", 24, id="shape-of-bytes-that-enter"),
        pytest.param(
            "g (float[2] x) => (float[2] y) <float s = {0.1}, uint8 z = {0}>"
            " { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }",
            24,
            id="uint8-pair",
        ),
        pytest.param(
            "g (float[2] x) => (float[2] y) <float s = {0.1}, uint8 z = {128}>"
            " { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }",
            24,
            id="uint8-pair-around-the-middle",
        ),
        pytest.param(
            "g (float[2,3] x) => (float[2,3] y) <int8[2,3] w = {1,2,3,4,5,6}, float[2] s = {1, 2}, int8[2] z = {0, 0}>"
            " { d = DequantizeLinear<axis = 0>(w, s, z) y = Mul(x, d) }",
            24,
            id="weights-with-a-scale-for-each-channel",
        ),
        pytest.param(
            "g (float[2] x) => (float[2] y) <int32[2] q = {-5, 70000}, float s = {0.1}>"
            " { b = DequantizeLinear(q, s) y = Add(x, b) }",
            24,
            id="bias-in-int32",
        ),
        pytest.param("g (float[2] x) => (float[2] y) { y = Relu(x) }", 7, id="older-than-the-parser-but-the-same"),
        pytest.param(
            "g (float[2,3] x, float[3,2] w) => (float[2,2] y) { y = MatMul(x, w) }",
            7,
            id="older-than-the-parser-which-takes-more",
        ),
        pytest.param("g (float[1,4,2,2] x) => (float[1,1,4,4] y) { y = DepthToSpace<blocksize = 2>(x) }", 28,
                     id="newer-than-the-parser-but-the-same"),
        pytest.param(
            "g (float[N,T,8] x) => (float[N,M] y) <int64[1] zero = {0}, int64[1] one = {1}, int64[1] rest = {-1}> {"
            " s = Shape(x) n = Slice(s, zero, one) t = Concat<axis = 0>(n, rest) y = Reshape(x, t) }",
            24,
            id="shape-arithmetic",
        ),
        pytest.param(
            "g (float[2] x, int64 n) => (float[2] y) <bool c = {1}> { y = Loop(n, c, x) <body = b"
            " (int64 i, bool k, float[2] a) => (bool l, float[2] d) { l = Identity(k) d = Relu(a) }> }",
            24,
            id="loop-of-any-length-that-stacks-nothing",
        ),
    ],
)  # fmt: skip
def test_node_within_the_restrictions_is_taken(graph: str, opset: int) -> None:
    assert {op: v.detail for op, v in verdicts(graph, opset=opset).items() if not v.supported} == {}


def test_bytes_do_not_pass_through_an_engine() -> None:
    graph = view("g (float[2] x) => (float[2] y) { b = Cast<to = 2>(x) y = Cast<to = 1>(b) }")

    assert [label(node).supported for node in graph.nodes] == [True, False]


def test_bodies_nested_deeper_than_the_parser_goes_run_natively() -> None:
    def nested(depth: int) -> str:
        if not depth:
            return "Relu(x)"
        name = f"v{depth}"
        inner = nested(depth - 1)
        return (
            f"If(c) <then_branch = t () => (float[2] {name}) {{ {name} = {inner} }}, else_branch = e () =>"
            f" (float[2] {name}e) {{ {name}e = Neg(x) }}>"
        )

    def outermost(depth: int) -> Verdict:
        return verdicts(f"g (bool c, float[2] x) => (float[2] y) {{ y = {nested(depth)} }}")["If"]

    assert outermost(24).supported
    assert outermost(25).code == ReasonCode.CONTROL_FLOW


def test_two_nodes_that_differ_in_a_constant_alone_get_a_verdict_each() -> None:
    graph = view(
        "g (float[9999] x) => (float[2] a, float[4000] b) <int64[1] few = {2}, int64[1] many = {4000}>"
        " { a, i = TopK(x, few) b, j = TopK(x, many) }"
    )

    assert [v.supported for v in label_nodes(graph, label, PartitionOptions()).values()] == [True, False]


def test_each_kind_of_node_is_labelled_once() -> None:
    asked: list[str] = []
    chain = " ".join(f"v{n} = Relu(v{n - 1})" for n in range(1, 40))

    def count(node: Any) -> Verdict:
        asked.append(node.name)
        return label(node)

    label_nodes(view(f"g (float[2] v0) => (float[2] v39) {{ {chain} }}"), count, PartitionOptions())

    assert len(asked) == 1
