"""Compares engines with native execution in the worker process, and refuses those that differ."""

from __future__ import annotations

import dataclasses
import logging
import pathlib
from collections.abc import Mapping, Sequence

from trtnode.engines.artifact.cache import CachedEngine
from trtnode.engines.artifact.envelope import Envelope, InputAxis
from trtnode.engines.artifact.files import write_temporary
from trtnode.engines.artifact.refusal import Refusal
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.build import jobs
from trtnode.engines.build.context import PROBE_TIMEOUT_S, TIMEOUT_S, CompileContext
from trtnode.engines.build.order import BuildOrder
from trtnode.engines.build.tolerance import accumulates_quantized
from trtnode.engines.errors import EngineError, ModelLoadError, WorkerError, WorkerTimeoutError
from trtnode.engines.inputs.input_uses import uses_of
from trtnode.partitioner.cut.labels import ReasonCode
from trtnode.partitioner.cut.segments import Segment
from trtnode.partitioner.graph.extraction import extract_model
from trtnode.partitioner.graph.qdq import DEQUANTIZE
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.values import dimensions

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EngineFile:
    """An engine on disk."""

    path: pathlib.Path
    envelope: str


class Checker:
    """Compares engines with native execution, or with onnx.reference where ONNX Runtime refuses the model."""

    def __init__(self, context: CompileContext) -> None:
        self._context = context

    def check(
        self,
        graph: Graph,
        segments: Sequence[Segment],
        engines: Mapping[str, EngineFile],
        *,
        engine_s: float = jobs.ENGINE_S,
    ) -> dict[str, Refusal]:
        """Run engines once on the values that they would get inside the model.

        Args:
            graph: The cleaned model.
            segments: Segments to check.
            engines: Their engines, by segment name.
            engine_s: Seconds that each engine may take at least. It may take more where native execution is slow.

        Returns:
            The refusals, by segment name. Where the child crashes on several segments, each is checked alone, so that
            only the one that crashes it is refused.

        Raises:
            InvalidInputError: The model does not run on the given inputs.
        """
        try:
            return self._check_together(graph, segments, engines, engine_s)
        except ModelLoadError as error:
            refusal = Refusal(code=ReasonCode.INACCURATE, detail=str(error), lasting=False, divisible=False)
            return {s.name: refusal for s in segments}
        except WorkerError as error:
            if len(segments) == 1:
                return {segments[0].name: Refusal(code=code_of(error), detail=str(error), lasting=False)}
        refusals: dict[str, Refusal] = {}
        for segment in segments:
            refusals.update(self.check(graph, [segment], engines, engine_s=engine_s))
        return refusals

    def find_empty(
        self, graph: Graph, segments: Sequence[Segment], engines: Mapping[str, EngineFile]
    ) -> dict[str, frozenset[frozenset[InputAxis]]]:
        """Return the places at which inputs of engines may be empty, in sets, by segment name; as ``check`` compares.

        An engine that crashes the child has none, and neither have the others that were tried with it.
        """
        context = self._context
        if not context.source.runs_natively or not context.backend.on_cpu:
            return {}
        inputs = context.sampled_inputs(graph)
        if all(spec.static_shape is not None for spec in inputs):
            return {}
        model, built = self._observed(graph, segments), [_described(s, engines[s.name]) for s in segments]
        try:
            found = context.worker.call(jobs.find_empty, PROBE_TIMEOUT_S, model, inputs, built)
        except EngineError as error:
            logger.info("Empty inputs will be answered natively: %s", error)
            return {}
        names = {(v.name, axis): d for v in graph.inputs for axis, d in enumerate(dimensions(v) or ())}
        return {
            segment.name: frozenset(
                one.places
                for one in found[segment.name]
                if context.backend.may_be_empty(segment.nodes, {str(names.get(place)) for place in one.given})
            )
            for segment in segments
        }

    def _observed(self, graph: Graph, segments: Sequence[Segment]) -> pathlib.Path:
        """Write the model with every boundary tensor as an output."""
        model = self._context.folder / "observed.onnx"
        boundary = list(dict.fromkeys(v for s in segments for v in (*s.inputs, *s.outputs) if v not in graph.inputs))
        write_temporary(
            extract_model(
                graph, graph.nodes, inputs=graph.inputs, outputs=boundary, keep_defaults=True, weights_outside=True
            ),
            model,
            link=True,
        )
        return model

    def _check_together(
        self, graph: Graph, segments: Sequence[Segment], engines: Mapping[str, EngineFile], engine_s: float
    ) -> dict[str, Refusal]:
        context, given = self._context, self._context.options.check_inputs
        model = self._observed(graph, segments)
        built = [_described(segment, engines[segment.name]) for segment in segments]
        inputs, uses = context.sampled_inputs(graph), uses_of(graph)
        call, natively = context.worker.call, context.source.runs_natively
        arguments = (model, inputs, built, given, uses, engine_s)
        problems = call(jobs.check_segments, TIMEOUT_S, *arguments, natively=natively)
        return {name: _refusal(problem, lasting=given is None) for name, problem in problems.items()}


def fits(cached: CachedEngine, order: BuildOrder, trust: Trust) -> bool:
    """Return whether a cache entry is what its key says, and may be used."""
    try:
        envelope = Envelope.from_json(cached.envelope, "a segment")
        version, device = order.identify()
        envelope.verify(cached.engine, "a segment", version=version, device=device)
        trust.check(envelope, "a segment")
    except EngineError as error:
        logger.warning("Ignoring a cache entry, so its engine is built again: %s", error)
        return False
    return envelope.backend == order.backend.name and envelope.segment_sha256 == order.segment_sha256


def _described(segment: Segment, engine: EngineFile) -> jobs.BuiltSegment:
    envelope = Envelope.from_json(engine.envelope, segment.name)
    backend = get_backend(envelope.backend)
    reduced = envelope.precision_effective != "fp32"
    accumulates = accumulates_quantized(node.op_type for node in segment.nodes)
    return jobs.BuiltSegment(
        name=segment.name,
        engine=engine.path,
        envelope=engine.envelope,
        quantized=reduced or accumulates,
        steps=_steps(segment) if accumulates and not reduced else None,
        trusted=backend.trusted_ops.issuperset(node.op_type for node in segment.nodes),
    )


def _steps(segment: Segment) -> dict[str, float]:
    """Return the scale of outputs that DequantizeLinear makes, the smallest where it has several."""
    producers = {v.name or "": v.producer() for v in segment.outputs}
    scales = {n: op.inputs[1] for n, op in producers.items() if op is not None and op.op_type == DEQUANTIZE}
    constants = {n: v.const_value.numpy() for n, v in scales.items() if v is not None and v.const_value is not None}
    return {name: float(constant.min()) for name, constant in constants.items()}


def code_of(error: WorkerError) -> ReasonCode:
    """Return the reason for which a check that did not end takes nodes out of engines."""
    return ReasonCode.CHECK_TIMED_OUT if isinstance(error, WorkerTimeoutError) else ReasonCode.INACCURATE


def _refusal(problem: str, *, lasting: bool) -> Refusal:
    """Return the refusal of a segment. It may last only where the inputs are the same each time."""
    checked = not problem.startswith(jobs.NOT_COMPARED)
    code = ReasonCode.INACCURATE if checked else ReasonCode.UNCHECKED
    return Refusal(code=code, detail=problem, lasting=checked and lasting, divisible=checked)
