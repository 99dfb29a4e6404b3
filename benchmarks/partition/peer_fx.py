"""Drives torch.fx's ``CapabilityBasedPartitioner``, on a graph of calls that never run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner

from benchmarks.partition.labelled_graph import LabelledGraph
from benchmarks.partition.peers import PeerCut


class _FxSupport:
    """The engine's verdicts in torch.fx's form."""

    def __init__(self, names: Mapping[torch.fx.Node, str], supported: frozenset[str]) -> None:
        self._names = names
        self._supported = supported

    def is_node_supported(self, _submodules: Mapping[str, torch.nn.Module], node: torch.fx.Node) -> bool:
        return self._names.get(node, "") in self._supported


def prepare(labelled: LabelledGraph) -> Callable[[], PeerCut]:
    """Write the graph as calls of one function."""
    graph = torch.fx.Graph()
    inputs: dict[str, torch.fx.Node] = {}
    values: dict[str, torch.fx.Node] = {}
    producers = labelled.producers()
    for value in (v for reads in labelled.reads.values() for v in reads if v not in producers):
        if value not in inputs:
            inputs[value] = graph.placeholder(f"input_{len(inputs)}")
    names: dict[torch.fx.Node, str] = {}
    for node, reads in labelled.reads.items():
        call = graph.call_function(_any_operator, tuple(values.get(v) or inputs[v] for v in reads))
        names[call] = node
        values.update(dict.fromkeys(labelled.writes[node], call))
    graph.output(tuple(call for call in names if not call.users))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)

    def run() -> PeerCut:
        partitioner = CapabilityBasedPartitioner(
            module, _FxSupport(names, labelled.supported), allows_single_node_partition=True
        )
        start = time.perf_counter()
        found = partitioner.propose_partitions()
        seconds = time.perf_counter() - start
        groups = tuple(tuple(names[call] for call in partition.nodes) for partition in found)
        return PeerCut(segments=len(groups), groups=groups, seconds=seconds)

    return run


def _any_operator(*reads: object) -> object:
    return reads
