"""The metrics of a cluster: those of all replicas, distinguished by a label."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import prometheus_client
from prometheus_client.registry import Collector

from trtnode.serving.workers.merged_metrics import Families, merged

REPLICA = "replica"
"""The label that distinguishes replicas."""


def labelled(families: Iterable[prometheus_client.Metric], replica: str) -> Families:
    """Return families with the name of a replica on every sample."""
    found = []
    for family in families:
        copy = prometheus_client.Metric(family.name, family.documentation, family.type)
        for sample in family.samples:
            copy.add_sample(sample.name, {**sample.labels, REPLICA: replica}, sample.value)
        found.append(copy)
    return found


def registry_of(sources: Sequence[Families]) -> prometheus_client.CollectorRegistry:
    """Return a registry with the families of all replicas, each family once."""
    registry = prometheus_client.CollectorRegistry()
    registry.register(_Collected(merged(sources)))
    return registry


class _Collected(Collector):
    """Families as they were when they were collected."""

    def __init__(self, families: Families) -> None:
        self._families = families

    def collect(self) -> Iterator[prometheus_client.Metric]:
        """Yield each family."""
        yield from self._families
