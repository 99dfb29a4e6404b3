"""The float16 boundary tensors of a compiled model, for the report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trtnode.engines.artifact.envelope import Envelope
from trtnode.engines.build.built_partition import BuiltPartition
from trtnode.partitioner.graph.view import specs


def fp16_boundaries(built: BuiltPartition) -> Iterator[dict[str, Any]]:
    """Yield the tensors that cross between engines in float16, and the bytes that each one saves in a run.

    Returns:
        JSON values; ``bytes_saved`` is None where the shape is not fixed.
    """
    segments = built.partition.segments
    for segment in segments:
        bindings = Envelope.from_json(built.engines[segment.name].envelope, segment.name).outputs
        for value, declared, bound in zip(segment.outputs, specs(segment.outputs), bindings, strict=True):
            if bound.dtype != declared.dtype:
                fixed = declared.static_shape is not None
                yield {
                    "tensor": declared.name,
                    "from": segment.name,
                    "to": [reader.name for reader in segments if value in reader.inputs],
                    "bytes_saved": declared.size_bytes - bound.size_bytes if fixed else None,
                }
