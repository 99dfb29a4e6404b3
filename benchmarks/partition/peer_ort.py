"""ONNX Runtime's own estimate of its partitions: ``CreateSupportedPartitionNodeGroups``, ported by its authors."""

from __future__ import annotations

import time
from collections.abc import Callable

import onnx
from onnxruntime.tools.mobile_helpers.usability_checker import check_partitioning

from benchmarks.partition.peers import Outcome
from benchmarks.partition.wiring import Wiring


class _Supported:
    """The engine's verdicts, in the form that the helper asks for."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def is_op_supported(self, node: onnx.NodeProto) -> bool:
        return node.name in self._names

    def get_caveats(self) -> list[str]:
        return []


def prepare(wiring: Wiring) -> Callable[[], Outcome]:
    """Write the graph as flat protobuf: what a body captures becomes an input of its node."""
    producers = wiring.producers()
    outside = {value: None for values in wiring.reads.values() for value in values if value not in producers}
    graph = onnx.GraphProto(
        name="wiring",
        input=[onnx.ValueInfoProto(name=value) for value in outside],
        node=[
            onnx.NodeProto(op_type="Node", name=node, input=reads, output=wiring.writes[node])
            for node, reads in wiring.reads.items()
        ],
    )

    def run() -> Outcome:
        start = time.perf_counter()
        found = check_partitioning(graph, _Supported(wiring.supported), False).supported_groups
        seconds = time.perf_counter() - start
        groups = tuple(tuple(node.name for node in group) for group in found)
        return Outcome(segments=len(groups), groups=groups, seconds=seconds)

    return run
