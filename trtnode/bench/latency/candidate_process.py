"""Runs a model in its own process, so that candidates don't share threads or memory."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from trtnode.bench.latency.interleaving import time_calls
from trtnode.bench.latency.openers import Opener, RunModel
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.inputs.samples import Feeds

TIMEOUT_S = 1800.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A way to run a model.

    Attributes:
        setting: Name in the results.
        engine: The engine, or native.
        open: Loads the model.
        model: The file.
        threads: Threads of each engine; None for the libraries' choice.
        engine_bytes: Size of the engines in the file.
        precision: Precision of the engines.
        compile_s: Time of the compilation, measurements included.
        about: What ``trtnode compile`` says about the compiled model; empty if nothing is compiled.
    """

    setting: str
    engine: str
    open: Opener
    model: pathlib.Path
    threads: int | None
    engine_bytes: int = 0
    precision: str = "fp32"
    compile_s: float | None = None
    about: str = ""


class CandidateProcess:
    """A recipe, loaded in a child process.

    Attributes:
        recipe: The recipe.
        load_s: Time of loading, without the start of the process.
    """

    def __init__(self, recipe: Recipe) -> None:
        """Start the process and load.

        Raises:
            EngineError: The model can't be loaded this way.
        """
        self.recipe = recipe
        with contextlib.ExitStack() as undo:
            self._worker = undo.enter_context(SubprocessWorker())
            self.load_s = self._worker.call(_load, TIMEOUT_S, recipe)
            undo.pop_all()

    def __enter__(self) -> CandidateProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker.close()

    def answer(self, samples: Sequence[Feeds]) -> list[list[Any]]:
        """Return the outputs for each sample, in the model's order.

        Raises:
            EngineError: The model doesn't run on one of them.
        """
        return self._worker.call(_answer, TIMEOUT_S, self.recipe, samples)

    def take_turn(self, feeds: Feeds, fewest: int, seconds: float) -> np.ndarray:
        """Repeat a request, at least ``fewest`` times and for ``seconds``; return the latencies in ms."""
        return self._worker.call(_take_turn, TIMEOUT_S, self.recipe, feeds, fewest, seconds)

    def peak_rss_mb(self) -> float:
        """Return the peak memory of the process so far, with the interpreter and all libraries."""
        return self._worker.call(_peak_rss_mb, TIMEOUT_S)


@functools.cache
def _opened(recipe: Recipe) -> RunModel:
    """Return the one model of a child process."""
    return recipe.open(recipe.model, recipe.threads)


def _load(recipe: Recipe) -> float:
    start = time.perf_counter()
    _opened(recipe)
    return time.perf_counter() - start


def _answer(recipe: Recipe, samples: Sequence[Feeds]) -> list[list[Any]]:
    answers = (_opened(recipe)(feeds) for feeds in samples)
    return [list(answer.values() if isinstance(answer, Mapping) else answer) for answer in answers]


def _take_turn(recipe: Recipe, feeds: Feeds, fewest: int, seconds: float) -> np.ndarray:
    return time_calls(functools.partial(_opened(recipe), feeds), fewest, seconds)


def _peak_rss_mb() -> float:
    lines = pathlib.Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(kilobytes) / 1024
