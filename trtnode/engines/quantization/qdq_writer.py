"""Writes INT8 and FP8 models: QuantizeLinear and DequantizeLinear where a target's engine library looks for them."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Mapping

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir.passes import common

from trtnode.engines.backends.cpu_features import has_short_sums, usable_flags
from trtnode.engines.quantization.bias_correction import expected_shift
from trtnode.engines.quantization.channel_equalization import scale_channels
from trtnode.engines.quantization.opset_raising import raised_copy
from trtnode.engines.quantization.planner import QuantizationPlan, Weight, plan_quantization
from trtnode.engines.quantization.schemes import FLOAT8, INT8, SCHEMES, QuantizationScheme, QuantizedType
from trtnode.engines.quantization.smooth_quant import smooth
from trtnode.engines.quantization.table import CalibrationTable
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.new_values import add_constant, new_names
from trtnode.partitioner.model.values import is_constant, tensor_of
from trtnode.partitioner.passes.batch_norms import fold_batch_norms

logger = logging.getLogger(__name__)


def scheme_for(backend: str, precision: str = INT8.name) -> QuantizationScheme:
    """Return a backend's scheme for this machine: smaller weights where its processor would overflow."""
    scheme = SCHEMES[backend].in_float8() if precision == FLOAT8.name else SCHEMES[backend]
    return scheme.reduced() if scheme.on_processor and has_short_sums(usable_flags()) else scheme


def is_quantized(model: onnx.ModelProto) -> bool:
    """Return whether a model computes with quantized tensors already, as after quantization-aware training."""
    ops = {node.op_type for node in model.graph.node}
    return any(op.startswith(("QLinear", "Quantize", "Dequantize")) or op.endswith("Integer") for op in ops)


def quantize(
    model: onnx.ModelProto, table: CalibrationTable, scheme: QuantizationScheme, *, keep: Collection[str] = ()
) -> onnx.ModelProto:
    """Quantize a model, or one segment of it, by the ranges of the whole model.

    Weights are stored around zero behind a DequantizeLinear, with one scale an output channel, or one a matrix without
    channels. Activations pass a QuantizeLinear and a DequantizeLinear. BatchNormalization is folded before, and an
    older opset is raised to that of the scheme's numbers. Where the table has factors, channels are scaled, or smoothed
    before a MatMul. Where it has means, the mean error of rounded weights is taken from biases.

    Args:
        model: Constants as initializers, nodes in topological order. It is not changed. Nodes that are quantized
            already must be kept.
        table: Ranges by value name.
        scheme: The target's form of quantized model.
        keep: Identities of nodes that stay float.

    Returns:
        The quantized model, with the same inputs and outputs.

    Raises:
        QuantizationError: ONNX's converter can't raise the model's opset.
    """
    work, names = prepare(model, scheme.numbers)
    table = table.scaled(scale_channels(work.graph, table.factors))
    smoothed = smooth(work.graph, table.factors, [node for node, name in names.items() if name in keep])
    table = table.with_ranges({new: table.scaled_ranges[name] for new, name in smoothed.items()})
    plan = plan_quantization(work.graph, names, table, scheme, keep)
    for name, reason in plan.kept.items():
        logger.info("%s stays float: %s", name, reason)
    _Writer(work.graph, plan, scheme, table.means).write()
    common.RemoveUnusedNodesPass()(work)
    common.TopologicalSortPass()(work)
    return ir.to_proto(work)


def prepare(model: onnx.ModelProto, numbers: QuantizedType = INT8) -> tuple[ir.Model, dict[ir.Node, str]]:
    """Copy a model to the opset of a quantized type, and fold its batch normalization.

    Returns:
        The copy, and the identities of its nodes.

    Raises:
        QuantizationError: ONNX's converter can't raise the model's opset.
    """
    work = raised_copy(model, numbers.opset, numbers.ir_version)
    names = {node.op: node.name for node in Graph.of(work).nodes}
    fold_batch_norms(work.graph)
    return work, names


@dataclasses.dataclass(frozen=True, slots=True)
class _Scale:
    """Scale of a tensor: value = step * (quantized - zero point).

    Attributes:
        inputs: The values that hold step and zero point.
        axis: Of the steps; None if there is one for the tensor.
    """

    inputs: tuple[ir.Value, ir.Value]
    axis: int | None = None

    @property
    def attributes(self) -> dict[str, int]:
        return {} if self.axis is None else {"axis": self.axis}


class _Writer:
    def __init__(
        self,
        graph: ir.Graph,
        plan: QuantizationPlan,
        scheme: QuantizationScheme,
        means: Mapping[str, tuple[float, ...]],
    ) -> None:
        self._graph = graph
        self._plan = plan
        self._scheme = scheme
        self._means = means
        self._errors: dict[tuple[ir.Value, int], np.ndarray] = {}
        self._new = new_names(graph)
        self._dequantized: dict[tuple[ir.Value, int | None], ir.Value] = {}

    def write(self) -> None:
        inputs = {(node, index): node.inputs[index] for node, index in self._plan.readers}
        for (node, index), activation in inputs.items():
            assert activation is not None
            node.replace_input_with(index, self._behind_pair(activation))
        for weight in self._plan.weights:
            source = weight.node.inputs[weight.index]
            assert source is not None
            weight.node.replace_input_with(weight.index, self._as_integers(source, weight))
            activation = inputs.get((weight.node, 0))
            if activation is not None:
                self._correct_bias(weight, activation, source)

    def _behind_pair(self, value: ir.Value) -> ir.Value:
        """An activation behind QuantizeLinear and DequantizeLinear, which all its readers share."""
        if (value, None) not in self._dequantized:
            scale = self._activation_scale(value)
            quantized = self._add("QuantizeLinear", value, value.name, scale)
            self._dequantized[value, None] = self._add("DequantizeLinear", quantized, value.name, scale)
        return self._dequantized[value, None]

    def _activation_scale(self, value: ir.Value) -> _Scale:
        low, high = self._plan.ranges[value]
        if self._scheme.signed:
            numbers = self._scheme.numbers
            step, zero = max(abs(low), abs(high)) / numbers.largest, np.zeros((), numbers.dtype)
        else:
            low, high = min(low, 0.0), max(high, 0.0)
            step = (high - low) / 255
            zero = np.array(round(-low / step), np.uint8)
        return self._scale(value, np.array(step, np.float32), zero)

    def _as_integers(self, source: ir.Value, weight: Weight) -> ir.Value:
        """A constant in the scheme's numbers behind a DequantizeLinear."""
        axis, numbers = weight.axis, self._scheme.numbers
        if (source, axis) not in self._dequantized:
            values = _numbers(source)
            short, most = self._scheme.short_sums, numbers.largest
            step = weight_step(values, axis, short_sums=short, grouped=weight.grouped, most=most)
            scale = self._scale(source, step, np.zeros(step.shape, numbers.dtype), axis)
            steps = _along(step, axis, values.ndim)
            stored = numbers.rounded(values / steps)
            if axis is not None:
                self._errors[source, axis] = channel_rows(stored.astype(np.float32) * steps - values, axis)
            constant = add_constant(self._graph, f"{source.name}_{numbers.name}", stored)
            self._dequantized[source, axis] = self._add("DequantizeLinear", constant, source.name, scale)
        return self._dequantized[source, axis]

    def _correct_bias(self, weight: Weight, activation: ir.Value, source: ir.Value) -> None:
        """Take the mean error of the rounded weights from a bias."""
        node, bias, means = weight.node, _constant_bias(weight.node), self._means.get(activation.name or "")
        if bias is None or means is None or weight.axis is None or node.attributes.get_int("transA", 0) != 0:
            return
        errors = self._errors[source, weight.axis]
        if len(means) == errors.shape[2] * node.attributes.get_int("group", 1) and bias.shape == (len(errors),):
            corrected = _numbers(bias) - expected_shift(errors, np.array(means))
            name = f"{node.outputs[0].name}_corrected_bias"
            node.replace_input_with(2, add_constant(self._graph, name, corrected.astype(np.float32)))

    def _scale(self, value: ir.Value, step: np.ndarray, zero_point: np.ndarray, axis: int | None = None) -> _Scale:
        kind = self._scheme.numbers.name
        inputs = (
            add_constant(self._graph, f"{value.name}_{kind}_step", step),
            add_constant(self._graph, f"{value.name}_{kind}_zero_point", zero_point),
        )
        return _Scale(inputs, axis)

    def _add(self, op_type: str, value: ir.Value, name: str | None, scale: _Scale) -> ir.Value:
        dtype = scale.inputs[1].dtype if op_type == "QuantizeLinear" else ir.DataType.FLOAT
        assert dtype is not None
        result = ir.Value(name=self._new(f"{name}_{op_type}"), type=ir.TensorType(dtype), shape=value.shape)
        named = self._new(f"{name}/{op_type}")
        self._graph.append(ir.node(op_type, [value, *scale.inputs], scale.attributes, name=named, outputs=[result]))
        return result


def _numbers(value: ir.Value) -> np.ndarray:
    return tensor_of(value).numpy().astype(np.float32)


def _along(step: np.ndarray, axis: int | None, rank: int) -> np.ndarray:
    """Steps in a shape that broadcasts over the channels of a tensor."""
    return step if axis is None else step.reshape([-1 if i == axis else 1 for i in range(rank)])


def _constant_bias(node: ir.Node) -> ir.Value | None:
    """The constant that a node adds to its results just as it is."""
    scaled = node.attributes.get_float("alpha", 1.0) != 1 or node.attributes.get_float("beta", 1.0) != 1
    if node.op_type not in ("Conv", "Gemm") or scaled or len(node.inputs) < 3:
        return None
    bias = node.inputs[2]
    return bias if bias is not None and is_constant(bias) else None


LARGEST = 127
"""Largest quantized weight, and largest sum of two that are added in 16 bits. Rounded it is 128 at most, and 255 * 128
is less than 2**15."""


def weight_step(
    values: np.ndarray, axis: int | None, *, short_sums: bool, grouped: bool = False, most: float = LARGEST
) -> np.ndarray:
    """Return the value of the integer 1 in each channel.

    The largest absolute value becomes ``most``. Where a processor adds two products at a time in 16 bits, the largest
    sum of two neighbours of one sign does. So weights keep nearly all of their 8 bits, unless two large ones meet.

    Neighbours of OpenVINO are input channels 2i and 2i + 1 at one position of a kernel. Those of ONNX Runtime are
    elements 2i and 2i + 1 of all positions with their channels in a row. In kernels for groups or without channels, any
    two weights may meet, because their order is not known.

    Args:
        values: The weights, float32.
        axis: Axis of the output channels; None where all weights have one step.
        short_sums: True if the processor adds so.
        grouped: True if they are of a convolution with several groups of several channels.
        most: The largest quantized weight.

    Returns:
        float32[channels], or a scalar. A channel of zeros gets the step of the largest one, so that its bias still has
        a fine one.
    """
    if axis is not None and short_sums and not grouped:
        largest = _largest_pair(channel_rows(values, axis))
    else:
        single = np.abs(values).max() if axis is None else np.abs(channel_rows(values, axis)).max(axis=(1, 2))
        largest = np.asarray(2 * single if short_sums else single)
    return np.asarray(np.where(largest > 0, largest, largest.max() or 1.0) / most, np.float32)


def channel_rows(values: np.ndarray, axis: int) -> np.ndarray:
    """Return weights as [output channels, positions of a kernel, input channels]."""
    rows = np.moveaxis(values, axis, 0)
    return rows.reshape(*rows.shape[:2], -1).transpose(0, 2, 1)


def _largest_pair(rows: np.ndarray) -> np.ndarray:
    """The largest absolute sum of two neighbours of one sign, float32[output channels]."""
    return np.asarray(np.maximum(_largest_sum(rows), _largest_sum(rows.reshape(len(rows), 1, -1))))


def _largest_sum(rows: np.ndarray) -> np.ndarray:
    padded = np.pad(rows, ((0, 0), (0, 0), (0, rows.shape[2] % 2)))
    pairs = padded.reshape(*rows.shape[:2], -1, 2)
    positive, negative = (np.maximum(signed, 0).sum(axis=3).max(axis=(1, 2)) for signed in (pairs, -pairs))
    return np.asarray(np.maximum(positive, negative))
