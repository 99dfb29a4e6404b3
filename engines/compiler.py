"""Compiles a model: partition it, build and check each segment's engine, and embed what stood the check."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import json
import logging
import pathlib
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

import onnx

from engines import jobs
from engines.base import Backend
from engines.bisection import Budget, Trial, find_culprits
from engines.bodies import BodyCompiler, Settled, owner_inside, plan_bodies, wishes_inside
from engines.bodies import BuiltEngine as _Built
from engines.cache import CachedEngine, EngineCache, Refusal, engine_key
from engines.checking import Checker, fits
from engines.compiled_model import CompiledModel
from engines.envelope import Envelope, current_platform
from engines.errors import AlreadyCompiledError, BuildError, ModelLoadError, WorkerError
from engines.executor import NATIVE_FALLBACK
from engines.files import sha256_of_file, write_model
from engines.native_form import write_native_form
from engines.native_types import complete_types
from engines.onnxruntime_backend import native_limits
from engines.options import BuildOptions, CompileOptions
from engines.plan import specs
from engines.registry import NATIVE, get_backend, resolve_engine
from engines.tuning import Tuner
from engines.verdicts import ask_library
from engines.worker import Worker
from partitioner import (
    Graph,
    Partition,
    PartitionOptions,
    Predicate,
    ReasonCode,
    Report,
    Segment,
    Verdict,
    clean_up,
    expand_functions,
    extract_model,
    is_compiled,
    load_model,
    partition_graph,
    segment_hash,
    walk,
)
from partitioner.bodies import Body
from partitioner.body_gain import refuse_unless_pays
from partitioner.external_data import take_data_inside
from partitioner.loading import read_proto
from partitioner.versions import is_too_new

logger = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

CHECK_TIMEOUT_S = 600.0


def compile_model(
    source: pathlib.Path, options: CompileOptions, *, cache: EngineCache | None = None, worker: Worker | None = None
) -> CompiledModel:
    """Compile an ONNX file.

    Args:
        source: The model.
        options: How.
        cache: Where engines are looked up and kept.
        worker: The child process to build and check in; a temporary one is made, if needed, where this is None.

    Returns:
        The compiled model. Segments that can't be built, or whose engine computes something else than native
        execution, run natively; the report says why. A model that ONNX Runtime refuses is compiled in its native
        form; where it has none, engines that onnx.reference confirms make a model without a native fallback.

    Raises:
        PartitionError: The file is no model, or an option doesn't fit it.
        ModelLoadError: ONNX Runtime refuses the model, and its native form as well.
        UnknownBackendError: There is no such engine.
        InvalidInputError: The model does not run on the inputs that ``options.samples`` gives.
    """
    if worker is None:
        with Worker() as temporary:
            return compile_model(source, options, cache=cache, worker=temporary)
    with tempfile.TemporaryDirectory(prefix="trtnode-") as name:
        folder = pathlib.Path(name)
        try:
            return _Compilation(source, options, cache, worker, folder).run()
        except ModelLoadError as refusal:
            rewritten = folder / "native.onnx"
            try:
                worker.call(write_native_form, CHECK_TIMEOUT_S, source, rewritten, refusal)
            except ModelLoadError:
                return _Compilation(source, options, cache, worker, folder, native_fallback=False).run()
            return _Compilation(rewritten, options, cache, worker, folder, origin=source).run()


def partition_model(
    source: pathlib.Path, options: CompileOptions, *, cache: EngineCache | None = None
) -> tuple[Partition, Report]:
    """Label and cut a model without building anything.

    Args:
        source: The model.
        options: How.
        cache: Where the engine library's answers are looked up and kept.

    Raises:
        PartitionError: As ``compile_model``.
        UnknownBackendError: As ``compile_model``.
    """
    engine = resolve_engine(options.engine)
    start = time.perf_counter()
    graph = _cleaned(source)
    seconds = time.perf_counter() - start
    with Worker() as worker:
        graph = expand_functions(graph, _table(engine), options.partition)
        supports = _predicate(engine, graph, options.partition, cache, worker)
        partition = partition_graph(graph, supports, options.partition)
        bodies = plan_bodies(partition, lambda graph, wishes: _predicate(engine, graph, wishes, cache, worker))
    partition = dataclasses.replace(partition, seconds={"infer_shapes": seconds, **partition.seconds})
    reports = Settled(partition=partition, engines={}, bodies=bodies).body_reports()
    return partition, partition.report(model=source.name, engine=engine).with_bodies(tuple(reports))


class _Compilation:
    """One compilation. Engines are kept by the content of their segment, so that cutting again reuses them."""

    def __init__(
        self,
        source: pathlib.Path,
        options: CompileOptions,
        cache: EngineCache | None,
        worker: Worker,
        folder: pathlib.Path,
        *,
        origin: pathlib.Path | None = None,
        native_fallback: bool = True,
        body: Body | None = None,
        owner: str = "",
        trips: int = 1,
    ) -> None:
        """Prepare.

        Args:
            source: The model.
            options: How.
            cache: Where engines are looked up and kept.
            worker: Where they are built.
            folder: For files.
            origin: What the user calls the model, where the source is rewritten from it.
            native_fallback: Whether ONNX Runtime runs the model.
            body: If given, what to compile of the model.
            owner: Identity of the node that has the body.
            trips: How often the body is expected to run in a run of the model.
        """
        self._body = body
        self._owner = owner
        self._trips = trips
        self._bodies = BodyCompiler(self._compile_body)
        self._bodies.given_up = not native_fallback
        self._source = source
        self._origin = origin or source
        self._native_fallback = native_fallback
        self._options = options
        self._cache = cache
        self._worker = worker
        self._folder = folder
        self._engine = resolve_engine(options.engine)
        self._engines: dict[str, _Built] = {}
        self._refusals: dict[str, Refusal] = {}
        self._checked: set[str] = set()
        self._checker = Checker(worker=worker, folder=folder, samples=options.samples, natively=native_fallback)
        self._budget = Budget()
        self._tuner = Tuner(source, options, engine=self._engine, cache=cache, worker=worker, folder=folder)
        self._demoted: dict[str, Verdict] = {}
        self._built_now = 0

    def run(self) -> CompiledModel:
        if self._engine == NATIVE:
            partition, _ = partition_model(self._source, self._options)
            return self._all_native(partition)
        partition = self._tuner.recall(self._partition())
        self._bodies.given_up |= self._tuner.drops_bodies
        start = time.perf_counter()
        while partition.segments or self._bodies.settle(partition):
            accepted, refused = self._build_all(partition)
            if not refused:
                refused = self._check_new(partition, accepted)
            if not refused:
                partition = dataclasses.replace(
                    partition, seconds={**partition.seconds, "build": time.perf_counter() - start}
                )
                settled = Settled(partition=partition, engines=accepted, bodies=self._bodies.settle(partition))
                compiled = self._embed(settled)
                refused = self._check_whole(settled, compiled)
                if settled.bodies and self._bodies.given_up:
                    continue  # the same without engines in bodies
                if not refused and self._native_fallback:
                    refused = self._tuner.judge(partition, compiled)
                if not (refused or self._tuner.keeps_bodies(partition, compiled, settled.body_segments())):
                    self._bodies.given_up = True
                    continue
                if not refused:
                    self._remember(settled)
                    return self._with_tuning(compiled)
            self._demoted.update(refused)
            partition = partition.demote(refused)
        return self._with_tuning(self._all_native(partition))

    def settle(self) -> Settled:
        """Build and check the engines of a body that pay, without embedding them."""
        partition = self._partition()
        while partition.segments:
            accepted: dict[str, _Built] = {}
            refused = refuse_unless_pays(partition, self._trips)
            if not refused:
                accepted, refused = self._build_all(partition)
            if not refused:
                refused = self._check_new(partition, accepted)
            if not refused:
                return Settled(partition=partition, engines=accepted, bodies=self._bodies.settle(partition))
            partition = partition.demote(refused)
        return Settled(partition=partition, engines={}, bodies=self._bodies.settle(partition))

    def _compile_body(self, body: Body, trips: int) -> Settled:
        options = dataclasses.replace(self._options, samples=None, tune=False)
        owner, trips = owner_inside(self._owner, body), trips * self._trips
        inner = _Compilation(
            self._source, options, self._cache, self._worker, self._folder, body=body, owner=owner, trips=trips
        )
        settled = inner.settle()
        self._built_now += inner._built_now
        return settled

    def _partition(self) -> Partition:
        start = time.perf_counter()
        graph = clean_up(self._body.model) if self._body else _cleaned(self._source)
        if self._native_fallback and is_too_new(graph.model, native_limits()):
            self._call(jobs.output_types, self._source)  # refused before anything is built
        complete_types(graph, lambda path: self._call(jobs.output_types, path), self._folder)
        graph = expand_functions(Graph.of(graph.model), _table(self._engine), self._options.partition)
        seconds = time.perf_counter() - start
        wishes = self._options.partition
        if self._owner:
            wishes = wishes_inside(wishes, graph, self._owner)
        supports = _predicate(self._engine, graph, wishes, self._cache, self._worker)
        partition = partition_graph(graph, supports, wishes)
        return dataclasses.replace(partition, seconds={"infer_shapes": seconds, **partition.seconds})

    def _build_all(self, partition: Partition) -> tuple[dict[str, _Built], dict[str, Verdict]]:
        accepted: dict[str, _Built] = {}
        refused: dict[str, Verdict] = {}
        for segment in partition.segments:
            outcome = self._build(partition.graph, segment)
            if isinstance(outcome, Refusal):
                refused.update(_verdicts(segment, outcome))
            else:
                accepted[segment.name] = outcome
        return accepted, refused

    def _build(self, graph: Graph, segment: Segment) -> _Built | Refusal:
        outcome = self._find_or_build(graph, segment, self._options.build_timeout_s)
        if isinstance(outcome, Refusal):
            trial = self._try_check if outcome.code == ReasonCode.INACCURATE else self._try_build
            return self._search(graph, segment, outcome, functools.partial(trial, graph))
        return outcome

    def _find_or_build(self, graph: Graph, segment: Segment, timeout_s: float) -> _Built | Refusal:
        backend = get_backend(self._engine)
        segment_sha256 = _content_hash(graph, segment)
        key = self._key(backend, segment, segment_sha256)
        if key in self._engines or key in self._refusals:
            return self._engines.get(key) or self._refusals[key]
        path = self._folder / f"{key}.engine"
        cached = self._cache.get(key) if self._cache else None
        if isinstance(cached, Refusal) and all(position < len(segment.nodes) for position, _ in cached.culprits):
            return cached
        if isinstance(cached, CachedEngine) and fits(cached, backend, segment_sha256):
            path.write_bytes(cached.engine)
            self._engines[key] = _Built(path=path, envelope=cached.envelope, key=key, cached=True)
            return self._engines[key]
        logger.info("Building %s with %s (%d nodes)", segment.name, backend.name, len(segment.nodes))
        model = self._folder / "segment.onnx"
        write_model(extract_model(graph, segment.nodes, inputs=segment.inputs, outputs=segment.outputs), model)
        try:
            self._worker.call(jobs.build, timeout_s, self._engine, model, path, self._options.build)
        except (BuildError, WorkerError) as error:
            lasting = isinstance(error, BuildError)
            self._refusals[key] = Refusal(code=ReasonCode.BUILD_FAILED, detail=str(error), lasting=lasting)
            return self._refusals[key]
        self._built_now += 1
        envelope = self._envelope(backend, segment, path, segment_sha256)
        self._engines[key] = _Built(path=path, envelope=envelope.to_json(), key=key, cached=False)
        return self._engines[key]

    def _search(self, graph: Graph, segment: Segment, refusal: Refusal, trial: Trial) -> Refusal:
        """Find which nodes of a refused segment are to blame, and remember it."""
        if refusal.culprits or not refusal.divisible:
            return refusal
        logger.info("%s is refused; trying parts of it: %s", segment.name, refusal.detail)
        found = find_culprits(graph, segment, refusal, trial, self._budget)
        key = self._key(get_backend(self._engine), segment, _content_hash(graph, segment))
        return self._refuse(key, found, lasting=found.lasting)

    def _try_build(self, graph: Graph, part: Segment, timeout_s: float) -> Refusal | None:
        outcome = self._find_or_build(graph, part, min(timeout_s, self._options.build_timeout_s))
        return outcome if isinstance(outcome, Refusal) else None

    def _try_check(self, graph: Graph, part: Segment, timeout_s: float) -> Refusal | None:
        built = self._find_or_build(graph, part, min(timeout_s, self._options.build_timeout_s))
        if isinstance(built, Refusal):
            return None  # whatever it would compute
        return self._checker.check(graph, [part], {part.name: built}, timeout_s=timeout_s).get(part.name)

    def _check_new(self, partition: Partition, accepted: Mapping[str, _Built]) -> dict[str, Verdict]:
        """Compare engines that were built just now with native execution."""
        graph = partition.graph
        keys = {s.name: accepted[s.name].key for s in partition.segments if not accepted[s.name].cached}
        new = [s for s in partition.segments if s.name in keys and keys[s.name] not in self._checked]
        refusals = self._checker.check(graph, new, accepted) if new else {}
        refused: dict[str, Verdict] = {}
        for segment in new:
            refusal = refusals.get(segment.name)
            if refusal is None:
                self._checked.add(keys[segment.name])
                continue
            self._refuse(keys[segment.name], refusal, lasting=False)
            refusal = self._search(graph, segment, refusal, functools.partial(self._try_check, graph))
            refused.update(_verdicts(segment, refusal))
        return refused

    def _check_whole(self, settled: Settled, compiled: CompiledModel) -> dict[str, Verdict]:
        """Load and run the whole compiled file once, natively and with its engines."""
        if all(built.cached for built in settled.all_engines()):
            return {}
        path = self._folder / "compiled.onnx"
        compiled.save(path)
        partition = settled.partition
        inputs = specs(partition.graph.inputs)
        lasting = True
        try:
            if self._native_fallback:
                problem = self._call(jobs.check_compiled, path, self._source, inputs, self._options.samples)
            else:
                problem = self._call(jobs.check_engines_alone, path, inputs, self._options.samples)
        except WorkerError as error:
            problem = str(error)
            lasting = False
        if problem is None:
            return {}
        if settled.bodies:
            logger.warning("The compiled model is not usable, so all bodies run natively: %s", problem)
            self._bodies.given_up = True
            return {}
        logger.warning("The compiled model is not usable, so all nodes run natively: %s", problem)
        refusal = Refusal(code=ReasonCode.INACCURATE, detail=f"The compiled model as a whole fails: {problem}")
        for built in settled.engines.values():
            self._refuse(built.key, refusal, lasting=lasting)
        return {name: verdict for s in partition.segments for name, verdict in _verdicts(s, refusal).items()}

    def _embed(self, settled: Settled) -> CompiledModel:
        report = settled.partition.report(model=self._origin.name, engine=self._engine)
        report = report.with_bodies(tuple(settled.body_reports()))
        engines = list(settled.all_engines())
        effective = Envelope.from_json(engines[0].envelope, "").precision_effective
        return CompiledModel(
            model=self._stamped(settled.embed(), report),
            report=report,
            engine=self._engine,
            precision_effective=effective,
            engines_built=self._built_now,
            engines_cached=sum(built.cached for built in engines),
            engine_bytes=sum(built.path.stat().st_size for built in engines),
            native_fallback=self._native_fallback,
        )

    def _all_native(self, partition: Partition) -> CompiledModel:
        self._call(jobs.output_types, self._source)
        report = partition.report(model=self._origin.name, engine=self._engine)
        model = read_proto(self._source)
        take_data_inside(self._source, walk.tensors(model))
        return CompiledModel(
            model=self._stamped(model, report),
            report=report,
            engine=NATIVE,
            precision_effective="fp32",
            engines_built=self._built_now,
            engines_cached=0,
            engine_bytes=0,
        )

    def _with_tuning(self, compiled: CompiledModel) -> CompiledModel:
        """Put what was measured into the report, and keep it for the next compilation."""
        if self._tuner.figures is None:
            return compiled
        if all(refusal.lasting for refusal in self._refusals.values()):
            self._tuner.remember(self._demoted)
        report = dataclasses.replace(compiled.report, tuning=self._tuner.figures)
        return dataclasses.replace(compiled, report=report, model=self._stamped(compiled.model, report))

    def _stamped(self, model: onnx.ModelProto, report: Report) -> onnx.ModelProto:
        properties = {p.key: p.value for p in model.metadata_props}
        properties["trtnode.version"] = builder_version()
        properties["trtnode.source_sha256"] = sha256_of_file(self._origin)
        if not self._native_fallback:
            logger.warning("ONNX Runtime refuses this model, so its engines have no native fallback")
            properties[NATIVE_FALLBACK] = "none"
        properties["trtnode.report"] = json.dumps(report.as_json(), separators=(",", ":"))
        del model.metadata_props[:]
        model.metadata_props.extend(onnx.StringStringEntryProto(key=k, value=v) for k, v in properties.items())
        return model

    def _envelope(self, backend: Backend, segment: Segment, engine: pathlib.Path, segment_sha256: str) -> Envelope:
        return Envelope(
            backend=backend.name,
            backend_version=backend.version(),
            platform=current_platform(),
            device=backend.device(),
            precision_asked=self._options.build.precision,
            precision_effective=self._options.build.precision,
            options=backend.build_properties(self._options.build),
            inputs=specs(segment.inputs),
            outputs=specs(segment.outputs),
            engine_sha256=sha256_of_file(engine),
            segment_sha256=segment_sha256,
            builder_version=builder_version(),
        )

    def _key(self, backend: Backend, segment: Segment, segment_sha256: str) -> str:
        options: BuildOptions = self._options.build
        return engine_key(
            segment=segment_sha256,
            shapes=repr([(s.name, s.dtype, s.shape) for s in specs((*segment.inputs, *segment.outputs))]),
            options=json.dumps([dataclasses.asdict(options), backend.build_properties(options)], sort_keys=True),
            judge="native" if self._native_fallback else "reference",
            backend=f"{backend.name} {backend.version()}",
            platform=current_platform(),
            device=backend.device().features,
            builder=builder_version(),
        )

    def _refuse(self, key: str, refusal: Refusal, *, lasting: bool) -> Refusal:
        """Remember a refusal; for good only where the library itself would say the same again."""
        self._refusals[key] = dataclasses.replace(refusal, lasting=lasting)
        self._engines.pop(key, None)
        if lasting and self._cache:
            self._cache.put(key, refusal)
        return self._refusals[key]

    def _remember(self, settled: Settled) -> None:
        for built in settled.all_engines():
            if self._cache and not built.cached:
                self._cache.put(built.key, CachedEngine(envelope=built.envelope, engine=built.path.read_bytes()))

    def _call(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._worker.call(function, CHECK_TIMEOUT_S, *args, **kwargs)


def builder_version() -> str:
    """Version of this project."""
    return importlib.metadata.version("trtnode")


def _cleaned(source: pathlib.Path) -> Graph:
    graph = clean_up(load_model(source))
    if is_compiled(graph.model):
        raise AlreadyCompiledError(source)
    return graph


def _table(engine: str) -> Predicate:
    """What our own tables say about nodes, before the library is asked."""
    if engine == NATIVE:
        return lambda _: Verdict(ReasonCode.USER_EXCLUDED, "The engine asked for is native.")
    return get_backend(engine).label


def _predicate(
    engine: str, graph: Graph, wishes: PartitionOptions, cache: EngineCache | None, worker: Worker
) -> Predicate:
    if engine == NATIVE:
        return _table(engine)
    return ask_library(get_backend(engine), graph, wishes, cache, worker)


def _content_hash(graph: Graph, segment: Segment) -> str:
    """Hash of a segment without its name, which changes when another segment is demoted: the engine is the same."""
    return segment_hash(graph, dataclasses.replace(segment, name=""))


def _verdicts(segment: Segment, refusal: Refusal) -> dict[str, Verdict]:
    reasons = refusal.reasons(len(segment.nodes))
    return {segment.nodes[i].name: Verdict(ReasonCode(refusal.code), detail) for i, detail in reasons.items()}
