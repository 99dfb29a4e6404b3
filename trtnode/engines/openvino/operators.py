"""Tables of operators that OpenVINO's CPU plugin computes right, and of their conditions.

They come from the onnx package's own backend tests, and from a sweep over types, attributes, sizes and values
(``tests/engines/openvino/test_sweep.py``), run in OpenVINO and compared.
OpenVINO computes int64 in 32 bits. Operators that only move int64 values (``INT64_MOVERS``) may stand in engines.
Arithmetic on int64 stays native, unless its values are dimensions.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

SUPPORTED_OPS = frozenset(
    "Abs Acos Acosh Add AffineGrid And ArgMax ArgMin Asin Asinh Atan Atanh Attention AveragePool BatchNormalization"
    " BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast Ceil Celu CenterCropPad Clip Concat ConstantOfShape"
    " Conv ConvTranspose Cos Cosh CumSum DepthToSpace DequantizeLinear Div Dropout Einsum Elu Equal Erf Exp Expand"
    " Flatten Floor Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual"
    " GridSample GroupNormalization GRU Hardmax HardSigmoid HardSwish Identity If InstanceNormalization IsInf IsNaN"
    " LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax Loop LpPool LRN LSTM MatMul MatMulNBits Max"
    " MaxPool Mean Min Mish Mod Mul Neg Not OneHot Or Pad Pow PRelu QuantizeLinear Range Reciprocal ReduceL1 ReduceL2"
    " ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape"
    " Resize ReverseSequence RMSNormalization RNN RoiAlign RotaryEmbedding Round Scan ScatterElements ScatterND Selu"
    " Shape Shrink Sigmoid Sign Sin Sinh Size Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum"
    " Swish Tan Tanh ThresholdedRelu Tile TopK Transpose Trilu Unsqueeze Where Xor".split()
)


TRUSTED_OPS = frozenset(
    "Abs Acos Acosh Add And Asin Asinh Atan Atanh AveragePool Ceil Celu Clip Concat Conv ConvTranspose Cos Cosh"
    " DepthToSpace Div Elu Erf Exp Expand Flatten Floor Gather GatherElements GatherND Gelu Gemm GlobalAveragePool"
    " GlobalMaxPool Greater GreaterOrEqual GroupNormalization HardSigmoid HardSwish Identity InstanceNormalization"
    " LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax LRN MatMul Max Mean Min Mish Mul Neg Not Or Pow"
    " PRelu Reciprocal ReduceL1 ReduceL2 ReduceMean ReduceProd ReduceSum ReduceSumSquare Relu Reshape"
    " RMSNormalization Selu Shape Shrink Sigmoid Sign Sin Sinh Slice Softmax Softplus Softsign SpaceToDepth Split"
    " Sqrt Squeeze Sub Sum Swish Tan Tanh ThresholdedRelu Tile Transpose Trilu Unsqueeze Where Xor".split()
)
"""Operators of which OpenVINO passes every ONNX test. An engine of these alone may run where neither ONNX Runtime nor
onnx.reference runs the model, so that nothing can check it."""


EXACT_DTYPES = frozenset(
    {
        ir.DataType.FLOAT,
        ir.DataType.FLOAT16,
        ir.DataType.INT8,
        ir.DataType.UINT8,
        ir.DataType.INT32,
        ir.DataType.BOOL,
    }
)
"""Element types that the CPU plugin keeps. float64 is computed in float32, int64 in int32."""


INT64_MOVERS = frozenset(
    "Concat Equal Expand Flatten Gather GatherElements GatherND Greater GreaterOrEqual Identity Less LessOrEqual Max"
    " Min Reshape ScatterElements ScatterND Slice Split Squeeze Tile Transpose Unsqueeze Where Shape Size ArgMax"
    " ArgMin TopK OneHot".split()
)
"""Operators whose int64 results are elements of their inputs or are bounded by a dimension: 32 bits are enough as
long as the values that enter the engine fit, which is checked for each request."""


INT64_ROUND_TRIP = frozenset({ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT32, ir.DataType.BOOL})
"""Types that Cast can turn into int64 without leaving the range of int32."""


THROUGH_FLOAT32 = frozenset(
    "Div Einsum Gemm MatMul Mod Pow ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin"
    " ReduceProd ReduceSum ReduceSumSquare Relu Resize Shrink Trilu".split()
)
"""Operators that the CPU plugin computes in float32 on wide integers as well, which loses digits beyond 24 bits."""


COMPARISONS = frozenset("Equal Greater GreaterOrEqual Less LessOrEqual".split())
"""Also computed in float32; right where one side is a constant that float32 holds."""


SATURATING = frozenset("Abs Add Mul Neg Sub".split())
"""Arithmetic on 8-bit integers that stops at the end of their range, where ONNX Runtime wraps around."""


FLOAT32_INTEGERS = 2**24
"""float32 holds every integer below."""


CONSTANT_INPUTS = {
    **dict.fromkeys(
        "AffineGrid BitShift CenterCropPad CumSum Expand OneHot ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp"
        " ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Reshape Split Squeeze Tile TopK"
        " Trilu Unsqueeze".split(),
        (1,),
    ),
    "ConstantOfShape": (0,),
    "MatMulNBits": (1, 2, 3),
    "Pad": (1, 2, 3),
    "Range": (0, 1, 2),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "QuantizeLinear": (1, 2),
    "DequantizeLinear": (1, 2),
}
"""Inputs that determine a result's rank or layout. OpenVINO needs them as constants, or as shape arithmetic."""


SHAPE_FED = frozenset({"ConstantOfShape", "Expand", "Range", "Reshape", "Resize", "Slice", "Tile"})
"""Operators that also take their constant inputs from shape arithmetic inside the engine."""


BYTE_BITS = 8


BYTES = frozenset({ir.DataType.INT8, ir.DataType.UINT8})


INT32_RANGE = (np.iinfo(np.int32).min, np.iinfo(np.int32).max)
