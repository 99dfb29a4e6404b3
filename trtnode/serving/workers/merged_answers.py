"""One answer out of those that the workers give about themselves: to RPCs, and to the status page."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trtnode.protos import ModelStatistics, ModelStatisticsResponse, RepositoryIndexResponse
from trtnode.serving.pages.status_page import Facts


def combine_statistics(responses: Sequence[ModelStatisticsResponse]) -> ModelStatisticsResponse:
    """Return sums over the workers for each model version, and its latest inference."""
    totals: dict[tuple[str, str], ModelStatistics] = {}
    for part in (part for response in responses for part in response.model_stats):
        total = totals.setdefault((part.name, part.version), ModelStatistics(name=part.name, version=part.version))
        total.last_inference = max(total.last_inference, part.last_inference)
        total.inference_count += part.inference_count
        total.execution_count += part.execution_count
        _add(total.inference_stats, part.inference_stats)
        for stats in part.batch_stats:
            size = stats.batch_size
            same = next((one for one in total.batch_stats if one.batch_size == size), None)
            _add(same or total.batch_stats.add(batch_size=size), stats)
    for total in totals.values():
        total.batch_stats.sort(key=lambda stats: stats.batch_size)
    return ModelStatisticsResponse(model_stats=totals.values())


def combine_index(responses: Sequence[RepositoryIndexResponse]) -> RepositoryIndexResponse:
    """Return each version with the state and reason of a worker in which it isn't ready, if there is one.

    A version that some workers don't have yet, or no longer, is left out until its state is the same in all.
    """
    found: dict[tuple[str, str], list[RepositoryIndexResponse.ModelIndex]] = {}
    for one in (one for response in responses for one in response.models):
        found.setdefault((one.name, one.version), []).append(one)
    chosen = [min(same, key=lambda one: one.state == "READY") for same in found.values()]
    whole = [len(same) == len(responses) for same in found.values()]
    return RepositoryIndexResponse(
        models=[one for one, everywhere in zip(chosen, whole, strict=True) if everywhere or one.state != "READY"]
    )


COMBINATIONS: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "ModelStatistics": combine_statistics,
    "RepositoryIndex": combine_index,
}
"""The RPCs whose answer is about all workers."""


def _add(total: Any, part: Any) -> None:
    """Add the durations of a message of durations to those of another."""
    for field, duration in part.ListFields():
        if field.message_type is not None:
            sums = getattr(total, field.name)
            sums.count += duration.count
            sums.ns += duration.ns


def merge_status(parts: Sequence[Facts], not_ready: Sequence[str]) -> Facts:
    """Return the facts of ``server_facts`` for several processes: counts added, states of the least ready.

    Args:
        parts: The facts of the workers; at least one.
        not_ready: What the server waits for, one line a reason.
    """
    same: dict[tuple[str, str], list[Facts]] = {}
    for one in (one for part in parts for one in part["models"]):
        same.setdefault((one["name"], one["version"]), []).append(one)
    return {
        **parts[0],
        "time_s": max(part["time_s"] for part in parts),
        "uptime_s": max(part["uptime_s"] for part in parts),
        **{key: sum(part[key] for part in parts) for key in ("memory_bytes", "processes", "unknown_requests")},
        "not_ready": list(not_ready),
        "models": [_merge_version(versions) for versions in same.values()],
    }


def _merge_version(versions: Sequence[Facts]) -> Facts:
    shown = min(versions, key=lambda one: bool(one["state"] == "READY"))
    counts = [one["counts"] for one in versions]
    merged = {key: _merge(one[key] for one in counts) for key in counts[0]}
    failures = [one["last_failure"] for one in versions if one["last_failure"]]
    return {
        **shown,
        "counts": merged,
        "history": _merge_history(row for one in versions for row in one["history"]),
        "last_s": max(one["last_s"] for one in versions),
        "last_failure": max(failures, key=lambda one: one["time_s"], default=None),
    }


def _merge_history(rows: Iterable[Sequence[float]]) -> list[list[float]]:
    """Return a row for each slot: sums, but for latencies the mean p50 of all answers and the largest p99."""
    slots: dict[float, list[float]] = {}
    for number, answered, failed, p50, p99, *seconds in rows:
        before = slots.get(number, [number, 0, 0, 0, 0, 0, 0])
        total = before[1] + answered
        middle = (before[1] * before[3] + answered * p50) / total if total else 0
        sums = map(operator.add, before[5:], seconds)
        slots[number] = [number, total, before[2] + failed, middle, max(before[4], p99), *sums]
    return [slots[number] for number in sorted(slots)]


def _merge(values: Iterable[Any]) -> Any:
    """Return the sum of numbers, or of the counts with the same key in lists of pairs."""
    first, *others = values
    if not isinstance(first, list):
        return first + sum(others)
    totals: dict[Any, int] = {}
    for key, count in (pair for pairs in (first, *others) for pair in pairs):
        totals[key] = totals.get(key, 0) + count
    return [[key, count] for key, count in sorted(totals.items())]
