"""Tables of TensorRT's ONNX parser: operators, element types, attributes, constant inputs, ranks.

Restated from onnx-tensorrt's operator table for TensorRT 11.1 and the static checks of its parser
(https://github.com/onnx/onnx-tensorrt/blob/main/docs/operators.md). The tables serve machines without TensorRT; where
it is installed, its parser is asked as well.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

OPSETS = range(9, 25)
"""Opsets of ONNX that the parser is written for."""

MAX_RANK = 8
MAX_DEPTH = 24
"""Of subgraphs in subgraphs."""

MAX_K = 3839
"""The most elements that TopK gives."""

FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
NUMBERS = FLOATS | {ir.DataType.INT32, ir.DataType.INT64}
PLAIN = NUMBERS | {ir.DataType.BOOL}
"""Element types of an engine's tensors without quantization."""

QUANTIZED = frozenset({ir.DataType.INT8, ir.DataType.FLOAT8E4M3FN, ir.DataType.INT4, ir.DataType.FLOAT4E2M1})
"""Element types between QuantizeLinear and DequantizeLinear alone."""

BLOCKED = frozenset({ir.DataType.INT4, ir.DataType.FLOAT4E2M1})
"""Quantized types that may be quantized in blocks."""

_RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")

_OPERATORS = {
    FLOATS: "Acos Acosh Asin Asinh Atan Atanh Attention AveragePool BatchNormalization Ceil Celu Clip Conv"
    " ConvTranspose Cos Cosh CumSum DequantizeLinear Dropout Einsum Elu Erf Exp Floor GRU Gemm GlobalAveragePool"
    " GlobalLpPool GlobalMaxPool GroupNormalization HardSigmoid HardSwish Hardmax InstanceNormalization IsInf LRN LSTM"
    " LayerNormalization LeakyRelu Log LogSoftmax LpNormalization LpPool MatMul MaxPool MeanVarianceNormalization"
    " PRelu QuantizeLinear RMSNormalization RNN RandomNormal RandomNormalLike RandomUniform RandomUniformLike"
    " Reciprocal Resize RotaryEmbedding Round Scan Selu Sigmoid Sin Sinh Softmax Softplus Softsign Sqrt Swish Tan Tanh"
    " ThresholdedRelu Upsample",
    NUMBERS: "Abs Add ArgMax ArgMin DepthToSpace Div Equal Gelu Greater GreaterOrEqual IsNaN Less LessOrEqual Max Mean"
    " Min Mod Mul Neg Pad Pow Range ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin"
    " ReduceProd ReduceSum ReduceSumSquare Relu Scatter ScatterElements ScatterND Shrink Sign SpaceToDepth Sub Sum"
    " TopK",
    PLAIN: "Cast CastLike Concat ConstantOfShape Expand EyeLike Flatten Gather GatherElements GatherND Identity If"
    " Loop OneHot Reshape ReverseSequence Shape Size Slice Split Squeeze Tile Transpose Trilu Unsqueeze Where",
    frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16}): "BlackmanWindow DeformConv GridSample HammingWindow HannWindow"
    " Mish NonMaxSuppression NonZero RoiAlign",
    frozenset({ir.DataType.BOOL}): "And Not Or Xor",
    frozenset({ir.DataType.FLOAT}): "STFT",
    FLOATS | {ir.DataType.INT32}: "TensorScatter",
}

DTYPES: Mapping[str, frozenset[ir.DataType]] = {op: kinds for kinds, ops in _OPERATORS.items() for op in ops.split()}
"""The operators, and the element types that each computes on. Quantized types are left to the quantizing nodes."""

DATA_DEPENDENT = frozenset({"NonMaxSuppression", "NonZero", "RoiAlign"})
"""Operators whose work or result size depends on values: known to run slower inside an engine than natively."""

CONSTANT_INPUTS: Mapping[str, tuple[int, ...]] = {
    "CumSum": (1,),
    "DequantizeLinear": (1, 2),
    "Dropout": (2,),
    "OneHot": (1,),
    "QuantizeLinear": (1, 2),
    **dict.fromkeys(
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum"
        " ReduceSumSquare".split(),
        (1,),
    ),
    "STFT": (1, 2),
    "Squeeze": (1,),
    "Unsqueeze": (1,),
}
"""Inputs that must be known when the engine is built."""

SIZING_INPUTS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys("BlackmanWindow ConstantOfShape HammingWindow HannWindow".split(), (0,)),
    **dict.fromkeys("Expand Pad Reshape Split Tile TopK Upsample".split(), (1,)),
    "Range": (0, 1, 2),
    "Resize": (2, 3),
    "Slice": (1, 2, 3, 4),
}
"""Inputs that determine the size of a result: constants, or shape arithmetic inside the engine."""

ATTRIBUTES: Mapping[str, Mapping[str, tuple[int | float | str, ...]]] = {
    "Attention": {"qk_matmul_output_mode": (0,), "softcap": (0.0,)},
    "BatchNormalization": {"training_mode": (0,)},
    "GRU": {"layout": (0,)},
    "LSTM": {"input_forget": (0,), "layout": (0,)},
    "LpNormalization": {"p": (1, 2)},
    "LpPool": {"p": (1, 2)},
    "RNN": {"layout": (0,)},
    **{op: {"dtype": (ir.DataType.FLOAT.value, ir.DataType.FLOAT16.value)} for op in _RANDOM},
    "Resize": {
        "antialias": (0,),
        "coordinate_transformation_mode": (
            "half_pixel",
            "pytorch_half_pixel",
            "tf_half_pixel_for_nn",
            "asymmetric",
            "align_corners",
        ),
        "keep_aspect_ratio_policy": ("stretch",),
        "mode": ("nearest", "linear"),
        "nearest_mode": ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"),
    },
    "RoiAlign": {
        "coordinate_transformation_mode": ("half_pixel", "output_half_pixel"),
        "mode": ("avg", "max"),
    },
    "ScatterElements": {"reduction": ("none", "add", "mul", "max", "min")},
    "ScatterND": {"reduction": ("none",)},
    "TensorScatter": {"axis": (-2,), "mode": ("linear",)},
    "TopK": {"sorted": (1,)},
    "Upsample": {"mode": ("nearest", "linear", "bilinear")},
}
"""The values that an attribute may have; an attribute that is left out has its default, which is always allowed."""

FORBIDDEN_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "Attention": ("softmax_precision",),
    **dict.fromkeys(_RANDOM, ("seed",)),
}

UNDILATED = frozenset({"AveragePool", "LpPool", "MaxPool"})
"""Operators whose dilations must all be one."""

FIRST_OUTPUT_ALONE = frozenset({"Attention", "BatchNormalization", "LayerNormalization", "MaxPool"})

RANKS: Mapping[str, Mapping[int, tuple[int, ...]]] = {
    "Attention": {0: (4,), 1: (4,), 2: (4,), 3: (4,)},
    "AveragePool": {0: (4, 5)},
    "DeformConv": {0: (3, 4)},
    "GridSample": {0: (4,)},
    "MaxPool": {0: (4, 5)},
    "TensorScatter": {0: (4,), 1: (4,)},
}
"""The ranks that inputs may have."""

ABSENT_INPUTS: Mapping[str, tuple[int, ...]] = {"Attention": (4, 5, 6)}
"""Inputs that must be left out."""
