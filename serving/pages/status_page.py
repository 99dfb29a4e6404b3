"""The status page, and the facts that it polls.

The server sends the page counters and a histogram of latencies, with eight buckets an octave. The page keeps the
answers of half a minute and shows differences. The server keeps no state for a page. Each open page costs one response
every two seconds.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable
from typing import Any

from serving.models.servable import Servable
from serving.pages.explain_page import TEMPLATES, script_hash
from serving.security.tokens import Grant
from serving.service.inference_service import InferenceService
from serving.telemetry.request_stats import Snapshot, latency_bound_us


@functools.cache
def render_status_page() -> str:
    """Return the page. It needs nothing from elsewhere, and its policy lets it talk to this server alone."""
    script = TEMPLATES.get_template("status.js").render()
    return TEMPLATES.get_template("status.html.j2").render(script=script, script_hash=script_hash(script))


def server_facts(service: InferenceService, grant: Grant) -> dict[str, Any]:
    """Return what the page shows, as JSON values, of the models that the caller may use.

    Counts grow from the server's start on; the page makes rates and percentiles of the differences between two calls.
    """
    return {
        "time_s": time.monotonic(),
        "version": service.version,
        "not_ready": service.not_ready(),
        "models": [
            _version_facts(one)
            for model in service.models()
            if grant.covers(model.config.name)
            for one in model.known()
        ],
    }


def _version_facts(servable: Servable) -> dict[str, Any]:
    return {
        "name": servable.name,
        "version": servable.version,
        "state": servable.state,
        "reason": servable.reason,
        "required": servable.required,
        "runs": _where_it_runs(servable),
        "variants": servable.variants(),
        "counts": _counts(servable.counts.snapshot()),
    }


def _where_it_runs(servable: Servable) -> dict[str, Any] | None:
    facts = servable.facts
    if not facts:
        return None
    report = facts.get("report")
    in_engines = report["nodes"] - facts["native_nodes"] if report and facts["segments"] else 0
    return {
        "engine": facts["engine"],
        "segments": facts["segments"],
        "engine_nodes": max(0, in_engines),
        "native_nodes": facts["native_nodes"],
        "precision": facts["precision"]["effective"],
        "rejected": facts["rejected"],
        "stand_in": servable.interim,
    }


def _counts(now: Snapshot) -> dict[str, Any]:
    return {
        "success": now.success,
        "failures": sum(now.failures.values()),
        "rejections": sum(now.rejections.values()),
        "fallbacks": sum(now.fallbacks.values()),
        "waiting": now.pending,
        "latencies": [[round(latency_bound_us(step), 3), count] for step, count in now.latencies.items()],
        "batches": _pairs((rows, stats.executions) for rows, stats in now.batches.items()),
    }


def _pairs(items: Iterable[tuple[int, int]]) -> list[list[int]]:
    return [[key, count] for key, count in items]
