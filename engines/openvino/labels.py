"""Labels ONNX nodes that OpenVINO's CPU plugin computes right.

The library has no call that lists the operators of its ONNX front end, and may compute differently what it accepts.
So tables (``trtnode.engines.openvino.operators``) and rules decide, and each refusal names the fault. Everything else
about a node is left to the build and to the check after it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from trtnode.engines.openvino.indices import label_indices
from trtnode.engines.openvino.operators import (
    BYTE_BITS,
    COMPARISONS,
    CONSTANT_INPUTS,
    EXACT_DTYPES,
    FLOAT32_INTEGERS,
    INT32_RANGE,
    INT64_MOVERS,
    INT64_ROUND_TRIP,
    SATURATING,
    SHAPE_FED,
    SUPPORTED_OPS,
    THROUGH_FLOAT32,
)
from trtnode.engines.openvino.short_sums import check_sums
from trtnode.partitioner.cut.labels import SUPPORTED, ReasonCode, Verdict
from trtnode.partitioner.graph.view import Node
from trtnode.partitioner.model.values import comes_from_shape


def label(node: Node) -> Verdict:
    """Return whether OpenVINO's CPU plugin computes this node right."""
    if node.op_type not in SUPPORTED_OPS:
        return Verdict(ReasonCode.UNSUPPORTED_OP, f"OpenVINO has no {node.op_type} that passes the ONNX tests.")
    for rule in RULES:
        verdict = rule(node)
        if not verdict.supported:
            return verdict
    return SUPPORTED


def _check_dtypes(node: Node) -> Verdict:
    for value in _values(node):
        if value.dtype in EXACT_DTYPES or value.dtype == ir.DataType.INT64:
            continue
        name = value.dtype.name.lower() if value.dtype else "an unknown type"
        return Verdict(ReasonCode.UNSUPPORTED_DTYPE, f"{value.name!r} is {name}, which OpenVINO computes differently.")
    return SUPPORTED


def _check_empty(node: Node) -> Verdict:
    for value in _data(node):
        if value.shape is not None and any(d == 0 for d in value.shape):
            return Verdict(ReasonCode.UNSUPPORTED_RANK, f"{value.name!r} has no elements.")
    return SUPPORTED


def _check_int64(node: Node) -> Verdict:
    if not any(v.dtype == ir.DataType.INT64 for v in _data(node)) or _is_shape_arithmetic(node):
        return SUPPORTED
    if node.op_type == "Cast":
        return _check_cast(node)
    if node.op_type not in INT64_MOVERS and any(v.dtype == ir.DataType.INT64 for v in node.op.outputs):
        return Verdict(
            ReasonCode.UNSUPPORTED_DTYPE, f"{node.op_type} on int64 would be computed in 32 bits and could overflow."
        )
    return SUPPORTED


def _check_cast(node: Node) -> Verdict:
    source, result = node.op.inputs[0], node.op.outputs[0]
    assert source is not None
    if result.dtype == ir.DataType.INT64 and source.dtype not in {*INT64_ROUND_TRIP, ir.DataType.INT64}:
        return Verdict(ReasonCode.UNSUPPORTED_DTYPE, "Cast to int64 would stop at the range of int32.")
    return SUPPORTED


def _check_integers(node: Node) -> Verdict:
    """Refuse arithmetic that is right for small integers alone: the check after a build tries no others."""
    data = [v for v in node.op.inputs if v is not None and v.const_value is None]
    wide = [v for v in data if v.dtype in (ir.DataType.INT32, ir.DataType.INT64) and not comes_from_shape(v)]
    rounded = node.op_type in THROUGH_FLOAT32 or (node.op_type in COMPARISONS and not _has_small_constant(node))
    if wide and rounded:
        return Verdict(
            ReasonCode.UNSUPPORTED_DTYPE, f"{node.op_type} on integers would be computed in float32 and lose digits."
        )
    if node.op_type in SATURATING and any(v.dtype in (ir.DataType.INT8, ir.DataType.UINT8) for v in data):
        return Verdict(
            ReasonCode.UNSUPPORTED_DTYPE, f"{node.op_type} on 8-bit integers would not wrap around at their range."
        )
    reduces = node.op_type.startswith("Scatter") and _text(node, "reduction", "none") != "none"
    if reduces and any(v.dtype == ir.DataType.INT64 for v in node.op.outputs):
        return Verdict(ReasonCode.UNSUPPORTED_DTYPE, f"{node.op_type} on int64 would be reduced in 32 bits.")
    return SUPPORTED


def _has_small_constant(node: Node) -> bool:
    constants = [v.const_value.numpy() for v in node.op.inputs if v is not None and v.const_value is not None]
    return any(np.all(np.abs(c.astype(np.float64)) < FLOAT32_INTEGERS) for c in constants)


def _check_constant_inputs(node: Node) -> Verdict:
    for index in CONSTANT_INPUTS.get(node.op_type, ()):
        value = node.op.inputs[index] if index < len(node.op.inputs) else None
        if value is None or value.const_value is not None:
            continue
        if node.op_type in SHAPE_FED and comes_from_shape(value):
            continue
        return Verdict(
            ReasonCode.UNSUPPORTED_INPUT, f"Input {index} ({value.name!r}) of {node.op_type} must be a constant."
        )
    return _check_constant_range(node)


def _check_constant_range(node: Node) -> Verdict:
    if node.op_type in CONSTANT_INPUTS:
        return SUPPORTED
    for value in node.op.inputs:
        if value is None or value.const_value is None or value.dtype != ir.DataType.INT64:
            continue
        array = value.const_value.numpy()
        if array.size and (array.min() < INT32_RANGE[0] or array.max() > INT32_RANGE[1]):
            return Verdict(ReasonCode.UNSUPPORTED_INPUT, f"Constant {value.name!r} does not fit into 32 bits.")
    return SUPPORTED


def _check_attributes(node: Node) -> Verdict:
    rule = ATTRIBUTE_RULES.get(node.op_type)
    problem = rule(node) if rule else None
    return Verdict(ReasonCode.UNSUPPORTED_ATTRIBUTE, problem) if problem else SUPPORTED


def _values(node: Node) -> list[ir.Value]:
    return [v for v in (*node.op.inputs, *node.op.outputs) if v is not None and v.name]


def _data(node: Node) -> list[ir.Value]:
    return [v for v in _values(node) if v.const_value is None]


def _is_shape_arithmetic(node: Node) -> bool:
    """Return whether an integer node computes only from dimensions and constants, which fit into 32 bits."""
    return all(comes_from_shape(v) for v in node.op.outputs)


def _text(node: Node, name: str, default: str) -> str:
    return node.op.attributes.get_string(name, default) or default


def _rank(node: Node, index: int = 0) -> int:
    value = node.op.inputs[index]
    return len(value.shape) if value is not None and value.shape is not None else -1


def _resize(node: Node) -> str | None:
    if node.op.attributes.get_int("antialias", 0):
        return "OpenVINO computes Resize with antialias differently."
    if node.op.attributes.get_int("exclude_outside", 0):
        return "OpenVINO computes Resize with exclude_outside differently."
    if _text(node, "keep_aspect_ratio_policy", "stretch") != "stretch":
        return "OpenVINO has no keep_aspect_ratio_policy for Resize."
    if _text(node, "coordinate_transformation_mode", "half_pixel") not in (
        "half_pixel",
        "align_corners",
        "asymmetric",
        "pytorch_half_pixel",
    ):
        return "OpenVINO has no such coordinate_transformation_mode for Resize."
    if _text(node, "mode", "nearest") == "cubic":
        return "OpenVINO computes cubic Resize differently."
    return "Resize along chosen axes is not converted right." if "axes" in node.op.attributes else None


def _recurrent(node: Node) -> str | None:
    if node.op.attributes.get_int("layout", 0):
        return f"OpenVINO computes {node.op_type} with layout=1 differently."
    if node.op_type == "LSTM" and len(node.op.inputs) > 7 and node.op.inputs[7] is not None:
        return "OpenVINO drops the peephole weights of LSTM."
    return None


def _pool(node: Node) -> str | None:
    if node.op.attributes.get_int("ceil_mode", 0):
        return "OpenVINO rounds the output size of ceil_mode differently."
    if len(node.op.outputs) > 1 and node.op.outputs[1].name:
        return "The indices of MaxPool differ for several channels."
    return None


def _loop(node: Node) -> str | None:
    """Accept a Loop that is certain to run at least once."""
    trips, condition, *_ = node.op.inputs
    if trips is not None and (trips.const_value is None or trips.const_value.numpy().item() < 1):
        return "OpenVINO runs the body of a Loop once where it should not run at all: its trip count must be constant."
    if condition is not None and (condition.const_value is None or not condition.const_value.numpy().item()):
        return "OpenVINO runs the body of a Loop once where its condition is false from the start."
    return None


def _scan(node: Node) -> str | None:
    captured = set(node.reads).difference(node.op.inputs)
    return "OpenVINO converts no Scan whose body reads values from outside." if captured else None


def _mod(node: Node) -> str | None:
    return None if node.op.attributes.get_int("fmod", 0) else "OpenVINO converts Mod only with fmod=1."


def _quantize(node: Node) -> str | None:
    kinds = {v.dtype for v in _values(node)}
    if not kinds <= {ir.DataType.FLOAT, ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT32}:
        return "Only 8-bit quantization of float32 is converted right."
    blocked = node.op.attributes.get_int("block_size", 0)
    return "OpenVINO does not convert blocked quantization." if blocked else None


def _batch_norm(node: Node) -> str | None:
    training = node.op.attributes.get_int("training_mode", 0) or sum(bool(v.name) for v in node.op.outputs) > 1
    return "OpenVINO has only the inference form of BatchNormalization." if training else None


def _dropout(node: Node) -> str | None:
    training = len(node.op.inputs) > 2 and node.op.inputs[2] is not None
    masked = len(node.op.outputs) > 1 and bool(node.op.outputs[1].name)
    return "OpenVINO has only the inference form of Dropout." if training or masked else None


def _pad(node: Node) -> str | None:
    return "OpenVINO has no wrap mode for Pad." if _text(node, "mode", "constant") == "wrap" else None


def _roi_align(node: Node) -> str | None:
    return (
        None if _text(node, "mode", "avg") == "avg" else "OpenVINO computes the maximum mode of RoiAlign differently."
    )


def _top_k(node: Node) -> str | None:
    """Accept the best element alone, or values without their indices."""
    count, places = node.op.inputs[1], node.op.outputs[1]
    assert count is not None
    single = count.const_value is not None and count.const_value.numpy().item() == 1
    if single or not (places.uses() or places.is_graph_output()):
        return None
    return "OpenVINO gives the indices of equal elements in another order."


def _attention(node: Node) -> str | None:
    if any(value is not None for value in node.op.inputs[3:]):
        return "OpenVINO computes rows of Attention that a mask hides whole differently."
    if sum(bool(v.name) for v in node.op.outputs) > 1:
        return "The further results of Attention differ."
    unknown = node.op.attributes.keys() - {"is_causal", "kv_num_heads", "q_num_heads", "scale", "softcap"}
    return f"OpenVINO has no {min(unknown)} for Attention." if unknown else None


def _bit_shift(node: Node) -> str | None:
    byte_wide = node.op.outputs[0].dtype in (ir.DataType.INT8, ir.DataType.UINT8)
    if not byte_wide or _text(node, "direction", "") != "RIGHT":
        return "OpenVINO shifts through float32, and stops at the end of the range."
    shift = node.op.inputs[1]
    assert shift is not None
    assert shift.const_value is not None
    amounts = shift.const_value.numpy()
    inside = bool(np.all((amounts >= 0) & (amounts < BYTE_BITS)))
    return None if inside else "OpenVINO shifts by the width and more differently."


def _grid_sample(node: Node) -> str | None:
    if _rank(node) != 4:
        return "OpenVINO has GridSample for images alone."
    plain = _text(node, "mode", "linear") in ("linear", "bilinear", "nearest")
    return None if plain else "OpenVINO computes cubic GridSample differently at the border."


ATTRIBUTE_RULES: dict[str, Callable[[Node], str | None]] = {
    "Attention": _attention,
    "AveragePool": _pool,
    "BatchNormalization": _batch_norm,
    "BitShift": _bit_shift,
    "DequantizeLinear": _quantize,
    "Dropout": _dropout,
    "GRU": _recurrent,
    "GridSample": _grid_sample,
    "LSTM": _recurrent,
    "Loop": _loop,
    "LpPool": _pool,
    "MaxPool": _pool,
    "Mod": _mod,
    "Pad": _pad,
    "QuantizeLinear": _quantize,
    "RNN": _recurrent,
    "Resize": _resize,
    "Scan": _scan,
    "RoiAlign": _roi_align,
    "TopK": _top_k,
}
"""Rules by operator: the fault that some attributes cause, or None."""

RULES = (
    *(_check_dtypes, _check_empty, _check_int64, _check_integers, _check_constant_inputs, _check_attributes),
    check_sums,
    label_indices,
)
"""All rules, in the order in which a node's first fault is told."""
