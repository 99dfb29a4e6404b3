"""Rules for single operators, beyond the tables of ``trtnode.engines.openvino.operators``: faults by attributes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from trtnode.engines.openvino.compressed_weights import FOUR_BITS, refused_product, refused_weight
from trtnode.engines.openvino.operators import BYTE_BITS, BYTES
from trtnode.partitioner.graph.qdq import DEQUANTIZE
from trtnode.partitioner.graph.view import Node
from trtnode.partitioner.model.values import dimensions, input_of, named_values, tensor_of


def is_compressed(node: Node, value: ir.Value) -> bool:
    """Return whether a value is a weight of four bits, which OpenVINO dequantizes in each run."""
    return node.op_type == DEQUANTIZE and value.dtype in FOUR_BITS and value.const_value is not None


def text_of(node: Node, name: str, default: str) -> str:
    """Return a text among the attributes of a node."""
    return node.op.attributes.get_string(name, default) or default


def _rank(node: Node) -> int:
    value = node.op.inputs[0]
    return len(value.shape) if value is not None and value.shape is not None else -1


def _range(node: Node) -> str | None:
    step = node.op.inputs[2]
    fixed = step is not None and step.const_value is not None and np.all(step.const_value.numpy())
    return None if fixed else "The step of Range must be a constant other than 0."


def _resize(node: Node) -> str | None:
    nearest = text_of(node, "mode", "nearest") == "nearest"
    return _refused_resize(node) or (_ties(node) if nearest else None)


def _ties(node: Node) -> str | None:
    """Accept sizes whose ratio float32 holds. Else the element in the middle of two depends on the last digit."""
    corners = text_of(node, "coordinate_transformation_mode", "half_pixel") == "align_corners"
    by_scales = len(node.op.inputs) < 4 or node.op.inputs[3] is None
    rounds = text_of(node, "nearest_mode", "round_prefer_floor").startswith("round")
    if not corners and (by_scales or not rounds):
        return None
    before, after = (
        dimensions(value) if value is not None else None for value in (node.op.inputs[0], node.op.outputs[0])
    )
    for size, new in zip(before or (None,), after or (None,), strict=False):
        if size == new:
            continue
        if not (isinstance(size, int) and isinstance(new, int) and _is_exact(size - corners, new - corners)):
            return "OpenVINO takes another neighbour for elements of Resize in the middle of two."
    return None


def _is_exact(size: int, new: int) -> bool:
    """Return whether the ratio of two sizes has a power of two below its line."""
    return size == 0 or new == 0 or (size // math.gcd(size, new)).bit_count() == 1


def _refused_resize(node: Node) -> str | None:
    if node.op.attributes.get_int("antialias", 0):
        return "OpenVINO computes Resize with antialias differently."
    if node.op.attributes.get_int("exclude_outside", 0):
        return "OpenVINO computes Resize with exclude_outside differently."
    if text_of(node, "keep_aspect_ratio_policy", "stretch") != "stretch":
        return "OpenVINO has no keep_aspect_ratio_policy for Resize."
    if text_of(node, "coordinate_transformation_mode", "half_pixel") not in (
        "half_pixel",
        "align_corners",
        "asymmetric",
        "pytorch_half_pixel",
    ):
        return "OpenVINO has no such coordinate_transformation_mode for Resize."
    if text_of(node, "mode", "nearest") == "cubic":
        return "OpenVINO computes cubic Resize differently."
    return "Resize along chosen axes is not converted right." if "axes" in node.op.attributes else None


def _recurrent(node: Node) -> str | None:
    if node.op.attributes.get_int("layout", 0):
        return f"OpenVINO computes {node.op_type} with layout=1 differently."
    if node.op_type == "LSTM" and input_of(node.op, 7) is not None:
        return "OpenVINO drops the peephole weights of LSTM."
    if node.op.attributes.get_int("input_forget", 0):
        return "OpenVINO does not couple the gates of LSTM."
    lengths = input_of(node.op, 4)
    if lengths is not None and not _all_full(lengths, node.op.inputs[0]):
        return f"OpenVINO computes {node.op_type} beyond the lengths of sequences."
    return None


def _all_full(lengths: ir.Value, sequences: ir.Value | None) -> bool:
    shape = None if sequences is None else dimensions(sequences)
    return bool(shape and lengths.const_value is not None and np.all(lengths.const_value.numpy() == shape[0]))


def _pool(node: Node) -> str | None:
    if node.op.attributes.get_int("ceil_mode", 0):
        return "OpenVINO rounds the output size of ceil_mode differently."
    if len(node.op.outputs) > 1 and node.op.outputs[1].name:
        return "The indices of MaxPool differ for several channels."
    return None


def _transposed(node: Node) -> str | None:
    if "output_shape" in node.op.attributes:
        return "OpenVINO pads ConvTranspose with output_shape at the other side."
    value = node.op.inputs[0]
    sizes = dimensions(value) if value is not None else None
    known = sizes is not None and all(isinstance(size, int) for size in sizes[2:])
    if known or not text_of(node, "auto_pad", "NOTSET").startswith("SAME"):
        return None
    return "OpenVINO doesn't pad ConvTranspose with auto_pad where sizes aren't fixed."


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


def _is_float(value: ir.Value | None) -> bool:
    return value is not None and value.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16)


def _mod(node: Node) -> str | None:
    if not node.op.attributes.get_int("fmod", 0):
        return "OpenVINO converts Mod only with fmod=1."
    if not _is_float(node.op.outputs[0]) or _is_powers_of_two(node.op.inputs[1]):
        return None
    return "OpenVINO rounds the quotient of Mod on floats, so that multiples are off by a whole period."


def _is_powers_of_two(value: ir.Value | None) -> bool:
    """Return whether a value is constant and only scales what it divides, without rounding."""
    if value is None or value.const_value is None:
        return False
    fractions, exponents = np.frexp(value.const_value.numpy().astype(np.float64))
    return bool(np.all((np.abs(fractions) == 0.5) & (np.abs(exponents) < 8)))


def _quantize(node: Node) -> str | None:
    kinds = {v.dtype for v in named_values(node.op) if not is_compressed(node, v)}
    if not kinds <= {ir.DataType.FLOAT, ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT32}:
        return "Only 8-bit quantization of float32 is converted right."
    return refused_weight(node)


def _batch_norm(node: Node) -> str | None:
    training = node.op.attributes.get_int("training_mode", 0) or sum(bool(v.name) for v in node.op.outputs) > 1
    return "OpenVINO has only the inference form of BatchNormalization." if training else None


def _dropout(node: Node) -> str | None:
    training = input_of(node.op, 2) is not None
    masked = len(node.op.outputs) > 1 and bool(node.op.outputs[1].name)
    return "OpenVINO has only the inference form of Dropout." if training or masked else None


def _pad(node: Node) -> str | None:
    return "OpenVINO has no wrap mode for Pad." if text_of(node, "mode", "constant") == "wrap" else None


def _roi_align(node: Node) -> str | None:
    if text_of(node, "mode", "avg") != "avg":
        return "OpenVINO computes the maximum mode of RoiAlign differently."
    halves = node.opset >= 16 and text_of(node, "coordinate_transformation_mode", "half_pixel") == "half_pixel"
    adaptive = halves and not node.op.attributes.get_int("sampling_ratio", 0)
    return "OpenVINO gives NaN for a region of RoiAlign without any sample." if adaptive else None


def _shrink(node: Node) -> str | None:
    return "OpenVINO rounds Shrink on 8-bit integers." if node.op.outputs[0].dtype in BYTES else None


def _softmax(node: Node) -> str | None:
    """Accept what is the same over one axis: opsets 11 and 12 normalize over all axes from it on."""
    if node.opset not in (11, 12):
        return None
    value = node.op.inputs[0]
    shape = None if value is None else dimensions(value)
    axis = node.op.attributes.get_int("axis", 1)
    behind = shape[axis:][1:] if shape is not None and -len(shape) <= axis < len(shape) else (None,)
    return (
        None if all(size == 1 for size in behind) else "OpenVINO normalizes over one axis, and opset 12 over several."
    )


def _top_k(node: Node) -> str | None:
    """Accept the best element alone, or values without their indices."""
    count, places = node.op.inputs[1], node.op.outputs[1]
    assert count is not None
    single = count.const_value is not None and count.const_value.numpy().item() == 1
    if not single and not node.op.attributes.get_int("sorted", 1):
        return "OpenVINO gives elements that need no order in another one."
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
    if node.op.outputs[0].dtype not in BYTES or text_of(node, "direction", "") != "RIGHT":
        return "OpenVINO shifts through float32, and stops at the end of the range."
    amounts = tensor_of(node.op.inputs[1]).numpy()
    inside = bool(np.all((amounts >= 0) & (amounts < BYTE_BITS)))
    return None if inside else "OpenVINO shifts by the width and more differently."


def _grid_sample(node: Node) -> str | None:
    if _rank(node) != 4:
        return "OpenVINO has GridSample for images alone."
    mode = text_of(node, "mode", "linear")
    if mode == "nearest" and not node.op.attributes.get_int("align_corners", 0):
        return "OpenVINO takes another neighbour for points of GridSample in the middle of two."
    plain = mode in ("linear", "bilinear", "nearest")
    return None if plain else "OpenVINO computes cubic GridSample differently at the border."


ATTRIBUTE_RULES: dict[str, Callable[[Node], str | None]] = {
    "Attention": _attention,
    "AveragePool": _pool,
    "BatchNormalization": _batch_norm,
    "BitShift": _bit_shift,
    "ConvTranspose": _transposed,
    "DequantizeLinear": _quantize,
    "Dropout": _dropout,
    "GRU": _recurrent,
    "GridSample": _grid_sample,
    "LSTM": _recurrent,
    "Loop": _loop,
    "LpPool": _pool,
    "MatMulNBits": refused_product,
    "MaxPool": _pool,
    "Mod": _mod,
    "Pad": _pad,
    "QuantizeLinear": _quantize,
    "RNN": _recurrent,
    "Range": _range,
    "Resize": _resize,
    "Scan": _scan,
    "RoiAlign": _roi_align,
    "Shrink": _shrink,
    "Softmax": _softmax,
    "TopK": _top_k,
}
"""Rules by operator: the fault that some attributes cause, or None."""
