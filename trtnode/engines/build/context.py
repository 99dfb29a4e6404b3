"""The parts that all stages of one compilation share."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from trtnode.engines.artifact.cache import EngineCache, builder_version, engine_key
from trtnode.engines.artifact.files import write_temporary
from trtnode.engines.artifact.temporary_folder import TemporaryFolder
from trtnode.engines.backends.names import NATIVE
from trtnode.engines.backends.protocols import Backend
from trtnode.engines.backends.registry import Abilities, abilities_of, get_backend
from trtnode.engines.build import jobs
from trtnode.engines.build.native_runs import SampledModel
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SpareWorkers, SubprocessWorker
from trtnode.engines.errors import EngineError, WorkerError
from trtnode.engines.inputs.dimension_names import has_expressions
from trtnode.engines.inputs.input_uses import uses_of
from trtnode.engines.inputs.shape_profiles import sampled, sampled_at_points
from trtnode.engines.inputs.source import SourceModel
from trtnode.engines.onnxruntime.limits import native_version
from trtnode.engines.onnxruntime.type_inference import shapes_by
from trtnode.partitioner.compiled.trtnode import embed_engines
from trtnode.partitioner.graph.view import Graph, TensorSpec, specs
from trtnode.partitioner.model.values import Dimension
from trtnode.partitioner.passes.rewrites.apply import RewriteOptions
from trtnode.partitioner.passes.shape_sources import complete_shapes, foreign_values, incomplete_values

logger = logging.getLogger(__name__)

BUILDERS = SpareWorkers(lambda: SubprocessWorker())
"""The child processes of compilations. A process that compiles one model after the other keeps them for a while."""

NOBODY = "nobody"
"""The judge of engines that are built and not run."""

TIMEOUT_S = 600.0

PROBE_TIMEOUT_S = 120.0
"""Longest time of the runs that show shapes, relations of sizes, or engines on empty inputs."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompileContext:
    """One compilation: its model, its options, and its place of work.

    Attributes:
        source: The model.
        options: The user's options.
        engine: Name of the backend, resolved.
        cache: Place where engines and decisions are looked up and kept; None where nothing is kept.
        worker: Child process in which engines are built and run.
        place: Holds the compilation's files. It goes with the last compiled model that has engines or weights there.
        known_sizes: Inputs with the relations of their sizes, by the inputs as declared.
        loaded: Files that ONNX Runtime has loaded in this compilation.
        abilities: Those of the backend on this machine.
    """

    source: SourceModel
    options: CompileOptions
    engine: str
    cache: EngineCache | None
    worker: SubprocessWorker
    place: TemporaryFolder
    known_sizes: dict[tuple[TensorSpec, ...], tuple[TensorSpec, ...] | None] = dataclasses.field(default_factory=dict)
    loaded: set[pathlib.Path] = dataclasses.field(default_factory=set)
    abilities: Abilities = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        """Ask once for the abilities of the backend."""
        object.__setattr__(self, "abilities", abilities_of(self.engine, self.options.build))

    @property
    def folder(self) -> pathlib.Path:
        """Place of the compilation's files."""
        return self.place.path

    @property
    def backend(self) -> Backend:
        """The engine library."""
        return get_backend(self.engine)

    @property
    def unchecked(self) -> str:
        """The reason for which engines are built but not run here; empty where they run."""
        return self.abilities.idle

    @property
    def builds(self) -> bool:
        """True if engines can be built here."""
        return self.engine != NATIVE and not self.abilities.missing

    @property
    def checked_by(self) -> str:
        """The judge of engines. It is a part of their key: what nobody has compared is not taken for compared."""
        if self.unchecked:
            return NOBODY
        return "native" if self.source.runs_natively else "reference"

    @property
    def rewriting(self) -> RewriteOptions:
        """The equal rewrites that the model gets."""
        return self.rewriting_for(self.engine)

    def rewriting_for(self, engine: str) -> RewriteOptions:
        """Return the equal rewrites that the model gets where an engine runs most of it."""
        return RewriteOptions(engine=engine, without=self.options.rewrites_left_out)

    def complete_natively(self, graph: Graph) -> Graph:
        """Complete the types and shapes of a graph: as ONNX Runtime infers them, and then as runs show them."""
        inputs, call = specs(graph.inputs), self.worker.call
        given = sampled_at_points(inputs, self.options.shapes)

        def infer(model: pathlib.Path) -> Mapping[str, TensorSpec]:
            return call(jobs.infer_types, TIMEOUT_S, model)

        def observe(model: pathlib.Path) -> Mapping[str, TensorSpec]:
            return call(jobs.observe_shapes, PROBE_TIMEOUT_S, model, inputs, given)

        graph = complete_shapes(graph, shapes_by(infer, self.folder, incomplete_values), native=True)
        return complete_shapes(graph, shapes_by(observe, self.folder, foreign_values))

    def reference_nodes(self, graph: Graph) -> dict[str, str]:
        """Return the nodes that ONNX Runtime lacks and onnx.reference has, also those that engines run.

        Returns:
            Operator of each, by the name of its first result. Empty where ONNX Runtime runs the model, and where
            neither has some node.
        """
        if self.source.runs_natively:
            return {}
        path = self.folder / "whole.onnx"
        write_temporary(embed_engines(graph, (), {}, outside=True), path)
        return self.worker.call(jobs.reference_nodes, TIMEOUT_S, path)

    def sampled_inputs(self, graph: Graph) -> tuple[TensorSpec, ...]:
        """Return the inputs of a graph, in the shapes that samples are generated in.

        Sizes that aren't fixed have names, and expressions of names where runs show that they follow from others.
        """
        inputs = sampled(specs(graph.inputs), self.options.shapes)
        return self._related(inputs, graph) or inputs

    def related_shapes(self, graph: Graph) -> dict[str, tuple[Dimension, ...]]:
        """Return the shapes of inputs, with expressions for sizes that follow from others; none where none does."""
        related = self.known_sizes.get(sampled(specs(graph.inputs), self.options.shapes)) or ()
        return {spec.name: spec.shape or () for spec in related} if has_expressions(related) else {}

    @property
    def data_to_time_on(self) -> str | None:
        """The calibration samples, if there are any and requests will have their sizes."""
        return None if self.options.padded else self.options.calibration.data

    def has_samples(self, graph: Graph) -> bool:
        """Return whether engines can be compared: on given inputs, or on generated ones that the model runs on."""
        inputs = sampled(specs(graph.inputs), self.options.shapes)
        return self.options.check_inputs is not None or self._related(inputs, graph) is not None

    def _related(self, inputs: tuple[TensorSpec, ...], graph: Graph) -> tuple[TensorSpec, ...] | None:
        """Return the inputs as native runs relate their sizes; None where the model runs on nothing generated."""
        if self.unchecked or not self.source.runs_natively:
            return inputs
        if inputs not in self.known_sizes:
            self.known_sizes[inputs] = self._recall_sizes(inputs, graph)
        return self.known_sizes[inputs]

    def _recall_sizes(self, inputs: tuple[TensorSpec, ...], graph: Graph) -> tuple[TensorSpec, ...] | None:
        if self.cache is None:
            return self._find_sizes(inputs, graph)
        native, builder = native_version(), builder_version()
        key = engine_key(purpose="sizes", source=self.source.key, inputs=repr(inputs), native=native, builder=builder)

        def read(record: Mapping[str, Any]) -> tuple[tuple[TensorSpec, ...] | None]:
            shapes = record["shapes"]
            return (
                shapes
                and tuple(
                    dataclasses.replace(spec, shape=None if shape is None else tuple(shape))
                    for spec, shape in zip(inputs, shapes, strict=True)
                ),
            )

        if (known := self.cache.recall(key, read)) is not None:
            return known[0]
        found = self._find_sizes(inputs, graph)
        self.cache.put_record(key, {"shapes": found and [spec.shape for spec in found]})
        return found

    def _find_sizes(self, inputs: tuple[TensorSpec, ...], graph: Graph) -> tuple[TensorSpec, ...] | None:
        given, uses = self.options.check_inputs, uses_of(graph)
        sampled = SampledModel(path=self.source.path, inputs=inputs, given=given, uses=uses)
        call = self.worker.call
        try:
            try:
                found = call(jobs.find_sizes, PROBE_TIMEOUT_S, sampled, keep=True)
            except WorkerError:  # some sample took too long, or ended the child
                found = call(jobs.find_sizes, PROBE_TIMEOUT_S, sampled, keep=False)
            self.loaded.add(sampled.path)
            return found
        except EngineError as error:
            logger.info("%s: relations between its sizes stay unknown: %s", self.source.origin, error)
            return inputs


@contextlib.contextmanager
def open_context(
    engine: str,
    source: pathlib.Path,
    options: CompileOptions,
    cache: EngineCache | None,
    worker: SubprocessWorker | None,
) -> Iterator[CompileContext]:
    """Open the context of one compilation, in a temporary folder; attributes as of ``CompileContext``.

    Args:
        engine: Name of the backend, resolved.
        source: The user's file.
        options: The user's options.
        cache: Place where engines and decisions are kept.
        worker: Child process; None makes a temporary one.
    """
    with contextlib.nullcontext(worker) if worker else BUILDERS.lent() as child:
        yield CompileContext(
            source=SourceModel(path=source, origin=source),
            options=options,
            engine=engine,
            cache=cache,
            worker=child,
            place=TemporaryFolder(),
        )
