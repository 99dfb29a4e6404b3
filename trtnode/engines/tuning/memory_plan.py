"""Plans the memory of a model: its weights, its engines, and how ONNX Runtime allocates tensors.

ONNX Runtime can learn the pattern of a run's allocations and take one block for all of them from the second run on. The
chunks of the first run stay beside it. Without the pattern, a run takes about half of the memory, and each allocation
costs a tenth of a microsecond: 3 to 10 % of a model of microseconds, nothing measurable of a model of milliseconds.
So the pattern stays where little memory is to be saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from trtnode.engines.runtime.buffers import ALIGNMENT
from trtnode.partitioner.graph.topology import GRAPH_INPUT, as_booleans
from trtnode.partitioner.graph.view import Graph, expected_bytes

PATTERN_BELOW = 2**20
"""Bytes alive at a time below which ONNX Runtime's memory pattern is worth its memory."""


def plan_memory(graph: Graph, *, engine_bytes: int | None = None) -> dict[str, Any]:
    """Plan the memory of a model, for the report.

    Args:
        graph: An unknown dimension of its tensors counts as one.
        engine_bytes: Size of its engines; None before they are built.

    Returns:
        Bytes of weights and engines, and whether ONNX Runtime learns the memory pattern.
    """
    return {
        "weight_bytes": weight_bytes(graph),
        "engine_bytes": engine_bytes,
        "memory_pattern": gains_from_pattern(graph),
    }


def weight_bytes(graph: Graph) -> int:
    """Return the bytes of the weights of a model."""
    return sum(map(_weight_bytes, graph.model.graph.initializers.values()))


def _weight_bytes(value: ir.Value) -> int:
    if value.const_value is None:
        return 0
    return value.const_value.nbytes if value.dtype == ir.DataType.STRING else expected_bytes(value)


def gains_from_pattern(graph: Graph) -> bool:
    """Return whether ONNX Runtime's memory pattern is worth its memory, were all nodes native."""
    return peak_bytes(graph) < PATTERN_BELOW


def keeps_memory_pattern(memory: Mapping[str, Any] | None) -> bool:
    """Return the choice of ``plan_memory``; True, ONNX Runtime's default, where there is no plan."""
    return memory is None or memory.get("memory_pattern") is not False


def peak_bytes(graph: Graph) -> int:
    """Return the most bytes of results that are alive at a time, in whole cache lines; constants don't count."""
    topology, nodes = graph.topology, len(graph.nodes)
    made = topology.producers != GRAPH_INPUT
    constant = as_booleans(graph.constant)[topology.producers]
    wanted = np.flatnonzero(made & (topology.sizes > 0) & ~constant)
    if not len(wanted):
        return 0
    latest = np.maximum.reduceat(topology.pins, topology.pin_starts[:-1])  # every tensor has a pin
    last = np.where(topology.leaving, nodes, latest)[wanted]
    sizes = -(-topology.sizes[wanted] // ALIGNMENT) * ALIGNMENT
    changes = np.zeros(nodes + 2, dtype=np.int64)
    np.add.at(changes, topology.producers[wanted], sizes)
    np.subtract.at(changes, last + 1, sizes)
    return int(np.cumsum(changes).max())
