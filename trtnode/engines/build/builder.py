"""Finds engines in the cache, or builds them in the worker process, and remembers what became of them."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import pathlib
import shutil
from collections.abc import Iterable, Mapping

import onnx

from trtnode.engines.artifact.cache import CachedEngine
from trtnode.engines.artifact.envelope import Envelope, InputAxis
from trtnode.engines.artifact.files import write_temporary
from trtnode.engines.artifact.refusal import Refusal
from trtnode.engines.backends import library_jobs
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.build import jobs
from trtnode.engines.build.checker import EngineFile, fits
from trtnode.engines.build.context import CompileContext
from trtnode.engines.build.order import BuildOrder, BuildOrders
from trtnode.engines.errors import BuildError, OutOfMemoryError, UnknownShapeError, WorkerError
from trtnode.engines.precision.bfloat16 import with_float32_kernels
from trtnode.engines.precision.rewriting import FLOAT32, Setting, Transformed
from trtnode.partitioner.compiled.trtnode import EmbeddedEngine, embed_engines
from trtnode.partitioner.cut.labels import ReasonCode
from trtnode.partitioner.cut.partition import Partition
from trtnode.partitioner.cut.segments import Segment, nodes_behind
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.mapped_weights import LARGE_TENSOR_BYTES, map_file
from trtnode.partitioner.wording import counted

logger = logging.getLogger(__name__)

NO_SAMPLES = Refusal(code=ReasonCode.UNCHECKED, detail=jobs.UNCHECKED, lasting=False, divisible=False)
"""The refusal of engines that nothing could compare."""

NATIVE_ENGINE = "onnxruntime"
"""The backend that runs models of engines where those can't run."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BuiltEngine(EngineFile):
    """An engine on disk.

    Attributes:
        key: Its key in the cache.
        cached: True if it comes from there.
    """

    key: str
    cached: bool


class EngineBuilder:
    """The engines of one compilation, kept by the content of their segment, so that cutting again reuses them.

    Attributes:
        refusals: Reasons why segments got no engine, by key.
        built_now: Number of engines that were built rather than found.
    """

    def __init__(self, context: CompileContext) -> None:
        self.refusals: dict[str, Refusal] = {}
        self.built_now = 0
        self._context = context
        self._cache = context.cache
        self._orders = BuildOrders(context)
        self._engines: dict[str, BuiltEngine] = {}
        self._made: dict[str, BuildOrder] = {}

    def find_or_build(
        self, graph: Graph, segment: Segment, setting: Setting = FLOAT32, *, timeout_s: float | None = None
    ) -> BuiltEngine | Refusal:
        """Find or build the engine of one segment.

        Args:
            graph: The cleaned model.
            segment: Its nodes.
            setting: The precisions that they compute in.
            timeout_s: Longest time that the build may take; None takes that of the options.

        Returns:
            The engine, not checked if it is new; or the refusal, without a search for culprits if it is new.
        """
        try:
            order = self._orders.make(graph, segment, setting)
        except UnknownShapeError as error:
            behind = map(segment.nodes.index, nodes_behind(segment.nodes, error.names))
            return Refusal(
                code=ReasonCode.DYNAMIC_SHAPE,
                detail=str(error),
                culprits=tuple((place, str(error), ReasonCode.DYNAMIC_SHAPE) for place in behind),
                lasting=False,
                divisible=False,
            )
        key = order.key
        self._made[key] = order
        if key in self._engines or key in self.refusals:
            return self._engines.get(key) or self.refusals[key]
        cached = self._find(key, order)
        if isinstance(cached, Refusal) and all(position < len(segment.nodes) for position, *_ in cached.culprits):
            return cached
        if isinstance(cached, CachedEngine):
            return self._take(key, cached)
        return self._build(key, order, self._context.options.build_timeout_s if timeout_s is None else timeout_s)

    def rewritten(self, engine: BuiltEngine) -> BuiltEngine:
        """Return the model that an engine was built from, as an engine of ONNX Runtime, which runs anywhere.

        bfloat16 is computed in float32 there, and each result rounded.
        """
        order, backend = self._made[engine.key], get_backend(NATIVE_ENGINE)
        transformed = order.transformed()
        path = self._path(f"{engine.key}-rewritten")
        write_temporary(with_float32_kernels(transformed.model), path)
        envelope = dataclasses.replace(
            order.envelope(path, transformed),
            backend=backend.name,
            backend_version=backend.version(),
            device=backend.device(),
            options={},
        )
        return BuiltEngine(path=path, envelope=envelope.to_json(), key=engine.key, cached=engine.cached)

    def without_kernel(self, engine: BuiltEngine) -> tuple[str, ...]:
        """Return the nodes of an engine that stay float32, since nothing computes them in the precision asked for."""
        order = self._made[engine.key]
        return order.transformed().without_kernel if order.types_are_written else ()

    def refuse_segment(self, graph: Graph, segment: Segment, refusal: Refusal) -> Refusal:
        """Remember why a segment gets no float32 engine, for as long as the refusal lasts."""
        return self.refuse(self._orders.make(graph, segment, FLOAT32).key, refusal, lasting=refusal.lasting)

    def refuse(self, key: str, refusal: Refusal, *, lasting: bool) -> Refusal:
        """Remember a refusal; for good only where the library itself would say the same again."""
        self.refusals[key] = dataclasses.replace(refusal, lasting=lasting)
        self._engines.pop(key, None)
        if lasting and self._cache:
            self._cache.put(key, refusal)
        return self.refusals[key]

    def note_empty(self, key: str, places: Iterable[frozenset[InputAxis]]) -> BuiltEngine:
        """Note the places at which the inputs of an engine may be empty."""
        built = self._engines[key]
        envelope = Envelope.from_json(built.envelope, key).with_empty(places)
        if self._cache:
            envelope = self._cache.trust.mark(envelope)
        self._engines[key] = dataclasses.replace(built, envelope=envelope.to_json())
        return self._engines[key]

    def remember(self, engines: Iterable[BuiltEngine]) -> None:
        """Keep engines that passed every check for the next compilation."""
        for built in engines:
            if self._cache and not built.cached:
                engine, sha256 = memoryview(map_file(built.path)), Envelope.from_json(built.envelope, "").engine_sha256
                self._cache.put(built.key, CachedEngine(envelope=built.envelope, engine=engine, sha256=sha256))

    def _find(self, key: str, order: BuildOrder) -> CachedEngine | Refusal | None:
        found = self._cache.get(key) if self._cache else None
        if self._cache and isinstance(found, CachedEngine):
            return found if fits(found, order, self._cache.trust) else None
        return found

    def _take(self, key: str, cached: CachedEngine) -> BuiltEngine:
        """Put an engine of the cache where jobs find it."""
        path = self._path(key)
        if not self._link(key, path) or map_file(path) is not memoryview(cached.engine).obj:
            path.unlink(missing_ok=True)
            path.write_bytes(cached.engine)
        self._engines[key] = BuiltEngine(path=path, envelope=cached.envelope, key=key, cached=True)
        return self._engines[key]

    def _link(self, key: str, path: pathlib.Path) -> bool:
        """Link to the file of an entry, and return whether that worked: this folder may be on another file system."""
        file = self._cache.content_file(key) if self._cache else None
        with contextlib.suppress(OSError):
            if file is not None:
                os.link(file, path)
                return True
        return False

    def _build(self, key: str, order: BuildOrder, timeout_s: float) -> BuiltEngine | Refusal:
        path = self._path(key)
        outcome = self._build_into(path, order, timeout_s) if self._can_check(order.graph) else NO_SAMPLES
        if isinstance(outcome, Refusal):
            self.refusals[key] = outcome
            return outcome
        envelope = order.envelope(path, outcome)
        if self._cache:
            envelope = self._cache.trust.mark(envelope)
        self._engines[key] = BuiltEngine(path=path, envelope=envelope.to_json(), key=key, cached=False)
        return self._engines[key]

    def _can_check(self, graph: Graph) -> bool:
        """Return whether something could compare a new engine; if nothing could, a warning tells it once."""
        if self._context.has_samples(graph):
            return True
        if NO_SAMPLES not in self.refusals.values():
            logger.warning("%s gets no new engine. %s", self._context.source.origin, NO_SAMPLES.detail)
        return False

    def _build_into(self, path: pathlib.Path, order: BuildOrder, timeout_s: float) -> Transformed | Refusal:
        transformed = order.transformed()
        if not order.is_float32 and transformed.is_float32:
            return self._copy_float32(path, order, transformed, timeout_s)
        context, segment = self._context, order.segment
        logger.info("Building %s with %s (%s)", segment.name, context.engine, counted(len(segment.nodes), "node"))
        model = context.folder / "segment.onnx"
        write_temporary(transformed.model, model, link=True)
        try:
            options = order.options_for(transformed)
            context.worker.call(library_jobs.build, timeout_s, context.engine, model, path, options)
        except (BuildError, WorkerError) as error:
            lasting = isinstance(error, BuildError)
            code = ReasonCode.OUT_OF_MEMORY if isinstance(error, OutOfMemoryError) else ReasonCode.BUILD_FAILED
            return Refusal(code=code, detail=str(error), lasting=lasting)
        self.built_now += 1
        return transformed

    def _copy_float32(
        self, path: pathlib.Path, order: BuildOrder, transformed: Transformed, timeout_s: float
    ) -> Transformed | Refusal:
        """Take over the float32 engine where the setting changes nothing in the segment."""
        exact = self.find_or_build(order.graph, order.segment, timeout_s=timeout_s)
        if isinstance(exact, Refusal):
            return exact
        shutil.copyfile(exact.path, path)
        return transformed

    def _path(self, key: str) -> pathlib.Path:
        return self._context.folder / f"{key}.engine"


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
