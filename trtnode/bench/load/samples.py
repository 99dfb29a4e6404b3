"""Samples of client processes, and the figures of a row."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trtnode.bench.load.loops import OK, Record

PERCENTILES = (50, 90, 95, 99)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Samples of a level, from one client process or all of them.

    Attributes:
        start: Time of the begin, in seconds on the machine's monotonic clock.
        end: Time of the last answer.
        latencies_ms: From the intended start to the answer of each request that succeeded.
        lags_ms: From the intended to the actual start of the same requests.
        errors: Number of the other answers by status.
        messages: The first message of each of these statuses.
        unanswered: Requests without an answer when the level was interrupted.
        cpu_s: CPU time of each client process, user and system.
    """

    start: float
    end: float
    latencies_ms: np.ndarray
    lags_ms: np.ndarray
    errors: Mapping[str, int]
    messages: Mapping[str, str]
    unanswered: int
    cpu_s: tuple[float, ...]

    @classmethod
    def of(cls, records: Sequence[Record], *, start: float, cpu_s: float, unanswered: int = 0) -> Samples:
        """Sum up the requests of one process."""
        good = np.array([r[:3] for r in records if r.status == OK], np.float64).reshape(-1, 3)
        bad = [r for r in records if r.status != OK]
        return cls(
            start=start,
            end=max((r.answered for r in records), default=start),
            latencies_ms=(good[:, 2] - good[:, 0]) * 1e3,
            lags_ms=(good[:, 1] - good[:, 0]) * 1e3,
            errors=collections.Counter(r.status for r in bad),
            messages={r.status: r.message for r in reversed(bad)},
            unanswered=unanswered,
            cpu_s=(cpu_s,),
        )

    @classmethod
    def joined(cls, parts: Sequence[Samples]) -> Samples:
        """Join the samples of all processes of one level."""
        return cls(
            start=min(part.start for part in parts),
            end=max(part.end for part in parts),
            latencies_ms=np.concatenate([part.latencies_ms for part in parts]),
            lags_ms=np.concatenate([part.lags_ms for part in parts]),
            errors=sum((collections.Counter(part.errors) for part in parts), collections.Counter()),
            messages={status: text for part in reversed(parts) for status, text in part.messages.items()},
            unanswered=sum(part.unanswered for part in parts),
            cpu_s=tuple(cpu for part in parts for cpu in part.cpu_s),
        )

    @property
    def requests(self) -> int:
        """Number of answered requests, errors included."""
        return len(self.latencies_ms) + sum(self.errors.values())

    @property
    def seconds(self) -> float:
        """Time from the start to the last answer."""
        return self.end - self.start

    @property
    def client_cores(self) -> tuple[float, ...]:
        """Average number of cores that each client process kept busy."""
        return tuple(cpu / self.seconds if self.seconds else 0.0 for cpu in self.cpu_s)

    def figures(self) -> dict[str, Any]:
        """Return the row's figures; times are None if no request succeeded."""
        return {
            "requests": self.requests,
            "errors": dict(self.errors),
            "unanswered": self.unanswered,
            "seconds": round(self.seconds, 4),
            "throughput_per_s": round(len(self.latencies_ms) / self.seconds, 2) if self.seconds else 0.0,
            "mean_ms": round(float(self.latencies_ms.mean()), 4) if len(self.latencies_ms) else None,
            **{f"p{q}_ms": percentile(self.latencies_ms, q) for q in PERCENTILES},
            "max_ms": percentile(self.latencies_ms, 100),
            "send_lag_p50_ms": percentile(self.lags_ms, 50),
            "send_lag_p99_ms": percentile(self.lags_ms, 99),
            "client_cores": round(sum(self.client_cores), 3),
            "client_processes": len(self.cpu_s),
        }


def percentile(values_ms: np.ndarray, q: float) -> float | None:
    """Return a percentile, linear between neighbours; None without values."""
    return round(float(np.percentile(values_ms, q)), 4) if len(values_ms) else None
