"""Finds the precision of each node: the one asked for, if the answers stay inside the accuracy budget."""

from __future__ import annotations

import dataclasses
import logging
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import onnx

from trtnode.engines.artifact.envelope import Envelope
from trtnode.engines.artifact.files import write_temporary
from trtnode.engines.artifact.refusal import Refusal
from trtnode.engines.build.builder import BuiltEngine, BuiltPartition, EngineBuilder
from trtnode.engines.build.context import CompileContext
from trtnode.engines.errors import CalibrationDataError, EngineError, MetricError
from trtnode.engines.precision.accuracy_budget import Figures
from trtnode.engines.precision.options import PrecisionOptions
from trtnode.engines.precision.rewriting import Setting
from trtnode.engines.precision.rules import EXACTNESS, QUANTIZED, assign, at_least, join_precisions
from trtnode.engines.quantization.table import CalibrationTable
from trtnode.engines.tuning import accuracy_jobs
from trtnode.engines.tuning.decision import decide
from trtnode.engines.tuning.measurements import TIMEOUT_S, Measurements, PrecisionPlan
from trtnode.partitioner.cut.labels import ReasonCode
from trtnode.partitioner.cut.partition import Partition
from trtnode.partitioner.graph.view import Node

logger = logging.getLogger(__name__)

Embed = Callable[[BuiltPartition], onnx.ModelProto]
"""Makes one model of a partition and its engines."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedPlan:
    """A plan whose answers stay inside the budget.

    Attributes:
        precision: The precision that the search began with.
        plan: The precision of each node.
        built: The model with its engines.
        figures: Distance of the answers from those in float32; None where nothing is computed differently.
        moved_back: Nodes that compute more exactly instead, the noisiest first.
    """

    precision: str
    plan: PrecisionPlan
    built: BuiltPartition
    figures: Figures | None
    moved_back: tuple[str, ...] = ()


EXPECTED_GAINS = {"int8": 4.0, "bf16": 2.5, "fp16": 2.5}
"""Times as fast as float32 that a precision can be at best: a register holds so many times the elements, and caches
hold more of them."""

EQUAL = 1.07
"""Precisions are equally fast where the slower one takes at most so many times as long; the more accurate one wins."""


class PrecisionSearch:
    """The search of one compilation.

    Attributes:
        tried: Plans that were tried, and their figures, for the report.
    """

    def __init__(
        self,
        context: CompileContext,
        options: PrecisionOptions,
        builder: EngineBuilder,
        *,
        evaluation: accuracy_jobs.EvaluationData,
        embed: Embed,
        table: CalibrationTable | None,
    ) -> None:
        """Prepare the search.

        Args:
            context: The compilation.
            options: The precision asked for.
            builder: Builds engines in other precisions.
            evaluation: Samples that accuracy is measured on.
            embed: Makes the model whose accuracy is measured.
            table: Ranges of tensors, for INT8.
        """
        self.tried: list[dict[str, Any]] = []
        self._context = context
        self._options = options
        self._backend = context.backend
        self._worker = context.worker
        self._builder = builder
        self._evaluation = evaluation
        self._embed = embed
        self._table = table
        self._measurements = Measurements(context, evaluation, table)

    def find(self, exact: BuiltPartition) -> AcceptedPlan:
        """Find the plan for a model whose float32 engines are built and checked.

        Raises:
            CalibrationDataError: Samples for the evaluation can't be read.
            MetricError: The user's own metric failed.
        """
        float32 = dict.fromkeys(_names(exact.partition), "fp32")
        floats = self.apply(exact, float32)
        assert floats is not None  # they are built
        fallback = AcceptedPlan(precision="fp32", plan=float32, built=floats, figures=None)
        if self._options.precision == "auto":
            return self._fastest(exact, fallback)
        for precision in self._fallbacks():
            accepted = self._accept(exact, precision)
            if accepted is not None:
                return accepted
        logger.warning("No precision below fp32 stays inside the accuracy budget, so engines compute in fp32")
        return fallback

    def apply(self, exact: BuiltPartition, plan: PrecisionPlan) -> BuiltPartition | None:
        """Build every segment as a plan says; None where the library refuses."""
        engines: dict[str, BuiltEngine] = {}
        asked, table = self._options.precision, self._table
        settings = {
            segment.name: Setting(asked=asked, nodes=tuple(plan[node.name] for node in segment.nodes), table=table)
            for segment in exact.partition.segments
        }
        for segment in exact.partition.segments:
            built = self._builder.find_or_build(exact.partition.graph, segment, settings[segment.name])
            if isinstance(built, Refusal):
                logger.info("%s is refused: %s", segment.name, built.detail)
                self.tried.append({"segment": segment.name, "code": str(built.code), "problem": built.detail})
                return None
            engines[segment.name] = built
        return dataclasses.replace(exact, engines=engines)

    def _fallbacks(self) -> Iterator[str]:
        """Yield the precision asked for, then a more exact one that this machine still accelerates."""
        yield self._options.precision
        if (more_exact := self.back_in(self._options.precision)) != "fp32":
            yield more_exact

    def back_in(self, precision: str) -> str:
        """Return the more exact precision for the noisiest nodes: one that this machine accelerates, else float32."""
        accelerated = self._backend.precision_support(self._context.options.build).accelerated
        halves = [half for half in ("bf16", "fp16") if half in accelerated and precision in QUANTIZED]
        return next(iter(halves), "fp32")

    def _accept(self, exact: BuiltPartition, precision: str) -> AcceptedPlan | None:
        """Find the plan of a precision that meets the budget with the fewest noisy nodes moved back; None if none."""
        plan = assign(_nodes(exact.partition), precision, self._options.precision_rules)
        if precision != self._options.precision:
            plan = at_least(plan, precision)
        trial = _Trial(self, exact, precision, plan)
        if (accepted := trial.run(())) is not None:
            return accepted
        noisy = self._noisiest(exact.partition, plan) if trial.was_built else []
        return trial.search(noisy, coarse=self._options.precision == "auto")

    def evaluate(self, built: BuiltPartition, precision: str, moved_back: Sequence[str]) -> tuple[Figures | None, bool]:
        """Measure how far answers move.

        Returns:
            The figures, None where measuring failed; and True if they are inside the budget.
        """
        path = self._context.folder / "reduced.onnx"
        write_temporary(self._embed(self._runnable(built)), path)
        budget, figures = self._options.budget, None
        try:
            figures = self._worker.call(accuracy_jobs.measure_accuracy, TIMEOUT_S, path, self._evaluation, budget)
            problem = figures.breaking(budget)
        except (CalibrationDataError, MetricError):
            raise
        except EngineError as error:
            problem = str(error)
        self.tried.append(
            {
                "precision": precision,
                "moved_back": len(moved_back),
                **({} if figures is None else figures.as_json()),
                **({} if problem is None else {"code": str(ReasonCode.INACCURATE), "problem": problem}),
            }
        )
        if problem is not None:
            logger.info("%s with %d nodes more exact is not accurate enough: %s", precision, len(moved_back), problem)
        return figures, problem is None

    def _runnable(self, built: BuiltPartition) -> BuiltPartition:
        """Return the engines themselves, or the models that they were built from where engines don't run here."""
        if not self._context.unchecked:
            return built
        engines = {name: self._builder.rewritten(engine) for name, engine in built.engines.items()}
        return dataclasses.replace(built, engines=engines)

    def _noisiest(self, partition: Partition, plan: PrecisionPlan) -> list[str]:
        """List the nodes to move back, by signal-to-noise ratio, the worst first."""
        try:
            noise = self._measurements.noise_of_nodes(partition, plan)
        except EngineError as error:
            logger.info("The noise of nodes can't be measured: %s", error)
            return []
        return [name for name in sorted(noise, key=noise.__getitem__) if noise[name] < math.inf]

    def _fastest(self, exact: BuiltPartition, fallback: AcceptedPlan) -> AcceptedPlan:
        """Choose the fastest measured setting of each segment, as long as all together stay inside the budget.

        Of those that are equally fast, the one with the smallest error counts. A precision is tried only if what was
        measured before gains less than that precision can be expected to.
        """
        accepted, times = {"fp32": fallback}, dict[str, dict[str, list[float]]]()
        for precision in self._accelerated():
            if _overall_gain(times) >= EXPECTED_GAINS[precision]:
                break
            if (found := self._accept(exact, precision)) is not None:
                accepted[precision] = found
                times = self._measure(exact.partition, accepted)
        errors = {p: 0.0 if one.figures is None else 1 - one.figures.cosine for p, one in accepted.items()}
        chosen = {segment: _fastest_of(turns, errors) for segment, turns in times.items()}
        while any(precision != "fp32" for precision in chosen.values()):
            if len(set(chosen.values())) == 1:
                return dataclasses.replace(accepted[next(iter(chosen.values()))], precision="auto")
            segments = exact.partition.segments
            plan = {node.name: accepted[chosen[s.name]].plan[node.name] for s in segments for node in s.nodes}
            built = self.apply(exact, plan)
            figures, met = (None, False) if built is None else self.evaluate(built, "auto", ())
            if built is not None and met:
                back = dict.fromkeys(name for one in set(chosen.values()) for name in accepted[one].moved_back)
                return AcceptedPlan(precision="auto", plan=plan, built=built, figures=figures, moved_back=tuple(back))
            chosen[min(chosen, key=lambda name: _gain(times[name], chosen[name]))] = "fp32"
        return fallback

    def _accelerated(self) -> list[str]:
        """Precisions that this machine computes faster, and that the library has, by the gain to expect."""
        support = self._backend.precision_support(self._context.options.build)
        wanted = [p for p in EXPECTED_GAINS if p in support.accelerated and support.effective.get(p) == p]
        return [p for p in wanted if p != "int8" or self._table is not None]

    def _measure(self, partition: Partition, accepted: Mapping[str, AcceptedPlan]) -> dict[str, dict[str, list[float]]]:
        """Measure turns in ms of each segment's engines, by precision; empty where the model runs on no known input."""
        times = self._measurements.times(partition, {p: one.built.engines for p, one in accepted.items()})
        for segment, turns in times.items():
            medians = {precision: round(statistics.median(ms), 5) for precision, ms in turns.items()}
            self.tried.append({"segment": segment, "measured_ms": medians})
        return times


class _Trial:
    """Tries a plan with more or fewer of its nodes computed more exactly.

    Attributes:
        was_built: False if the library refused a plan.
    """

    def __init__(self, search: PrecisionSearch, exact: BuiltPartition, precision: str, plan: PrecisionPlan) -> None:
        self.was_built = True
        self._search = search
        self._exact = exact
        self._precision = precision
        self._plan = plan

    def run(self, back: Sequence[str]) -> AcceptedPlan | None:
        """Build and evaluate the plan with some of its nodes moved back; None if it is not accepted."""
        plan = {**self._plan, **dict.fromkeys(back, self._search.back_in(self._precision))}
        built = self._search.apply(self._exact, plan)
        if built is None:
            self.was_built = False
            return None
        figures, met = self._search.evaluate(built, self._precision, back)
        if not met:
            return None
        return AcceptedPlan(precision=self._precision, plan=plan, built=built, figures=figures, moved_back=tuple(back))

    def search(self, noisiest: Sequence[str], *, coarse: bool) -> AcceptedPlan | None:
        """Move back the fewest of the noisiest nodes that bring the plan inside the budget, by doubling and halving.

        Args:
            noisiest: Nodes, the noisiest first.
            coarse: True takes fewer and larger steps, and up to an eighth more nodes than need be. It gives up at half
                of the nodes, where little would be gained.
        """
        most = len(noisiest) - 1
        failing, count, growth, best = 0, 1, 2, None
        if coarse:
            most = max(min(1, most), len(noisiest) // 2)
            count = growth = 4
        while best is None and failing < most:
            count = min(count, most)
            best = self.run(noisiest[:count])
            failing, count = (failing, count) if best else (count, growth * count)
        while best is not None and count - failing > (max(1, count // 8) if coarse else 1):
            middle = (failing + count) // 2
            accepted = self.run(noisiest[:middle])
            failing, count, best = (failing, middle, accepted) if accepted else (middle, count, best)
        return best


def effective_precision(engines: Iterable[BuiltEngine]) -> str:
    """Return the precisions that engines compute in, as one word."""
    return join_precisions(Envelope.from_json(engine.envelope, "an engine").precision_effective for engine in engines)


def _fastest_of(turns: Mapping[str, Sequence[float]], errors: Mapping[str, float]) -> str:
    """Return the most accurate precision of those that are as fast as the one that none clearly beats."""
    fastest = "fp32"
    for challenger in sorted(turns, key=EXACTNESS.__getitem__, reverse=True):
        if challenger != fastest and decide(turns[challenger], turns[fastest]).is_gain:
            fastest = challenger
    longest = EQUAL * statistics.median(turns[fastest])
    equal = [precision for precision, ms in turns.items() if precision == fastest or statistics.median(ms) <= longest]
    return min(equal, key=errors.__getitem__)


def _overall_gain(times: Mapping[str, Mapping[str, Sequence[float]]]) -> float:
    """Return how many times as fast as in float32 all segments are, each in its fastest precision; 0 without times."""
    medians = [{p: statistics.median(ms) for p, ms in turns.items()} for turns in times.values()]
    return sum(ms["fp32"] for ms in medians) / sum(min(ms.values()) for ms in medians) if medians else 0.0


def _gain(turns: Mapping[str, Sequence[float]], precision: str) -> float:
    """Return the ms that a precision saves against float32; infinite for float32 itself, which can't be given up."""
    return math.inf if precision == "fp32" else statistics.median(turns["fp32"]) - statistics.median(turns[precision])


def _nodes(partition: Partition) -> list[Node]:
    return [node for segment in partition.segments for node in segment.nodes]


def _names(partition: Partition) -> list[str]:
    return [node.name for node in _nodes(partition)]
