"""Rules of TensorRT's parser for single operators, beyond the tables of ``labelling.operators``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from trtnode.engines.tensorrt.labelling.operators import BLOCKED, MAX_DEPTH, MAX_K
from trtnode.partitioner.cut.labels import ReasonCode, Verdict
from trtnode.partitioner.graph.qdq import MIDDLE, QUANTIZE, describe_quantization
from trtnode.partitioner.graph.view import Node
from trtnode.partitioner.model.values import Dimension, dimensions, has_subgraphs, input_of, subgraphs

SAME = ("SAME_UPPER", "SAME_LOWER")
"""Values of ``auto_pad`` by which the size of the input alone decides that of the result."""


def shape_of(node: Node) -> tuple[Dimension, ...]:
    """Return the shape of the first input; empty where its rank is unknown."""
    value = input_of(node.op, 0)
    return () if value is None else dimensions(value) or ()


def quantized_dtype(node: Node) -> ir.DataType | None:
    """Return the element type of the quantized end of QuantizeLinear or DequantizeLinear."""
    value = node.op.outputs[0] if node.op_type == QUANTIZE else node.op.inputs[0]
    return value.dtype if value is not None else None


def _unsupported(detail: str) -> Verdict:
    return Verdict(ReasonCode.UNSUPPORTED_ATTRIBUTE, detail)


def _attention(node: Node) -> Verdict | None:
    query, key, value, mask = (input_of(node.op, index) for index in range(4))
    sizes = [shape[-1] for v in (key, value) if v is not None and (shape := dimensions(v))]
    if len(set(sizes)) > 1:
        detail = "Heads of keys and of values have one size in TensorRT's Attention."
        return Verdict(ReasonCode.UNSUPPORTED_INPUT, detail)
    if mask is None:
        return None
    if node.op.attributes.get_int("is_causal", 0):
        return _unsupported("TensorRT's Attention takes a mask or is_causal, not both.")
    if query is not None and mask.dtype not in (query.dtype, ir.DataType.BOOL):
        return Verdict(ReasonCode.UNSUPPORTED_DTYPE, "The mask of TensorRT's Attention is bool, or like the query.")
    return None


def _cum_sum(node: Node) -> Verdict | None:
    value = input_of(node.op, 0)
    if value is None or dimensions(value) != ():
        return None
    return Verdict(ReasonCode.UNSUPPORTED_RANK, "TensorRT's CumSum takes rank 1 or more, not a scalar.")


def _deform_conv(node: Node) -> Verdict | None:
    pads = tuple(node.op.attributes.get_ints("pads", ()))
    half = len(pads) // 2
    return None if pads[:half] == pads[half:] else _unsupported("TensorRT's DeformConv pads both ends alike.")


def _dropout(node: Node) -> Verdict | None:
    training = input_of(node.op, 2)
    if training is None or training.const_value is None or not training.const_value.numpy().any():
        return None
    return _unsupported("TensorRT has only the inference form of Dropout.")


def _einsum(node: Node) -> Verdict | None:
    equation = node.op.attributes.get_string("equation", "") or ""
    plain = re.fullmatch(r"[a-z,\s]*(->[a-z\s]*)?", equation)
    return None if plain else _unsupported(f"TensorRT reads the letters a to z in an equation, not {equation!r}.")


def _eye_like(node: Node) -> Verdict | None:
    return _sized_by_run(node, shape_of(node))


def _hardmax(node: Node) -> Verdict | None:
    axis = node.op.attributes.get_int("axis", -1) or 0
    return _sized_by_run(node, shape_of(node)[axis : axis + 1 or None])


def _sized_by_run(node: Node, sizes: Sequence[Dimension]) -> Verdict | None:
    if all(isinstance(size, int) for size in sizes):
        return None
    return Verdict(ReasonCode.DYNAMIC_SHAPE, f"TensorRT's {node.op_type} needs the size of its input at the build.")


def _pool(node: Node) -> Verdict | None:
    """Refuse a last window that may start in the padding: ONNX leaves it out, and TensorRT doesn't (PaddingMode)."""
    attributes = node.op.attributes
    if not attributes.get_int("ceil_mode", 0) or attributes.get_string("auto_pad", "NOTSET") in SAME:
        return None
    kernel = attributes.get_ints("kernel_shape", ())
    strides = attributes.get_ints("strides", [1] * len(kernel))
    pads = attributes.get_ints("pads", [0] * (2 * len(kernel)))
    windows = zip(shape_of(node)[2:], kernel, strides, pads, pads[len(kernel) :], strict=False)
    if not any(_starts_in_padding(*window) for window in windows):
        return None
    detail = f"With ceil_mode, the last window of TensorRT's {node.op_type} may start in the padding; in ONNX never."
    return Verdict(ReasonCode.UNSUPPORTED_ATTRIBUTE, detail)


def _starts_in_padding(size: Dimension, kernel: int, stride: int, before: int, after: int) -> bool:
    if not isinstance(size, int):
        return stride + after > kernel  # for some size
    steps = -(-(size + before + after - kernel) // stride)
    return steps * stride >= size + before


def _recurrent(node: Node) -> Verdict | None:
    if node.op.attributes.get_string("direction", "forward") != "bidirectional":
        return None
    activations = [name.lower() for name in node.op.attributes.get_strings("activations", ())]
    half = len(activations) // 2
    if activations[:half] == activations[half:]:
        return None
    return _unsupported(f"Both directions of TensorRT's {node.op_type} have the same activations.")


def _resize(node: Node) -> Verdict | None:
    attributes = node.op.attributes
    if (
        attributes.get_string("coordinate_transformation_mode", "half_pixel") == "tf_half_pixel_for_nn"
        and attributes.get_string("nearest_mode", "round_prefer_floor") != "round_prefer_floor"
    ):
        return _unsupported("TensorRT's Resize takes tf_half_pixel_for_nn with round_prefer_floor alone.")
    axes = list(attributes.get_ints("axes", ()))
    if len(set(axes)) < len(axes):
        return _unsupported("TensorRT's Resize takes each axis once.")
    scales = input_of(node.op, 2)
    if axes and scales is not None and scales.const_value is None and axes != list(range(len(shape_of(node)))):
        return _unsupported("TensorRT's Resize takes scales of a run for all axes in order alone.")
    return None


def _reverse_sequence(node: Node) -> Verdict | None:
    batch, time = (node.op.attributes.get_int(name, default) for name, default in (("batch_axis", 1), ("time_axis", 0)))
    return _unsupported("TensorRT's ReverseSequence takes two different axes.") if batch == time else None


def _stft(node: Node) -> Verdict | None:
    shape = shape_of(node)
    real = len(shape) < 3 or shape[-1] == 1
    return None if real else Verdict(ReasonCode.UNSUPPORTED_INPUT, "TensorRT's STFT takes a real signal.")


def _tensor_scatter(node: Node) -> Verdict | None:
    cache = input_of(node.op, 0)
    if cache is None or (cache.is_graph_input() and node.op.outputs[0].is_graph_output()):
        return None
    detail = "TensorRT's TensorScatter updates a cache in place, from an input of the model to an output of it."
    return Verdict(ReasonCode.UNSUPPORTED_INPUT, detail)


def _top_k(node: Node) -> Verdict | None:
    k = input_of(node.op, 1)
    number = k.const_value.numpy().item() if k is not None and k.const_value is not None else 0
    number = number or node.op.attributes.get_int("k", 0) or 0
    if number <= MAX_K:
        return None
    return Verdict(ReasonCode.UNSUPPORTED_INPUT, f"TensorRT's TopK gives at most {MAX_K} elements, not {number}.")


def _quantizer(node: Node) -> Verdict | None:
    facts = describe_quantization(node.op)
    dtype = quantized_dtype(node)
    problem = None
    if not facts.positive:
        problem = f"The scale of {node.op_type} must be greater than zero."
    elif facts.zero_point is None or (facts.zero_point == MIDDLE and dtype != ir.DataType.UINT8):
        problem = f"The zero point of {node.op_type} must be zero."
    elif dtype == ir.DataType.UINT8 and not facts.paired:
        problem = "TensorRT reads uint8 as int8, which is right only from QuantizeLinear to DequantizeLinear."
    elif not (facts.per_tensor or facts.of_weight):
        problem = "TensorRT takes a scale for each channel on weights alone."
    if problem:
        return Verdict(ReasonCode.UNSUPPORTED_INPUT, problem)
    if node.op.attributes.get_int("block_size", 0) and dtype not in BLOCKED:
        return _unsupported("TensorRT takes blocks of 4-bit numbers alone.")
    return None


def _nested(node: Node) -> Verdict | None:
    depth = _depth(node.op)
    if depth > MAX_DEPTH:
        detail = f"Its bodies are nested {depth} deep; TensorRT takes {MAX_DEPTH}."
        return Verdict(ReasonCode.CONTROL_FLOW, detail)
    results = [[None if (s := dimensions(v)) is None else len(s) for v in body.outputs] for body in subgraphs(node.op)]
    if node.op_type == "If" and any(ranks != results[0] for ranks in results):
        return Verdict(ReasonCode.CONTROL_FLOW, "The branches of TensorRT's If give results of equal ranks.")
    return None


def _loop(node: Node) -> Verdict | None:
    problem = _nested(node)
    if problem:
        return problem
    (body,) = subgraphs(node.op)
    carried = len(node.op.inputs) - 2
    for before, after in zip(node.op.inputs[2:], body.outputs[1:], strict=False):
        if before is None or dimensions(before) is None or dimensions(before) != dimensions(after):
            detail = f"A value that TensorRT's Loop carries keeps its shape; that of {after.name!r} is not known to."
            return Verdict(ReasonCode.CONTROL_FLOW, detail)
    trips, condition = node.op.inputs[:2]
    endless = trips is None or trips.const_value is None or _may_stop(condition, body)
    if len(node.op.outputs) > carried and endless:
        return Verdict(ReasonCode.CONTROL_FLOW, "A Loop of TensorRT that stacks results has a fixed number of turns.")
    return None


def _may_stop(condition: ir.Value | None, body: ir.Graph) -> bool:
    """Return whether a Loop may end before its trip count: its subgraph returns another condition than it was given."""
    kept = body.outputs[0]
    while (producer := kept.producer()) is not None and producer.op_type == "Identity":
        (source,) = producer.inputs
        assert source is not None
        kept = source
    if kept.const_value is not None:
        return not kept.const_value.numpy().all()
    return kept is not body.inputs[1] or not (
        condition is None or (condition.const_value is not None and bool(condition.const_value.numpy().all()))
    )


def _depth(op: ir.Node) -> int:
    inner = [_depth(child) for body in subgraphs(op) for child in body]
    return 1 + max(inner, default=0) if has_subgraphs(op) else 0


OPERATOR_RULES: Mapping[str, Callable[[Node], Verdict | None]] = {
    "Attention": _attention,
    "AveragePool": _pool,
    "CumSum": _cum_sum,
    "DeformConv": _deform_conv,
    "DequantizeLinear": _quantizer,
    "Dropout": _dropout,
    "Einsum": _einsum,
    "EyeLike": _eye_like,
    "GRU": _recurrent,
    "Hardmax": _hardmax,
    "If": _nested,
    "LSTM": _recurrent,
    "Loop": _loop,
    "LpPool": _pool,
    "MaxPool": _pool,
    "QuantizeLinear": _quantizer,
    "RNN": _recurrent,
    "Resize": _resize,
    "ReverseSequence": _reverse_sequence,
    "STFT": _stft,
    "Scan": _nested,
    "TensorScatter": _tensor_scatter,
    "TopK": _top_k,
}
"""Rules that no table holds, by operator. Each returns a refusal, or None."""
