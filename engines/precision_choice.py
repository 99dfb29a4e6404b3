"""The precision stage of a compilation: refuses wishes that can't be met, and remembers what the search found."""

from __future__ import annotations

import collections
import dataclasses
import json
import logging
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engines import accuracy
from engines.bodies import Settled
from engines.building import EngineBuilder, builder_version
from engines.cache import EngineCache, engine_key
from engines.calibration_table import CalibrationTable
from engines.carried import report_carried
from engines.compiled_model import CompiledModel
from engines.envelope import current_platform
from engines.errors import EngineError, PrecisionError
from engines.files import sha256_of_file, sha256_of_model
from engines.onnxruntime_backend import native_version
from engines.options import Calibration, CompileOptions
from engines.plan import specs
from engines.precision import check_available
from engines.precision_rules import EXACTNESS, check_rules
from engines.precision_search import TIMEOUT_S, Held, PrecisionSearch, effective_precision
from engines.processor import precision_warnings, processor_flags
from engines.profiles import sampled
from engines.quantization import is_quantized
from engines.quantization_plan import SCHEMES
from engines.registry import NATIVE, get_backend
from engines.worker import Worker
from partitioner import Graph, Partition
from partitioner.loading import read_proto

logger = logging.getLogger(__name__)

CALIBRATION_TIMEOUT_S = 3600.0


def check_engine(engine: str, options: CompileOptions) -> None:
    """Refuse a precision where nothing can give it.

    Raises:
        PrecisionError: Native execution, or the backend, doesn't have it.
    """
    wishes = options.precision
    wanted = {wishes.asked, *(rule.precision for rule in wishes.rules)} - {"auto"}
    if engine != NATIVE:
        check_available(get_backend(engine), sorted(wanted))
    elif wanted - {"fp32"}:
        raise PrecisionError(
            f"Native execution computes in the model's own types, not in {', '.join(sorted(wanted - {'fp32'}))}. "
            "Leave the precision out, or ask for another engine."
        )


class PrecisionChoice:
    """Chooses the precisions of one compilation.

    Attributes:
        figures: What was found, for the report; None where only float32 is asked for.
    """

    def __init__(
        self,
        source: pathlib.Path,
        options: CompileOptions,
        *,
        origin: pathlib.Path,
        engine: str,
        builder: EngineBuilder,
        cache: EngineCache | None,
        worker: Worker,
        folder: pathlib.Path,
    ) -> None:
        """Prepare.

        Args:
            source: The model.
            options: How to compile it.
            origin: What the user calls the model, where the source is rewritten from it.
            engine: Name of the backend.
            builder: Builds the engines.
            cache: Where outcomes are kept.
            worker: Where models run.
            folder: For files.
        """
        self.figures: Mapping[str, Any] | None = None
        self._source = source
        self._origin = origin
        self._options = options
        self._wishes = options.precision
        self._engine = engine
        self._builder = builder
        self._cache = cache
        self._worker = worker
        self._folder = folder
        self._table: CalibrationTable | None = None
        self._plan: Mapping[str, str] = {}
        self._moved_back: tuple[str, ...] = ()
        self._recalled = False
        self._quantized = False
        self._key = ""

    @property
    def is_float32(self) -> bool:
        """Whether there is nothing to choose."""
        return self._wishes.is_float32

    def prepare(self, graph: Graph, *, natively: bool) -> None:
        """Check the wishes against the model before anything is built, and calibrate where that is needed.

        Args:
            graph: The cleaned model.
            natively: Whether ONNX Runtime runs the model.

        Raises:
            UnknownOptionError: A rule names an operator that there isn't.
            PrecisionError: INT8 is asked for without samples or ranges.
            MetricError: There is no such measure.
            EngineError: Samples or ranges can't be used.
        """
        if self.is_float32:
            return
        if not natively:
            logger.warning("Engines compute in fp32: without native execution no other precision can be judged")
            self._wishes = dataclasses.replace(self._wishes, asked="fp32", rules=())
            return
        check_rules(graph, self._wishes.rules)
        if self._wishes.calibration.data is not None:
            budget = self._wishes.budget.adapted_to(graph)
            self._wishes = dataclasses.replace(self._wishes, budget=budget)
        self._warn_of_processor()
        if self._wishes.budget.metric is not None:
            self._worker.call(accuracy.check_metric, TIMEOUT_S, self._wishes.budget.metric)
        self._quantized = is_quantized(read_proto(self._source))
        if self._quantized:
            logger.warning("%s is quantized already, so it keeps its own scales", self._origin)
        elif not self._recall():
            self._table = self._find_table()

    def settle(self, exact: Settled, embed: Callable[[Settled], CompiledModel]) -> Settled:
        """Replace float32 engines that stood their check by those of the precision asked for.

        Args:
            exact: The model with its float32 engines.
            embed: Writes a model with its engines.

        Raises:
            EngineError: Samples to judge with can't be read, or the user's own measure failed.
        """
        if not exact.partition.segments:
            return exact
        search = self._search(exact.partition, embed)
        held = self._as_before(exact, search) or search.find(exact)
        self._plan, self._moved_back = held.plan, held.moved_back
        if not self._recalled:
            self.figures = self._report(held, search.tried)
        return held.settled

    def remember(self) -> None:
        """Keep the outcome for the next compilation."""
        if self._cache is None or not self._key or self.figures is None or self._recalled:
            return
        text = None
        if self._table is not None:
            path = self._folder / "ranges.json"
            self._table.save(path)
            text = path.read_text(encoding="utf-8")
        self._cache.put_record(self._key, {"plan": dict(self._plan), "precision": self.figures, "table": text})

    def _warn_of_processor(self) -> None:
        if self._engine not in SCHEMES or not SCHEMES[self._engine].on_processor:
            return
        for precision in sorted({self._wishes.asked, *(rule.precision for rule in self._wishes.rules)}):
            for sentence in precision_warnings(precision, processor_flags()):
                logger.warning("%s", sentence)

    def _search(self, partition: Partition, embed: Callable[[Settled], CompiledModel]) -> PrecisionSearch:
        inputs = sampled(specs(partition.graph.inputs), self._options.shapes)
        data, given = self._wishes.calibration.data, self._options.samples
        return PrecisionSearch(
            self._wishes,
            backend=get_backend(self._engine),
            builder=self._builder,
            worker=self._worker,
            judged=accuracy.Judged(source=self._source, inputs=inputs, data=data, given=given),
            folder=self._folder,
            embed=embed,
            table=self._table,
        )

    def _as_before(self, exact: Settled, search: PrecisionSearch) -> Held | None:
        """The plan of an earlier compilation, or of an earlier cut in this one; None where there is none that fits."""
        names = {node.name for segment in exact.partition.segments for node in segment.nodes}
        if self._quantized and self._wishes.asked in ("int8", "auto"):
            plan: Mapping[str, str] = dict.fromkeys(names, "int8")
        elif names <= self._plan.keys():
            plan = self._plan
        else:
            self._recalled = False
            return None
        settled = search.apply(exact, plan)
        if settled is None:
            self._recalled = False
            return None
        held = Held(precision=self._wishes.asked, plan=plan, settled=settled, figures=None, moved_back=self._moved_back)
        if self._quantized or self._recalled or set(plan.values()) == {"fp32"}:
            return held
        figures, holds = search.judge(settled, self._wishes.asked, self._moved_back)
        return dataclasses.replace(held, figures=figures) if holds else None

    def _find_table(self) -> CalibrationTable | None:
        """Ranges from a file, or from samples; None where there are neither and nothing needs them.

        Raises:
            PrecisionError: They are needed.
        """
        calibration = self._wishes.calibration
        if calibration.ranges is not None:
            return CalibrationTable.load(calibration.ranges, model=self._origin)
        if calibration.data is not None:
            path = self._folder / "ranges.json"
            self._worker.call(accuracy.calibrate_to, CALIBRATION_TIMEOUT_S, self._source, calibration, path)
            return CalibrationTable.load(path, model=None)
        if "int8" in (self._wishes.asked, *(rule.precision for rule in self._wishes.rules)):
            raise PrecisionError(
                "int8 needs calibration: give samples of the model's inputs (.npz, a folder, or module:function), or "
                "the ranges.json that `trtnode calibrate` wrote."
            )
        return None

    def _report(self, held: Held, tried: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        budget = {name: limit for name, limit in dataclasses.asdict(self._wishes.budget).items() if limit is not None}
        table = self._table
        return {
            "asked": self._wishes.asked,
            "effective": effective_precision(held.settled.all_engines()),
            "rules": [str(rule) for rule in self._wishes.rules],
            "budget": budget,
            "figures": None if held.figures is None else held.figures.as_json(),
            "moved_back": list(held.moved_back),
            "quantized_already": self._quantized,
            "carried_in_fp16": list(report_carried(held.settled)),
            "segments": [
                {
                    "name": segment.name,
                    "effective": effective_precision([held.settled.engines[segment.name]]),
                    "nodes_asked": dict(collections.Counter(held.plan[node.name] for node in segment.nodes)),
                }
                for segment in held.settled.partition.segments
            ],
            "tried": list(tried),
            "calibration": table
            and {"method": table.method, "samples": table.samples, "data_sha256": table.data_sha256},
        }

    def _recall(self) -> bool:
        """Take over what an earlier compilation of the same model on this machine has found."""
        data = _fingerprint(self._wishes.calibration)
        if self._cache is None or data is None or self._wishes.budget.metric is not None:
            return False  # nobody knows whether a function is still what it was
        backend, samples = get_backend(self._engine), self._options.samples
        options = dataclasses.replace(self._options, precision=self._wishes)
        self._key = engine_key(
            purpose="precision",
            source=sha256_of_model(self._source),
            options=json.dumps(dataclasses.asdict(options), sort_keys=True, default=str),
            data=data,
            samples=sha256_of_file(samples) if samples else "",
            backend=f"{backend.name} {backend.version()}",
            native=f"onnxruntime {native_version()}",
            platform=current_platform(),
            builder=builder_version(),
            device=f"{backend.device().features} {backend.device().name} {os.cpu_count()}",
        )
        record = self._cache.get_record(self._key)
        if record is None:
            return False
        try:
            plan = {str(name): str(precision) for name, precision in record["plan"].items()}
            if not EXACTNESS.keys() >= set(plan.values()):
                raise ValueError("it has an unknown precision")
            if record["table"] is not None:
                path = self._folder / "ranges.json"
                path.write_text(record["table"], encoding="utf-8")
                self._table = CalibrationTable.load(path, model=None)
            self.figures = {**record["precision"]}
        except (EngineError, ValueError, KeyError, TypeError, AttributeError) as error:
            logger.warning("Ignoring a damaged record of a precision search: %s", error)
            return False
        self._plan, self._recalled = plan, True
        return True


def _fingerprint(calibration: Calibration) -> str | None:
    """Hash of all files that ranges and samples come from; None where a function makes them."""
    files = [calibration.ranges] if calibration.ranges is not None else []
    try:
        if calibration.data is not None:
            path = pathlib.Path(calibration.data)
            if not path.exists():
                return None
            files += sorted(path.iterdir()) if path.is_dir() else [path]
        return json.dumps([(file.name, sha256_of_file(file)) for file in files if file.is_file()])
    except OSError:
        return None  # whoever reads it says what is wrong
