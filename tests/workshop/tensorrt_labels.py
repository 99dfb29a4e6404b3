"""Operators that TensorRT's parser has, each in its plain form, and the verdicts of the tables on them."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import onnx

from model_texts import parse
from trtnode.engines.tensorrt.labelling.labels import label
from trtnode.engines.tensorrt.labelling.tables import TENSORRT, ParserTable
from trtnode.partitioner.cut.labels import Verdict
from trtnode.partitioner.cut.options import Allowance
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.loading import view_model

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
    "Shape": "g (float[2,3] x) => (int64[2] y) { y = # (x) }",
    "Size": "g (float[2,3] x) => (int64 y) { y = # (x) }",
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
    model = parse(text, opset=opset)
    model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    return Graph.of(view_model(model, pathlib.Path("model.onnx")))


def verdicts(
    text: str, allow: Sequence[Allowance] = (), opset: int = 24, table: ParserTable = TENSORRT
) -> dict[str, Verdict]:
    return {node.op_type: label(node, allow, table) for node in view(text, opset).nodes}
