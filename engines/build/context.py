"""The parts that all stages of one compilation share."""

from __future__ import annotations

import dataclasses
import pathlib

from engines.artifact.cache import EngineCache
from engines.backends.protocols import Backend
from engines.backends.registry import get_backend, only_builds_reason
from engines.build.options import CompileOptions
from engines.build.subprocess_worker import SubprocessWorker
from engines.inputs.shape_profiles import sampled
from engines.inputs.source import SourceModel
from partitioner import Graph, TensorSpec
from partitioner.graph.view import specs

NOBODY = "nobody"
"""The judge of engines that are built and not run."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompileContext:
    """One compilation: its model, its options, and its place of work.

    Attributes:
        source: The model.
        options: The user's options.
        engine: Name of the backend, resolved.
        cache: Place where engines and decisions are looked up and kept; None where nothing is kept.
        worker: Child process in which engines are built and run.
        folder: Place of the compilation's files. It goes when the compilation ends.
    """

    source: SourceModel
    options: CompileOptions
    engine: str
    cache: EngineCache | None
    worker: SubprocessWorker
    folder: pathlib.Path

    @property
    def backend(self) -> Backend:
        """The engine library."""
        return get_backend(self.engine)

    @property
    def unchecked(self) -> str:
        """The reason for which engines are built but not run here; empty where they run."""
        return only_builds_reason(self.engine, self.options.build) or ""

    @property
    def checked_by(self) -> str:
        """The judge of engines. It is a part of their key: what nobody has compared is not taken for compared."""
        if self.unchecked:
            return NOBODY
        return "native" if self.source.runs_natively else "reference"

    def sampled_inputs(self, graph: Graph) -> tuple[TensorSpec, ...]:
        """Return the inputs of a graph, in the shapes that samples are generated in."""
        return sampled(specs(graph.inputs), self.options.shapes)
