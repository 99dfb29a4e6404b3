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
from trtnode.engines.build.context import TIMEOUT_S, CompileContext
from trtnode.engines.build.native_runs import SampledModel
from trtnode.engines.build.order import BuildOrder
from trtnode.engines.build.tolerance import accumulates_quantized
from trtnode.engines.errors import EngineError, ModelLoadError, OutOfMemoryError, WorkerError, WorkerTimeoutError
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The outcome of a comparison of engines, by segment name.

    Attributes:
        refusals: Of engines that differ.
        empty: Sets of places at which the inputs of other engines may be empty.
        whole: True if they were compared with the source itself, on each sample that the compiled file would be.
    """

    refusals: Mapping[str, Refusal]
    empty: Mapping[str, frozenset[frozenset[InputAxis]]] = dataclasses.field(default_factory=dict)
    whole: bool = False


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
        empty: bool = False,
    ) -> Comparison:
        """Run engines once on the values that they would get inside the model.

        Args:
            graph: The cleaned model.
            segments: Segments to check.
            engines: Their engines, by segment name.
            engine_s: Seconds that each engine may take at least. It may take more where native execution is slow.
            empty: Try empty inputs, too. Engines of which one ends the child on them have none.

        Returns:
            The outcome. Where the child crashes on several segments, each is checked alone, so that only the one that
            crashes it is refused.

        Raises:
            InvalidInputError: The model does not run on the given inputs.
        """
        try:
            return self._check_together(graph, segments, engines, engine_s, empty=empty and self._may_try_empty(graph))
        except ModelLoadError as error:
            refusal = Refusal(code=ReasonCode.INACCURATE, detail=str(error), lasting=False, divisible=False)
            return Comparison(refusals={s.name: refusal for s in segments})
        except WorkerError as error:
            if empty:
                logger.info("Engines are compared again, without empty inputs: %s", error)
                return self.check(graph, segments, engines, engine_s=engine_s)
            if len(segments) == 1:
                refusal = Refusal(code=code_of(error), detail=str(error), lasting=False)
                return Comparison(refusals={segments[0].name: refusal})
        alone = [self.check(graph, [segment], engines, engine_s=engine_s) for segment in segments]
        return Comparison(refusals={name: refusal for one in alone for name, refusal in one.refusals.items()})

    def _may_try_empty(self, graph: Graph) -> bool:
        context = self._context
        runs_here = context.source.runs_natively and context.backend.on_cpu
        return runs_here and any(spec.static_shape is None for spec in context.sampled_inputs(graph))

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
        self,
        graph: Graph,
        segments: Sequence[Segment],
        engines: Mapping[str, EngineFile],
        engine_s: float,
        *,
        empty: bool,
    ) -> Comparison:
        context, given = self._context, self._context.options.check_inputs
        built = [_described(segment, engines[segment.name]) for segment in segments]
        whole = self._is_seen_in_source(graph, segments) and all(one.steps is None for one in built)
        sampled = sampled_model(context, graph, context.source.path if whole else self._observed(graph, segments))
        natively = context.source.runs_natively
        checked = context.worker.call(
            jobs.check_segments, TIMEOUT_S, sampled, built, engine_s, natively=natively, empty=empty, keep=whole
        )
        names = {(v.name, axis): d for v in graph.inputs for axis, d in enumerate(dimensions(v) or ())}
        places = {
            segment.name: frozenset(
                one.places
                for one in checked.empty.get(segment.name, ())
                if context.backend.may_be_empty(segment.nodes, {str(names.get(place)) for place in one.given})
            )
            for segment in segments
        }
        lasting = given is None
        refusals = {name: _refusal(problem, lasting=lasting) for name, problem in checked.problems.items()}
        return Comparison(refusals=refusals, empty=places, whole=whole)

    def _is_seen_in_source(self, graph: Graph, segments: Sequence[Segment]) -> bool:
        """Return whether segments are the whole model, and their inputs and outputs are those of its source."""
        seen = {value.name for value in (*graph.inputs, *graph.outputs)}
        boundary = (value.name for segment in segments for value in (*segment.inputs, *segment.outputs))
        whole = sum(len(segment.nodes) for segment in segments) == len(graph.nodes)
        return self._context.source.runs_natively and whole and seen.issuperset(boundary)


def sampled_model(context: CompileContext, graph: Graph, path: pathlib.Path) -> SampledModel:
    """Return a form of a compilation's model, with what its samples follow from."""
    inputs, given = context.sampled_inputs(graph), context.options.check_inputs
    return SampledModel(path=path, inputs=inputs, given=given, uses=uses_of(graph))


def fits(cached: CachedEngine, order: BuildOrder, trust: Trust) -> bool:
    """Return whether a cache entry is what its key says, and may be used."""
    try:
        envelope = Envelope.from_json(cached.envelope, "a segment")
        version, device = order.identify()
        envelope.check_machine("a segment", version=version, device=device)
        trust.check(envelope, "a segment")
    except EngineError as error:
        logger.warning("Ignoring a cache entry, so its engine is built again: %s", error)
        return False
    hashes = (envelope.engine_sha256, envelope.segment_sha256)
    return envelope.backend == order.backend.name and hashes == (cached.sha256, order.segment_sha256)


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
    if isinstance(error, OutOfMemoryError):
        return ReasonCode.OUT_OF_MEMORY
    return ReasonCode.CHECK_TIMED_OUT if isinstance(error, WorkerTimeoutError) else ReasonCode.INACCURATE


def _refusal(problem: str, *, lasting: bool) -> Refusal:
    """Return the refusal of a segment. It may last only where the inputs are the same each time."""
    checked = not problem.startswith(jobs.NOT_COMPARED)
    code = ReasonCode.INACCURATE if checked else ReasonCode.UNCHECKED
    return Refusal(code=code, detail=problem, lasting=checked and lasting, divisible=checked)
