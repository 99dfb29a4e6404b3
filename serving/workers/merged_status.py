"""The facts of the status page, merged from those of the workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Facts = dict[str, Any]


def merge_status(parts: Sequence[Facts], not_ready: Sequence[str]) -> Facts:
    """Return the facts of ``server_facts`` for several processes: counts added, states of the least ready.

    Args:
        parts: What the workers tell; at least one.
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
        "last_s": max(one["last_s"] for one in versions),
        "last_failure": max(failures, key=lambda one: one["time_s"], default=None),
    }


def _merge(values: Iterable[Any]) -> Any:
    """Return the sum of numbers, or of the counts with the same key in lists of pairs."""
    first, *others = values
    if not isinstance(first, list):
        return first + sum(others)
    totals: dict[Any, int] = {}
    for key, count in (pair for pairs in (first, *others) for pair in pairs):
        totals[key] = totals.get(key, 0) + count
    return [[key, count] for key, count in sorted(totals.items())]
