"""Plans the memory of a partition: weights, boundary tensors, and the tensors of native nodes.

ONNX Runtime can learn the pattern of a run's allocations and take one block for all of them from the second run on. The
chunks of the first run stay beside it. Without the pattern, a run takes about half of the memory, and each allocation
costs a tenth of a microsecond: 3 to 10 % of a model of microseconds, nothing measurable of a model of milliseconds.
So the pattern stays where little memory is to be saved.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from trtnode.engines.runtime.buffers import ALIGNMENT
from trtnode.partitioner.cut.partition import Partition
from trtnode.partitioner.cut.report import levels_of
from trtnode.partitioner.cut.segments import NATIVE, places_of
from trtnode.partitioner.graph.topology import GRAPH_INPUT, as_booleans
from trtnode.partitioner.graph.view import Graph, expected_bytes

PATTERN_BELOW = 2**20
"""Bytes alive at a time below which ONNX Runtime's memory pattern is worth its memory."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spans:
    """The positions between which tensors are alive.

    Attributes:
        sizes: Bytes of each tensor, whole cache lines: ``int64[T]``.
        first: Position that writes it; -1 for an input of the model.
        last: The last position that reads it; the number of positions for an output of the model.
    """

    sizes: np.ndarray
    first: np.ndarray
    last: np.ndarray

    def peak_bytes(self) -> int:
        """Return the most bytes that are alive at a time."""
        if not len(self.sizes):
            return 0
        changes = np.zeros(int(self.last.max()) + 3, dtype=np.int64)  # from position -1 to the one behind the last
        np.add.at(changes, self.first + 1, self.sizes)
        np.subtract.at(changes, self.last + 2, self.sizes)
        return int(np.cumsum(changes).max())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReusePlan:
    """Memory of some tensors.

    Attributes:
        tensors: Number of tensors.
        total_bytes: Each in memory of its own.
        peak_bytes: Most that is alive at a time.
    """

    tensors: int
    total_bytes: int
    peak_bytes: int

    @classmethod
    def of(cls, spans: Spans) -> ReusePlan:
        """Plan tensors that are alive from one position to another."""
        return cls(tensors=len(spans.sizes), total_bytes=sum(spans.sizes.tolist()), peak_bytes=spans.peak_bytes())


def plan_memory(partition: Partition, *, engine_bytes: int | None = None) -> dict[str, Any]:
    """Plan the memory of a partition, for the report.

    Args:
        partition: An unknown dimension of its tensors counts as one.
        engine_bytes: Size of its engines; None before they are built.

    Returns:
        Bytes of weights and engines; plans of the boundary tensors and of the tensors that only native nodes read; and
        whether ONNX Runtime learns the memory pattern.
    """
    graph = partition.graph
    inside = places_of(graph, partition.segments) != NATIVE
    stages = 2 * np.array(levels_of(graph, partition.segments), dtype=np.int64) - inside
    boundary = {v for s in partition.segments for v in (*s.inputs, *s.outputs)}
    crosses = as_booleans([value in boundary for value in graph.tensors])
    producers = graph.topology.producers
    native = (producers != GRAPH_INPUT) & ~inside[producers] & ~crosses
    order = np.argsort(np.argsort(stages, kind="stable"))
    return {
        "weight_bytes": sum(map(_weight_bytes, graph.model.graph.initializers.values())),
        "engine_bytes": engine_bytes,
        "boundary": dataclasses.asdict(ReusePlan.of(_spans(graph, stages, crosses))),
        "native": dataclasses.asdict(ReusePlan.of(_spans(graph, order, native))),
        "memory_pattern": gains_from_pattern(graph),
    }


def _weight_bytes(value: ir.Value) -> int:
    if value.const_value is None:
        return 0
    return value.const_value.nbytes if value.dtype == ir.DataType.STRING else expected_bytes(value)


def gains_from_pattern(graph: Graph) -> bool:
    """Return whether ONNX Runtime's memory pattern is worth its memory, were all nodes native."""
    results = graph.topology.producers != GRAPH_INPUT
    return _spans(graph, np.arange(len(graph.nodes)), results).peak_bytes() < PATTERN_BELOW


def keeps_memory_pattern(memory: Mapping[str, Any] | None) -> bool:
    """Return the choice of ``plan_memory``; True, ONNX Runtime's default, where there is no plan."""
    return memory is None or memory.get("memory_pattern") is not False


def _spans(graph: Graph, positions: np.ndarray, chosen: np.ndarray) -> Spans:
    """Return the spans of chosen tensors, without those of constants and without those that take no memory.

    Args:
        graph: Its nodes and tensors.
        positions: Of each node: ``int64[N]``.
        chosen: True for a tensor that counts: ``bool[T]``.
    """
    topology = graph.topology
    given = topology.producers == GRAPH_INPUT
    constant = as_booleans(graph.constant)[topology.producers] & ~given
    wanted = np.flatnonzero(chosen & (topology.sizes > 0) & ~constant)
    if not len(wanted):
        return Spans(sizes=np.zeros(0, np.int64), first=np.zeros(0, np.int64), last=np.zeros(0, np.int64))
    latest = np.maximum.reduceat(positions[topology.pins], topology.pin_starts[:-1])  # every tensor has a pin
    last = np.where(topology.leaving, len(positions), latest)
    first = np.where(given, -1, positions[topology.producers])
    lines = -(-topology.sizes[wanted] // ALIGNMENT)
    return Spans(sizes=lines * ALIGNMENT, first=first[wanted], last=last[wanted])
