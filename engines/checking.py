"""Has engines compared with native execution in the worker process, and tells what is wrong with which."""

from __future__ import annotations

import dataclasses
import logging
import pathlib
from collections.abc import Mapping, Sequence

from engines import jobs
from engines.base import Backend
from engines.cache import CachedEngine, Refusal
from engines.compare import accumulates_quantized
from engines.envelope import Envelope
from engines.errors import EngineError, ModelLoadError, WorkerError
from engines.files import write_model
from engines.plan import specs
from engines.profiles import Profile, sampled
from engines.registry import get_backend
from engines.trust import Trust
from engines.worker import Worker
from partitioner import Graph, ReasonCode, Segment, extract_model

logger = logging.getLogger(__name__)

TIMEOUT_S = 600.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EngineFile:
    """An engine on disk."""

    path: pathlib.Path
    envelope: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Checker:
    """Compares engines with native execution.

    Attributes:
        worker: Where they run.
        folder: For the model that is run natively.
        samples: The user's own inputs, if any.
        shapes: That engines are built for; inputs are generated of such shapes.
        natively: Whether ONNX Runtime runs the model; else onnx.reference judges, or trust in the operators.
    """

    worker: Worker
    folder: pathlib.Path
    samples: pathlib.Path | None
    shapes: Sequence[Profile] = ()
    natively: bool = True

    def check(
        self,
        graph: Graph,
        segments: Sequence[Segment],
        engines: Mapping[str, EngineFile],
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> dict[str, Refusal]:
        """Run engines once on what they would get inside the model.

        Args:
            graph: The cleaned model.
            segments: What to check.
            engines: Their engines, by segment name.
            timeout_s: The child is stopped after this many seconds.

        Returns:
            What is wrong, by segment name. Where several segments can't be checked because the child crashes, each is
            checked alone, so that only the one that crashes it is refused.

        Raises:
            InvalidInputError: The model does not run on the given inputs.
        """
        try:
            return self._check_together(graph, segments, engines, timeout_s)
        except ModelLoadError as error:
            refusal = Refusal(code=ReasonCode.INACCURATE, detail=str(error), lasting=False, divisible=False)
            return {s.name: refusal for s in segments}
        except WorkerError as error:
            if len(segments) == 1:
                refusal = Refusal(code=ReasonCode.INACCURATE, detail=str(error), lasting=False)
                return {segments[0].name: refusal}
        refusals: dict[str, Refusal] = {}
        for segment in segments:
            refusals.update(self.check(graph, [segment], engines, timeout_s=timeout_s))
        return refusals

    def _check_together(
        self, graph: Graph, segments: Sequence[Segment], engines: Mapping[str, EngineFile], timeout_s: float
    ) -> dict[str, Refusal]:
        model = self.folder / "observed.onnx"
        boundary = list(dict.fromkeys(v for s in segments for v in (*s.inputs, *s.outputs) if v not in graph.inputs))
        write_model(extract_model(graph, graph.nodes, inputs=graph.inputs, outputs=boundary, keep_defaults=True), model)
        built = [_described(segment, engines[segment.name]) for segment in segments]
        inputs = sampled(specs(graph.inputs), self.shapes)
        check = jobs.check_segments if self.natively else jobs.check_by_reference
        problems = self.worker.call(check, timeout_s, model, inputs, built, self.samples)
        return {name: _refusal(problem, lasting=self.samples is None) for name, problem in problems.items()}


def fits(cached: CachedEngine, backend: Backend, segment_sha256: str, trust: Trust) -> bool:
    """Whether a cache entry is what its key says, and may run."""
    try:
        envelope = Envelope.from_json(cached.envelope, "a segment")
        envelope.verify(cached.engine, "a segment", version=backend.version(), device=backend.device())
        trust.check(envelope, "a segment")
    except EngineError as error:
        logger.warning("Ignoring a cache entry, so its engine is built again: %s", error)
        return False
    return envelope.backend == backend.name and envelope.segment_sha256 == segment_sha256


def _described(segment: Segment, engine: EngineFile) -> jobs.BuiltSegment:
    backend = get_backend(Envelope.from_json(engine.envelope, segment.name).backend)
    return jobs.BuiltSegment(
        name=segment.name,
        engine=engine.path,
        envelope=engine.envelope,
        quantized=accumulates_quantized(node.op_type for node in segment.nodes),
        trusted=backend.trusted_ops.issuperset(node.op_type for node in segment.nodes),
    )


def _refusal(problem: str, *, lasting: bool) -> Refusal:
    """What is said about a segment; for good only of inputs that are the same each time."""
    checked = problem != jobs.UNCHECKED
    return Refusal(code=ReasonCode.INACCURATE, detail=problem, lasting=checked and lasting, divisible=checked)
