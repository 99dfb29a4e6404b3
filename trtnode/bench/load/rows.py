"""Results of load on a server, and their JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadRow:
    """The outcome of one level of load. Times are None if no request succeeded.

    Attributes:
        server: Its address.
        model: The model's name there.
        inputs: Shapes of the inputs.
        concurrency: Callers of the closed loop; None in an open loop.
        rate_per_s: Requests per second of the open loop; None in a closed loop.
        requests: Answers, errors included.
        errors: Number of those that weren't OK, by status.
        unanswered: Requests without an answer when the level was interrupted.
        seconds: From the start to the last answer.
        throughput_per_s: Requests that succeeded, per second.
        mean_ms: Mean time from when a request was sent, or was due in an open loop, to its answer.
        p50_ms: Median of these times, and so on.
        send_lag_p50_ms: Median of the time by which requests were sent late, and so on.
        client_cores: Average number of cores that the client kept busy.
        client_processes: Number of its processes.
    """

    server: str
    model: str
    inputs: dict[str, list[int]]
    concurrency: int | None
    rate_per_s: float | None
    requests: int
    errors: dict[str, int]
    unanswered: int
    seconds: float
    throughput_per_s: float
    mean_ms: float | None
    p50_ms: float | None
    p90_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    send_lag_p50_ms: float | None
    send_lag_p99_ms: float | None
    client_cores: float
    client_processes: int


@dataclasses.dataclass(slots=True, kw_only=True)
class LoadRun:
    """The rows of one server, which grow during the measurement.

    Attributes:
        environment: Of the client, see ``describe_environment``.
        rows: In the order of measurement.
        complete: False if the measurement was ended before its time.
    """

    environment: dict[str, Any]
    rows: list[LoadRow] = dataclasses.field(default_factory=list)
    complete: bool = False

    def as_json(self) -> bytes:
        """Return the run as one JSON object."""
        return json.dumps(dataclasses.asdict(self)).encode()
