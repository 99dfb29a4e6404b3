"""A worker that tells times in place of measuring, and a graph of three engines for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stand_in_workers import AnyWorker
from trtnode.engines.artifact.compiled_model import CompiledModel
from trtnode.engines.errors import WorkerError
from trtnode.engines.tuning.timing import Timed

GRAPH = """g (float[2,8] x) => (float[2,8] y) {
    a = Relu(x) b = Neg(a) c = Erf(b) d = Abs(c) e = Sqrt(d) f = Erf(e) h = Tanh(f) y = Neg(h)
}"""
FEEDS = {"x": np.linspace(-2, 2, 16, dtype=np.float32).reshape(2, 8)}

Tune = Callable[..., CompiledModel]
"""Compiles with a worker, and changes of the options."""


class Clock:
    """A worker that gives times in place of measuring.

    Attributes:
        engines: Time of each segment's engine in ms, by name; natively, each takes 1 ms.
        model: Time of the model in ms with engines for these segments.
        asked: The candidates of each measurement.
        fails_after: Number of measurements after which the process crashes; None for never.
        busy: True if other programs had most of the processor.
        sharing: True for each measurement as beside other models.
    """

    def __init__(
        self,
        inner: AnyWorker,
        engines: Mapping[str, float],
        model: Callable[[frozenset[str]], float],
        fails: bool = False,
    ) -> None:
        self.inner = inner
        self.engines = engines
        self.model = model
        self.fails = fails
        self.fails_after: int | None = None
        self.busy = False
        self.asked: list[dict[str, tuple[str, ...]]] = []
        self.sharing: list[bool] = []

    def call(self, function: Callable[..., Any], timeout_s: float, /, *args: Any, **kwargs: Any) -> Any:
        if function.__name__ == "measure_native":
            return 1.0
        if function.__name__ == "measure_segments":
            return {name: {"engine": [ms] * 3, "native": [1.0] * 3} for name, ms in self.engines.items()}
        if function.__name__ == "measure_candidates":
            if self.fails or len(self.asked) == self.fails_after:
                raise WorkerError("The process that ran measure_candidates crashed (exit code -11).")
            self.asked.append({name: tuple(segments) for name, segments in args[1].items()})
            self.sharing.append(args[0].run.shares_cores)
            turns = {name: [self.model(frozenset(segments))] * 3 for name, segments in args[1].items()}
            return Timed(turns=turns, disturbed=self.busy)
        return self.inner.call(function, timeout_s, *args, **kwargs)

    def close(self) -> None:
        pass


def table(times: Mapping[str, float]) -> Callable[[frozenset[str]], float]:
    """Times by the numbers of the segments, such as ``"02"``; all engines where they are not listed."""

    def model(segments: frozenset[str]) -> float:
        return times["".join(sorted(name.removeprefix("segment_") for name in segments))]

    return model


def fast_middle(inner: AnyWorker) -> Clock:
    engines = {"segment_0": 3.0, "segment_1": 0.25, "segment_2": 3.0}
    return Clock(inner, engines, table({"": 5.0, "1": 4.0, "012": 6.0}))
