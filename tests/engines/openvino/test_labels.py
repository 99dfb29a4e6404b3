"""Labels of OpenVINO: it takes nodes that it computes right for every value, not just for those of a check."""

from __future__ import annotations

import pathlib
from typing import Any

import onnx
import pytest

from model_texts import parse
from trtnode.engines.openvino.labels import label
from trtnode.engines.openvino.operator_rules import ATTRIBUTE_RULES
from trtnode.engines.openvino.operators import CONSTANT_INPUTS, SUPPORTED_OPS
from trtnode.partitioner.cut.labels import CONTRIB_OPS, ReasonCode, Verdict
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.loading import load_model
from trtnode.partitioner.passes.clean_up import clean_up
from workshop import Workshop


def verdicts(workshop: Workshop, graph: str, opset: int = 21) -> dict[str, Verdict]:
    """Of every node of the cleaned graph, by its operator."""
    return {node.op_type: label(node) for node in cleaned(workshop.write(graph, opset=opset)).nodes}


def cleaned(path: pathlib.Path) -> Graph:
    return clean_up(load_model(path))


@pytest.mark.parametrize("op", sorted(SUPPORTED_OPS))
def test_supported_operators_exist(op: str) -> None:
    assert onnx.defs.has(op) or op in CONTRIB_OPS


@pytest.mark.parametrize("op", sorted({*CONSTANT_INPUTS, *ATTRIBUTE_RULES}))
def test_rules_are_about_supported_operators(op: str) -> None:
    assert op in SUPPORTED_OPS


def refused(op: str, graph: str, code: ReasonCode, detail: str, name: str = "", opset: int = 21) -> Any:
    return pytest.param(op, graph, code, detail, opset, id=name or op)


@pytest.mark.parametrize(
    ("op", "graph", "code", "detail", "opset"),
    [
        refused(
            "Mod",
            "g (float[3] x, float[3] z) => (float[3] y) { y = Mod<fmod = 1>(x, z) }",
            ReasonCode.UNSUPPORTED_ATTRIBUTE,
            "off by a whole period",
            "remainder",
        ),
        refused(
            "Range",
            "g (float[N] x) => (int64[M] y) <int64 zero = {0}> { s = Shape(x) n = Squeeze(s) y = Range(zero, n, n) }",
            ReasonCode.UNSUPPORTED_ATTRIBUTE,
            "The step of Range must be a constant other than 0.",
        ),
        refused(
            "Clip",
            "g (float[3] x, float[3] z) => (float[3] y) { y = Clip(x, z) }",
            ReasonCode.UNKNOWN_SHAPE,
            "Sizes 3 and 1 may differ",
            "bounds",
        ),
        refused(
            "Gemm",
            "g (float[N,3] x, float[3,4] z, float[M,4] c) => (float[N,4] y) { y = Gemm(x, z, c) }",
            ReasonCode.UNKNOWN_SHAPE,
            "Sizes M and N may differ",
            "summand",
        ),
        refused(
            "Attention",
            "g (float[N,2,4,8] x, float[M,2,5,8] z) => (float[N,2,4,8] y) { y = Attention(x, z, z) }",
            ReasonCode.UNKNOWN_SHAPE,
            "Sizes M and N may differ",
            "batches",
            opset=23,
        ),
        refused(
            "LSTM",
            "g (float[4,2,3] x, float[1,20,3] w, float[1,20,5] r, int32[2] l) => (float[4,1,2,5] y)"
            " { y = LSTM<hidden_size = 5>(x, w, r, , l) }",
            ReasonCode.UNSUPPORTED_ATTRIBUTE,
            "beyond the lengths of sequences",
            "lengths",
        ),
        refused(
            "Det", "g (float[3,3] x) => (float y) { y = Det(x) }", ReasonCode.UNSUPPORTED_OP, "OpenVINO has no Det"
        ),
        refused(
            "Exp",
            "g (double[3] x) => (double[3] y) { y = Exp(x) }",
            ReasonCode.UNSUPPORTED_DTYPE,
            "'x' is double",
            "float64",
        ),
        refused(
            "BatchNormalization",
            "g (float[2,3] x, float[3] s) => (float[2,3] y, float[3] m, float[3] v)"
            " { y, m, v = BatchNormalization<training_mode = 1>(x, s, s, s, s) }",
            ReasonCode.UNSUPPORTED_ATTRIBUTE,
            "only the inference form",
            "statistics",
        ),
        refused(
            "Relu",
            "g (float[0,3] x) => (float[0,3] y) { y = Relu(x) }",
            ReasonCode.UNSUPPORTED_RANK,
            "'x' has no elements",
            "empty",
        ),
        refused(
            "Add",
            "g (int64[3] x) => (int64[3] y) { y = Add(x, x) }",
            ReasonCode.UNSUPPORTED_DTYPE,
            "could overflow",
            "int64-sum",
        ),
        refused(
            "Cast",
            "g (float[3] x) => (int64[3] y) { y = Cast<to = 7>(x) }",
            ReasonCode.UNSUPPORTED_DTYPE,
            "range of int32",
            "int64-from-float",
        ),
        refused(
            "Max",
            "g (int64[3] x) => (int64[3] y) <int64 c = {4294967296}> { y = Max(x, c) }",
            ReasonCode.UNSUPPORTED_INPUT,
            "'c' does not fit into 32 bits",
            "int64-constant",
        ),
        refused(
            "Equal",
            "g (int32[3] x, int32[3] z) => (bool[3] y) { y = Equal(x, z) }",
            ReasonCode.UNSUPPORTED_DTYPE,
            "float32 and lose digits",
            "comparison-of-integers",
        ),
        refused(
            "Sub",
            "g (uint8[3] x, uint8[3] z) => (uint8[3] y) { y = Sub(x, z) }",
            ReasonCode.UNSUPPORTED_DTYPE,
            "would not wrap around",
            "bytes-that-wrap",
        ),
        refused(
            "ScatterND",
            "g (int64[3] x, int64[1] u) => (int64[3] y) <int64[1,1] i = {0}> {"
            ' y = ScatterND<reduction = "add">(x, i, u) }',
            ReasonCode.UNSUPPORTED_DTYPE,
            "reduced in 32 bits",
            "int64-scattered",
        ),
        refused(
            "Reshape",
            "g (float[6] x, int64[2] s) => (float[a,b] y) { y = Reshape(x, s) }",
            ReasonCode.UNSUPPORTED_INPUT,
            "Input 1 ('s') of Reshape must be a constant",
            "shape-as-input",
        ),
        refused(
            "Resize",
            "g (float[1,1,4,4] x) => (float[1,1,8,8] y) <float[4] f = {1,1,2,2}> {"
            ' y = Resize<mode = "cubic">(x, , f) }',
            ReasonCode.UNSUPPORTED_ATTRIBUTE,
            "cubic",
            "cubic",
        ),
        refused(
            "Resize",
            "g (float[1,1,4,4] x) => (float[1,1,2,2] y) <float[4] f = {1,1,0.5,0.5}> {"
            ' y = Resize<mode = "linear", antialias = 1>(x, , f) }',
            ReasonCode.UNSUPPORTED_ATTRIBUTE,
            "antialias",
            "antialias",
        ),
        refused(
            "TopK",
            "g (float[9] x) => (float[2] y, int64[2] i) <int64[1] k = {2}> { y, i = TopK(x, k) }",
            ReasonCode.UNSUPPORTED_ATTRIBUTE,
            "equal elements",
            "indices-of-ties",
        ),
        refused(
            "MaxPool",
            "g (float[1,1,4,4] x) => (float[1,1,2,2] y) { y = MaxPool<kernel_shape = [3,3], strides = [2,2],"
            " ceil_mode = 1>(x) }",
            ReasonCode.UNSUPPORTED_ATTRIBUTE,
            "ceil_mode",
            "ceil-mode",
        ),
        refused(
            "MaxPool",
            "g (float[1,1,4,4] x) => (float[1,1,2,2] y, int64[1,1,2,2] i) { y, i = MaxPool<kernel_shape = [2,2],"
            " strides = [2,2]>(x) }",
            ReasonCode.UNSUPPORTED_DTYPE,
            "MaxPool on int64",
            "pool-indices",
        ),
        refused(
            "Mod",
            "g (float[3] x) => (float[3] y) <float c = {2}> { y = Mod(x, c) }",
            ReasonCode.UNSUPPORTED_ATTRIBUTE,
            "fmod",
            "mod",
        ),
        refused(
            "Pad",
            'g (float[3] x) => (float[5] y) <int64[2] p = {1,1}> { y = Pad<mode = "wrap">(x, p) }',
            ReasonCode.UNSUPPORTED_ATTRIBUTE,
            "wrap",
            "wrap",
        ),
        refused(
            "LSTM",
            "g (float[2,1,3] x, float[1,8,3] w, float[1,8,2] r, float[1,6] p) => (float[2,1,1,2] y) {"
            " y = LSTM<hidden_size = 2>(x, w, r, , , , , p) }",
            ReasonCode.UNSUPPORTED_ATTRIBUTE,
            "peephole",
            "peephole",
        ),
        refused(
            "GRU",
            "g (float[1,2,3] x, float[1,6,3] w, float[1,6,2] r) => (float[1,2,1,2] y) {"
            " y = GRU<hidden_size = 2, layout = 1>(x, w, r) }",
            ReasonCode.UNSUPPORTED_ATTRIBUTE,
            "layout=1",
            "layout",
        ),
        refused(
            "Dropout",
            "g (float[3] x) => (float[3] y, bool[3] m) { y, m = Dropout(x) }",
            ReasonCode.UNSUPPORTED_ATTRIBUTE,
            "inference form of Dropout",
            "dropout-mask",
        ),
        refused(
            "QuantizeLinear",
            "g (float[3] x) => (uint16[3] y) <float s = {1}, uint16 z = {0}> { y = QuantizeLinear(x, s, z) }",
            ReasonCode.UNSUPPORTED_DTYPE,
            "uint16",
            "16-bit-quantization",
        ),
        refused(
            "BitShift",
            'g (uint8[3] x) => (uint8[3] y) <uint8 c = {1}> { y = BitShift<direction = "LEFT">(x, c) }',
            ReasonCode.UNSUPPORTED_ATTRIBUTE,
            "stops at the end of the range",
            "left-shift",
        ),
        refused(
            "BitShift",
            'g (uint8[3] x, uint8[3] c) => (uint8[3] y) { y = BitShift<direction = "RIGHT">(x, c) }',
            ReasonCode.UNSUPPORTED_INPUT,
            "must be a constant",
            "shift-of-a-request",
        ),
        refused(
            "BitShift",
            'g (uint8[3] x) => (uint8[3] y) <uint8 c = {8}> { y = BitShift<direction = "RIGHT">(x, c) }',
            ReasonCode.UNSUPPORTED_ATTRIBUTE,
            "by the width and more",
            "shift-by-the-width",
        ),
        refused(
            "GridSample",
            'g (float[1,1,4,4] x, float[1,2,2,2] p) => (float[1,1,2,2] y) { y = GridSample<mode = "cubic">(x, p) }',
            ReasonCode.UNSUPPORTED_ATTRIBUTE,
            "cubic GridSample",
        ),
        refused(
            "Attention",
            "g (float[1,2,3,4] q, float[3,3] m) => (float[1,2,3,4] y) { y = Attention(q, q, q, m) }",
            ReasonCode.UNSUPPORTED_ATTRIBUTE,
            "a mask hides whole",
            "masked-attention",
            opset=24,
        ),
        refused(
            "RoiAlign",
            "g (float[1,1,4,4] x, float[1,4] r, int64[1] b) => (float[1,1,1,1] y) {"
            ' y = RoiAlign<mode = "max">(x, r, b) }',
            ReasonCode.UNSUPPORTED_ATTRIBUTE,
            "maximum mode of RoiAlign",
        ),
    ],
)
def test_node_that_openvino_computes_wrong_is_refused_with_a_reason(
    op: str, graph: str, code: ReasonCode, detail: str, opset: int, workshop: Workshop
) -> None:
    verdict = verdicts(workshop, graph, opset)[op]

    assert verdict.code == code
    assert detail in verdict.detail


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param("g (float[N,4] x) => (float[N,4] y) { e = Exp(x) y = Softmax(e) }", id="floats"),
        pytest.param(
            "g (int32[3] x, int32[3] z) => (int32[3] y) { m = Mul(x, z) y = Add(m, z) }", id="int32-arithmetic"
        ),
        pytest.param(
            "g (int64[3] x) => (bool[3] y, bool[3] z) <int64 c = {0}, int64 d = {-16777215}> {"
            " y = Equal(x, c) z = Less(d, x) }",
            id="comparison-with-a-small-constant",
        ),
        pytest.param(
            "g (float[N,T,8] x) => (float[N,M] y) <int64[1] zero = {0}, int64[1] one = {1}, int64[1] rest = {-1}> {"
            " s = Shape(x) n = Slice(s, zero, one) t = Concat<axis = 0>(n, rest) y = Reshape(x, t) }",
            id="shape-arithmetic",
        ),
        pytest.param(
            "g (float[N,T] x) => (float[N,T] y) <int64[2] minus = {-1,-1}> {"
            " s = Shape(x) r = Shape(s) one = ConstantOfShape<value = int64[1] {1}>(r) e = Equal(s, minus)"
            " t = Where(e, one, s) y = Expand(x, t) }",
            id="expand-as-exporters-write-it",
        ),
        pytest.param(
            "g (float[N] x) => (int64[M] y, float[T] z) <int64 zero = {0}, int64 two = {2}, int64[1] one = {1}> {"
            " s = Shape(x) n = Squeeze(s) y = Range(zero, n, two) t = Concat<axis = 0>(s) z = Tile(x, t) }",
            id="lengths-of-dimensions",
        ),
        pytest.param("g (uint8[3] x) => (uint8[3] y) <uint8 c = {7}> { y = Max(x, c) }", id="bytes-that-stay"),
        pytest.param(
            "g (float[2,2] x) => (float[2,2] y) <float s = {0.1}, int8 z = {0}> {"
            " q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }",
            id="8-bit-quantization",
        ),
        pytest.param(
            "g (float[1,1,4,4] x, float[1,2,2,2] p) => (float[1,1,2,2] y) { y = GridSample(x, p) }", id="image-grid"
        ),
        pytest.param(
            'g (int8[3] x) => (int8[3] y) <int8 c = {7}> { y = BitShift<direction = "RIGHT">(x, c) }', id="byte-shift"
        ),
        pytest.param(
            "g (int32[3] x, int32[3] z) => (int32[3] y) { n = BitwiseNot(x) y = BitwiseXor(n, z) }", id="bits"
        ),
        pytest.param(
            "g (int64[N] x) => (float[N,3] y) <int64 d = {3}, float[2] v = {0.0, 1.0}> { y = OneHot(x, d, v) }",
            id="one-hot",
        ),
        pytest.param("g (float[N] x) => (bool[N] y, bool[N] z) { y = IsNaN(x) z = IsInf(x) }", id="odd-floats"),
        pytest.param(
            "g (float[N,4,8] x, float[9,4] c, float[9,4] s, int64[N,4] p) => (float[N,4,8] y) {"
            " y = RotaryEmbedding<num_heads = 1>(x, c, s, p) }",
            id="rotary-embedding",
        ),
    ],
)
def test_node_that_openvino_computes_right_is_taken(graph: str, workshop: Workshop) -> None:
    path = workshop.folder / "unsorted.onnx"
    proto = parse(graph, opset=28)
    path.write_bytes(proto.SerializeToString())

    refusals = {n.op_type: v.detail for n in cleaned(path).nodes if not (v := label(n)).supported}

    assert refusals == {}
