"""Boundary tensors that engines hand on to engines in float16, though the model declares them as float32."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import onnx_ir as ir

from engines.base import Backend
from engines.bodies import Settled
from engines.envelope import Envelope
from engines.plan import specs
from engines.precision import Setting, computed_in_half
from partitioner import Partition, extract_model


def carry_half(partition: Partition, settings: Mapping[str, Setting], backend: Backend) -> dict[str, Setting]:
    """Let engines hand tensors on to engines in float16 where all of them compute with these tensors in float16.

    What a native node, a body or the caller sees keeps its type. Results are the same: such a tensor was rounded to
    float16 before it was cast to float32, and is cast back without loss.

    Args:
        partition: The segments.
        settings: How each computes, by segment name.
        backend: Builds all of them.

    Returns:
        The settings with what their segments take and give in float16.
    """
    between = _between_engines(partition)
    for segment in partition.segments:
        interface = between.intersection(v.name or "" for v in (*segment.inputs, *segment.outputs))
        if interface:
            model = extract_model(partition.graph, segment.nodes, inputs=segment.inputs, outputs=segment.outputs)
            between -= interface - computed_in_half(model, segment, settings[segment.name], backend)
    return {
        s.name: dataclasses.replace(
            settings[s.name], carried=between.intersection(v.name or "" for v in (*s.inputs, *s.outputs))
        )
        for s in partition.segments
    }


def report_carried(settled: Settled) -> Iterator[dict[str, Any]]:
    """Tell which tensors cross between engines in float16, and how many bytes each is smaller in a run.

    Returns:
        JSON values; ``bytes_saved`` is None where the shape is not fixed.
    """
    segments = settled.partition.segments
    for segment in segments:
        built = Envelope.from_json(settled.engines[segment.name].envelope, segment.name).outputs
        for value, declared, held in zip(segment.outputs, specs(segment.outputs), built, strict=True):
            if held.dtype != declared.dtype:
                fixed = declared.static_shape is not None
                yield {
                    "tensor": declared.name,
                    "from": segment.name,
                    "to": [reader.name for reader in segments if value in reader.inputs],
                    "bytes_saved": declared.size_bytes - held.size_bytes if fixed else None,
                }


def _between_engines(partition: Partition) -> frozenset[str]:
    """Names of float32 tensors that segments make and only segments read."""
    inside = {node.name for segment in partition.segments for node in segment.nodes}
    seen = set(partition.graph.outputs)
    seen.update(v for node in partition.graph.nodes if node.name not in inside for v in node.reads)
    made = (v for segment in partition.segments for v in segment.outputs)
    return frozenset(v.name or "" for v in made if v not in seen and v.dtype == ir.DataType.FLOAT)
