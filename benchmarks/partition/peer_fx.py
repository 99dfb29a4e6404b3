"""torch.fx's ``CapabilityBasedPartitioner``, on a graph of calls that are never made."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner

from benchmarks.partition.peers import Outcome
from benchmarks.partition.wiring import Wiring


class _Supported:
    """The engine's verdicts, in the form that the partitioner asks for."""

    def __init__(self, names: Mapping[torch.fx.Node, str], supported: frozenset[str]) -> None:
        self._names = names
        self._supported = supported

    def is_node_supported(self, _submodules: Mapping[str, torch.nn.Module], node: torch.fx.Node) -> bool:
        return self._names.get(node, "") in self._supported


def prepare(wiring: Wiring) -> Callable[[], Outcome]:
    """Write the graph as calls of one function."""
    graph = torch.fx.Graph()
    inputs: dict[str, torch.fx.Node] = {}
    values: dict[str, torch.fx.Node] = {}
    producers = wiring.producers()
    for value in (v for reads in wiring.reads.values() for v in reads if v not in producers):
        if value not in inputs:
            inputs[value] = graph.placeholder(f"input_{len(inputs)}")
    names: dict[torch.fx.Node, str] = {}
    for node, reads in wiring.reads.items():
        call = graph.call_function(_any_operator, tuple(values.get(v) or inputs[v] for v in reads))
        names[call] = node
        values.update(dict.fromkeys(wiring.writes[node], call))
    graph.output(tuple(call for call in names if not call.users))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)

    def run() -> Outcome:
        partitioner = CapabilityBasedPartitioner(
            module, _Supported(names, wiring.supported), allows_single_node_partition=True
        )
        start = time.perf_counter()
        found = partitioner.propose_partitions()
        seconds = time.perf_counter() - start
        groups = tuple(tuple(names[call] for call in partition.nodes) for partition in found)
        return Outcome(segments=len(groups), groups=groups, seconds=seconds)

    return run


def _any_operator(*reads: object) -> object:
    return reads
