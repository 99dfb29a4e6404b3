"""The counts of one server. What writes them down for Prometheus is imported when somebody first asks for them."""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter

from prometheus_client import CollectorRegistry

from trtnode.serving.telemetry.prometheus import registry_of
from trtnode.serving.telemetry.recent_requests import SLOT_NS, slot_at
from trtnode.serving.telemetry.request_stats import ModelCounts


class Metrics:
    """All counts of one server."""

    def __init__(self) -> None:
        self.unknown_model = ModelCounts()
        """Requests for models that aren't served; their names stay out of labels, which never go away."""
        self._models: list[ModelCounts] = [self.unknown_model]
        self._lock = threading.Lock()
        self._refusals: Counter[str] = Counter({"unauthenticated": 0, "forbidden": 0})
        self._closing = threading.Event()

    def start(self) -> None:
        """Begin to keep the last hour by slots, in a thread."""
        threading.Thread(target=self._follow, name="slots", daemon=True).start()

    def close(self) -> None:
        """Keep no more slots."""
        self._closing.set()

    def end_slot(self, number: int, cpu_ns: int) -> None:
        """Keep what each model version did in a slot. The process's time is shared out by that of their executions."""
        models = self._models
        ran = [counts.ran_in_slot_ns() for counts in models]
        whole = max(1, sum(ran))
        for counts, ran_ns in zip(models, ran, strict=True):
            counts.end_slot(number, cpu_ns * ran_ns // whole)

    def _follow(self) -> None:
        number, used_ns = slot_at(time.perf_counter_ns()), time.process_time_ns()
        while not self._closing.wait(((number + 1) * SLOT_NS - time.perf_counter_ns()) / 1e9):
            now_ns = time.process_time_ns()
            self.end_slot(number, now_ns - used_ns)
            number, used_ns = slot_at(time.perf_counter_ns()), now_ns

    @functools.cached_property
    def registry(self) -> CollectorRegistry:
        """The counts as families of metrics."""
        return registry_of(lambda: self._models, self._refusals)

    def add_model(self, model: str, version: str) -> ModelCounts:
        """Return the counts of a new model version."""
        counts = ModelCounts(model, version)
        self._models = [*self._models, counts]
        return counts

    def remove_model(self, model: str) -> None:
        """Forget the counts of all versions of a model."""
        self._models = [counts for counts in self._models if counts.labels["model"] != model]

    def add_refusal(self, reason: str) -> None:
        """Count a call that was refused for want of a right."""
        with self._lock:
            self._refusals[reason] += 1
