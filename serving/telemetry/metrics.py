"""The counts of one server. What writes them down for Prometheus is imported when somebody first asks for them."""

from __future__ import annotations

import functools
import threading
from collections import Counter

from prometheus_client import CollectorRegistry

from trtnode.serving.telemetry.prometheus import registry_of
from trtnode.serving.telemetry.request_stats import ModelCounts


class Metrics:
    """All counts of one server."""

    def __init__(self) -> None:
        self.unknown_model = ModelCounts()
        """Requests for models that aren't served; their names stay out of labels, which never go away."""
        self._models: list[ModelCounts] = [self.unknown_model]
        self._lock = threading.Lock()
        self._refusals: Counter[str] = Counter({"unauthenticated": 0, "forbidden": 0})

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
