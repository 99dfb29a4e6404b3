"""The status page, and the facts that it polls.

The facts hold the counts since the start, and what happened in the last hour by slots of ten seconds. So a page shows
rates, latencies and their history at once. The server keeps no state for a page. Each open page costs one response
every two seconds, with the slots that the page doesn't know yet.
"""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import time
from collections.abc import Mapping
from typing import Any

import prometheus_client

from trtnode.serving.models.servable import Servable
from trtnode.serving.pages.explain_page import TEMPLATES, script_hash
from trtnode.serving.security.tokens import Grant
from trtnode.serving.service.inference_service import InferenceService
from trtnode.serving.telemetry.latency_steps import latency_bound_us
from trtnode.serving.telemetry.recent_requests import RECENT_SLOTS, SLOT_S, SLOTS, LastFailure, Recent
from trtnode.serving.telemetry.request_stats import SequenceCounts, Snapshot

LIBRARIES = ("onnxruntime", "onnxruntime-gpu", "openvino", "tensorrt", "tensorrt-rtx-cu12", "onnx")
"""Distributions whose versions the page shows, where they are installed."""

Facts = dict[str, Any]
"""JSON values by name."""

_PROCESS = prometheus_client.ProcessCollector(registry=None)


@functools.cache
def render_status_page() -> str:
    """Return the page. It needs nothing from elsewhere, and its policy lets it talk to this server alone."""
    script = TEMPLATES.get_template("status.js").render(slot_s=SLOT_S, slots=SLOTS, recent_slots=RECENT_SLOTS)
    return TEMPLATES.get_template("status.html.j2").render(script=script, script_hash=script_hash(script))


def server_facts(service: InferenceService, grant: Grant, since: int = 0) -> Facts:
    """Return what the page shows, as JSON values, of the models that the caller may use, with slots from a number."""
    process = {family.name: family.samples[0].value for family in _PROCESS.collect()}  # empty but on Linux
    now_s = time.perf_counter()
    return {
        "time_s": now_s,
        "uptime_s": now_s - service.started_s,
        "memory_bytes": process.get("process_resident_memory_bytes", 0),
        "processes": 1,
        "version": service.version,
        "libraries": _library_versions(),
        "not_ready": service.not_ready(),
        "unknown_requests": service.unknown_requests,
        "models": [
            _version_facts(one, since)
            for model in service.models()
            if grant.covers(model.config.name)
            for one in model.known()
        ],
    }


@functools.cache
def _library_versions() -> dict[str, str]:
    installed = {name: one.version for name in LIBRARIES for one in importlib.metadata.distributions(name=name)}
    return {**installed, "Python": platform.python_version()}


def _version_facts(servable: Servable, since: int) -> dict[str, Any]:
    now = servable.counts.snapshot()
    return {
        "name": servable.name,
        "version": servable.version,
        "state": servable.state,
        "reason": servable.reason,
        "required": servable.required,
        "runs": _where_it_runs(servable),
        "variants": servable.variants(),
        "memory": dict(servable.counts.memory),
        "counts": _counts(now),
        "history": _history(now.recent, since),
        "last_s": now.recent.last_ns / 1e9,
        "last_failure": _failure(now.recent.last_failure),
    }


def _failure(last: LastFailure | None) -> dict[str, Any] | None:
    return {"reason": last.reason, "detail": last.detail, "time_s": last.ended_ns / 1e9} if last else None


def _where_it_runs(servable: Servable) -> dict[str, Any] | None:
    facts = servable.facts
    if facts is None:
        return None
    report = facts.report
    in_engines = report["nodes"] - facts.native_nodes if report and facts.segments else 0
    return {
        "engine": facts.engine,
        "segments": facts.segments,
        "engine_nodes": max(0, in_engines),
        "native_nodes": facts.native_nodes,
        "precision": facts.precision,
        "rejected": facts.rejected,
        "stand_in": servable.counts.builds,
    }


def _counts(now: Snapshot) -> dict[str, Any]:
    """Return numbers, and lists of pairs of a key and a number, so that those of several processes can be added."""
    return {
        "success": now.success,
        "waiting": now.pending,
        "failures": _pairs(now.failures),
        "rejections": _pairs(now.rejections),
        "fallbacks": _pairs(now.fallbacks),
        "latencies": _latencies(now.latencies),
        "batches": _pairs({rows: stats.executions for rows, stats in now.batches.items()}),
        "buckets": _pairs(now.buckets),
        "padding": now.padding,
        "shapes": now.shapes,
        "sequences": _sequences(now.sequences),
        "recent_latencies": _latencies(now.recent.latencies),
    }


def _sequences(now: SequenceCounts) -> list[list[Any]]:
    facts = {"open": now.open, "of state": now.bytes, "refused": now.refused, **now.ended}
    return _pairs(facts) if now.begun or now.refused else []


def _history(recent: Recent, since: int) -> list[list[float]]:
    """Return a row for each slot: number, answered, failed, p50 and p99 in µs, seconds of waiting and of processors."""
    return [
        [one.number, one.answered, one.failed, round(one.p50_us, 3), round(one.p99_us, 3)]
        + [round(ns / 1e9, 4) for ns in (one.waited_ns, one.cpu_ns)]
        for one in recent.slots
        if one.number >= since
    ]


def _pairs(counts: Mapping[Any, int]) -> list[list[Any]]:
    return [[key, count] for key, count in counts.items() if count]


def _latencies(steps: Mapping[int, int]) -> list[list[float]]:
    return [[round(latency_bound_us(step), 3), count] for step, count in steps.items()]
