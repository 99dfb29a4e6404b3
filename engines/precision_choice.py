"""The precision stage of a compilation: refuses wishes that can't be met, and remembers what the search found."""

from __future__ import annotations

import collections
import dataclasses
import json
import logging
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from engines import accuracy
from engines.bodies import Settled
from engines.building import EngineBuilder, builder_version
from engines.cache import EngineCache, engine_key
from engines.calibration_table import CalibrationTable
from engines.compiled_model import CompiledModel
from engines.envelope import Envelope, current_platform
from engines.errors import EngineError, PrecisionError
from engines.files import sha256_of_file
from engines.onnxruntime_backend import native_version
from engines.options import CompileOptions
from engines.precision import check_available
from engines.precision_rules import check_rules
from engines.precision_search import TIMEOUT_S, Held, PrecisionSearch
from engines.quantization import is_quantized
from engines.registry import NATIVE, get_backend
from engines.worker import Worker
from partitioner import Graph, Partition, TensorSpec
from partitioner.loading import read_proto

logger = logging.getLogger(__name__)

RANGES_SUFFIX = ".json"
"""Of a calibration table, where samples are .npz or .npy files."""


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
        self._cache = cache
        self._worker = worker
        self._folder = folder
        self._table: CalibrationTable | None = None
        self._plan: Mapping[str, str] = {}
        self._recalled = False
        self._quantized = False
        self._key = ""

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
        if self._wishes.is_float32:
            return
        if not natively:
            logger.warning("Engines compute in fp32: without native execution no other precision can be judged")
            self._wishes = dataclasses.replace(self._wishes, asked="fp32", rules=())
            return
        check_rules(graph, self._wishes.rules)
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
        if self._wishes.is_float32 or not exact.partition.segments:
            return exact
        search = self._search(exact.partition, embed)
        held = self._as_before(exact, search) or search.find(exact)
        self._plan = held.plan
        if not self._recalled:
            self.figures = self._report(held, search.tried)
        return held.settled

    def remember(self) -> None:
        """Keep the outcome for the next compilation."""
        if self._cache is not None and self._key and self.figures is not None and not self._recalled:
            table = None if self._table is None else dataclasses.asdict(self._table)
            self._cache.put_record(
                self._key, {"plan": dict(self._plan), "precision": self.figures, "table": table and json.dumps(table)}
            )

    def _search(self, partition: Partition, embed: Callable[[Settled], CompiledModel]) -> PrecisionSearch:
        raise NotImplementedError
