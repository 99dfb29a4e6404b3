"""Runs compiled models: engines, ONNX Runtime for the other nodes, and native execution as the fallback."""

from __future__ import annotations

import dataclasses
import functools
import logging
import pathlib
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from trtnode.engines.artifact.compiled_model import answers_nan_natively, has_native_fallback, listed_reference_nodes
from trtnode.engines.artifact.envelope import Envelope, index_sizes
from trtnode.engines.backends.custom_operators import keeping_libraries
from trtnode.engines.backends.names import NATIVE
from trtnode.engines.backends.protocols import Engine
from trtnode.engines.backends.stage_times import StageTime
from trtnode.engines.errors import (
    LARGE_RESULT,
    DeviceLostError,
    EngineError,
    ExecutionError,
    InvalidInputError,
    LastResortError,
    MemoryLimitError,
    ModelLoadError,
    OutOfRangeError,
    StateError,
)
from trtnode.engines.inputs.samples import Runner
from trtnode.engines.inputs.sequences import ModelSequence
from trtnode.engines.inputs.signature import Signature
from trtnode.engines.model_facts import UNCOMPILED, ModelFacts
from trtnode.engines.onnxruntime.session import NativeSession, as_array
from trtnode.engines.precision.rules import join_precisions
from trtnode.engines.runtime.contexts import Context, new_context, run_keeping
from trtnode.engines.runtime.engine_loading import load_engines
from trtnode.engines.runtime.known_engines import KnownEngines
from trtnode.engines.runtime.options import ALONE, RunOptions
from trtnode.engines.runtime.plan import LoadedPlan
from trtnode.engines.runtime.plan_loading import load_plan, signature_of
from trtnode.engines.runtime.reference_nodes import LastResort, count_operators
from trtnode.engines.runtime.request_values import finite_checks, non_finite_input, replaced_default
from trtnode.engines.runtime.text_bound import TextGuard
from trtnode.engines.runtime.whole_model import operators_in_reference, whole_opener
from trtnode.partitioner.compiled.trtnode import is_trtnode, view_with_engines
from trtnode.partitioner.graph.states import States
from trtnode.partitioner.graph.view import Graph, Node, describe
from trtnode.partitioner.model.mapped_weights import release_pages
from trtnode.partitioner.wording import counted

logger = logging.getLogger(__name__)


class Executable:
    """A model that is ready to run. Several threads may call ``run`` at the same time.

    Attributes:
        name: Of its file; empty where it has none.
        inputs: Of ``run``.
        outputs: Of ``run``.
        facts: Where its nodes run, and what its compilation found.
        on_fallback: Called with a short reason for each request that is answered natively instead of by engines.
        on_small: Called for each request that is answered natively since it is small: see ``ModelFacts.border``.
        on_loss: Called with a sentence when the device of the engines can't be used any more in this process.
        on_close: Called when it is closed.
        nan_natively: True if a request whose inputs hold NaN or infinity is answered natively; engines may lose them.
            Without a native path, engines answer all the same.
        texts: Runs requests apart whose text might exceed the limit; None where none might.
        states: Its state, for sequences; None where it has none.
        keep_kernels: Keeps what engines have compiled for this device, for the next process. Call it after a warm-up.
    """

    def __init__(
        self,
        signature: Signature,
        plan: LoadedPlan | None,
        open_native: Callable[[], Runner],
        facts: ModelFacts,
        keep_kernels: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = ""
        self.inputs = signature.inputs
        self.outputs = signature.outputs
        self.on_fallback: Callable[[str], None] = lambda _: None
        self.on_small: Callable[[], None] = lambda: None
        self.on_loss: Callable[[str], None] = lambda _: None
        self.on_close: Callable[[], None] = lambda: None
        self.nan_natively = True
        self.keep_kernels = keep_kernels
        self.texts: TextGuard | None = None
        self.states: States | None = None
        self._kept: Mapping[str, str] = {}
        self._appended: Sequence[str] = ()
        self._in_place: Collection[str] = ()
        self._finite_checks = finite_checks(signature.inputs) if plan is not None and facts.native_fallback else ()
        self._given_checks = self._finite_checks
        self._signature = signature
        self._plan = plan
        self._open_native = open_native
        self._native: Runner | None = None
        self._native_lock = threading.Lock()
        self._idle: list[Context] = []
        self._border = facts.border
        if plan is None or self._border:
            self._native = open_native()
        if plan is not None:
            self._idle.append(new_context(plan))
        referred = operators_in_reference(plan, self._native)
        self.facts = dataclasses.replace(facts, reference_nodes=referred)
        if referred:
            logger.warning(
                "onnx.reference, which is slow, runs %s: neither ONNX Runtime nor an engine has a kernel for that",
                count_operators(referred),
            )

    def __repr__(self) -> str:
        facts, interface = self.facts, (self.inputs, self.outputs)
        engines = f"{counted(facts.segments, 'segment')} of {facts.engine} in {facts.precision}, "
        return (
            f"<Executable {self.name}: {engines if facts.segments else ''}"
            f"{counted(facts.native_nodes, 'native node')}; "
            f"{' -> '.join(', '.join(f'{s.name} {describe(s)}' for s in specs) for specs in interface)}>"
        )

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
        self,
        feeds: Mapping[str, Any],
        outputs: Collection[str] | None = None,
        times: list[StageTime] | None = None,
        *,
        keeps: bool = False,
    ) -> dict[str, Any]:
        """Answer one request whose inputs are known to fit, for callers that have checked them; else as ``run``.

        If it keeps, nobody looks at the inputs of state, which an earlier run has made, and outputs of state may be
        tensors of ONNX Runtime.

        Raises:
            ExecutionError: The run failed natively as well.
            InvalidInputError: Another value replaces a default that only engines hold.
        """
        texts = self.texts
        if texts is not None and not texts.covers(feeds):
            return _chosen(texts.runner, _arrays(feeds) if keeps else feeds, outputs)
        plan = self._plan
        if plan is None:
            return self._run_natively(feeds, outputs, keeps)
        if self._border and not keeps and sum(value.size for value in feeds.values()) < self._border:
            self.on_small()
            return self._run_natively(feeds, outputs, keeps)
        if plan.held_defaults and not plan.held_defaults.keys().isdisjoint(feeds):
            if (replaced := replaced_default(plan.held_defaults, feeds)) is not None:
                return self._answer_replaced(replaced, feeds, outputs, keeps)
            feeds = {name: value for name, value in feeds.items() if name not in plan.held_defaults}
        checks = self._given_checks if keeps else self._finite_checks
        if self.nan_natively and (name := non_finite_input(checks, feeds, plan.engines.values())):
            problem = f"Input {name!r} holds NaN or infinity, which engines may lose."
            return self._fall_back(OutOfRangeError("non_finite_input", problem), feeds, outputs, keeps)
        try:
            context = self._idle.pop()
        except IndexError:
            context = new_context(plan)
        try:
            results = run_keeping(context, feeds, times, self._in_place) if keeps else context.run(feeds, times)
        except ExecutionError as error:
            return self._fall_back(error, feeds, outputs, keeps)
        finally:
            if self._plan is plan:
                self._idle.append(context)
        return results if outputs is None else {s.name: results[s.name] for s in self.outputs if s.name in outputs}

    def keep(self, states: States) -> None:
        """Note the state of the model, for sequences."""
        self.states = states
        self._kept, self._appended = states.kept, states.appended
        taken = {*states.kept.values(), *states.appended}
        self._given_checks = tuple(check for check in self._finite_checks if check[0] not in taken)
        self._in_place = () if states.is_small else states.kept  # a copy costs less than a tensor of ONNX Runtime

    def sequence(self) -> ModelSequence:
        """Return a sequence of runs, each of which begins with the state that the one before has left.

        Raises:
            StateError: The model was loaded without its state.
        """
        if self.states is None:
            raise StateError("the model was loaded without it; load it with state='auto', or with a list of pairs")
        return ModelSequence(self.step, self.states, self.outputs)

    def step(
        self, feeds: Mapping[str, Any], outputs: Sequence[str], times: list[StageTime] | None = None
    ) -> dict[str, Any]:
        """Answer one request of a sequence, whose inputs are known to fit, its state among them; else as ``run``.

        Returns:
            The outputs as arrays, and the next state by the names of its inputs.
        """
        kept = self._kept
        results = self.run_checked(feeds, {*kept, *outputs}, times, keeps=True)
        for name, source in kept.items():
            results[source] = results.pop(name)
            if name in outputs:
                results[name] = as_array(results[source]).copy()
        for name in self._appended:
            results[name] = feeds[name]
        return results

    def needs_native(self, feeds: Mapping[str, Any]) -> bool:
        """Return whether a request is to be answered natively for NaN or infinity in its inputs but for its state."""
        return self.nan_natively and non_finite_input(self._given_checks, feeds) is not None

    def close(self) -> None:
        """Free engines and sessions. Runs that are under way finish."""
        plan, self._plan = self._plan, None
        self.keep_kernels = lambda: None  # it refers to the engines
        self._idle.clear()
        self._native = self.texts = None
        if plan is not None and plan.gpu_programs is not None:
            plan.gpu_programs.close()
        self.on_close()

    def _answer_replaced(
        self, name: str, feeds: Mapping[str, Any], outputs: Collection[str] | None, keeps: bool
    ) -> dict[str, Any]:
        problem = f"Its engines hold the default of input {name!r} as a constant, and the request gives another value."
        if not self.facts.native_fallback:
            raise InvalidInputError(f"{problem} There is no native path to answer instead; leave the input out.")
        return self._fall_back(OutOfRangeError("replaced_initializer", problem), feeds, outputs, keeps)

    def _fall_back(
        self, error: ExecutionError, feeds: Mapping[str, Any], outputs: Collection[str] | None, keeps: bool
    ) -> dict[str, Any]:
        if isinstance(error, DeviceLostError):
            self.on_loss(str(error))
        if isinstance(error, LastResortError):
            raise error
        reason = error.reason if isinstance(error, OutOfRangeError) else "engine_error"
        try:
            results = self._run_natively(feeds, outputs, keeps)
        except ModelLoadError as refusal:
            kind = MemoryLimitError if reason == LARGE_RESULT else ExecutionError
            raise kind(f"{error} There is no native path to answer instead: {refusal}") from error
        logger.warning("Request answered natively (%s): %s", reason, error)
        self.on_fallback(reason)
        return results

    def _run_natively(self, feeds: Mapping[str, Any], outputs: Collection[str] | None, keeps: bool) -> dict[str, Any]:
        session = self._native
        if session is None:
            with self._native_lock:
                session = self._native = self._native or self._open_native()
        if keeps and self._in_place:
            if isinstance(session, NativeSession):
                wanted = [name for name in session.outputs if outputs is None or name in outputs]
                return dict(zip(wanted, session.run_keeping(feeds, wanted, self._in_place), strict=True))
            feeds = _arrays(feeds)
        return _chosen(session, feeds, outputs)


def _arrays(feeds: Mapping[str, Any]) -> dict[str, Any]:
    return {name: as_array(value) for name, value in feeds.items()}


def _chosen(session: Runner, feeds: Mapping[str, Any], outputs: Collection[str] | None) -> dict[str, Any]:
    if outputs is None:
        return dict(zip(session.outputs, session.run(feeds), strict=True))
    wanted = [name for name in session.outputs if name in outputs]
    return dict(zip(wanted, session.run(feeds, wanted), strict=True)) if wanted else {}


def open_executable(
    model: ir.Model,
    native: pathlib.Path,
    *,
    folder: pathlib.Path,
    use_engines: bool = True,
    only: Collection[str] | None = None,
    run: RunOptions = ALONE,
    compiled: ModelFacts = UNCOMPILED,
) -> Executable:
    """Load a compiled model, or one without any TrtNode.

    Args:
        model: The model; its TrtNodes' engines are loaded from it. Defaults of inputs that these read become constants.
        native: A file that gives the same answers in ONNX Runtime, without engines.
        folder: Where sidecars are.
        use_engines: False leaves all engines alone.
        only: Names of the TrtNodes whose engines are loaded; None loads all.
        run: Options of the model.
        compiled: What its compilation found: precision asked, report, memory plan, engines that were refused before.

    Returns:
        An executable that uses every engine that fits this machine. One that doesn't is replaced by its function's
        nodes, with a warning.

    Raises:
        ReferenceNeededError: ``run.reference`` is None, and nothing else runs some nodes.
        ModelLoadError: ONNX Runtime refuses the model.
    """
    graph = Graph.of(model)
    signature = signature_of(graph)
    resort = LastResort(nodes=listed_reference_nodes(model), open=run.reference) if run.reference else None
    if use_engines:
        graph = view_with_engines(model)
    shared = dataclasses.replace(run, shares_cores=run.shares_cores or len(graph.nodes) > 1)
    loaded = load_engines(graph, folder, only, shared) if use_engines else ({}, {}, [])
    engines, envelopes, rejected = loaded
    keep = functools.partial(_keep_kernels, run.known, envelopes, engines) if run.known else lambda: None
    plan = None
    if engines:
        try:
            plan = load_plan(
                graph, signature, engines, threads=run.threads, memory_pattern=run.memory_pattern, resort=resort
            )
        except EngineError as error:
            rejected.append(str(error))
            logger.warning("All nodes run natively: the native stages can't be loaded (%s)", error)
    whole = dataclasses.replace(run, shares_cores=run.shares_cores or plan is not None)
    open_whole = keeping_libraries(whole_opener(graph, native, whole))
    facts = _facts_of(graph, envelopes if plan else {}, rejected, compiled)
    executable = Executable(signature, plan, open_whole, facts, keep)
    executable.name = native.name
    executable.texts = TextGuard.of(model, native, run.apart)
    executable.nan_natively = answers_nan_natively(model)
    release_pages(model)
    return executable


def _keep_kernels(known: KnownEngines, envelopes: Mapping[str, Envelope], engines: Mapping[str, Engine]) -> None:
    for name, engine in engines.items():
        known.keep_kernels(envelopes[name], engine)


def _native_nodes(graph: Graph, node: Node) -> int:
    """Return how many nodes run for one that no engine runs: those of its function, if an engine was refused."""
    function = graph.model.functions.get(node.op.op_identifier()) if is_trtnode(node.op) else None
    return 1 if function is None else len(function)


def _facts_of(
    graph: Graph, envelopes: Mapping[str, Envelope], rejected: Sequence[str], compiled: ModelFacts
) -> ModelFacts:
    first = next(iter(envelopes.values()), None)
    unchecked = sum(e.is_unchecked for e in envelopes.values())
    asked = next((e.precision_asked for e in envelopes.values() if e.precision_asked != "fp32"), "fp32")
    report = compiled.report
    if report is not None and envelopes and not unchecked:
        report = {key: value for key, value in report.items() if key != "checked"}
    return dataclasses.replace(
        compiled,
        engine=first.backend if first else NATIVE,
        segments=len(envelopes),
        native_nodes=sum(_native_nodes(graph, node) for node in graph.nodes if node.name not in envelopes),
        precision_asked=compiled.precision_asked or asked,
        precision=join_precisions(e.precision_effective for e in envelopes.values()) or "fp32",
        rejected=tuple(dict.fromkeys((*compiled.rejected, *rejected))),
        unchecked=unchecked,
        native_fallback=has_native_fallback(graph.model),
        index_sizes=index_sizes(envelopes.values()),
        report=report,
    )
