"""Drives ONNX Runtime's estimate of its partitions, its authors' port of ``CreateSupportedPartitionNodeGroups``."""

from __future__ import annotations

import time
from collections.abc import Callable

import onnx
from onnxruntime.tools.mobile_helpers.usability_checker import check_partitioning

from benchmarks.partition.labelled_graph import LabelledGraph
from benchmarks.partition.peers import PeerCut


class _OrtSupport:
    """The engine's verdicts in the helper's form."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def is_op_supported(self, node: onnx.NodeProto) -> bool:
        return node.name in self._names

    def get_caveats(self) -> list[str]:
        return []


def prepare(labelled: LabelledGraph) -> Callable[[], PeerCut]:
    """Write the graph as flat protobuf: values that a subgraph captures become inputs of its node."""
    producers = labelled.producers()
    outside = {value: None for values in labelled.reads.values() for value in values if value not in producers}
    graph = onnx.GraphProto(
        name="wiring",
        input=[onnx.ValueInfoProto(name=value) for value in outside],
        node=[
            onnx.NodeProto(op_type="Node", name=node, input=reads, output=labelled.writes[node])
            for node, reads in labelled.reads.items()
        ],
    )

    def run() -> PeerCut:
        start = time.perf_counter()
        found = check_partitioning(graph, _OrtSupport(labelled.supported), False).supported_groups
        seconds = time.perf_counter() - start
        groups = tuple(tuple(node.name for node in group) for group in found)
        return PeerCut(segments=len(groups), groups=groups, seconds=seconds)

    return run
