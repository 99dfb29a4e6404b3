"""Builds and checks the float32 engines of a partition, and finds the nodes for which segments are refused."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping

from trtnode.engines.artifact.refusal import Refusal
from trtnode.engines.backends.progress import Progress, report
from trtnode.engines.build.bisection import Budget, Trial, find_culprits
from trtnode.engines.build.builder import BuiltEngine, EngineBuilder
from trtnode.engines.build.checker import Checker
from trtnode.engines.build.context import CompileContext
from trtnode.partitioner.cut.labels import ReasonCode, Verdict
from trtnode.partitioner.cut.partition import Partition
from trtnode.partitioner.cut.segments import Segment
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.wording import counted

logger = logging.getLogger(__name__)

BUILDING = "Building"
"""Phase of progress; its steps are nodes."""


class PartitionBuilder:
    """The float32 engines of the partitions that one compilation attempts.

    All searches for culprits of the compilation share one budget.
    """

    def __init__(self, context: CompileContext, builder: EngineBuilder) -> None:
        self._options = context.options
        self._builder = builder
        self._checker = Checker(context)
        self._checked: set[str] = set()
        self._seen_whole: set[str] = set()
        self._budget = Budget()

    def build(self, partition: Partition) -> tuple[dict[str, BuiltEngine], dict[str, Verdict]]:
        """Find or build the engine of each segment.

        Returns:
            The engines by segment name, and the nodes that get none, with the reason.
        """
        engines: dict[str, BuiltEngine] = {}
        refused: dict[str, Verdict] = {}
        done, nodes = 0, sum(len(segment.nodes) for segment in partition.segments)
        for segment in partition.segments:
            what = f"{segment.name}, {counted(len(segment.nodes), 'node')}"
            report(Progress(BUILDING, done, nodes, what=what))
            done += len(segment.nodes)
            outcome = self._builder.find_or_build(partition.graph, segment)
            if isinstance(outcome, Refusal):
                trial = self._try_check if outcome.code == ReasonCode.INACCURATE else self._try_build
                outcome = self._search(partition.graph, segment, outcome, functools.partial(trial, partition.graph))
                refused.update(verdicts(segment, outcome))
            else:
                engines[segment.name] = outcome
        report(Progress(BUILDING, nodes, nodes))
        return engines, refused

    def check(
        self, partition: Partition, engines: Mapping[str, BuiltEngine]
    ) -> tuple[dict[str, BuiltEngine], dict[str, Verdict]]:
        """Compare engines with native execution: those built just now, or all on the user's own inputs.

        Returns:
            The engines, new ones with the places at which their inputs may be empty in the envelope; and the nodes of
            those that differ, with the reason.
        """
        graph = partition.graph
        given = self._options.check_inputs is not None
        keys = {s.name: engines[s.name].key for s in partition.segments if given or not engines[s.name].cached}
        new = [s for s in partition.segments if s.name in keys and keys[s.name] not in self._checked]
        if not new:
            return dict(engines), {}
        empty = any(not engines[s.name].cached for s in new)
        found = self._checker.check(graph, new, engines, empty=empty)
        refused: dict[str, Verdict] = {}
        noted: dict[str, BuiltEngine] = {}
        for segment in new:
            name, key = segment.name, keys[segment.name]
            refusal = found.refusals.get(name)
            if refusal is None:
                self._checked.add(key)
                self._seen_whole.update({key} if found.whole else ())
                if found.empty.get(name) and not engines[name].cached:
                    noted[name] = self._builder.note_empty(key, found.empty[name])
                continue
            self._builder.refuse(key, refusal, lasting=False)
            refusal = self._search(graph, segment, refusal, functools.partial(self._try_check, graph))
            refused.update(verdicts(segment, refusal))
        return {**engines, **noted}, refused

    def are_seen_whole(self, engines: Mapping[str, BuiltEngine]) -> bool:
        """Return whether each of these engines was compared with the source on the samples of the whole file."""
        return self._seen_whole.issuperset(engine.key for engine in engines.values())

    def _search(self, graph: Graph, segment: Segment, refusal: Refusal, trial: Trial) -> Refusal:
        """Find the nodes that cause the refusal of a segment, and remember them."""
        if refusal.culprits or not refusal.divisible:
            return refusal
        logger.info("%s is refused; trying parts of it: %s", segment.name, refusal.detail)
        found = find_culprits(graph, segment, refusal, trial, self._budget)
        return self._builder.refuse_segment(graph, segment, found)

    def _try_build(self, graph: Graph, part: Segment, timeout_s: float) -> Refusal | None:
        outcome = self._build_part(graph, part, timeout_s)
        return outcome if isinstance(outcome, Refusal) else None

    def _try_check(self, graph: Graph, part: Segment, timeout_s: float) -> Refusal | None:
        built = self._build_part(graph, part, timeout_s)
        if isinstance(built, Refusal):
            return None  # it has no engine that could compute wrong
        return self._checker.check(graph, [part], {part.name: built}, engine_s=timeout_s).refusals.get(part.name)

    def _build_part(self, graph: Graph, part: Segment, timeout_s: float) -> BuiltEngine | Refusal:
        return self._builder.find_or_build(graph, part, timeout_s=min(timeout_s, self._options.build_timeout_s))


def verdicts(segment: Segment, refusal: Refusal) -> dict[str, Verdict]:
    """Return the reason why each node of a refused segment runs natively, by node name."""
    reasons = refusal.reasons(len(segment.nodes))
    return {segment.nodes[i].name: Verdict(ReasonCode(code), detail) for i, (code, detail) in reasons.items()}
