"""Runs compiled models: engines, ONNX Runtime for the other nodes, and native execution as the fallback."""

from __future__ import annotations

import dataclasses
import functools
import logging
import pathlib
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from engines.artifact.compiled_model import NATIVE_FALLBACK
from engines.artifact.envelope import Envelope
from engines.artifact.trust import Trust
from engines.backends.protocols import Engine
from engines.backends.stage_times import StageTime
from engines.errors import (
    BackendMissingError,
    DeviceLostError,
    EngineError,
    EngineRejectedError,
    ExecutionError,
    InvalidInputError,
    ModelLoadError,
    NoFallbackError,
    OutOfRangeError,
)
from engines.inputs.signature import Signature
from engines.onnxruntime.compatibility import open_native
from engines.onnxruntime.session import NativeSession
from engines.onnxruntime.subgraph_weights import move_weights_inside
from engines.precision.rules import join_precisions
from engines.runtime.casts import boundary_types
from engines.runtime.contexts import Context, new_context
from engines.runtime.engine_loading import open_engine
from engines.runtime.gpu_plan import open_gpu_plan
from engines.runtime.known_engines import KnownEngines
from engines.runtime.loaded_plan import LoadedPlan
from engines.runtime.plan import native_stage_model, plan_stages
from partitioner import (
    Graph,
    PartitionError,
    is_trtnode,
)
from partitioner.compiled.trtnode import view_with_engines
from partitioner.graph.view import specs, subgraph_nodes
from partitioner.model import protobuf_walk
from partitioner.model.default_values import held_defaults
from partitioner.model.external_data import take_data_inside
from partitioner.model.loading import read_proto
from partitioner.model.values import subgraphs

logger = logging.getLogger(__name__)


class Executable:
    """A model that is ready to run. Several threads may call ``run`` at the same time.

    Attributes:
        inputs: Of ``run``.
        outputs: Of ``run``.
        description: Facts for metadata: engine, segments, native nodes, precision asked and effective, fallback.
        on_fallback: Called with a short reason for each request that is answered natively instead of by engines.
        on_loss: Called with a sentence when the device of the engines can't be used any more in this process.
        keep_kernels: Keeps what engines have compiled for this device, for the next process. Call it after a warm-up.
    """

    def __init__(
        self,
        signature: Signature,
        plan: LoadedPlan | None,
        open_native: Callable[[], NativeSession],
        description: dict[str, Any],
        keep_kernels: Callable[[], None] = lambda: None,
    ) -> None:
        self.inputs = signature.inputs
        self.outputs = signature.outputs
        self.description = description
        self.on_fallback: Callable[[str], None] = lambda _: None
        self.on_loss: Callable[[str], None] = lambda _: None
        self.keep_kernels = keep_kernels
        self._signature = signature
        self._plan = plan
        self._open_native = open_native
        self._native: NativeSession | None = None
        self._native_lock = threading.Lock()
        self._idle: list[Context] = []
        if plan is None:
            self._native = open_native()
        else:
            self._idle.append(new_context(plan))

    def run(
        self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None, times: list[StageTime] | None = None
    ) -> dict[str, Any]:
        """Answer one request.

        Args:
            feeds: An array for each input that has no default. Strings are arrays of ``str``; sequences are lists.
            outputs: Names of the outputs to return; None returns all.
            times: Receives the time of each stage; a model without engines has none.

        Returns:
            Arrays by output name, in the model's order. They belong to the caller.

        Raises:
            InvalidInputError: The inputs do not fit the model.
            ExecutionError: The run failed natively as well.
        """
        return self.run_checked(self._signature.check(feeds, outputs), outputs, times)

    def run_checked(
        self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None, times: list[StageTime] | None = None
    ) -> dict[str, Any]:
        """Answer one request whose inputs are known to fit, for callers that have checked them; else as ``run``.

        Raises:
            ExecutionError: The run failed natively as well.
            InvalidInputError: Another value replaces a default that only engines hold.
        """
        plan = self._plan
        if plan is None:
            return self._run_natively(feeds, outputs)
        if plan.held_defaults and not plan.held_defaults.keys().isdisjoint(feeds):
            if (replaced := _replaced(plan.held_defaults, feeds)) is not None:
                return self._answer_replaced(replaced, feeds, outputs)
            feeds = {name: value for name, value in feeds.items() if name not in plan.held_defaults}
        try:
            context = self._idle.pop()
        except IndexError:
            context = new_context(plan)
        try:
            results = context.run(feeds, times)
        except ExecutionError as error:
            return self._fall_back(error, feeds, outputs)
        finally:
            if self._plan is plan:
                self._idle.append(context)
        return results if outputs is None else {s.name: results[s.name] for s in self.outputs if s.name in outputs}

    def close(self) -> None:
        """Free engines and sessions. Runs that are under way finish."""
        plan, self._plan = self._plan, None
        self.keep_kernels = lambda: None  # it refers to the engines
        self._idle.clear()
        self._native = None
        if plan is not None and plan.gpu_programs is not None:
            plan.gpu_programs.close()

    def _answer_replaced(self, name: str, feeds: Mapping[str, Any], outputs: Sequence[str] | None) -> dict[str, Any]:
        problem = f"Its engines hold the default of input {name!r} as a constant, and the request gives another value."
        if not self.description["native_fallback"]:
            raise InvalidInputError(f"{problem} There is no native path to answer instead; leave the input out.")
        return self._fall_back(OutOfRangeError("replaced_initializer", problem), feeds, outputs)

    def _fall_back(
        self, error: ExecutionError, feeds: Mapping[str, Any], outputs: Sequence[str] | None
    ) -> dict[str, Any]:
        if isinstance(error, DeviceLostError):
            self.on_loss(str(error))
        reason = error.reason if isinstance(error, OutOfRangeError) else "engine_error"
        try:
            results = self._run_natively(feeds, outputs)
        except ModelLoadError as refusal:
            raise ExecutionError(f"{error} There is no native path to answer instead: {refusal}") from error
        logger.warning("Request answered natively (%s): %s", reason, error)
        self.on_fallback(reason)
        return results

    def _run_natively(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None) -> dict[str, Any]:
        session = self._native
        if session is None:
            with self._native_lock:
                session = self._native = self._native or self._open_native()
        if outputs is None:
            return dict(zip(session.outputs, session.run(feeds), strict=True))
        wanted = [name for name in session.outputs if name in outputs]
        if not wanted:
            return {}
        return dict(zip(wanted, session.run(feeds, wanted), strict=True))


def open_executable(
    model: ir.Model,
    native: pathlib.Path,
    *,
    folder: pathlib.Path,
    threads: int | None = None,
    shares_cores: bool = False,
    use_engines: bool = True,
    only: Collection[str] | None = None,
    trust: Trust | None = None,
    known: KnownEngines | None = None,
) -> Executable:
    """Load a compiled model, or one without any TrtNode.

    Args:
        model: The model; its TrtNodes' engines are loaded from it. Defaults of inputs that these read become constants.
        native: A file that gives the same answers in ONNX Runtime, without engines.
        folder: Where sidecars are.
        threads: Threads of each engine and session; None leaves it to the libraries.
        shares_cores: True if other models compute on the same cores.
        use_engines: False leaves all engines alone.
        only: Names of the TrtNodes whose engines are loaded; None loads all.
        trust: The engines that may run; None where this program has just built them, or found them in its cache.
        known: Compares engines that nobody has compared yet; None takes them as they are.

    Returns:
        An executable that uses every engine that fits this machine. One that doesn't is replaced by its function's
        nodes, with a warning.

    Raises:
        ModelLoadError: ONNX Runtime refuses the model.
    """
    graph = Graph.of(model)
    signature = signature_of(graph)
    if use_engines:
        graph = view_with_engines(model)
    load = functools.partial(_load_engines, graph, folder=folder, threads=threads, only=only, trust=trust, known=known)
    engines, envelopes, rejected = load() if use_engines else ({}, {}, [])
    keep = functools.partial(_keep_kernels, known, envelopes, engines) if known else lambda: None
    plan = None
    if engines:
        try:
            plan = _load_plan(graph, signature, engines, threads)
        except EngineError as error:
            rejected.append(str(error))
            logger.warning("All nodes run natively: the native stages can't be loaded (%s)", error)
    open_whole = _whole_opener(graph, native, threads=threads, shares_cores=shares_cores or plan is not None)
    return Executable(signature, plan, open_whole, _describe(graph, envelopes if plan else {}, rejected), keep)


def _whole_opener(
    graph: Graph, native: pathlib.Path, *, threads: int | None, shares_cores: bool
) -> Callable[[], NativeSession]:
    """Return a function that opens the whole model natively, as long as its file is the one that was loaded."""
    loaded = _identity(native)
    has_subgraphs = any(True for node in graph.nodes for _ in subgraphs(node.op))
    has_fallback = _has_fallback(graph)
    if not has_fallback:
        logger.warning("%s has no native fallback: a request that its engines can't answer fails", native)

    def open_whole() -> NativeSession:
        if _identity(native) != loaded:
            raise ModelLoadError(str(native), "the file changed since it was loaded; load the model again")
        if not has_fallback:
            raise NoFallbackError(str(native))
        source = _with_weights_inside(native) if has_subgraphs else native
        return open_native(source, threads=threads, shares_cores=shares_cores, name=str(native))

    return open_whole


def _identity(file: pathlib.Path) -> tuple[int, int, int] | None:
    """Return facts that change with a file's content; None if the file is gone."""
    try:
        facts = file.stat()
    except OSError:
        return None
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def signature_of(graph: Graph) -> Signature:
    """Return the signature of a model. Before IR version 4, initializers are listed as inputs, and are none."""
    inputs = graph.inputs if graph.model.ir_version >= 4 else tuple(v for v in graph.inputs if not v.is_initializer())
    return Signature(specs(inputs), specs(graph.outputs))


Loaded = tuple[dict[str, Engine], dict[str, Envelope], list[str]]
"""Engines and envelopes by segment, and the reasons for which others were not loaded."""


def _load_engines(
    graph: Graph,
    *,
    folder: pathlib.Path,
    threads: int | None,
    only: Collection[str] | None,
    trust: Trust | None,
    known: KnownEngines | None,
) -> Loaded:
    engines: dict[str, Engine] = {}
    envelopes: dict[str, Envelope] = {}
    rejected: list[str] = []
    refused: dict[str, list[Exception]] = {}
    for node in graph.nodes:
        if not is_trtnode(node.op) or (only is not None and node.name not in only):
            continue
        try:
            envelopes[node.name], engines[node.name] = open_engine(graph, node, folder, threads, trust)
        except (EngineError, PartitionError) as error:
            rejected.append(str(error))
            refused.setdefault(getattr(error, "reason", str(error)), []).append(error)
    if known is not None and _has_fallback(graph):
        for failure in _compare_unchecked(graph, engines, envelopes, known):
            rejected.append(str(failure))
            refused.setdefault(failure.segment, []).append(failure)
    if known is not None:
        for name, engine in engines.items():
            known.give_kernels(envelopes[name], engine)
    _warn_of_refused(refused.values(), has_fallback=_has_fallback(graph))
    inside = [inner.name for node in graph.nodes for inner in subgraph_nodes(node) if is_trtnode(inner.op)]
    if inside:
        rejected.append(f"{inside[0]}: engines in subgraphs of control flow are not used any more.")
        logger.warning("%s Their nodes run natively; compile the model again.", rejected[-1])
    return engines, envelopes, rejected


def _compare_unchecked(
    graph: Graph, engines: dict[str, Engine], envelopes: dict[str, Envelope], known: KnownEngines
) -> Iterator[EngineRejectedError]:
    """Compare the engines that nobody has compared yet, and drop those that fail."""
    unchecked = {name: envelope for name, envelope in envelopes.items() if envelope.is_unchecked}
    problems = known.compare(graph, unchecked) if unchecked else {}
    for name, envelope in unchecked.items():
        if name in problems:
            del engines[name], envelopes[name]
            yield EngineRejectedError(name, problems[name])
        else:
            envelopes[name] = envelope.as_checked()


def _keep_kernels(known: KnownEngines, envelopes: Mapping[str, Envelope], engines: Mapping[str, Engine]) -> None:
    for name, engine in engines.items():
        known.keep_kernels(envelopes[name], engine)


def _warn_of_refused(groups: Iterable[Sequence[Exception]], *, has_fallback: bool) -> None:
    """Warn once a reason, however many engines are refused for it."""
    for errors in groups:
        others = f" The same holds for {len(errors) - 1} more." if len(errors) > 1 else ""
        whose = "Its" if len(errors) == 1 else "Their"
        instead = f"{whose} nodes run natively" if has_fallback else "Nothing else runs its nodes"
        missing = isinstance(errors[0], BackendMissingError)
        again = "again, with an engine that runs here" if missing else "again on this machine"
        remedy = getattr(errors[0], "remedy", "") or f"compile the model {again}"
        logger.warning("%s%s %s; %s.", errors[0], others, instead, remedy)


def _with_weights_inside(file: pathlib.Path) -> pathlib.Path | onnx.ModelProto:
    """Move the weights of a model's subgraphs into them; return the file itself where there are none to move."""
    model = read_proto(file)
    take_data_inside(file, protobuf_walk.tensors(model))
    return model if model.ByteSize() < onnx.checker.MAXIMUM_PROTOBUF and move_weights_inside(model) else file


def _load_plan(graph: Graph, signature: Signature, engines: Mapping[str, Engine], threads: int | None) -> LoadedPlan:
    usable = {node.name: node.name in engines for node in graph.nodes}
    stages = plan_stages(graph, usable)
    native = {s.name: native_stage_model(graph, s) for s in stages if not s.is_engine}
    for model in native.values():
        move_weights_inside(model)
    held = _arrays(held_defaults(graph.model.graph))
    plan = LoadedPlan(
        stages=tuple(stages),
        engines=engines,
        sessions={name: NativeSession(model, threads=threads, name=name) for name, model in native.items()},
        inputs=tuple(spec for spec in signature.inputs if spec.name not in held),
        outputs=signature.outputs,
        constants=interface_constants(graph),
        held_defaults=held,
        boundary_types=boundary_types(stages, engines, (*signature.inputs, *signature.outputs)),
    )
    return dataclasses.replace(plan, gpu_programs=open_gpu_plan(plan, native))


def interface_constants(graph: Graph) -> dict[str, np.ndarray]:
    """Return the values of outputs, and the defaults of inputs, that are initializers."""
    return _arrays(v for v in (*graph.inputs, *graph.outputs) if v.is_initializer())


def _arrays(values: Iterable[ir.Value]) -> dict[str, np.ndarray]:
    return {v.name or "": v.const_value.numpy() for v in values if v.const_value is not None}


def _replaced(defaults: Mapping[str, np.ndarray], feeds: Mapping[str, Any]) -> str | None:
    """Return the name of an input whose default a request replaces by another value, bit by bit; None if none."""
    for name in defaults.keys() & feeds.keys():
        default, given = defaults[name], feeds[name]
        if (default.dtype, default.shape) != (given.dtype, given.shape) or default.tobytes() != given.tobytes():
            return name
    return None


def _describe(graph: Graph, envelopes: Mapping[str, Envelope], rejected: list[str]) -> dict[str, Any]:
    first = next(iter(envelopes.values()), None)
    return {
        "engine": first.backend if first else "native",
        "segments": len(envelopes),
        "native_nodes": sum(not is_trtnode(node.op) for node in graph.nodes),
        "precision": {
            "asked": next((e.precision_asked for e in envelopes.values() if e.precision_asked != "fp32"), "fp32"),
            "effective": join_precisions(e.precision_effective for e in envelopes.values()) or "fp32",
        },
        "rejected": rejected,
        "unchecked": sum(e.is_unchecked for e in envelopes.values()),
        "native_fallback": _has_fallback(graph),
    }


def _has_fallback(graph: Graph) -> bool:
    return graph.model.metadata_props.get(NATIVE_FALLBACK) != "none"
