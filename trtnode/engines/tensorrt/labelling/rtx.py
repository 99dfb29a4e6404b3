"""The table of TensorRT for RTX: what its release 1.7.1 refuses and takes other than NVIDIA documents of TensorRT.

Each line was seen at the parser or the builder, which need no GPU, and a test asks both again. Nothing has run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import onnx_ir as ir

from trtnode.engines.tensorrt.labelling.operator_rules import quantized_dtype
from trtnode.engines.tensorrt.labelling.operators import ATTRIBUTES, BLOCKED, DTYPES, RANKS
from trtnode.engines.tensorrt.labelling.tables import ParserTable, Rule
from trtnode.partitioner.cut.labels import ReasonCode, Verdict
from trtnode.partitioner.graph.view import Node
from trtnode.partitioner.model.values import dimensions, input_of

HEAD_SIZES = range(16, 257)
"""Sizes of a head for which there is a kernel of Attention."""

_NO_PLUGIN = "it is a plugin of TensorRT, and TensorRT for RTX has none"

_MOVING = (
    "Concat Expand Flatten Gather GatherElements GatherND Identity Reshape Slice Split Squeeze Tile Transpose Unsqueeze"
    " Where"
).split()
_COMPUTING = "Add Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mul Sub".split()

_INTEGERS = frozenset({ir.DataType.INT32, ir.DataType.INT64})

_LACKED = {
    **dict.fromkeys("Gelu IsNaN Mean ReduceL2 ReduceLogSum ReduceLogSumExp".split(), _INTEGERS),
    **dict.fromkeys(
        "ConvTranspose GRU GlobalLpPool HardSwish LpNormalization LpPool RandomNormal RandomNormalLike RandomUniform"
        " RandomUniformLike Shrink".split(),
        frozenset({ir.DataType.BFLOAT16}),
    ),
    "Celu": frozenset({ir.DataType.BFLOAT16, ir.DataType.FLOAT16}),
    "Relu": frozenset({ir.DataType.INT32}),
    "TensorScatter": _INTEGERS,
}
"""Element types that an operator lacks."""

_INTEGER8 = frozenset({*_MOVING, *_COMPUTING, "Cast", "Clip"})
"""Operators that take int8 as an ordinary type."""

_TAKING_EMPTY = frozenset(
    {
        *_MOVING,
        *_COMPUTING,
        *(
            "Abs And Cast CastLike Ceil Clip ConstantOfShape Cos Erf Exp Floor Log Neg Not Or Pad Pow Relu Round Shape"
            " Sigmoid Sin Size Sqrt Sum Tanh Trilu Xor"
        ).split(),
    }
)
"""Operators that move elements or compute on each alone: without elements there is nothing to misunderstand."""


def _attention(node: Node) -> Verdict | None:
    query, key = input_of(node.op, 0), input_of(node.op, 1)
    if query is key:
        detail = "The builder of TensorRT for RTX crashes on an Attention whose query and key are one tensor."
        return Verdict(ReasonCode.UNSUPPORTED_INPUT, detail)
    shape = None if query is None else dimensions(query)
    size = shape[-1] if shape else None
    if size in HEAD_SIZES:
        return None
    detail = (
        f"TensorRT for RTX has kernels of Attention for heads of {HEAD_SIZES[0]} to {HEAD_SIZES[-1]} elements, "
        f"not {size}."
    )
    return Verdict(ReasonCode.UNSUPPORTED_INPUT, detail)


def _clip(node: Node) -> Verdict | None:
    bounds = [input_of(node.op, index) for index in (1, 2)]
    if not _is_int8(input_of(node.op, 0)) or all(b is not None and b.const_value is not None for b in bounds):
        return None
    detail = "TensorRT for RTX clips int8 between two constants: it would read a bound that is left out as a float."
    return Verdict(ReasonCode.UNSUPPORTED_INPUT, detail)


def _no_int8_constant(node: Node) -> Verdict | None:
    constant = next((v for v in node.op.inputs if v is not None and v.const_value is not None and _is_int8(v)), None)
    if constant is None:
        return None
    detail = f"{constant.name!r} is an int8 constant, which TensorRT for RTX reads in DequantizeLinear alone."
    return Verdict(ReasonCode.UNSUPPORTED_INPUT, detail)


def _is_int8(value: ir.Value | None) -> bool:
    return value is not None and value.dtype == ir.DataType.INT8


def _resize(node: Node) -> Verdict | None:
    if node.op.attributes.get_string("mode", "nearest") != "cubic":
        return None
    before, after = (dimensions(v) if v is not None else None for v in (node.op.inputs[0], node.op.outputs[0]))
    if before is None or after is None or before[:-2] == after[:-2]:
        return None
    detail = "TensorRT for RTX resizes the last two axes alone by cubic interpolation."
    return Verdict(ReasonCode.UNSUPPORTED_ATTRIBUTE, detail)


def _scan(node: Node) -> Verdict | None:
    attributes = node.op.attributes
    if len(node.op.inputs) == attributes.get_int("num_scan_inputs", 0):
        return Verdict(ReasonCode.CONTROL_FLOW, "A Scan of TensorRT for RTX has a state.")
    axes = [axis for name in ("scan_input_axes", "scan_output_axes") for axis in attributes.get_ints(name, ())]
    if any(axis < 0 for axis in axes):
        return Verdict(ReasonCode.UNSUPPORTED_ATTRIBUTE, "TensorRT for RTX counts the axes of Scan from the front.")
    return None


def _packed(node: Node) -> Verdict | None:
    value = node.op.inputs[0]
    shape = None if value is None else dimensions(value)
    sizes = [size for size in shape or () if isinstance(size, int)]
    if quantized_dtype(node) not in BLOCKED or shape is None or len(sizes) < len(shape) or math.prod(sizes) % 2 == 0:
        return None
    detail = f"TensorRT for RTX takes 4-bit tensors with an even number of elements, not {math.prod(sizes)}."
    return Verdict(ReasonCode.UNSUPPORTED_RANK, detail)


_RULES: Mapping[str, Rule] = {
    **dict.fromkeys((*_MOVING, *_COMPUTING), _no_int8_constant),
    "Attention": _attention,
    "Clip": _clip,
    "DequantizeLinear": _packed,
    "QuantizeLinear": _packed,
    "Resize": _resize,
    "Scan": _scan,
}

RTX = ParserTable(
    title="TensorRT for RTX",
    dtypes={
        **DTYPES,
        **{op: DTYPES[op] | {ir.DataType.INT8} for op in _INTEGER8},
        **{op: DTYPES[op] - types for op, types in _LACKED.items()},
        "Attention": frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16}),
        "CumSum": DTYPES["CumSum"] | {ir.DataType.INT32, ir.DataType.INT64},
    },
    attributes={
        **ATTRIBUTES,
        "Resize": {**ATTRIBUTES["Resize"], "mode": ("nearest", "linear", "cubic")},
        "ScatterElements": {"reduction": ("none",)},
    },
    ranks={
        **RANKS,
        "AveragePool": {0: (3, 4, 5)},
        "GridSample": {0: (4, 5)},
        "MaxPool": {0: (3, 4, 5)},
    },
    lacking={
        "DeformConv": _NO_PLUGIN,
        "NonMaxSuppression": "no kernel of it is in TensorRT for RTX",
        "NonZero": _NO_PLUGIN,
        "RoiAlign": _NO_PLUGIN,
    },
    taking_empty=_TAKING_EMPTY,
    rules=_RULES,
)
