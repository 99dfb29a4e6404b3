"""The precision stage of a compilation: refuses options that can't be met, and remembers the plan of the search."""

from __future__ import annotations

import collections
import dataclasses
import json
import logging
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from trtnode.engines.artifact.files import sha256_of_file, sha256_of_model
from trtnode.engines.backends.cpu_features import precision_warnings, usable_flags
from trtnode.engines.backends.names import NATIVE
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.build.builder import BuiltPartition, EngineBuilder
from trtnode.engines.build.context import CompileContext
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.errors import PrecisionError
from trtnode.engines.precision.accuracy_budget import adapted
from trtnode.engines.precision.metrics import named_metrics
from trtnode.engines.precision.options import FEWEST_SAMPLES, Calibration
from trtnode.engines.precision.rewriting import check_available
from trtnode.engines.precision.rules import CALIBRATED, QUANTIZED, check_rules, join_precisions
from trtnode.engines.quantization.qdq_writer import is_quantized
from trtnode.engines.quantization.schemes import SCHEMES
from trtnode.engines.quantization.table import CalibrationTable
from trtnode.engines.tuning import accuracy_jobs
from trtnode.engines.tuning.compilation_record import CompilationRecord, PrecisionPlan, conditions, with_latest
from trtnode.engines.tuning.measurements import TIMEOUT_S
from trtnode.engines.tuning.precision_search import AcceptedPlan, Embed, PrecisionSearch, effective_precision
from trtnode.partitioner.cut.partition import Partition
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.loading import read_proto

logger = logging.getLogger(__name__)

CALIBRATION_TIMEOUT_S = 3600.0

REWRITTEN = "the rewritten model, run natively"
"""Stands in for engines that can't run here."""


def check_engine(engine: str, options: CompileOptions) -> None:
    """Refuse a precision that an engine doesn't have.

    Raises:
        PrecisionError: Native execution, or the backend, doesn't have it.
    """
    wanted = {options.precision, *(rule.precision for rule in options.precision_rules)} - {"auto", "fp32"}
    if not wanted:
        return None  # every engine has float32, and to ask a library takes long
    if engine != NATIVE:
        return check_available(get_backend(engine), sorted(wanted), options.build)
    raise PrecisionError(
        f"Native execution computes in the model's own types, not in {', '.join(sorted(wanted))}. "
        "Leave the precision out, or ask for another engine."
    )


class PrecisionStage:
    """The precisions of one compilation.

    Attributes:
        figures: Outcome of the search, for the report; None where only float32 is asked for.
    """

    def __init__(self, context: CompileContext, builder: EngineBuilder, record: CompilationRecord) -> None:
        self.figures: Mapping[str, Any] | None = None
        self._context = context
        self._record = record
        self._options = context.options
        self._builder = builder
        self._table: CalibrationTable | None = None
        self._plan: Mapping[str, str] = {}
        self._moved_back: tuple[str, ...] = ()
        self._recalled = False
        self._quantized = False
        self._conditions = ""

    @property
    def is_float32(self) -> bool:
        """True if only float32 is asked for."""
        return self._options.is_float32

    def prepare(self, graph: Graph) -> None:
        """Check the options against the model before anything is built, and calibrate where that is needed.

        Args:
            graph: The cleaned model.

        Raises:
            UnknownOptionError: A rule names an operator that there isn't.
            PrecisionError: INT8 is asked for without samples or ranges.
            MetricError: There is no such metric.
            EngineError: Samples or ranges can't be used.
        """
        if self.is_float32:
            return
        if not self._context.source.runs_natively:
            logger.warning("Engines compute in fp32: without native execution no other precision can be evaluated")
            self._options = dataclasses.replace(self._options, precision="fp32", precision_rules=())
            return
        check_rules(graph, self._options.precision_rules)
        budget = adapted(self._options.budget, graph if self._options.calibration.sampled is not None else None)
        self._options = dataclasses.replace(self._options, budget=budget)
        self._warn_of_processor()
        if self._own_metric is not None:
            self._context.worker.call(accuracy_jobs.check_metric, TIMEOUT_S, self._own_metric)
        self._quantized = is_quantized(read_proto(self._context.source.path))
        if self._quantized:
            logger.warning("%s is quantized already, so it keeps its own scales", self._context.source.origin)
        elif not self._recall():
            self._table = self._find_table()

    def rebuild(self, exact: BuiltPartition, embed: Embed) -> BuiltPartition:
        """Replace checked float32 engines by engines of the precision asked for.

        Args:
            exact: The model with its float32 engines.
            embed: Makes the model whose accuracy is measured.

        Raises:
            EngineError: Samples for the evaluation can't be read, or the user's own metric failed.
        """
        if not exact.partition.segments:
            return exact
        search = self._search(exact.partition, embed)
        accepted = self._as_before(exact, search) or search.find(exact)
        self._plan, self._moved_back = accepted.plan, accepted.moved_back
        if not self._recalled:
            self.figures = self._report(accepted, search.tried)
        return accepted.built

    def added_to(self, record: CompilationRecord) -> CompilationRecord:
        """Return a record with the plan and its figures, if they are new."""
        if not self._conditions or self.figures is None or self._recalled:
            return record
        plan = PrecisionPlan(plan=dict(self._plan), figures=self.figures, table=self._table)
        return dataclasses.replace(record, plans=with_latest(record.plans, self._conditions, plan))

    @property
    def _asked(self) -> set[str]:
        """The precisions that the user names."""
        return {self._options.precision, *(rule.precision for rule in self._options.precision_rules)}

    @property
    def _own_metric(self) -> str | None:
        """The user's own function, if there is any."""
        metric = self._options.budget.metric
        return None if named_metrics(metric) else metric

    def _warn_of_processor(self) -> None:
        if self._context.engine not in SCHEMES or not SCHEMES[self._context.engine].on_processor:
            return
        effective = self._context.backend.precision_support(self._options.build).effective
        for precision in sorted(self._asked):
            for sentence in precision_warnings(precision, effective.get(precision, precision), usable_flags()):
                logger.warning("%s", sentence)

    def _search(self, partition: Partition, embed: Embed) -> PrecisionSearch:
        context = self._context
        evaluation = accuracy_jobs.EvaluationData(
            source=context.source.path,
            inputs=context.sampled_inputs(partition.graph),
            data=self._options.calibration.sampled,
            given=context.options.check_inputs,
        )
        return PrecisionSearch(
            context, self._options, self._builder, evaluation=evaluation, embed=embed, table=self._table
        )

    def _as_before(self, exact: BuiltPartition, search: PrecisionSearch) -> AcceptedPlan | None:
        """Apply the plan of an earlier compilation, or of an earlier cut in this one; None where none fits."""
        names = {node.name for segment in exact.partition.segments for node in segment.nodes}
        if self._quantized and self._options.precision in {*QUANTIZED, "auto"}:
            plan: Mapping[str, str] = dict.fromkeys(names, "int8")
        elif names <= self._plan.keys():
            plan = self._plan
        else:
            self._recalled = False
            return None
        built = search.apply(exact, plan)
        if built is None:
            self._recalled = False
            return None
        accepted = AcceptedPlan(
            precision=self._options.precision, plan=plan, built=built, figures=None, moved_back=self._moved_back
        )
        if self._quantized or self._recalled or set(plan.values()) == {"fp32"}:
            return accepted
        figures, met = search.evaluate(built, self._options.precision, self._moved_back)
        return dataclasses.replace(accepted, figures=figures) if met else None

    def _find_table(self) -> CalibrationTable | None:
        """Read ranges from a file, or learn them from samples; None where there are neither and nothing needs them.

        Raises:
            PrecisionError: They are needed, or there are too few samples.
        """
        calibration = self._options.calibration
        if calibration.table is not None:
            table = CalibrationTable.load(calibration.table, model=self._context.source.origin)
            self._check_samples(calibration.table, table.samples)
            return table
        if calibration.sampled is not None:
            path = self._context.folder / "ranges.json"
            read = self._context.worker.call(
                accuracy_jobs.calibrate_to, CALIBRATION_TIMEOUT_S, self._context.source.path, calibration, path
            )
            self._check_samples(calibration.sampled, read)
            return CalibrationTable.load(path, model=None)
        if needy := sorted(CALIBRATED & self._asked):
            raise PrecisionError(
                f"{needy[0]} needs calibration: give samples of the model's inputs (.npz, a folder, or "
                "module:function), or the ranges.json that `trtnode calibrate` wrote."
            )
        return None

    def _check_samples(self, source: object, samples: int) -> None:
        """Refuse to quantize by ranges from too few samples.

        Raises:
            PrecisionError: There are too few, and the user doesn't allow it.
        """
        quantizing = sorted(self._asked & {*CALIBRATED, "auto"})
        if quantizing and samples < FEWEST_SAMPLES and not self._options.calibration.allow_few_samples:
            precision = "int8" if quantizing[0] == "auto" else quantizing[0]
            raise PrecisionError(
                f"{source}: {precision} needs at least {FEWEST_SAMPLES} samples, and there are {samples}: its accuracy "
                "would be measured on what its ranges came from. Give more, or accept that with --allow-few-samples "
                "(calibration.allow_few_samples)."
            )

    def _report(self, accepted: AcceptedPlan, tried: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        budget = {name: limit for name, limit in dataclasses.asdict(self._options.budget).items() if limit is not None}
        table = self._table
        engines = accepted.built.engines.values()
        return {
            "asked": self._options.precision,
            "effective": effective_precision(engines),
            "rules": [str(rule) for rule in self._options.precision_rules],
            "budget": budget,
            "figures": None if accepted.figures is None else accepted.figures.as_json(),
            "moved_back": list(accepted.moved_back),
            "moved_back_to": join_precisions(accepted.plan[name] for name in accepted.moved_back),
            "without_kernel": [name for engine in engines for name in self._builder.without_kernel(engine)],
            "quantized_already": self._quantized,
            **({"evaluated_on": REWRITTEN} if self._context.unchecked else {}),
            "segments": [
                {
                    "name": segment.name,
                    "effective": effective_precision([accepted.built.engines[segment.name]]),
                    "nodes_asked": dict(collections.Counter(accepted.plan[node.name] for node in segment.nodes)),
                }
                for segment in accepted.built.partition.segments
            ],
            "tried": list(tried),
            "calibration": table
            and {"method": table.method, "samples": table.samples, "data_sha256": table.data_sha256},
        }

    def _recall(self) -> bool:
        """Take over the plan of an earlier compilation of the same model on this machine."""
        data = _fingerprint(self._options.calibration)
        if self._context.cache is None or data is None or self._own_metric is not None:
            return False  # a function may have changed without a trace
        self._conditions = conditions(self._context, data=data, weights=sha256_of_model(self._context.source.path))
        known = None if self._options.measure_again else self._record.plans.get(self._conditions)
        if known is None:
            return False
        self._table, self.figures, self._plan, self._recalled = known.table, known.figures, known.plan, True
        return True


def _fingerprint(calibration: Calibration) -> str | None:
    """Return the hashes of all files that ranges and samples come from; None where a function makes them."""
    files = [calibration.table] if calibration.table is not None else []
    try:
        if calibration.sampled is not None:
            path = pathlib.Path(calibration.sampled)
            if not path.exists():
                return None
            files += sorted(path.iterdir()) if path.is_dir() else [path]
        return json.dumps([(file.name, sha256_of_file(file)) for file in files if file.is_file()])
    except OSError:
        return None  # the reader of the file reports the error
