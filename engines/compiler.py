"""Compiles a model: partition it, build and check each segment's engine, and embed what stood the check."""

from __future__ import annotations

import dataclasses
import json
import logging
import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import onnx

from engines import jobs
from engines.bodies import BodyCompiler, Settled, owner_inside, wishes_inside
from engines.building import BuiltEngine, EngineBuilder, builder_version, verdicts
from engines.cache import EngineCache, Refusal
from engines.checking import Checker
from engines.compiled_model import CompiledModel
from engines.envelope import Envelope
from engines.errors import BackendMissingError, ModelLoadError, OutputFileError, WorkerError
from engines.executor import NATIVE_FALLBACK, signature_of
from engines.files import sha256_of_file
from engines.labelling import cleaned, partition_model, predicate, table, warn_of_idle_globs
from engines.native_form import write_native_form
from engines.native_types import complete_types
from engines.onnxruntime_backend import native_limits
from engines.options import CompileOptions
from engines.plan import specs
from engines.precision_choice import PrecisionChoice, check_engine
from engines.precision_search import effective_precision
from engines.profiles import sampled
from engines.registry import NATIVE, get_backend, next_engine, resolve_engine
from engines.samples import read_given
from engines.tuning import Tuner
from engines.worker import Worker
from partitioner import (
    Graph,
    Partition,
    ReasonCode,
    Report,
    Verdict,
    clean_up,
    expand_functions,
    partition_graph,
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
        BackendMissingError: Its library is not installed, or does not run here.
        InvalidInputError: The model does not run on the inputs that ``options.samples`` gives.
        PrecisionError: The engine lacks a precision, or ``int8`` is asked for without calibration.
        InputShapesError: Shapes to build for don't fit the model.
        OutputFileError: The folder for temporary files is full.
    """
    engine = resolve_engine(options.engine)
    if engine != "tensorrt" and worker is not None and (idle := options.build.tensorrt.chosen()):
        logger.warning(
            "Only TensorRT has these options, so with engine %s they have no effect: %s", engine, ", ".join(idle)
        )
    if engine != NATIVE and (problem := get_backend(engine).missing()):
        raise BackendMissingError(problem)
    if worker is None:
        with Worker() as temporary:
            return compile_model(source, options, cache=cache, worker=temporary)
    try:
        with tempfile.TemporaryDirectory(prefix="trtnode-") as name:
            return _compile_in(pathlib.Path(name), source, options, cache, worker)
    except BackendMissingError as problem:
        other = next_engine(options.engine, engine)
        if other is None:
            raise
        logger.warning("%s Until then, %s is used.", problem, other)
        return compile_model(source, dataclasses.replace(options, engine=other), cache=cache, worker=worker)
    except OSError as error:
        place = pathlib.Path(error.filename or "the folder for temporary files")
        raise OutputFileError(place, error.strerror or str(error)) from error


def _compile_in(
    folder: pathlib.Path, source: pathlib.Path, options: CompileOptions, cache: EngineCache | None, worker: Worker
) -> CompiledModel:
    """Compile with a folder for what is written on the way."""
    try:
        return _Compilation(source, options, cache, worker, folder).run()
    except ModelLoadError as refusal:
        rewritten = folder / "native.onnx"
        try:
            worker.call(write_native_form, CHECK_TIMEOUT_S, source, rewritten, refusal)
        except ModelLoadError:
            return _Compilation(source, options, cache, worker, folder, native_fallback=False).run()
        return _Compilation(rewritten, options, cache, worker, folder, origin=source).run()


class _Compilation:
    """One compilation of a model, or of a body of a node."""

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
        checker = Checker(
            worker=worker,
            folder=folder,
            samples=options.samples,
            shapes=options.shapes,
            natively=native_fallback,
        )
        self._builder = EngineBuilder(self._engine, options, cache=cache, worker=worker, checker=checker)
        self._tuner = Tuner(source, options, engine=self._engine, cache=cache, worker=worker, folder=folder)
        self._precision = PrecisionChoice(
            source,
            options,
            origin=self._origin,
            engine=self._engine,
            builder=self._builder,
            cache=cache,
            worker=worker,
            folder=folder,
        )
        self._demoted: dict[str, Verdict] = {}

    def run(self) -> CompiledModel:
        check_engine(self._engine, self._options)
        if self._engine == NATIVE:
            partition, _ = partition_model(self._source, self._options)
            return self._all_native(partition)
        partition = self._partition()
        if self._options.samples is not None:
            read_given(self._options.samples, signature_of(partition.graph))
        self._precision.prepare(partition.graph, natively=self._native_fallback)
        partition = self._tuner.recall(partition)
        self._bodies.given_up |= self._tuner.drops_bodies
        start = time.perf_counter()
        while partition.segments or self._bodies.settle(partition):
            accepted, refused = self._builder.build_all(partition)
            if not refused:
                refused = self._builder.check_new(partition, accepted)
            if not refused:
                partition = dataclasses.replace(
                    partition, seconds={**partition.seconds, "build": time.perf_counter() - start}
                )
                settled = Settled(partition=partition, engines=accepted, bodies=self._bodies.settle(partition))
                compiled = self._embed(settled)
                refused = self._check_whole(settled, compiled)
                if settled.bodies and self._bodies.given_up:
                    continue  # the same without engines in bodies
                exact = settled
                if not refused and not self._precision.is_float32:
                    settled = self._precision.settle(exact, self._embed)
                    compiled = self._embed(settled)
                if not refused and self._native_fallback:
                    refused = self._tuner.judge(partition, compiled)
                if not (refused or self._tuner.keeps_bodies(partition, compiled, settled.body_segments())):
                    self._bodies.given_up = True
                    continue
                if not refused:
                    self._builder.remember({*exact.all_engines(), *settled.all_engines()})
                    self._precision.remember()
                    return self._with_tuning(compiled)
            self._demoted.update(refused)
            partition = partition.demote(refused)
        return self._with_tuning(self._all_native(partition))

    def settle(self) -> Settled:
        """Build and check the engines of a body that pay, without embedding them."""
        partition = self._partition()
        while partition.segments:
            accepted: dict[str, BuiltEngine] = {}
            refused = refuse_unless_pays(partition, self._trips)
            if not refused:
                accepted, refused = self._builder.build_all(partition)
            if not refused:
                refused = self._builder.check_new(partition, accepted)
            if not refused:
                return Settled(partition=partition, engines=accepted, bodies=self._bodies.settle(partition))
            partition = partition.demote(refused)
        return Settled(partition=partition, engines={}, bodies=self._bodies.settle(partition))

    def _compile_body(self, body: Body, trips: int) -> Settled:
        options = dataclasses.replace(self._options, samples=None, tune=False, shapes=())
        owner, trips = owner_inside(self._owner, body), trips * self._trips
        inner = _Compilation(
            self._source, options, self._cache, self._worker, self._folder, body=body, owner=owner, trips=trips
        )
        settled = inner.settle()
        self._builder.built_now += inner._builder.built_now
        return settled

    def _partition(self) -> Partition:
        start = time.perf_counter()
        graph = clean_up(self._body.model) if self._body else cleaned(self._source, self._options.shapes)
        if self._native_fallback and is_too_new(graph.model, native_limits()):
            self._call(jobs.output_types, self._source)  # refused before anything is built
        complete_types(graph, lambda path: self._call(jobs.output_types, path), self._folder)
        wishes = self._options.partition
        if self._body is None:
            warn_of_idle_globs(graph, wishes)
        graph = expand_functions(Graph.of(graph.model), table(self._engine, wishes), wishes)
        seconds = time.perf_counter() - start
        if self._owner:
            wishes = wishes_inside(wishes, graph, self._owner)
        supports = predicate(self._engine, graph, wishes, self._cache, self._worker)
        partition = partition_graph(graph, supports, wishes)
        return dataclasses.replace(partition, seconds={"infer_shapes": seconds, **partition.seconds})

    def _check_whole(self, settled: Settled, compiled: CompiledModel) -> dict[str, Verdict]:
        """Load and run the whole compiled file once, natively and with its engines."""
        if self._options.samples is None and all(built.cached for built in settled.all_engines()):
            return {}
        path = self._folder / "compiled.onnx"
        compiled.save(path)
        partition = settled.partition
        inputs = sampled(specs(partition.graph.inputs), self._options.shapes)
        lasting = self._options.samples is None
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
            self._builder.refuse(built.key, refusal, lasting=lasting)
        return {name: verdict for s in partition.segments for name, verdict in verdicts(s, refusal).items()}

    def _embed(self, settled: Settled) -> CompiledModel:
        report = settled.partition.report(model=self._origin.name, engine=self._engine)
        report = report.with_bodies(tuple(settled.body_reports()))
        report = dataclasses.replace(report, precision=self._precision.figures)
        engines = list(settled.all_engines())
        return CompiledModel(
            model=self._stamped(settled.embed(), report),
            report=report,
            engine=self._engine,
            precision_effective=effective_precision(engines),
            engines_built=self._builder.built_now,
            engines_cached=sum(built.cached for built in engines),
            engine_bytes=sum(built.path.stat().st_size for built in engines),
            engines_stripped=sum(Envelope.from_json(b.envelope, b.key).is_stripped for b in engines),
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
            engines_built=self._builder.built_now,
            engines_cached=0,
            engine_bytes=0,
        )

    def _with_tuning(self, compiled: CompiledModel) -> CompiledModel:
        """Put what was measured into the report, and keep it for the next compilation."""
        if self._tuner.figures is None:
            return compiled
        if all(refusal.lasting for refusal in self._builder.refusals.values()):
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

    def _call(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._worker.call(function, CHECK_TIMEOUT_S, *args, **kwargs)
