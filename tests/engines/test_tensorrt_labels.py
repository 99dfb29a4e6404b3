"""Which nodes TensorRT takes, told from tables: TensorRT itself is not needed, and was not asked."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

import onnx
import pytest

from engines.tensorrt_labels import label
from engines.tensorrt_ops import (
    ABSENT_INPUTS,
    ATTRIBUTES,
    CONSTANT_INPUTS,
    DATA_DEPENDENT,
    DTYPES,
    FIRST_OUTPUT_ALONE,
    FORBIDDEN_ATTRIBUTES,
    RANKS,
    SIZING_INPUTS,
    UNDILATED,
)
from engines.tensorrt_rules import OPERATOR_RULES
from partitioner import Allowance, Graph, PartitionOptions, ReasonCode, Verdict, label_nodes
from partitioner.loading import view_model

ONE_AXIS = "<int64[1] axes = {1}>"
WINDOW = "g () => (float[8] y) <int64 size = {8}> { y = # (size) }"
IMAGE = "float[1,2,8,8]"
POOL = f"g ({IMAGE} x) => (float[1,2,4,4] y) {{ y = # <kernel_shape = [2,2], strides = [2,2]>(x) }}"
GLOBAL_POOL = f"g ({IMAGE} x) => (float[1,2,1,1] y) {{ y = # (x) }}"

UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Clip Cos Cosh Dropout Elu Erf Exp Floor Gelu HardSigmoid HardSwish"
    " Hardmax Identity LeakyRelu Log LogSoftmax LpNormalization Mish Neg Reciprocal Relu Round Selu Shrink Sigmoid Sign"
    " Sin Sinh Softmax Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu Trilu EyeLike RandomNormalLike"
    " RandomUniformLike"
)
BINARY = "Add CastLike Div Max Mean Min Mul PRelu Pow Sub Sum"
COMPARING = "Equal Greater GreaterOrEqual Less LessOrEqual"
REDUCING = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare"

BASE_CASES: dict[str, str] = {
    **dict.fromkeys(UNARY.split(), "g (float[2,3] x) => (float[2,3] y) { y = # (x) }"),
    **dict.fromkeys(BINARY.split(), "g (float[2,3] x, float[2,3] z) => (float[2,3] y) { y = # (x, z) }"),
    **{
        f"Reduce{op}": f"g (float[2,3] x) => (float[2,1] y) {ONE_AXIS} {{ y = # (x, axes) }}" for op in REDUCING.split()
    },
    **dict.fromkeys(
        ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
        "g (float[2] x, float[2] z) => (bool[2] y) { y = # (x, z) }",
    ),
    **dict.fromkeys(("And", "Or", "Xor"), "g (bool[2] x, bool[2] z) => (bool[2] y) { y = # (x, z) }"),
    **dict.fromkeys(("ArgMax", "ArgMin"), "g (float[2,3] x) => (int64[1,3] y) { y = # (x) }"),
    **dict.fromkeys(("IsInf", "IsNaN"), "g (float[2] x) => (bool[2] y) { y = # (x) }"),
    **dict.fromkeys(("Shape", "Size"), "g (float[2,3] x) => (int64 y) { y = # (x) }"),
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), WINDOW),
    **dict.fromkeys(
        ("AveragePool", "LpPool", "MaxPool"),
        f"g ({IMAGE} x) => (float[1,2,4,4] y) {{ y = # <kernel_shape = [2,2], strides = [2,2]>(x) }}",
    ),
    **dict.fromkeys(
        ("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"), f"g ({IMAGE} x) => (float[1,2,1,1] y) {{ y = # (x) }}"
    ),
    **dict.fromkeys(("RandomNormal", "RandomUniform"), "g () => (float[2] y) { y = # <shape = [2]>() }"),
    **{
        op: f"g (float[2,1,3] x, float[1,{4 * n},3] w, float[1,{4 * n},4] r) => (float[2,1,1,4] y)"
        " { y = # <hidden_size = 4>(x, w, r) }"
        for op, n in (("GRU", 3), ("LSTM", 4), ("RNN", 1))
    },
    "Attention": "g (float[1,2,3,4] q) => (float[1,2,3,4] y) { y = # (q, q, q) }",
    "BatchNormalization": f"g ({IMAGE} x, float[2] s) => ({IMAGE} y) {{ y = # (x, s, s, s, s) }}",
    "Cast": "g (float[2] x) => (int32[2] y) { y = # <to = 6>(x) }",
    "Concat": "g (float[2] x) => (float[4] y) { y = # <axis = 0>(x, x) }",
    "ConstantOfShape": "g (float[N] x) => (float[N] y) { s = Shape(x) y = # (s) }",
    "Conv": f"g ({IMAGE} x, float[3,2,3,3] w) => (float[1,3,6,6] y) {{ y = # (x, w) }}",
    "ConvTranspose": f"g ({IMAGE} x, float[2,3,3,3] w) => (float[1,3,10,10] y) {{ y = # (x, w) }}",
    "CumSum": "g (float[2] x) => (float[2] y) <int64 a = {0}> { y = # (x, a) }",
    "DeformConv": f"g ({IMAGE} x, float[1,2,3,3] w, float[1,18,6,6] o) => (float[1,1,6,6] y)"
    " <float[1] n = {0}> { y = # <group = 2>(x, w, o) }",
    "DepthToSpace": "g (float[1,4,2,2] x) => (float[1,1,4,4] y) { y = # <blocksize = 2>(x) }",
    "DequantizeLinear": "g (int8[2] x) => (float[2] y) <float s = {0.1}, int8 z = {0}> { y = # (x, s, z) }",
    "Einsum": 'g (float[2,3] x) => (float[2] y) { y = # <equation = "ij->i">(x) }',
    "Expand": "g (float[1] x) => (float[2] y) <int64[1] s = {2}> { y = # (x, s) }",
    "Flatten": "g (float[2,3,4] x) => (float[2,12] y) { y = # (x) }",
    "Gather": "g (float[4] x, int64[2] i) => (float[2] y) { y = # (x, i) }",
    "GatherElements": "g (float[4] x, int64[2] i) => (float[2] y) { y = # (x, i) }",
    "GatherND": "g (float[4] x, int64[2,1] i) => (float[2] y) { y = # (x, i) }",
    "Gemm": "g (float[2,3] x, float[3,2] w) => (float[2,2] y) { y = # (x, w) }",
    "GridSample": f"g ({IMAGE} x, float[1,4,4,2] p) => (float[1,2,4,4] y) {{ y = # (x, p) }}",
    "GroupNormalization": f"g ({IMAGE} x, float[2] s) => ({IMAGE} y) {{ y = # <num_groups = 2>(x, s, s) }}",
    "If": "g (bool c, float[2] x) => (float[2] y) { y = # (c) <then_branch = t () => (float[2] a) { a = Relu(x) },"
    " else_branch = e () => (float[2] b) { b = Neg(x) }> }",
    "InstanceNormalization": f"g ({IMAGE} x, float[2] s) => ({IMAGE} y) {{ y = # (x, s, s) }}",
    "LRN": f"g ({IMAGE} x) => ({IMAGE} y) {{ y = # <size = 3>(x) }}",
    "LayerNormalization": "g (float[2,3] x, float[3] s) => (float[2,3] y) { y = # (x, s) }",
    "Loop": "g (float[2] x) => (float[2] y) <int64 n = {3}, bool c = {1}> { y = # (n, c, x) <body = b"
    " (int64 i, bool k, float[2] a) => (bool l, float[2] d) { l = Identity(k) d = Relu(a) }> }",
    "MatMul": "g (float[2,3] x, float[3,2] w) => (float[2,2] y) { y = # (x, w) }",
    "MeanVarianceNormalization": f"g ({IMAGE} x) => ({IMAGE} y) {{ y = # (x) }}",
    "Mod": "g (float[2] x) => (float[2] y) { y = # <fmod = 1>(x, x) }",
    "NonMaxSuppression": "g (float[1,6,4] b, float[1,1,6] s) => (int64[N,3] y) { y = # (b, s) }",
    "NonZero": "g (float[2,3] x) => (int64[2,N] y) { y = # (x) }",
    "Not": "g (bool[2] x) => (bool[2] y) { y = # (x) }",
    "OneHot": "g (int64[2] x) => (float[2,3] y) <int64 d = {3}, float[2] v = {0, 1}> { y = # (x, d, v) }",
    "Pad": "g (float[2] x) => (float[4] y) <int64[2] p = {1, 1}> { y = # (x, p) }",
    "QuantizeLinear": "g (float[2] x) => (int8[2] y) <float s = {0.1}, int8 z = {0}> { y = # (x, s, z) }",
    "RMSNormalization": "g (float[2,3] x, float[3] s) => (float[2,3] y) { y = # (x, s) }",
    "Range": "g () => (int64[3] y) <int64 a = {0}, int64 b = {3}, int64 c = {1}> { y = # (a, b, c) }",
    "Reshape": "g (float[6] x) => (float[2,3] y) <int64[2] s = {2, 3}> { y = # (x, s) }",
    "Resize": f"g ({IMAGE} x) => (float[1,2,16,16] y) <float[4] f = {{1, 1, 2, 2}}> {{ y = # (x, , f) }}",
    "ReverseSequence": "g (float[4,2] x, int64[2] n) => (float[4,2] y) { y = # (x, n) }",
    "RoiAlign": f"g ({IMAGE} x, float[1,4] r, int64[1] b) => (float[1,2,1,1] y) {{ y = # (x, r, b) }}",
    "RotaryEmbedding": "g (float[1,2,3,4] x, float[1,3,2] c) => (float[1,2,3,4] y) { y = # (x, c, c) }",
    "STFT": "g (float[1,64,1] x) => (float[1,7,9,2] y) <int64 step = {8},"
    " float[16] w = {1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1}>"
    " { y = # (x, step, w) }",
    "Scan": "g (float[3,2] x, float[2] s) => (float[2] y, float[3,2] z) { y, z = # <num_scan_inputs = 1, body = b"
    " (float[2] a, float[2] e) => (float[2] c, float[2] d) { c = Add(a, e) d = Identity(c) }>(s, x) }",
    "Scatter": "g (float[4] x, int64[2] i, float[2] u) => (float[4] y) { y = # (x, i, u) }",
    "ScatterElements": "g (float[4] x, int64[2] i, float[2] u) => (float[4] y) { y = # (x, i, u) }",
    "ScatterND": "g (float[4] x, int64[2,1] i, float[2] u) => (float[4] y) { y = # (x, i, u) }",
    "Slice": "g (float[4] x) => (float[2] y) <int64[1] a = {1}, int64[1] b = {3}> { y = # (x, a, b) }",
    "SpaceToDepth": "g (float[1,1,4,4] x) => (float[1,4,2,2] y) { y = # <blocksize = 2>(x) }",
    "Split": "g (float[4] x) => (float[2] y, float[2] z) { y, z = # <num_outputs = 2>(x) }",
    "Squeeze": f"g (float[2,1] x) => (float[2] y) {ONE_AXIS} {{ y = # (x, axes) }}",
    "TensorScatter": "g (float[1,2,4,3] p, float[1,2,1,3] u) => (float[1,2,4,3] y) { y = # (p, u) }",
    "Tile": "g (float[2] x) => (float[4] y) <int64[1] r = {2}> { y = # (x, r) }",
    "TopK": "g (float[4] x) => (float[2] y, int64[2] i) <int64[1] k = {2}> { y, i = # (x, k) }",
    "Transpose": "g (float[2,3] x) => (float[3,2] y) { y = # (x) }",
    "Unsqueeze": f"g (float[2] x) => (float[2,1] y) {ONE_AXIS} {{ y = # (x, axes) }}",
    "Upsample": f"g ({IMAGE} x) => (float[1,2,16,16] y) <float[4] f = {{1, 1, 2, 2}}> {{ y = # (x, f) }}",
    "Where": "g (bool[2] c, float[2] x) => (float[2] y) { y = # (c, x, x) }",
}
"""A node of each operator that TensorRT takes; # stands for its name."""

OPSETS = {"Scatter": 10, "Upsample": 9}
"""Of operators that ONNX has dropped since."""


def view(text: str, opset: int = 24) -> Graph:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {text}')
    model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    return Graph.of(view_model(model, pathlib.Path("model.onnx")))


def verdicts(text: str, allow: Sequence[Allowance] = (), opset: int = 24) -> dict[str, Verdict]:
    return {node.op_type: label(node, allow) for node in view(text, opset).nodes}


@pytest.mark.parametrize("op", sorted(DTYPES))
def test_every_operator_of_the_table_is_taken_in_its_plain_form(op: str) -> None:
    verdict = verdicts(BASE_CASES[op].replace("#", op), tuple(Allowance), OPSETS.get(op, 24))[op]

    assert verdict == Verdict()


@pytest.mark.parametrize(
    "table",
    [
        ABSENT_INPUTS,
        ATTRIBUTES,
        CONSTANT_INPUTS,
        DATA_DEPENDENT,
        FIRST_OUTPUT_ALONE,
        FORBIDDEN_ATTRIBUTES,
        OPERATOR_RULES,
        RANKS,
        SIZING_INPUTS,
        UNDILATED,
    ],
)
def test_tables_are_about_operators_that_tensorrt_has(table: Any) -> None:
    assert set(table) <= set(DTYPES)


def test_nodes_of_which_nothing_is_known_are_labelled_without_an_exception() -> None:
    model = onnx.ModelProto(ir_version=10, opset_import=[onnx.OperatorSetIdProto(version=24)])
    for op in sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}):
        schema = onnx.defs.get_schema(op)
        inputs = [f"{op}_in_{n}" for n in range(schema.min_input)]
        outputs = [f"{op}_out_{n}" for n in range(schema.min_output)]
        model.graph.node.append(onnx.helper.make_node(op, inputs, outputs))
        model.graph.input.extend(onnx.ValueInfoProto(name=name) for name in inputs)

    graph = Graph.of(view_model(model, pathlib.Path("model.onnx")))

    assert all(label(node).detail.endswith(".") for node in graph.nodes if node.op.inputs)
    assert not any(v.supported for v in label_nodes(graph, label, PartitionOptions()).values())


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
        refused("Equal", "g (string[3] x) => (bool[3] y) { y = Equal(x, x) }", DTYPE, "does not have", "string"),
        refused("Add", "g (uint16[3] x) => (uint16[3] y) { y = Add(x, x) }", DTYPE, "does not have", "uint16"),
        refused("Sqrt", "g (double[3] x) => (double[3] y) { y = Sqrt(x) }", DTYPE, "float32", "double"),
        refused("Clip", "g (int32[3] x) => (int32[3] y) { y = Clip(x) }", DTYPE, "no Clip for it", "integers"),
        refused("Mish", "g (bfloat16[3] x) => (bfloat16[3] y) { y = Mish(x) }", DTYPE, "no Mish for it", "bfloat16"),
        refused("Pad", "g (bool[2] x) => (bool[4] y) <int64[2] p = {1,1}> { y = Pad(x, p) }", DTYPE, "bool", "bool"),
        refused("Add", "g (int8[3] x) => (int8[3] y) { y = Add(x, x) }", DTYPE, "only between", "int8"),
        refused("Reshape", "g (uint8[4] x) => (uint8[2,2] y) <int64[2] s = {2,2}> { y = Reshape(x, s) }", DTYPE,
                "only between", "uint8"),
        refused("Gather", "g (double[3] x, int64[1] i) => (double[1] y) { y = Gather(x, i) }", DTYPE, "'x'", "double"),
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
        refused("RandomUniform", "g () => (double[2] y) { y = RandomUniform<shape = [2], dtype = 11>() }", DTYPE,
                "double", "double"),
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
