"""Compiles a model: partition it, build and check each segment's engine, and embed what stood the check."""

from __future__ import annotations

import dataclasses
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
from engines.cache import CachedEngine, EngineCache, Refusal, engine_key
from engines.compare import accumulates_quantized
from engines.compiled_model import CompiledModel
from engines.envelope import Envelope, current_platform
from engines.errors import AlreadyCompiledError, BuildError, EngineError, ModelLoadError, WorkerError
from engines.executor import NATIVE_FALLBACK
from engines.files import sha256_of_file, write_model
from engines.native_form import write_native_form
from engines.native_types import complete_types
from engines.onnxruntime_backend import native_limits
from engines.options import BuildOptions, CompileOptions
from engines.plan import specs
from engines.registry import NATIVE, get_backend, resolve_engine
from engines.worker import Worker
from partitioner import (
    EmbeddedEngine,
    Graph,
    Partition,
    Predicate,
    ReasonCode,
    Report,
    Segment,
    Verdict,
    clean_up,
    embed_engines,
    expand_functions,
    extract_model,
    is_trtnode,
    load_model,
    partition_graph,
    segment_hash,
    walk,
)
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


def partition_model(source: pathlib.Path, options: CompileOptions) -> tuple[Partition, Report]:
    """Label and cut a model without building anything.

    Raises:
        PartitionError: As ``compile_model``.
        UnknownBackendError: As ``compile_model``.
    """
    engine = resolve_engine(options.engine)
    start = time.perf_counter()
    graph = _cleaned(source)
    seconds = time.perf_counter() - start
    graph = expand_functions(graph, _predicate(engine), options.partition)
    partition = partition_graph(graph, _predicate(engine), options.partition)
    partition = dataclasses.replace(partition, seconds={"infer_shapes": seconds, **partition.seconds})
    return partition, partition.report(model=source.name, engine=engine)


@dataclasses.dataclass(slots=True)
class _Built:
    path: pathlib.Path
    envelope: str
    key: str
    cached: bool


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
    ) -> None:
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
        self._built_now = 0

    def run(self) -> CompiledModel:
        if self._engine == NATIVE:
            partition, _ = partition_model(self._source, self._options)
            return self._all_native(partition)
        partition = self._partition()
        start = time.perf_counter()
        while partition.segments:
            accepted, refused = self._build_all(partition)
            if not refused:
                refused = self._check_new(partition, accepted)
            if not refused:
                partition = dataclasses.replace(
                    partition, seconds={**partition.seconds, "build": time.perf_counter() - start}
                )
                compiled = self._embed(partition, accepted)
                refused = self._check_whole(partition, accepted, compiled)
                if not refused:
                    self._remember(accepted)
                    return compiled
            partition = partition.demote(refused)
        return self._all_native(partition)

    def _partition(self) -> Partition:
        start = time.perf_counter()
        graph = _cleaned(self._source)
        if self._native_fallback and is_too_new(graph.model, native_limits()):
            self._call(jobs.output_types, self._source)  # refused before anything is built
        complete_types(graph, lambda path: self._call(jobs.output_types, path), self._folder)
        graph = expand_functions(Graph.of(graph.model), _predicate(self._engine), self._options.partition)
        seconds = time.perf_counter() - start
        partition = partition_graph(graph, _predicate(self._engine), self._options.partition)
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
        backend = get_backend(self._engine)
        # Without its name, which changes when another segment is demoted: the engine is the same.
        segment_sha256 = segment_hash(graph, dataclasses.replace(segment, name=""))
        key = self._key(backend, segment, segment_sha256)
        if key in self._engines or key in self._refusals:
            return self._engines.get(key) or self._refusals[key]
        path = self._folder / f"{key}.engine"
        cached = self._cache.get(key) if self._cache else None
        if isinstance(cached, Refusal):
            return cached
        if isinstance(cached, CachedEngine) and _fits(cached, backend, segment_sha256):
            path.write_bytes(cached.engine)
            self._engines[key] = _Built(path, cached.envelope, key, cached=True)
            return self._engines[key]
        logger.info("Building %s with %s (%d nodes)", segment.name, backend.name, len(segment.nodes))
        model = self._folder / "segment.onnx"
        write_model(extract_model(graph, segment.nodes, inputs=segment.inputs, outputs=segment.outputs), model)
        try:
            self._worker.call(jobs.build, self._options.build_timeout_s, self._engine, model, path, self._options.build)
        except (BuildError, WorkerError) as error:
            refusal = Refusal(code=ReasonCode.BUILD_FAILED, detail=str(error))
            return self._refuse(key, refusal, lasting=isinstance(error, BuildError))
        self._built_now += 1
        envelope = self._envelope(backend, segment, path, segment_sha256)
        self._engines[key] = _Built(path, envelope.to_json(), key, cached=False)
        return self._engines[key]

    def _check_new(self, partition: Partition, accepted: Mapping[str, _Built]) -> dict[str, Verdict]:
        """Compare engines that were built just now with native execution."""
        new = [s for s in partition.segments if not accepted[s.name].cached]
        if not new:
            return {}
        graph = partition.graph
        model = self._folder / "observed.onnx"
        boundary = list(dict.fromkeys(v for s in new for v in (*s.inputs, *s.outputs) if v not in graph.inputs))
        write_model(extract_model(graph, graph.nodes, inputs=graph.inputs, outputs=boundary, keep_defaults=True), model)
        built = [
            jobs.BuiltSegment(
                name=s.name,
                engine=accepted[s.name].path,
                envelope=accepted[s.name].envelope,
                quantized=accumulates_quantized(node.op_type for node in s.nodes),
                trusted=get_backend(self._engine).trusted_ops.issuperset(node.op_type for node in s.nodes),
            )
            for s in new
        ]
        lasting = True
        try:
            check = jobs.check_segments if self._native_fallback else jobs.check_by_reference
            problems = self._call(check, model, specs(graph.inputs), built, self._options.samples)
        except (WorkerError, ModelLoadError) as error:
            problems = {s.name: str(error) for s in new}
            lasting = False
        refused: dict[str, Verdict] = {}
        for segment in new:
            if segment.name in problems:
                refusal = Refusal(code=ReasonCode.INACCURATE, detail=problems[segment.name])
                known = lasting and problems[segment.name] != jobs.UNCHECKED
                self._refuse(accepted[segment.name].key, refusal, lasting=known)
                refused.update(_verdicts(segment, refusal))
        return refused

    def _check_whole(
        self, partition: Partition, accepted: Mapping[str, _Built], compiled: CompiledModel
    ) -> dict[str, Verdict]:
        """Load and run the whole compiled file once, natively and with its engines."""
        if all(built.cached for built in accepted.values()):
            return {}
        path = self._folder / "compiled.onnx"
        compiled.save(path)
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
        logger.warning("The compiled model is not usable, so all nodes run natively: %s", problem)
        refusal = Refusal(code=ReasonCode.INACCURATE, detail=f"The compiled model as a whole fails: {problem}")
        for built in accepted.values():
            self._refuse(built.key, refusal, lasting=lasting)
        return {name: verdict for s in partition.segments for name, verdict in _verdicts(s, refusal).items()}

    def _embed(self, partition: Partition, accepted: Mapping[str, _Built]) -> CompiledModel:
        report = partition.report(model=self._origin.name, engine=self._engine)
        contents = {
            name: EmbeddedEngine(envelope=built.envelope, engine=built.path.read_bytes())
            for name, built in accepted.items()
        }
        model = embed_engines(partition.graph, partition.segments, contents)
        effective = Envelope.from_json(next(iter(contents.values())).envelope, "").precision_effective
        return CompiledModel(
            model=self._stamped(model, report),
            report=report,
            engine=self._engine,
            precision_effective=effective,
            engines_built=self._built_now,
            engines_cached=sum(built.cached for built in accepted.values()),
            engine_bytes=sum(len(c.engine or b"") for c in contents.values()),
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
        self._refusals[key] = refusal
        self._engines.pop(key, None)
        if lasting and self._cache:
            self._cache.put(key, refusal)
        return refusal

    def _remember(self, accepted: Mapping[str, _Built]) -> None:
        for built in accepted.values():
            if self._cache and not built.cached:
                self._cache.put(built.key, CachedEngine(envelope=built.envelope, engine=built.path.read_bytes()))

    def _call(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._worker.call(function, CHECK_TIMEOUT_S, *args, **kwargs)


def builder_version() -> str:
    """Version of this project."""
    return importlib.metadata.version("trtnode")


def _cleaned(source: pathlib.Path) -> Graph:
    graph = clean_up(load_model(source))
    if any(is_trtnode(node.op) for node in graph.nodes):
        raise AlreadyCompiledError(source)
    return graph


def _predicate(engine: str) -> Predicate:
    if engine == NATIVE:
        return lambda _: Verdict(ReasonCode.USER_EXCLUDED, "The engine asked for is native.")
    return get_backend(engine).label


def _fits(cached: CachedEngine, backend: Backend, segment_sha256: str) -> bool:
    """Whether a cache entry is what its key says."""
    try:
        envelope = Envelope.from_json(cached.envelope, "a segment")
        envelope.verify(cached.engine, "a segment", version=backend.version(), device=backend.device())
    except EngineError as error:
        logger.warning("Ignoring a damaged cache entry: %s", error)
        return False
    return envelope.backend == backend.name and envelope.segment_sha256 == segment_sha256


def _verdicts(segment: Segment, refusal: Refusal) -> dict[str, Verdict]:
    verdict = Verdict(ReasonCode(refusal.code), refusal.detail)
    return {node.name: verdict for node in segment.nodes}
