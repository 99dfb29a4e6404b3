"""Finds engines in the cache, or builds and checks them in the worker process, and remembers what became of them."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import json
import logging
import pathlib
from collections.abc import Iterable, Mapping

from engines import jobs
from engines.base import Backend
from engines.bisection import Budget, Trial, find_culprits
from engines.cache import CachedEngine, EngineCache, Refusal, engine_key
from engines.checking import Checker, EngineFile, fits
from engines.engine_files import ORIGIN_SUFFIX
from engines.envelope import STRIPPED, Envelope, current_platform
from engines.errors import BuildError, WorkerError
from engines.files import sha256_of_file, write_model
from engines.options import BuildOptions, CompileOptions
from engines.plan import specs
from engines.precision import FLOAT32, Setting, Transformed, transform
from engines.profiles import Followed, Profile, follow, profile_as_json, segment_profile
from engines.registry import get_backend
from engines.worker import Worker
from partitioner import Graph, Partition, ReasonCode, Segment, Verdict, extract_model, segment_hash

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BuiltEngine(EngineFile):
    """An engine, its key in the cache, and whether it comes from there."""

    key: str
    cached: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """One engine to find or to build.

    Attributes:
        segment_sha256: Of the segment without its name, which changes when another segment is demoted: the engine is
            the same.
        keeps_weights: Whether the engine holds its weights, although engines without weights were asked for.
    """

    graph: Graph
    segment: Segment
    setting: Setting
    backend: Backend
    build: BuildOptions
    segment_sha256: str
    keeps_weights: bool


class EngineBuilder:
    """The engines of one compilation, kept by the content of their segment, so that cutting again reuses them.

    Attributes:
        refusals: Why segments got no engine, by key.
        built_now: How many engines were built rather than found.
    """

    def __init__(
        self, engine: str, options: CompileOptions, *, cache: EngineCache | None, worker: Worker, checker: Checker
    ) -> None:
        """Prepare.

        Args:
            engine: Name of the backend.
            options: How to build.
            cache: Where engines are looked up and kept.
            worker: Where they are built.
            checker: Compares them with native execution.
        """
        self.refusals: dict[str, Refusal] = {}
        self.built_now = 0
        self._engine = engine
        self._options = options
        self._cache = cache
        self._worker = worker
        self._folder = checker.folder
        self._checker = checker
        self._engines: dict[str, BuiltEngine] = {}
        self._checked: set[str] = set()
        self._budget = Budget()
        self._known_shapes: dict[Graph, list[Followed]] = {}

    def build_all(self, partition: Partition) -> tuple[dict[str, BuiltEngine], dict[str, Verdict]]:
        """Find or build the engine of each segment; give them by segment name, and why which nodes get none."""
        accepted: dict[str, BuiltEngine] = {}
        refused: dict[str, Verdict] = {}
        for segment in partition.segments:
            outcome = self._build(partition.graph, segment)
            if isinstance(outcome, Refusal):
                refused.update(verdicts(segment, outcome))
            else:
                accepted[segment.name] = outcome
        return accepted, refused

    def _build(self, graph: Graph, segment: Segment) -> BuiltEngine | Refusal:
        outcome = self._find_or_build(graph, segment, self._options.build_timeout_s)
        if isinstance(outcome, Refusal):
            trial = self._try_check if outcome.code == ReasonCode.INACCURATE else self._try_build
            return self._search(graph, segment, outcome, functools.partial(trial, graph))
        return outcome

    def build_in(self, graph: Graph, segment: Segment, setting: Setting) -> BuiltEngine | Refusal:
        """Find or build the engine of one segment in other precisions. Where it is refused, nobody is to blame."""
        return self._find_or_build(graph, segment, self._options.build_timeout_s, setting)

    def _find_or_build(
        self, graph: Graph, segment: Segment, timeout_s: float, setting: Setting = FLOAT32
    ) -> BuiltEngine | Refusal:
        try:
            order = self._order(graph, segment, setting)
        except BuildError as error:
            return Refusal(code=ReasonCode.DYNAMIC_SHAPE, detail=str(error), lasting=False, divisible=False)
        key = self._key(order)
        if key in self._engines or key in self.refusals:
            return self._engines.get(key) or self.refusals[key]
        path = self._folder / f"{key}.engine"
        cached = self._cached(key, order)
        if isinstance(cached, Refusal) and all(position < len(segment.nodes) for position, _ in cached.culprits):
            return cached
        if isinstance(cached, CachedEngine):
            path.write_bytes(cached.engine)
            if _is_stripped(order):
                write_model(_transformed(order).model, path.with_suffix(ORIGIN_SUFFIX))
            self._engines[key] = BuiltEngine(path=path, envelope=cached.envelope, key=key, cached=True)
            return self._engines[key]
        outcome = self._build_new(order, path, timeout_s)
        if isinstance(outcome, Refusal):
            self.refusals[key] = outcome
            return outcome
        envelope = self._envelope(order, path, outcome)
        self._engines[key] = BuiltEngine(path=path, envelope=envelope.to_json(), key=key, cached=False)
        return self._engines[key]

    def _cached(self, key: str, order: _Order) -> CachedEngine | Refusal | None:
        found = self._cache.get(key) if self._cache else None
        if self._cache and isinstance(found, CachedEngine):
            return found if fits(found, order.backend, order.segment_sha256, self._cache.trust) else None
        return found

    def _build_new(self, order: _Order, path: pathlib.Path, timeout_s: float) -> Transformed | Refusal:
        graph, segment, setting = order.graph, order.segment, order.setting
        transformed = _transformed(order)
        if setting != FLOAT32 and transformed.is_float32 and not order.keeps_weights:
            exact = self._find_or_build(graph, segment, timeout_s)
            if isinstance(exact, BuiltEngine):
                path.write_bytes(exact.path.read_bytes())
                if _is_stripped(order):
                    write_model(transformed.model, path.with_suffix(ORIGIN_SUFFIX))
            return exact if isinstance(exact, Refusal) else transformed
        logger.info("Building %s with %s (%d nodes)", segment.name, self._engine, len(segment.nodes))
        if order.keeps_weights:
            logger.warning(
                "The engine of %s holds its weights: they follow from ranges, which the file doesn't.", segment.name
            )
        model = path.with_suffix(ORIGIN_SUFFIX) if _is_stripped(order) else self._folder / "segment.onnx"
        write_model(transformed.model, model)
        options = dataclasses.replace(order.build, precision=transformed.floats)
        try:
            self._worker.call(jobs.build, timeout_s, self._engine, model, path, options)
        except (BuildError, WorkerError) as error:
            lasting = isinstance(error, BuildError)
            return Refusal(code=ReasonCode.BUILD_FAILED, detail=str(error), lasting=lasting)
        self.built_now += 1
        return transformed

    def _search(self, graph: Graph, segment: Segment, refusal: Refusal, trial: Trial) -> Refusal:
        """Find which nodes of a refused segment are to blame, and remember it."""
        if refusal.culprits or not refusal.divisible:
            return refusal
        logger.info("%s is refused; trying parts of it: %s", segment.name, refusal.detail)
        found = find_culprits(graph, segment, refusal, trial, self._budget)
        key = self._key(self._order(graph, segment, FLOAT32))
        return self.refuse(key, found, lasting=found.lasting)

    def _try_build(self, graph: Graph, part: Segment, timeout_s: float) -> Refusal | None:
        outcome = self._find_or_build(graph, part, min(timeout_s, self._options.build_timeout_s))
        return outcome if isinstance(outcome, Refusal) else None

    def _try_check(self, graph: Graph, part: Segment, timeout_s: float) -> Refusal | None:
        built = self._find_or_build(graph, part, min(timeout_s, self._options.build_timeout_s))
        if isinstance(built, Refusal):
            return None  # whatever it would compute
        return self._checker.check(graph, [part], {part.name: built}, timeout_s=timeout_s).get(part.name)

    def check_new(self, partition: Partition, accepted: Mapping[str, BuiltEngine]) -> dict[str, Verdict]:
        """Compare engines that were built just now, or all on the user's own inputs, with native execution."""
        graph = partition.graph
        given = self._options.samples is not None
        keys = {s.name: accepted[s.name].key for s in partition.segments if given or not accepted[s.name].cached}
        new = [s for s in partition.segments if s.name in keys and keys[s.name] not in self._checked]
        refusals = self._checker.check(graph, new, accepted) if new else {}
        refused: dict[str, Verdict] = {}
        for segment in new:
            refusal = refusals.get(segment.name)
            if refusal is None:
                self._checked.add(keys[segment.name])
                continue
            self.refuse(keys[segment.name], refusal, lasting=False)
            refusal = self._search(graph, segment, refusal, functools.partial(self._try_check, graph))
            refused.update(verdicts(segment, refusal))
        return refused

    def _envelope(self, order: _Order, engine: pathlib.Path, transformed: Transformed) -> Envelope:
        backend, segment, setting = order.backend, order.segment, order.setting
        options = dataclasses.replace(order.build, precision=transformed.floats)
        envelope = Envelope(
            backend=backend.name,
            backend_version=backend.version(),
            platform=current_platform(),
            device=backend.device(),
            precision_asked=setting.asked,
            precision_effective=transformed.effective,
            options=backend.build_properties(options),
            inputs=setting.bindings(segment.inputs),
            outputs=setting.bindings(segment.outputs),
            engine_sha256=sha256_of_file(engine),
            segment_sha256=order.segment_sha256,
            builder_version=builder_version(),
            calibration_sha256=setting.ranges_sha256,
            node_precisions=setting.by_node(segment),
            profiles=tuple(map(profile_as_json, order.build.profiles)),
        )
        return self._cache.trust.mark(envelope) if self._cache else envelope

    def _profiles(self, graph: Graph, segment: Segment, backend: Backend) -> tuple[Profile, ...]:
        """What to build a segment for, where the library wants to know.

        Raises:
            BuildError: It wants to, and that is not known.
        """
        dynamic = [spec.name for spec in specs(segment.inputs) if spec.static_shape is None]
        if not backend.needs_shapes:
            return ()
        if dynamic and not self._options.shapes:
            raise BuildError(
                f"{backend.name} builds for given shapes, and that of {dynamic[0]!r} is not fixed. Give those of the "
                "model's inputs: --shape NAME:MIN,OPT,MAX, or shapes in servable.yaml."
            )
        return tuple(segment_profile(segment, known, n) for n, known in enumerate(self._followed(graph)))

    def _followed(self, graph: Graph) -> list[Followed]:
        if graph not in self._known_shapes:
            self._known_shapes[graph] = [follow(graph, profile) for profile in self._options.shapes]
        return self._known_shapes[graph]

    def _order(self, graph: Graph, segment: Segment, setting: Setting) -> _Order:
        """Settle everything that a build needs.

        Raises:
            BuildError: The library wants to know shapes that are not known.
        """
        backend = get_backend(self._engine)
        build = dataclasses.replace(self._options.build, profiles=self._profiles(graph, segment, backend))
        keeps_weights = STRIPPED in backend.build_properties(build) and bool(setting.ranges_sha256)
        if keeps_weights:
            build = build.with_weights()
        if self._cache:
            file = self._cache.timing_file(f"{backend.name}-{backend.version()}-{backend.device().name}")
            build = dataclasses.replace(build, timing_cache=file)
        return _Order(
            graph=graph,
            segment=segment,
            setting=setting,
            backend=backend,
            build=build,
            segment_sha256=segment_hash(graph, dataclasses.replace(segment, name="")),
            keeps_weights=keeps_weights,
        )

    def _key(self, order: _Order) -> str:
        backend, segment = order.backend, order.segment
        return engine_key(
            segment=order.segment_sha256,
            shapes=repr([(s.name, s.dtype, s.shape) for s in specs((*segment.inputs, *segment.outputs))]),
            options=json.dumps([order.build.precision, backend.build_properties(order.build)], sort_keys=True),
            profiles=json.dumps([profile_as_json(profile) for profile in order.build.profiles], sort_keys=True),
            precision=order.setting.key,
            judge="native" if self._checker.natively else "reference",
            backend=f"{backend.name} {backend.version()}",
            platform=current_platform(),
            device=backend.device().features,
            builder=builder_version(),
        )

    def refuse(self, key: str, refusal: Refusal, *, lasting: bool) -> Refusal:
        """Remember a refusal; for good only where the library itself would say the same again."""
        self.refusals[key] = dataclasses.replace(refusal, lasting=lasting)
        self._engines.pop(key, None)
        if lasting and self._cache:
            self._cache.put(key, refusal)
        return self.refusals[key]

    def remember(self, engines: Iterable[BuiltEngine]) -> None:
        """Keep engines that stood every check for the next compilation."""
        for built in engines:
            if self._cache and not built.cached:
                self._cache.put(built.key, CachedEngine(envelope=built.envelope, engine=built.path.read_bytes()))


def _is_stripped(order: _Order) -> bool:
    """Whether the engine is built without weights, so that its model must be at hand wherever it is loaded."""
    return STRIPPED in order.backend.build_properties(order.build)


def _transformed(order: _Order) -> Transformed:
    """The segment's model in its precisions."""
    segment = order.segment
    extracted = extract_model(order.graph, segment.nodes, inputs=segment.inputs, outputs=segment.outputs)
    return transform(extracted, segment, order.setting, order.backend)


def builder_version() -> str:
    """Version of this project."""
    return importlib.metadata.version("trtnode")


def verdicts(segment: Segment, refusal: Refusal) -> dict[str, Verdict]:
    """Why each node of a refused segment runs natively."""
    reasons = refusal.reasons(len(segment.nodes))
    return {segment.nodes[i].name: Verdict(ReasonCode(refusal.code), detail) for i, detail in reasons.items()}
