"""Folds BatchNormalization into the convolution before it, as engines do, so that a file holds the weights of both."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from trtnode.partitioner.model.new_values import add_constant
from trtnode.partitioner.model.values import input_of, is_constant, tensor_of

CHANNEL_AXES = {"Conv": 0, "ConvTranspose": 1}
"""Axis of the weights that counts output channels, by operator."""


def fold_as_onnxruntime_does(model: ir.Model) -> None:
    """Fold where ONNX Runtime's ConvBNFusion does, with the same bits: convolutions of float32."""
    _fold_all(model.graph, exactly=True)


def fold_batch_norms(graph: ir.Graph) -> None:
    """Scale weights and bias of convolutions whose only reader is a BatchNormalization of constants, in place.

    The convolution then makes the value that the BatchNormalization made, under its name.
    """
    _fold_all(graph, exactly=False)


def _fold_all(graph: ir.Graph, *, exactly: bool) -> None:
    for norm in [op for op in graph if op.op_type == "BatchNormalization" and not op.domain]:
        conv = norm.inputs[0].producer() if norm.inputs and norm.inputs[0] is not None else None
        if conv is not None and _may_fold(conv, norm) and not (exactly and _differs(conv, norm)):
            _fold(graph, conv, norm)


def _may_fold(conv: ir.Node, norm: ir.Node) -> bool:
    between = conv.outputs[0]
    grouped = conv.op_type == "ConvTranspose" and conv.attributes.get_int("group", 1) != 1
    return (
        conv.op_type in CHANNEL_AXES
        and not conv.domain
        and not grouped
        and len(between.uses()) == 1
        and not between.is_graph_output()
        and len([v for v in norm.outputs if v.name]) == 1
        and not norm.attributes.get_int("training_mode", 0)
        and all(v is not None and is_constant(v) for v in (*conv.inputs[1:], *norm.inputs[1:]))
        and _is_by_channel(conv, norm)
    )


def _is_by_channel(conv: ir.Node, norm: ir.Node) -> bool:
    """Return whether bias and statistics have one number a channel; runtimes refuse what would be broadcast."""
    weight = tensor_of(conv.inputs[1]).shape
    channels = weight[CHANNEL_AXES[conv.op_type]] if len(weight) > 2 else None
    return all(list(tensor_of(value).shape) == [channels] for value in (*conv.inputs[2:], *norm.inputs[1:]))


def _differs(conv: ir.Node, norm: ir.Node) -> bool:
    """Return whether ONNX Runtime leaves the two apart, or folds them with other roundings."""
    constants = (*conv.inputs[1:], *norm.inputs[1:])
    return conv.op_type != "Conv" or any(v is None or v.dtype != ir.DataType.FLOAT for v in constants)


def _fold(graph: ir.Graph, conv: ir.Node, norm: ir.Node) -> None:
    scale, shift, mean, variance = (_float32(v) for v in norm.inputs[1:])
    factor = scale / np.sqrt(variance + np.float32(norm.attributes.get_float("epsilon", 1e-5)))
    weight, result = conv.inputs[1], norm.outputs[0]
    assert weight is not None
    dtype = weight.dtype
    values = _float32(weight)
    shape = [1] * values.ndim
    shape[CHANNEL_AXES[conv.op_type]] = -1
    own = input_of(conv, 2)
    bias = shift - mean * factor if own is None else (_float32(own) - mean) * factor + shift
    conv.resize_inputs(3)
    conv.replace_input_with(
        1, add_constant(graph, f"{result.name}_folded_weight", values * factor.reshape(shape), dtype)
    )
    conv.replace_input_with(2, add_constant(graph, f"{result.name}_folded_bias", bias, dtype))
    ir.convenience.replace_all_uses_with(result, conv.outputs[0], replace_graph_outputs=True)
    graph.remove(norm, safe=True)
    made = conv.outputs[0]
    made.name, made.type, made.shape = result.name, result.type, result.shape


def _float32(value: ir.Value | None) -> np.ndarray:
    return tensor_of(value).numpy().astype(np.float32)
