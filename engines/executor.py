"""Runs a compiled model: engines where they were built, ONNX Runtime for the rest, and for everything where need be."""

from __future__ import annotations

import dataclasses
import functools
import logging
import pathlib
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from engines.base import Engine
from engines.casts import carried_types
from engines.contexts import Context, new_context
from engines.envelope import Envelope
from engines.errors import (
    DeviceLostError,
    EngineError,
    ExecutionError,
    ModelLoadError,
    NoFallbackError,
    OutOfRangeError,
)
from engines.flows import OpenedBody, OpenedFlow, open_flows
from engines.lane_pipeline import open_on_lanes
from engines.loading import open_engine
from engines.native_form import open_native
from engines.onnxruntime_backend import NativeSession
from engines.pipeline import Pipeline
from engines.plan import native_stage_model, plan_stages, specs
from engines.precision_rules import join_precisions
from engines.signature import Signature
from engines.stage_times import StageTime
from engines.trust import Trust
from partitioner import (
    Graph,
    PartitionError,
    is_trtnode,
)

logger = logging.getLogger(__name__)

NATIVE_FALLBACK = "trtnode.native_fallback"
"""Key of a model's property that says ``none`` where ONNX Runtime can't run the model."""


class Executable:
    """A model that is ready to run. Several threads may call ``run`` at the same time.

    Attributes:
        inputs: What ``run`` takes.
        outputs: What ``run`` gives.
        description: Facts for metadata: engine, segments, native nodes, precision asked and effective, fallback.
        on_fallback: Called with a short reason whenever a request is answered natively instead of by engines.
        on_loss: Called with a sentence when the device of the engines can't be used any more in this process.
    """

    def __init__(
        self,
        signature: Signature,
        pipeline: Pipeline | None,
        open_native: Callable[[], NativeSession],
        description: dict[str, Any],
    ) -> None:
        self.inputs = signature.inputs
        self.outputs = signature.outputs
        self.description = description
        self.on_fallback: Callable[[str], None] = lambda _: None
        self.on_loss: Callable[[str], None] = lambda _: None
        self._signature = signature
        self._pipeline = pipeline
        self._open_native = open_native
        self._native: NativeSession | None = None
        self._native_lock = threading.Lock()
        self._idle: list[Context] = []
        if pipeline is None:
            self._native = open_native()
        else:
            self._idle.append(new_context(pipeline))

    def run(
        self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None, times: list[StageTime] | None = None
    ) -> dict[str, Any]:
        """Answer one request.

        Args:
            feeds: An array for each input that has no default. Strings are arrays of ``str``; sequences are lists.
            outputs: Names of the outputs to give; None gives all.
            times: Gets when each stage ran; a model without engines has none.

        Returns:
            Arrays by output name, in the model's order. They belong to the caller.

        Raises:
            InvalidInputError: The inputs do not fit the model.
            ExecutionError: The run failed natively as well.
        """
        checked = self._signature.check(feeds, outputs)
        pipeline = self._pipeline
        if pipeline is None:
            return self._run_natively(checked, outputs)
        try:
            context = self._idle.pop()
        except IndexError:
            context = new_context(pipeline)
        try:
            results = context.run(checked, times)
        except ExecutionError as error:
            return self._fall_back(error, checked, outputs)
        finally:
            if self._pipeline is pipeline:
                self._idle.append(context)
        return results if outputs is None else {s.name: results[s.name] for s in self.outputs if s.name in outputs}

    def close(self) -> None:
        """Let go of engines and sessions. Runs that are under way finish."""
        pipeline, self._pipeline = self._pipeline, None
        self._idle.clear()
        self._native = None
        if pipeline is not None and pipeline.on_lanes is not None:
            pipeline.on_lanes.close()

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
) -> Executable:
    """Load a compiled model, or one without any TrtNode.

    Args:
        model: The model; its TrtNodes' engines are loaded from it.
        native: A file that ONNX Runtime loads and that gives the same answers without engines.
        folder: Where sidecars are.
        threads: Threads of each engine and session; None leaves it to the libraries.
        shares_cores: Whether other models compute on the same cores.
        use_engines: Whether to load engines at all.
        only: Names of the TrtNodes whose engines are loaded; None loads all.
        trust: Whose engines may run; None where this program has just built them, or found them in its cache.

    Returns:
        An executable that uses every engine that fits this machine. One that doesn't is replaced by its function's
        nodes, with a warning.

    Raises:
        ModelLoadError: ONNX Runtime refuses the model.
    """
    loaded = _identity(native)
    graph = Graph.of(model)
    signature = signature_of(graph)
    load = functools.partial(_load_engines, folder=folder, threads=threads, only=only, trust=trust)
    engines, envelopes, rejected = load(graph) if use_engines else ({}, {}, [])
    flows: list[OpenedFlow] = []
    if use_engines:
        flows.extend(open_flows(graph, functools.partial(_open_body, load, threads)))
    envelopes.update((name, envelope) for flow in flows for name, envelope in flow.envelopes.items())
    rejected.extend(reason for flow in flows for reason in flow.rejected)
    pipeline = None
    if envelopes:
        try:
            pipeline = _open_pipeline(graph, signature, engines, threads, flows)
        except EngineError as error:
            rejected.append(str(error))
            logger.warning("All nodes run natively: the native stages can't be loaded (%s)", error)

    sharing = shares_cores or pipeline is not None

    def open_whole() -> NativeSession:
        if _identity(native) != loaded:
            raise ModelLoadError(str(native), "the file changed since it was loaded; load the model again")
        if not description["native_fallback"]:
            raise NoFallbackError(str(native))
        return open_native(native, threads=threads, shares_cores=sharing, name=str(native))

    description = _describe(graph, envelopes if pipeline else {}, rejected)
    if not description["native_fallback"]:
        logger.warning("%s has no native fallback: a request that its engines can't answer fails", native)
    return Executable(signature, pipeline, open_whole, description)


def _identity(file: pathlib.Path) -> tuple[int, int, int] | None:
    """Return what tells whether a file is still the one that was loaded; None if it is gone."""
    try:
        facts = file.stat()
    except OSError:
        return None
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def signature_of(graph: Graph) -> Signature:
    """Inputs and outputs of a model; before IR version 4 every initializer is listed as an input without being one."""
    inputs = graph.inputs if graph.model.ir_version >= 4 else tuple(v for v in graph.inputs if not v.is_initializer())
    return Signature(specs(inputs), specs(graph.outputs))


Loaded = tuple[dict[str, Engine], dict[str, Envelope], list[str]]
"""Engines and envelopes by segment, and why others were not loaded."""


def _load_engines(
    graph: Graph, *, folder: pathlib.Path, threads: int | None, only: Collection[str] | None, trust: Trust | None
) -> Loaded:
    engines: dict[str, Engine] = {}
    envelopes: dict[str, Envelope] = {}
    rejected: list[str] = []
    for node in graph.nodes:
        if not is_trtnode(node.op) or (only is not None and node.name not in only):
            continue
        try:
            envelopes[node.name], engines[node.name] = open_engine(graph, node, folder, threads, trust)
        except (EngineError, PartitionError) as error:
            rejected.append(str(error))
            instead = "Its nodes run natively" if _has_fallback(graph) else "Nothing else runs its nodes"
            logger.warning("%s %s; compile the model again on this machine.", error, instead)
    return engines, envelopes, rejected


def _open_body(load: Callable[[Graph], Loaded], threads: int | None, body: ir.Model) -> OpenedBody:
    """Load a body with its engines, and those of the bodies inside."""
    graph = Graph.of(body)
    engines, envelopes, rejected = load(graph)
    flows = list(open_flows(graph, functools.partial(_open_body, load, threads)))
    envelopes.update((name, envelope) for flow in flows for name, envelope in flow.envelopes.items())
    rejected.extend(reason for flow in flows for reason in flow.rejected)
    pipeline = _open_pipeline(graph, signature_of(graph), engines, threads, flows)
    return OpenedBody(pipeline=pipeline, envelopes=envelopes, rejected=rejected)


def _open_pipeline(
    graph: Graph, signature: Signature, engines: Mapping[str, Engine], threads: int | None, opened: Sequence[OpenedFlow]
) -> Pipeline:
    usable = {node.name: node.name in engines for node in graph.nodes}
    flows = {one.flow.name: one.flow for one in opened if one.flow}
    stages = plan_stages(graph, usable, flows=flows)
    native = {s.name: native_stage_model(graph, s) for s in stages if not (s.is_engine or s.is_flow)}
    pipeline = Pipeline(
        stages=tuple(stages),
        engines=engines,
        sessions={name: NativeSession(model, threads=threads, name=name) for name, model in native.items()},
        inputs=signature.inputs,
        outputs=signature.outputs,
        constants=interface_constants(graph),
        flows=flows,
        carried=carried_types(stages, engines, (*signature.inputs, *signature.outputs)),
    )
    return dataclasses.replace(pipeline, on_lanes=open_on_lanes(pipeline, native))


def interface_constants(graph: Graph) -> dict[str, np.ndarray]:
    """Values of outputs, and defaults of inputs, that are initializers."""
    values = (v for v in (*graph.inputs, *graph.outputs) if v.is_initializer())
    return {v.name or "": v.const_value.numpy() for v in values if v.const_value is not None}


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
        "native_fallback": _has_fallback(graph),
    }


def _has_fallback(graph: Graph) -> bool:
    return graph.model.metadata_props.get(NATIVE_FALLBACK) != "none"
