"""The status page of several processes shows one server."""

from __future__ import annotations

from typing import Any

from trtnode.serving.workers.merged_answers import merge_status


def told(*, state: str = "READY", reason: str = "", **counts: Any) -> dict[str, Any]:
    """Return the status of one model version in one process."""
    all_counts = {"success": 0, "waiting": 0, "latencies": [], "batches": []} | counts
    last = {"last_s": all_counts["success"], "last_failure": None, "history": []}
    model = {"name": "m", "version": "1", "state": state, "reason": reason, "counts": all_counts, **last}
    process = {"uptime_s": 5.0, "memory_bytes": 100, "processes": 1, "unknown_requests": 2}
    return {"time_s": 1.0, "version": "1.0", "not_ready": [], "models": [model], **process}


def test_counts_are_added_also_by_latency_and_batch_size() -> None:
    one = told(success=3, waiting=1, latencies=[[8.0, 2], [16.0, 1]], batches=[[1, 3]])
    other = told(success=4, waiting=0, latencies=[[16.0, 3], [4.0, 1]], batches=[[1, 2], [2, 1]])

    counts = merge_status([one, other], [])["models"][0]["counts"]

    assert counts == {
        "success": 7,
        "waiting": 1,
        "latencies": [[4.0, 1], [8.0, 2], [16.0, 4]],
        "batches": [[1, 5], [2, 1]],
    }


def test_slots_are_added_with_the_mean_p50_and_the_largest_p99() -> None:
    one, other, idle = told(), told(), told()
    one["models"][0]["history"] = [[7, 30, 1, 100.0, 900.0, 0.5, 2.0], [8, 0, 2, 0, 0, 0, 0]]
    other["models"][0]["history"] = [[7, 10, 0, 200.0, 800.0, 0.25, 1.0]]

    history = merge_status([one, idle, other], [])["models"][0]["history"]

    assert history == [[7, 40, 1, 125.0, 900.0, 0.75, 3.0], [8, 0, 2, 0, 0, 0, 0]]


def test_the_state_is_that_of_the_process_that_is_least_ready() -> None:
    loading = told(state="LOADING", reason="it builds")

    merged = merge_status([told(), loading], ["worker 1: it loads"])

    assert (merged["models"][0]["state"], merged["models"][0]["reason"]) == ("LOADING", "it builds")
    assert merged["not_ready"] == ["worker 1: it loads"]


def test_memory_is_added_and_the_last_failure_is_that_of_any_process() -> None:
    one, other = told(success=3), told(success=4)
    one["models"][0]["last_failure"] = {"reason": "OTHER", "detail": "earlier", "time_s": 5}
    other["models"][0]["last_failure"] = {"reason": "OTHER", "detail": "later", "time_s": 6}

    merged = merge_status([one, told(), other], [])

    assert {key: merged[key] for key in ("memory_bytes", "processes", "unknown_requests", "uptime_s")} == {
        "memory_bytes": 300,
        "processes": 3,
        "unknown_requests": 6,
        "uptime_s": 5.0,
    }
    assert merged["models"][0]["last_failure"]["detail"] == "later"
    assert merged["models"][0]["last_s"] == 4


def test_failures_are_added_by_reason() -> None:
    counts = merge_status([told(failures=[["OTHER", 1]]), told(failures=[["BACKEND", 2], ["OTHER", 3]])], [])

    assert counts["models"][0]["counts"]["failures"] == [["BACKEND", 2], ["OTHER", 4]]


def test_models_of_all_processes_are_shown() -> None:
    other = told()
    other["models"][0]["version"] = "2"

    assert [one["version"] for one in merge_status([told(), other], [])["models"]] == ["1", "2"]
