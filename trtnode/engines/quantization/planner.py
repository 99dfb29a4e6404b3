"""Plans a quantization: the tensors that an engine library sees in eight bits, and reasons why nodes stay float."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from trtnode.engines.quantization.schemes import MOVING, WEIGHT_AXES, QuantizationScheme
from trtnode.engines.quantization.table import CalibrationTable
from trtnode.partitioner.model.values import is_constant, tensor_of

ACTIVATIONS = frozenset({"Clip", "Relu"})
"""Activations that engines compute together with the node before."""


@dataclasses.dataclass(frozen=True, slots=True)
class Weight:
    """A constant input to store in eight bits, and the axis that has a scale for each index; None has one for all."""

    node: ir.Node
    index: int
    axis: int | None

    @property
    def grouped(self) -> bool:
        """True if the node has several groups of several input channels."""
        groups, weight = self.node.attributes.get_int("group", 1), tensor_of(self.node.inputs[self.index])
        rows, columns = weight.shape.numpy()[:2] if groups > 1 else (1, 1)
        return (columns if self.node.op_type == "Conv" else rows // groups) > 1


@dataclasses.dataclass(slots=True)
class QuantizationPlan:
    """Tensors to quantize.

    Attributes:
        quantized: Names of the nodes that read eight bits, in topological order.
        kept: Reason why others stay float, by name; only nodes that the scheme would quantize.
        readers: Inputs that read a quantized activation: nodes and indices.
        weights: Constants to quantize.
        ranges: Range of each value to quantize.
    """

    quantized: list[str]
    kept: dict[str, str]
    readers: list[tuple[ir.Node, int]]
    weights: list[Weight]
    ranges: dict[ir.Value, tuple[float, float]]


def plan_quantization(
    graph: ir.Graph,
    names: Mapping[ir.Node, str],
    table: CalibrationTable,
    scheme: QuantizationScheme,
    keep: Collection[str] = (),
) -> QuantizationPlan:
    """Choose the tensors to quantize.

    Args:
        graph: Nodes in topological order, constants as initializers.
        names: Identity of each node.
        table: Ranges by value name.
        scheme: The target's form of quantized model.
        keep: Identities of nodes that stay float.
    """
    return _Planner(names, table, scheme, frozenset(keep)).plan(graph)


class _Planner:
    def __init__(
        self, names: Mapping[ir.Node, str], table: CalibrationTable, scheme: QuantizationScheme, keep: frozenset[str]
    ) -> None:
        self._names = names
        self._table = table
        self._scheme = scheme
        self._keep = keep
        self._plan = QuantizationPlan([], {}, [], [], {})
        self._made: set[ir.Value] = set()
        """Results of quantized nodes, behind their activation function."""

    def plan(self, graph: ir.Graph) -> QuantizationPlan:
        for node in graph:
            indices = self._inputs_to_quantize(node)
            if not indices:
                continue
            problem = self._problem(node, indices)
            if problem is None:
                self._take(node, indices)
            elif node.op_type in self._scheme.weighted:
                self._plan.kept[self._names[node]] = problem
        _share_ranges(self._plan)
        return self._plan

    def _inputs_to_quantize(self, node: ir.Node) -> list[int]:
        """Return the indices of the inputs that the scheme quantizes where it can."""
        if node.domain:
            return []
        if node.op_type in self._scheme.weighted:
            return [0, 1]
        if node.op_type == "Add" and self._scheme.residual_only:
            return self._residual(node)
        if node.op_type not in self._scheme.followers:
            return []
        indices = [0] if node.op_type in MOVING else list(range(len(node.inputs)))
        return indices if all(node.inputs[index] in self._made for index in indices) else []

    def _residual(self, node: ir.Node) -> list[int]:
        """The input of an Add beside the one that the convolution before computes together with it."""
        fused = [i for i, value in enumerate(node.inputs) if value in self._made and len(value.uses()) == 1]
        constant = any(value is None or is_constant(value) for value in node.inputs)
        return [1 - fused[-1]] if fused and not constant else []

    def _problem(self, node: ir.Node, indices: Sequence[int]) -> str | None:
        """Return the reason why a node stays float; None if it is quantized."""
        if self._names[node] in self._keep:
            return "it was asked to stay float"
        problems = (self._input_problem(node, index) for index in indices)
        return next((p for p in problems if p), None)

    def _input_problem(self, node: ir.Node, index: int) -> str | None:
        value = node.inputs[index]
        if value is None:
            return "an input is missing"
        if value.dtype not in (None, ir.DataType.FLOAT):
            return f"{value.name!r} is {value.dtype}, and only float32 is quantized"
        if not is_constant(value):
            weight_missing = index == 1 and node.op_type in ("Conv", "ConvTranspose")
            return f"its weights {value.name!r} are no constant" if weight_missing else self._range_problem(value)
        finite = bool(np.isfinite(tensor_of(value).numpy()).all())
        return None if finite else f"its weights {value.name!r} hold NaN or infinity"

    def _range_problem(self, value: ir.Value) -> str | None:
        found = self._table.ranges.get(value.name or "")
        if found is None:
            return f"calibration saw no finite values of {value.name!r}"
        if found[1] - found[0] < np.finfo(np.float32).tiny:
            return f"{value.name!r} was always {found[0]:g} in calibration"
        return None

    def _take(self, node: ir.Node, indices: Sequence[int]) -> None:
        plan = self._plan
        plan.quantized.append(self._names[node])
        for index in indices:
            value = node.inputs[index]
            assert value is not None
            if is_constant(value):
                plan.weights.append(Weight(node, index, _channel_axis(node, index)))
            else:
                plan.readers.append((node, index))
                plan.ranges[value] = self._table.ranges[value.name or ""]
        self._made.add(_behind_activation(node))


def _behind_activation(node: ir.Node) -> ir.Value:
    """The result of a node, or of the activation function that alone reads it."""
    value = node.outputs[0]
    uses = value.uses()
    if len(uses) == 1 and not value.is_graph_output():
        ((reader, index),) = uses
        if reader.op_type in ACTIVATIONS and index == 0 and not reader.domain:
            return reader.outputs[0]
    return value


def _channel_axis(node: ir.Node, index: int) -> int | None:
    rank = len(tensor_of(node.inputs[index]).shape)
    if node.op_type in ("Gemm", "MatMul") and (index == 0 or rank != 2):
        return None
    if node.op_type == "Gemm" and node.attributes.get_int("transB", 0) == 1:
        return 0
    return WEIGHT_AXES[node.op_type]


def _share_ranges(plan: QuantizationPlan) -> None:
    """Give one range to values that must have one scale: those that a Concat joins, or that are only moved."""
    groups: dict[ir.Value, set[ir.Value]] = {value: {value} for value in plan.ranges}
    for node in dict.fromkeys(node for node, _ in plan.readers):
        if node.op_type == "Concat" or node.op_type in MOVING:
            tied = [v for v in (*node.inputs, _behind_activation(node)) if v in groups]
            joined = set().union(*(groups[v] for v in tied))
            for value in joined:
                groups[value] = joined
    plan.ranges.update(
        {
            value: (min(plan.ranges[v][0] for v in group), max(plan.ranges[v][1] for v in group))
            for value, group in groups.items()
        }
    )
