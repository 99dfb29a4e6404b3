"""Measures one model: all settings take turns, each in process and over gRPC."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trtnode.bench.latency.agreement import Agreement, compare_answers
from trtnode.bench.latency.candidate_process import CandidateProcess, Recipe
from trtnode.bench.latency.interleaving import (
    Interleaving,
    Latencies,
    Turn,
    median_with_interval,
    ratio_with_interval,
    time_calls,
)
from trtnode.bench.latency.plan import Plan
from trtnode.bench.latency.recipes import compile_recipes, native_recipe, peer_recipes
from trtnode.bench.latency.subjects import LatencySubject, write_at_batch
from trtnode.bench.latency_report.results import NATIVE, LatencyResult, LatencyRow, LeftOut
from trtnode.bench.server_process import ServedFile, inference_call, running_server
from trtnode.engines.errors import EngineError
from trtnode.serving.cli.run import save_arrays

SETTLE_S = 0.02
"""Pause before a turn: ONNX Runtime's threads spin for some milliseconds after a run."""

Way = tuple[str, str]
"""A setting and its transport: process or grpc."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """Facts of a setting beside its latencies."""

    recipe: Recipe
    load_s: float
    peak_rss_mb: float
    agreement: Agreement


class Measurement:
    """The measurement of one model."""

    def __init__(self, subject: LatencySubject, plan: Plan, result: LatencyResult, step: Callable[[str], None]) -> None:
        """Prepare.

        Args:
            subject: The model.
            plan: The settings.
            result: Gets a row per setting and transport, and the systems that refuse the model.
            step: Called with the name of each step, ``plan.steps`` times.
        """
        self._subject = subject
        self._plan = plan
        self._result = result
        self._step = step
        self._facts: dict[str, _Facts] = {}

    def run(self) -> None:
        """Measure. The result keeps the rows of complete rounds even if an exception ends the measurement.

        Raises:
            PartitionError: The model can't be read.
            EngineError: It can't be compiled, loaded or run.
        """
        with tempfile.TemporaryDirectory(prefix="trtnode-bench-") as name:
            folder = pathlib.Path(name)
            recipes = self._prepare(folder)
            with contextlib.ExitStack() as running:
                candidates = self._start(recipes, peer_recipes(recipes[0].model, self._plan), running)
                turns: dict[Way, Turn] = {}
                if "process" in self._plan.via:
                    turns |= self._turns_in_process(candidates)
                if "grpc" in self._plan.via:
                    turns |= self._turns_over_grpc(recipes, folder, running)
                self._interleave(turns)

    def _prepare(self, folder: pathlib.Path) -> list[Recipe]:
        source, samples, calibration = (folder / name for name in ("model.onnx", "samples.npz", "calibration.npz"))
        write_at_batch(self._subject, source)
        save_arrays(samples, self._subject.checking)
        save_arrays(calibration, self._subject.stacked_calibration())
        compiled = compile_recipes(
            source, samples, calibration, self._plan, lambda name: self._tell(f"compiling for {name}")
        )
        return [native_recipe(source, self._plan), *compiled]

    def _start(
        self, recipes: Sequence[Recipe], peers: Sequence[Recipe], running: contextlib.ExitStack
    ) -> list[CandidateProcess]:
        """Start a process per recipe and compare its answers, the native one first; peers may refuse the model."""
        candidates: list[CandidateProcess] = []
        native: list[list[Any]] = []
        for recipe in (*recipes, *peers):
            self._tell(f"loading {recipe.setting}")
            try:
                candidate = running.enter_context(CandidateProcess(recipe))
                answers = candidate.answer(self._subject.samples)
            except EngineError as error:
                if recipe in recipes:
                    raise
                reason = str(error)
                self._result.left_out.append(LeftOut(network=self._subject.name, setting=recipe.setting, reason=reason))
                continue
            native = native or answers
            candidates.append(candidate)
            self._facts[recipe.setting] = _Facts(
                recipe=recipe,
                load_s=candidate.load_s,
                peak_rss_mb=candidate.peak_rss_mb(),
                agreement=compare_answers(native, answers),
            )
        return candidates

    def _turns_in_process(self, candidates: Sequence[CandidateProcess]) -> dict[Way, Turn]:
        feeds = self._subject.samples[0]
        return {(c.recipe.setting, "process"): functools.partial(c.take_turn, feeds) for c in candidates}

    def _turns_over_grpc(
        self, recipes: Sequence[Recipe], folder: pathlib.Path, running: contextlib.ExitStack
    ) -> dict[Way, Turn]:
        served = {r.setting: ServedFile(file=r.model, engine=NATIVE if r.engine == NATIVE else "auto") for r in recipes}
        channel = running.enter_context(running_server(served, folder, self._plan.threads))
        calls = {name: inference_call(channel, name, self._subject.samples[0]) for name in served}
        return {(name, "grpc"): functools.partial(time_calls, call) for name, call in calls.items()}

    def _interleave(self, turns: Mapping[Way, Turn]) -> None:
        interleaving = Interleaving(turns, settle_s=SETTLE_S)
        try:
            interleaving.run(self._plan.rounds, after_round=lambda: self._tell("measuring"))
        finally:
            latencies = interleaving.latencies()
            self._result.rows.extend(self._row(way, latencies) for way in latencies)

    def _row(self, way: Way, latencies: Mapping[Way, Latencies]) -> LatencyRow:
        setting, via = way
        facts, times = self._facts[setting], latencies[way]
        ratio, low, high = ratio_with_interval(latencies[NATIVE, via], times)
        row = LatencyRow(
            network=self._subject.name,
            setting=setting,
            engine=facts.recipe.engine,
            via=via,
            batch=self._subject.batch,
            threads=self._plan.threads,
            p50_ms=times.percentile_ms(50),
            p95_ms=times.percentile_ms(95),
            p99_ms=times.percentile_ms(99),
            mean10_ms=times.mean10_ms,
            ratio=ratio,
            ratio_low=low,
            ratio_high=high,
            cosine=facts.agreement.cosine,
            max_abs=facts.agreement.max_abs,
            top1_agreement=facts.agreement.top1_agreement,
            load_s=facts.load_s,
            engine_bytes=facts.recipe.engine_bytes,
            peak_rss_mb=facts.peak_rss_mb,
            precision=facts.recipe.precision,
            compile_s=facts.recipe.compile_s,
            about=facts.recipe.about,
        )
        if via == "process" or (setting, "process") not in latencies:
            return row
        mine, natives = (latencies[name, "grpc"].over(latencies[name, "process"]) for name in (setting, NATIVE))
        return dataclasses.replace(
            row,
            over_process_ms=float(np.median(mine)),
            over_native_ms=None if setting == NATIVE else median_with_interval(mine - natives),
        )

    def _tell(self, what: str) -> None:
        self._step(f"{self._subject.name}, batch {self._subject.batch}: {what}")
