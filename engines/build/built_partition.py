"""A partition with the engines of its segments."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import onnx

from trtnode.engines.build.builder import BuiltEngine
from trtnode.partitioner.compiled.trtnode import EmbeddedEngine, embed_engines
from trtnode.partitioner.cut.partition import Partition
from trtnode.partitioner.model.mapped_weights import LARGE_TENSOR_BYTES


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BuiltPartition:
    """A partition whose segments have engines that were built and checked.

    Attributes:
        partition: Labels and segments.
        engines: By segment name.
    """

    partition: Partition
    engines: Mapping[str, BuiltEngine]

    def embed(self) -> onnx.ModelProto:
        """Write the graph with its engines as TrtNodes. Large weights and engines stay in their files."""
        contents = {
            name: EmbeddedEngine(envelope=engine.envelope, engine_path=engine.path)
            if engine.path.stat().st_size >= LARGE_TENSOR_BYTES
            else EmbeddedEngine(envelope=engine.envelope, engine=engine.path.read_bytes())
            for name, engine in self.engines.items()
        }
        return embed_engines(self.partition.graph, self.partition.segments, contents, outside=True)
