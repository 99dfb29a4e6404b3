"""The metrics of a server out of those of its processes."""

from __future__ import annotations

import itertools
import operator
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

Families = Sequence[prometheus_client.Metric]

_Join = Callable[[float, float], float]

JOINS: Mapping[str, _Join] = {
    "trtnode_build_info": max,
    "trtnode_model_ready": min,
    "trtnode_model_building": max,
    "trtnode_model_outdated": max,
    "trtnode_model_info": max,
    "trtnode_model_loaded_timestamp_seconds": min,
    "trtnode_model_precision": max,
    "trtnode_engines_rejected": max,
    "trtnode_model_engines": max,
    "trtnode_model_reference_nodes": max,
    "trtnode_model_variant": max,
    "trtnode_variant_latency_seconds": max,
    "process_start_time_seconds": min,
    "process_max_fds": min,
}
"""The function that joins the values of processes, by the name of the family; others are added."""

RESTART_REASONS = ("died", "silent", "failed")


class MergedMetrics(Collector):
    """Sums over the processes of a server, as a Prometheus collector.

    What a process counted stays when it ends, as of the last time that it was asked: a sum that falls would look like
    a restart of the whole server, and Prometheus would count all of the remaining sum a second time.
    """

    def __init__(self, ask: Callable[[], Mapping[int, Families]], serving: Callable[[], int]) -> None:
        """Merge.

        Args:
            ask: Returns the families of the processes that answer, by process number.
            serving: Returns how many workers can answer now.
        """
        self._ask = ask
        self._serving = serving
        self._known: dict[int, Families] = {}
        self._ended: Families = ()
        self._restarts = dict.fromkeys(RESTART_REASONS, 0)
        self._lock = threading.Lock()
        self.registry = prometheus_client.CollectorRegistry()
        self.registry.register(self)

    def end(self, pid: int, reason: str) -> None:
        """Keep the counts of a worker process that ended and is replaced, for one of ``RESTART_REASONS``."""
        with self._lock:
            lasting = [family for family in self._known.pop(pid, ()) if family.type != "gauge"]
            self._ended = merged([self._ended, lasting])
            self._restarts[reason] += 1

    def collect(self) -> Iterator[prometheus_client.Metric]:
        """Yield every family."""
        with self._lock:  # no worker is taken for living that ends meanwhile
            self._known.update(self._ask())
            families = merged([*self._known.values(), self._ended])
            restarts = CounterMetricFamily("trtnode_worker_restarts", "Workers that were replaced, by reason.")
            for reason, count in self._restarts.items():
                restarts.add_sample("trtnode_worker_restarts_total", {"reason": reason}, count)
        yield from families
        yield GaugeMetricFamily("trtnode_workers", "Worker processes that can answer.", self._serving())
        yield restarts


def merged(sources: Iterable[Families]) -> Families:
    """Return each family once, with one value for each set of labels."""
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    families: dict[str, prometheus_client.Metric] = {}
    for family in itertools.chain.from_iterable(sources):
        families.setdefault(family.name, prometheus_client.Metric(family.name, family.documentation, family.type))
        join: _Join = JOINS.get(family.name, operator.add)
        known = values.setdefault(family.name, {})
        for sample in family.samples:
            key = sample.name, tuple(sample.labels.items())
            known[key] = join(known[key], sample.value) if key in known else sample.value
    for name, family in families.items():
        for (sample_name, labels), value in values[name].items():
            family.add_sample(sample_name, dict(labels), value)
    return list(families.values())
