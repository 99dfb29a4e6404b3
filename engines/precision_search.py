"""Finds the precision of each node: the one asked for, as far as the answers stay inside the accuracy budget."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
import pathlib
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from engines import accuracy, measuring
from engines.base import Backend
from engines.bodies import Settled
from engines.budget import Figures
from engines.building import BuiltEngine, EngineBuilder
from engines.cache import Refusal
from engines.calibration_table import CalibrationTable
from engines.compiled_model import CompiledModel
from engines.envelope import Envelope
from engines.errors import CalibrationDataError, EngineError, MetricError
from engines.files import write_model
from engines.options import PrecisionOptions
from engines.precision import Setting, transform
from engines.precision_rules import EXACTNESS, assign, at_least, join_precisions
from engines.tuning import is_faster
from engines.worker import Worker
from partitioner import Graph, Node, Partition, ReasonCode, Segment, extract_model
from partitioner.segments import values_leaving, values_read

logger = logging.getLogger(__name__)

TIMEOUT_S = 1800.0

MEASURING_S = 2.0
"""About how long the settings of all segments are measured."""

Plan = Mapping[str, str]
"""Precision of each node that an engine runs, by node identity."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A plan whose answers stay inside the budget.

    Attributes:
        precision: What it began with.
        plan: What it became.
        settled: The model with its engines.
        figures: How far answers have moved; None where nothing is computed differently.
        moved_back: Nodes that compute in float32 instead, the noisiest first.
    """

    precision: str
    plan: Plan
    settled: Settled
    figures: Figures | None
    moved_back: tuple[str, ...] = ()


class PrecisionSearch:
    """The search of one compilation.

    Attributes:
        tried: What was tried, for the report.
    """

    def __init__(
        self,
        options: PrecisionOptions,
        *,
        backend: Backend,
        builder: EngineBuilder,
        worker: Worker,
        judged: accuracy.Judged,
        folder: pathlib.Path,
        embed: Callable[[Settled], CompiledModel],
        table: CalibrationTable | None,
    ) -> None:
        self.tried: list[dict[str, Any]] = []
        self._options = options
        self._backend = backend
        self._builder = builder
        self._worker = worker
        self._judged = judged
        self._folder = folder
        self._embed = embed
        self._table = table

    def find(self, exact: Settled) -> Held:
        """The plan to use for a model whose float32 engines are built and checked.

        Raises:
            CalibrationDataError: Samples to judge with can't be read.
            MetricError: The user's own measure failed.
        """
        float32 = dict.fromkeys(_names(exact.partition), "fp32")
        floats = self.apply(exact, float32)
        assert floats is not None  # they are built
        fallback = Held(precision="fp32", plan=float32, settled=floats, figures=None)
        if self._options.asked == "auto":
            return self._fastest(exact, fallback)
        for precision in self._ladder():
            held = self._hold(exact, precision)
            if held is not None:
                return held
        logger.warning("No precision below fp32 stays inside the accuracy budget, so engines compute in fp32")
        return fallback

    def apply(self, exact: Settled, plan: Plan) -> Settled | None:
        """Build every segment as a plan says; None where the library refuses."""
        engines: dict[str, BuiltEngine] = {}
        for segment in exact.partition.segments:
            nodes = tuple(plan[node.name] for node in segment.nodes)
            setting = Setting(asked=self._options.asked, nodes=nodes, table=self._table)
            built = self._builder.build_in(exact.partition.graph, segment, setting)
            if isinstance(built, Refusal):
                logger.info("%s is refused: %s", segment.name, built.detail)
                self.tried.append({"segment": segment.name, "code": str(built.code), "problem": built.detail})
                return None
            engines[segment.name] = built
        return dataclasses.replace(exact, engines=engines)

    def _ladder(self) -> Iterator[str]:
        """What is asked for, then what is more exact and still pays here."""
        yield self._options.asked
        if self._options.asked == "int8":
            accelerated = self._backend.precision_support().accelerated
            yield from [precision for precision in ("bf16", "fp16") if precision in accelerated][:1]

    def _hold(self, exact: Settled, precision: str) -> Held | None:
        """A plan of a precision that stays inside the budget, with the fewest noisy nodes moved back; None if none."""
        plan = assign(_nodes(exact.partition), precision, self._options.rules)
        if precision != self._options.asked:
            plan = at_least(plan, precision)
        trial = _Trial(self, exact, precision, plan)
        if (held := trial.run(())) is not None:
            return held
        noisy = self._noisiest(exact, plan) if trial.was_built else []
        return trial.search(noisy)

    def judge(self, settled: Settled, precision: str, moved_back: Sequence[str]) -> tuple[Figures | None, bool]:
        """How far answers move, and whether that is inside the budget."""
        path = self._folder / "reduced.onnx"
        self._embed(settled).save(path)
        budget, figures = self._options.budget, None
        try:
            figures = self._worker.call(accuracy.measure_accuracy, TIMEOUT_S, path, self._judged, budget)
            problem = budget.broken_by(figures)
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
            logger.info("%s with %d nodes in fp32 is not accurate enough: %s", precision, len(moved_back), problem)
        return figures, problem is None

    def _noisiest(self, exact: Settled, plan: Plan) -> list[tuple[str, ...]]:
        """What to move back, in the order of signal-to-noise ratios, the worst first.

        Single nodes, or whole segments where a library computes the floats of an engine in one precision.
        """
        partition = exact.partition
        graph = partition.graph
        models = {n.name: m for s in partition.segments for n in s.nodes if (m := self._reduced(graph, s, n, plan))}
        values = [v for n in graph.nodes if n.name in models for v in (*n.reads, n.op.outputs[0])]
        boundary = [v for s in partition.segments for v in (*s.inputs, *s.outputs)]
        units = {s.name: tuple(n.name for n in s.nodes) for s in partition.segments}
        try:
            if models:
                units = {name: (name,) for name in models}
                path = self._write_observed(graph, values)
                noise = self._worker.call(accuracy.measure_noise, TIMEOUT_S, path, self._judged, models)
            elif len(units) > 1 and (settled := self.apply(exact, plan)) is not None:
                path = self._write_observed(graph, boundary)
                files = {name: (engine.path, engine.envelope) for name, engine in settled.engines.items()}
                noise = self._worker.call(accuracy.measure_engine_noise, TIMEOUT_S, path, self._judged, files)
            else:
                return []
        except EngineError as error:
            logger.info("The noise of parts can't be measured: %s", error)
            return []
        return [units[name] for name in sorted(noise, key=noise.__getitem__) if noise[name] < math.inf]

    def _reduced(self, graph: Graph, segment: Segment, node: Node, plan: Plan) -> bytes | None:
        """A model of one node as a plan says; None where it computes in float32 anyway."""
        alone = dataclasses.replace(
            segment, nodes=(node,), inputs=values_read((node,)), outputs=values_leaving(graph, (node,))[:1]
        )
        model = extract_model(graph, (node,), inputs=alone.inputs, outputs=alone.outputs)
        setting = Setting(nodes=(plan[node.name],), table=self._table)
        reduced = transform(model, alone, setting, self._backend).model
        return None if reduced is model or not alone.inputs else reduced.SerializeToString()

    def _fastest(self, exact: Settled, fallback: Held) -> Held:
        """The fastest measured setting of each segment, as long as all together stay inside the budget."""
        held = {"fp32": fallback}
        for precision in self._paying():
            if (found := self._hold(exact, precision)) is not None:
                held[precision] = found
        times = self._measure(exact.partition, held) if len(held) > 1 else {}
        chosen = {segment: _fastest_of(turns) for segment, turns in times.items()}
        while any(precision != "fp32" for precision in chosen.values()):
            segments = exact.partition.segments
            plan = {node.name: held[chosen[s.name]].plan[node.name] for s in segments for node in s.nodes}
            settled = self.apply(exact, plan)
            figures, holds = (None, False) if settled is None else self.judge(settled, "auto", ())
            if settled is not None and holds:
                back = dict.fromkeys(name for one in set(chosen.values()) for name in held[one].moved_back)
                return Held(precision="auto", plan=plan, settled=settled, figures=figures, moved_back=tuple(back))
            chosen[min(chosen, key=lambda name: _gain(times[name], chosen[name]))] = "fp32"
        return fallback

    def _paying(self) -> list[str]:
        """Precisions that this machine computes faster, and that can be had."""
        support = self._backend.precision_support()
        wanted = [p for p in ("bf16", "fp16", "int8") if p in support.accelerated and support.effective.get(p) == p]
        return [p for p in wanted if p != "int8" or self._table is not None]

    def _measure(self, partition: Partition, held: Mapping[str, Held]) -> dict[str, dict[str, list[float]]]:
        """Turns in ms of each segment's engines, by precision; empty where the model runs on no known input."""
        values = [v for s in partition.segments for v in (*s.inputs, *s.outputs)]
        path = self._write_observed(partition.graph, values)
        engines = {
            segment.name: {
                p: (e.path, e.envelope) for p, one in held.items() for e in [one.settled.engines[segment.name]]
            }
            for segment in partition.segments
        }
        judged = self._judged
        times = self._worker.call(
            measuring.measure_engines, TIMEOUT_S, path, judged.inputs, judged.given, engines, MEASURING_S
        )
        for segment, turns in (times or {}).items():
            medians = {precision: round(statistics.median(ms), 5) for precision, ms in turns.items()}
            self.tried.append({"segment": segment, "measured_ms": medians})
        return times or {}

    def _write_observed(self, graph: Graph, values: Sequence[ir.Value]) -> pathlib.Path:
        """Write the float32 model with some of its values as its outputs."""
        outputs = [v for v in dict.fromkeys(values) if v not in graph.inputs]
        path = self._folder / "observed.onnx"
        write_model(extract_model(graph, graph.nodes, inputs=graph.inputs, outputs=outputs, keep_defaults=True), path)
        return path


class _Trial:
    """Tries a plan with more or fewer of its nodes in float32.

    Attributes:
        was_built: Whether there was anything to judge.
    """

    def __init__(self, search: PrecisionSearch, exact: Settled, precision: str, plan: Plan) -> None:
        self.was_built = True
        self._search = search
        self._exact = exact
        self._precision = precision
        self._plan = plan

    def run(self, parts: Sequence[Sequence[str]]) -> Held | None:
        """Build and judge the plan with some of its parts moved back."""
        back = tuple(itertools.chain.from_iterable(parts))
        plan = {**self._plan, **dict.fromkeys(back, "fp32")}
        settled = self._search.apply(self._exact, plan)
        if settled is None:
            self.was_built = False
            return None
        figures, holds = self._search.judge(settled, self._precision, back)
        if not holds:
            return None
        return Held(precision=self._precision, plan=plan, settled=settled, figures=figures, moved_back=back)

    def search(self, noisiest: Sequence[Sequence[str]]) -> Held | None:
        """Move back the fewest of the noisiest parts that bring the plan inside the budget, by doubling and halving."""
        failing, count, best = 0, 1, None
        while best is None and failing < len(noisiest) - 1:
            count = min(count, len(noisiest) - 1)
            best = self.run(noisiest[:count])
            failing, count = (failing, count) if best else (count, 2 * count)
        while best is not None and count - failing > 1:
            middle = (failing + count) // 2
            held = self.run(noisiest[:middle])
            failing, count, best = (failing, middle, held) if held else (middle, count, best)
        return best


def effective_precision(engines: Iterable[BuiltEngine]) -> str:
    """What engines compute in, as one word."""
    return join_precisions(Envelope.from_json(engine.envelope, "an engine").precision_effective for engine in engines)


def _fastest_of(turns: Mapping[str, Sequence[float]]) -> str:
    """The most exact precision that none less exact clearly beats."""
    chosen = "fp32"
    for challenger in sorted(turns, key=EXACTNESS.__getitem__, reverse=True):
        if challenger != chosen and is_faster(turns[challenger], turns[chosen]):
            chosen = challenger
    return chosen


def _gain(turns: Mapping[str, Sequence[float]], precision: str) -> float:
    """What a precision saves against float32, in ms; infinite for float32 itself, which can't be given up."""
    return math.inf if precision == "fp32" else statistics.median(turns["fp32"]) - statistics.median(turns[precision])


def _nodes(partition: Partition) -> list[Node]:
    return [node for segment in partition.segments for node in segment.nodes]


def _names(partition: Partition) -> list[str]:
    return [node.name for node in _nodes(partition)]
