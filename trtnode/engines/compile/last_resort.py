"""Finds the nodes of a compilation that run in onnx.reference, and says so in its report."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping

from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.errors import ModelLoadError
from trtnode.engines.onnxruntime.compatibility import open_native
from trtnode.engines.onnxruntime.missing_kernels import nodes_without_kernel
from trtnode.engines.runtime.plan import first_result
from trtnode.engines.runtime.reference_nodes import find_reference_nodes
from trtnode.partitioner.cut.labels import ReasonCode, Verdict
from trtnode.partitioner.cut.partition import Partition
from trtnode.partitioner.cut.segments import nodes_outside
from trtnode.partitioner.graph.view import Node


def native_reference_nodes(partition: Partition, nodes: Mapping[str, str]) -> list[Node]:
    """Return those of some nodes, by their first results, that no engine runs."""
    return [node for node in nodes_outside(partition.graph, partition.segments) if first_result(node) in nodes]


def with_reference_labels(partition: Partition, nodes: Mapping[str, str]) -> Partition:
    """Say of each of these nodes that runs in no engine where it runs instead."""
    labels = dict(partition.labels)
    for node in native_reference_nodes(partition, nodes):
        reason = "ONNX Runtime has no kernel for it: it runs in onnx.reference, in Python, which is slow."
        detail = f"{labels[node.name].detail} {reason}" if labels[node.name].code != ReasonCode.NO_KERNEL else reason
        labels[node.name] = Verdict(ReasonCode.NO_KERNEL, detail)
    return dataclasses.replace(partition, labels=labels)


def label_reference_nodes(partition: Partition, source: pathlib.Path, cache: EngineCache | None) -> Partition:
    """Find, before anything is built, the nodes that neither an engine nor ONNX Runtime has a kernel for.

    Args:
        partition: Labelled and cut.
        source: Its model.
        cache: Place where answers of ONNX Runtime are looked up and kept.

    Raises:
        ModelLoadError: Nothing has a kernel for one of them, so the model can't be compiled.
    """
    graph = partition.graph
    suspects = nodes_without_kernel(graph, nodes_outside(graph, partition.segments), cache)
    if not suspects:
        return partition
    try:
        open_native(source, name=str(source))
    except ModelLoadError:
        nodes = find_reference_nodes(graph, suspects)
        if not nodes:
            raise
        return with_reference_labels(partition, nodes)
    return partition
