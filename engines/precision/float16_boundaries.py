"""Boundary tensors that cross between engines in float16, though the model declares them as float32."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import onnx_ir as ir

from trtnode.engines.backends.protocols import Backend
from trtnode.engines.precision.rewriting import Setting, computed_in_half
from trtnode.partitioner.cut.partition import Partition
from trtnode.partitioner.graph.extraction import extract_model


def with_fp16_boundaries(partition: Partition, settings: Mapping[str, Setting], backend: Backend) -> dict[str, Setting]:
    """Pass tensors between engines in float16 where all of these engines compute with them in float16.

    A tensor that a native node, a subgraph or the caller sees keeps its type. Results are the same: the tensor was
    rounded to float16 before it was cast to float32, and is cast back without loss.

    Args:
        partition: The segments.
        settings: Their precisions, by segment name.
        backend: The library that builds all of them.

    Returns:
        The settings with the inputs and outputs that are float16.
    """
    between = _between_engines(partition)
    for segment in partition.segments:
        interface = between.intersection(v.name or "" for v in (*segment.inputs, *segment.outputs))
        if interface:
            model = extract_model(partition.graph, segment.nodes, inputs=segment.inputs, outputs=segment.outputs)
            between -= interface - computed_in_half(model, segment, settings[segment.name], backend)
    return {
        s.name: dataclasses.replace(
            settings[s.name], fp16_boundaries=between.intersection(v.name or "" for v in (*s.inputs, *s.outputs))
        )
        for s in partition.segments
    }


def _between_engines(partition: Partition) -> frozenset[str]:
    """Return the names of float32 tensors that segments make and only segments read."""
    inside = {node.name for segment in partition.segments for node in segment.nodes}
    seen = set(partition.graph.outputs)
    seen.update(v for node in partition.graph.nodes if node.name not in inside for v in node.reads)
    made = (v for segment in partition.segments for v in segment.outputs)
    return frozenset(v.name or "" for v in made if v not in seen and v.dtype == ir.DataType.FLOAT)
