"""Plans the memory of a partition: weights, boundary tensors, and the tensors of native nodes.

ONNX Runtime can learn the pattern of a run's allocations and take one block for all of them from the second run on. The
chunks of the first run stay beside it. Without the pattern, a run takes about half of the memory, and each allocation
costs a tenth of a microsecond: 3 to 10 % of a model of microseconds, nothing measurable of a model of milliseconds.
So the pattern stays where little memory is to be saved.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from engines.runtime.buffers import Lifetime, plan_offsets
from partitioner import Graph, Partition
from partitioner.cut.report import levels_of
from partitioner.graph.topology import GRAPH_INPUT

PATTERN_BELOW = 2**20
"""Bytes alive at a time below which ONNX Runtime's memory pattern is worth its memory."""

MOST_TENSORS = 1000
"""Most tensors whose places are planned: the time grows with the square of their number."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ArenaPlan:
    """Memory of some tensors.

    Attributes:
        tensors: Number of tensors.
        total_bytes: Each in memory of its own.
        peak_bytes: Most that is alive at a time.
        arena_bytes: One block in which tensors that are never alive together share memory; None beyond MOST_TENSORS.
    """

    tensors: int
    total_bytes: int
    peak_bytes: int
    arena_bytes: int | None

    @classmethod
    def of(cls, lifetimes: Sequence[Lifetime]) -> ArenaPlan:
        """Plan tensors that are alive from one position to another."""
        few = len(lifetimes) <= MOST_TENSORS
        return cls(
            tensors=len(lifetimes),
            total_bytes=sum(one.size_bytes for one in lifetimes),
            peak_bytes=_peak(lifetimes),
            arena_bytes=plan_offsets({str(i): one for i, one in enumerate(lifetimes)})[1] if few else None,
        )


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
    inside = np.zeros(len(graph.nodes), dtype=bool)
    inside[[node.index for segment in partition.segments for node in segment.nodes]] = True
    stages = 2 * np.array(levels_of(graph, partition.segments), dtype=np.int64) - inside
    boundary = {v for s in partition.segments for v in (*s.inputs, *s.outputs)}
    crosses = [value in boundary for value in graph.tensors]
    native = [p != GRAPH_INPUT and not inside[p] and not c for p, c in zip(graph.producers, crosses, strict=True)]
    order = np.argsort(np.argsort(stages, kind="stable"))
    return {
        "weight_bytes": sum(v.const_value.nbytes for v in graph.model.graph.initializers.values() if v.const_value),
        "engine_bytes": engine_bytes,
        "boundary": dataclasses.asdict(ArenaPlan.of(_lifetimes(graph, stages, crosses))),
        "native": dataclasses.asdict(ArenaPlan.of(_lifetimes(graph, order, native))),
        "memory_pattern": gains_from_pattern(graph),
    }


def gains_from_pattern(graph: Graph) -> bool:
    """Return whether ONNX Runtime's memory pattern is worth its memory, were all nodes native."""
    results = [producer != GRAPH_INPUT for producer in graph.producers]
    return _peak(_lifetimes(graph, np.arange(len(graph.nodes)), results)) < PATTERN_BELOW


def keeps_memory_pattern(memory: Mapping[str, Any] | None) -> bool:
    """Return the choice of ``plan_memory``; True, ONNX Runtime's default, where there is no plan."""
    return memory is None or memory.get("memory_pattern") is not False


def _lifetimes(graph: Graph, positions: np.ndarray, chosen: Iterable[bool]) -> list[Lifetime]:
    """Return the lifetimes of chosen tensors, without those of constants and without those that take no memory."""
    topology, lifetimes = graph.topology, []
    for tensor, wanted in enumerate(chosen):
        producer, size = graph.producers[tensor], topology.sizes.item(tensor)
        if not wanted or not size or (producer != GRAPH_INPUT and graph.constant[producer]):
            continue
        pins = positions[topology.pins[topology.pin_starts[tensor] : topology.pin_starts[tensor + 1]]]
        first = -1 if producer == GRAPH_INPUT else positions.item(producer)
        last = len(positions) if topology.leaving[tensor] else int(pins.max())
        lifetimes.append(Lifetime(dtype=np.dtype(np.uint8), shape=(size,), first=first, last=last))
    return lifetimes


def _peak(lifetimes: Sequence[Lifetime]) -> int:
    changes: dict[int, int] = {}
    for one in lifetimes:
        changes[one.first] = changes.get(one.first, 0) + one.size_bytes
        changes[one.last + 1] = changes.get(one.last + 1, 0) - one.size_bytes
    alive = np.cumsum([changes[position] for position in sorted(changes)], dtype=np.int64)
    return int(alive.max(initial=0))
