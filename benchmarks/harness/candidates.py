"""One way to run a model, in a process of its own, so that nobody's idle threads or memory count for another."""

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

from benchmarks.harness.openers import Opener, Run
from benchmarks.latency import time_calls
from engines.samples import Feeds
from engines.worker import Worker

TIMEOUT_S = 1800.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to run a model.

    Attributes:
        setting: Name in the results.
        engine: What computes.
        open: Loads the model.
        model: The file.
        threads: Threads of each engine; None leaves it to the libraries.
        engine_bytes: Size of the engines in the file.
        precision: What the engines compute in.
        compile_s: Time that compiling it took, tuning included.
    """

    setting: str
    engine: str
    open: Opener
    model: pathlib.Path
    threads: int | None
    engine_bytes: int = 0
    precision: str = "fp32"
    compile_s: float | None = None


class Candidate:
    """A recipe, loaded in a child process.

    Attributes:
        recipe: What is loaded.
        load_s: Time that loading took, without starting the process.
    """

    def __init__(self, recipe: Recipe) -> None:
        """Start the process and load.

        Raises:
            EngineError: The model can't be loaded this way.
        """
        self.recipe = recipe
        with contextlib.ExitStack() as undo:
            self._worker = undo.enter_context(Worker())
            self.load_s = self._worker.call(_load, TIMEOUT_S, recipe)
            undo.pop_all()

    def __enter__(self) -> Candidate:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker.close()

    def answer(self, samples: Sequence[Feeds]) -> list[list[Any]]:
        """The outputs for each sample, in the model's order.

        Raises:
            EngineError: It doesn't run on one of them.
        """
        return self._worker.call(_answer, TIMEOUT_S, self.recipe, samples)

    def take_turn(self, feeds: Feeds, fewest: int, seconds: float) -> np.ndarray:
        """Answer the same request at least so many times, for so many seconds; give what each took in ms."""
        return self._worker.call(_take_turn, TIMEOUT_S, self.recipe, feeds, fewest, seconds)

    def peak_rss_mb(self) -> float:
        """The most memory that the process has had so far, with the interpreter and all libraries."""
        return self._worker.call(_peak_rss_mb, TIMEOUT_S)


@functools.cache
def _opened(recipe: Recipe) -> Run:
    """The one model of a child process."""
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
