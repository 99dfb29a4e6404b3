"""Chooses batch size and delay so that answers stay within a latency target, from measured execution times."""

from __future__ import annotations

import numpy as np

from trtnode.serving.batching.policy import BatchLimits

FORGETTING = 1 / 512
"""The rate at which the high-water mark of a batch size sinks towards what is measured now."""


class LatencyController:
    """Keeps the longest wait that batching itself causes below a target.

    At worst a request arrives just after a batch has begun: it waits for that one to end, then for the delay, then for
    its own. With ``t(b)`` for the time of a batch of ``b`` rows, that is ``2 t(b) + delay``. So the largest ``b`` is
    chosen up to which ``2 t(b) <= target``, at least 1, and what is left of the target, at most the configured delay,
    is the delay. A load beyond what the model can do makes queues that no choice of these two shortens; that is what
    ``timeout_ms`` and ``max_queue_size`` are for.

    ``t(b)`` is a high-water mark: it jumps to each longer time at once and sinks slowly, so that it stands for slow
    executions and not for the mean. An execution also lets the marks of larger batches sink, towards their share of its
    time: otherwise a size that was slow once would never be tried again. Between measured sizes time is taken to grow
    evenly, and beyond the largest one in proportion.
    """

    def __init__(self, target_ns: int, configured: BatchLimits) -> None:
        self._target_ns = target_ns
        self._configured = configured
        self._marks_ns: dict[int, float] = {}

    def observe(self, rows: int, took_ns: int) -> BatchLimits:
        """Take an execution into account; return the limits for the next one.

        Args:
            rows: Its size, at least 1.
            took_ns: How long it took, in nanoseconds.
        """
        for size, mark in self._marks_ns.items():
            share = took_ns * size / rows
            if size >= rows and share < mark:
                self._marks_ns[size] = mark - (mark - share) * FORGETTING
        self._marks_ns[rows] = max(took_ns, self._marks_ns.get(rows, 0.0))
        return self._limits()

    def _limits(self) -> BatchLimits:
        worst_ns = 2 * self._times_ns()
        rows = max(1, int(np.count_nonzero(np.cumprod(worst_ns <= self._target_ns))))
        spare_ns = max(0, self._target_ns - int(worst_ns[rows - 1]))
        return BatchLimits(
            max_rows=rows,
            max_delay_ns=min(self._configured.max_delay_ns, spare_ns),
            preferred_rows=self._configured.preferred_rows,
        )

    def _times_ns(self) -> np.ndarray:
        """Return what batches of 1, 2, ... rows take: float64[max_rows]."""
        sizes = sorted(self._marks_ns)
        rows = np.arange(1, self._configured.max_rows + 1)
        measured = np.interp(rows, sizes, [self._marks_ns[size] for size in sizes])
        return measured * np.maximum(1, rows / sizes[-1])
