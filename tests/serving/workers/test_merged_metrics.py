"""Metrics of several processes as those of one server."""

from __future__ import annotations

import prometheus_client
import pytest

from trtnode.serving.telemetry.metrics import Metrics
from trtnode.serving.telemetry.request_stats import BatchStats, Durations
from trtnode.serving.workers.merged_metrics import Families, MergedMetrics


class Process:
    """One process that answered ``requests`` requests to the model ``m``."""

    def __init__(self, requests: int, *, ready: bool = True) -> None:
        self.metrics = Metrics()
        self.counts = self.metrics.add_model("m", "1")
        self.counts.ready = ready
        self.answer(requests)

    def answer(self, requests: int) -> None:
        for _ in range(requests):
            self.counts.add_success(Durations(total=1000))
            self.counts.add_batch(2, BatchStats(1))

    def families(self) -> Families:
        return list(self.metrics.registry.collect())


def value(merged: MergedMetrics, name: str, **labels: str) -> float | None:
    return merged.registry.get_sample_value(name, labels)


def test_counts_and_histograms_are_added() -> None:
    processes = {1: Process(3), 2: Process(4)}

    merged = MergedMetrics(lambda: {pid: one.families() for pid, one in processes.items()}, lambda: 2)

    assert value(merged, "nv_inference_request_success", model="m", version="1") == 7
    assert value(merged, "nv_inference_request_duration_us", model="m", version="1") == 7
    assert value(merged, "trtnode_batch_size_bucket", model="m", version="1", le="2") == 7
    assert value(merged, "trtnode_batch_size_sum", model="m", version="1") == 14
    assert value(merged, "trtnode_workers") == 2


@pytest.mark.parametrize(("states", "expected"), [((True, True), 1), ((True, False), 0)])
def test_a_model_is_ready_where_it_is_in_all_processes(states: tuple[bool, bool], expected: int) -> None:
    processes = [Process(0, ready=ready) for ready in states]

    merged = MergedMetrics(lambda: {pid: one.families() for pid, one in enumerate(processes)}, lambda: 2)

    assert value(merged, "trtnode_model_ready", model="m", version="1") == expected


def test_counts_of_a_process_that_ended_stay() -> None:
    processes = {1: Process(3), 2: Process(4)}
    merged = MergedMetrics(lambda: {pid: one.families() for pid, one in processes.items()}, lambda: len(processes))
    assert value(merged, "nv_inference_request_success", model="m", version="1") == 7

    del processes[1]
    merged.end(1, "died")
    processes[3] = Process(1)

    assert value(merged, "nv_inference_request_success", model="m", version="1") == 8
    assert value(merged, "trtnode_batch_size_count", model="m", version="1") == 8
    assert value(merged, "trtnode_model_ready", model="m", version="1") == 1
    assert value(merged, "trtnode_worker_restarts_total", reason="died") == 1
    assert value(merged, "trtnode_worker_restarts_total", reason="silent") == 0


def test_a_process_that_does_not_answer_counts_as_of_the_last_time() -> None:
    processes = {1: Process(3), 2: Process(4)}
    merged = MergedMetrics(lambda: {pid: one.families() for pid, one in processes.items()}, lambda: 2)
    assert value(merged, "nv_inference_request_success", model="m", version="1") == 7

    del processes[1]

    assert value(merged, "nv_inference_request_success", model="m", version="1") == 7


def test_the_text_for_prometheus_names_each_family_once() -> None:
    processes = {1: Process(3), 2: Process(4)}
    merged = MergedMetrics(lambda: {pid: one.families() for pid, one in processes.items()}, lambda: 2)

    lines = prometheus_client.generate_latest(merged.registry).decode().splitlines()

    types = [line for line in lines if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    assert 'nv_inference_request_success{model="m",version="1"} 7.0' in lines
