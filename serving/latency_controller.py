"""Chooses batch size and delay so that answers stay within a latency target, from measured execution times."""

from serving.batch_policy import BatchLimits

FORGETTING = 1 / 512
"""How fast the high-water mark of a batch size sinks towards what is measured now."""


class LatencyController:
    """Keeps the longest wait that batching itself causes below a target.

    At worst a request arrives just after a batch has begun: it waits for that one to end, then for the delay, then for
    its own. With ``t(b)`` for the time of a batch of ``b`` rows, that is ``2 t(b) + delay``. So the largest ``b`` with
    ``2 t(b) <= target`` is chosen, at least 1, and what is left of the target, at most the configured delay, is the
    delay. A load beyond what the model can do makes queues that no choice of these two shortens; that is what
    ``timeout_ms`` and ``max_queue_size`` are for.

    ``t(b)`` is a high-water mark: it jumps to each longer time at once and sinks slowly, so that it stands for slow
    executions and not for the mean. An execution also lets the marks of larger batches sink, towards their share of its
    time: otherwise a size that was slow once would never be tried again. A size that was not measured is taken to be as
    slow as the next larger one; beyond the largest one, in proportion to that.
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
        sizes = range(self._configured.max_rows, 1, -1)
        rows = next((size for size in sizes if 2 * self._time_ns(size) <= self._target_ns), 1)
        spare_ns = max(0, int(self._target_ns - 2 * self._time_ns(rows)))
        return BatchLimits(
            max_rows=rows,
            max_delay_ns=min(self._configured.max_delay_ns, spare_ns),
            preferred_rows=self._configured.preferred_rows,
        )

    def _time_ns(self, rows: int) -> float:
        larger = min((size for size in self._marks_ns if size >= rows), default=None)
        if larger is not None:
            return self._marks_ns[larger]
        largest = max(self._marks_ns)
        return self._marks_ns[largest] * rows / largest
