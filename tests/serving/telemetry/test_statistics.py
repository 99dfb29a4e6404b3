"""The HTTP port, and what is counted."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.utils import InferenceServerException

from tests.serving.conftest import FakeExecutable, Running, Starter, StartFake, given
from trtnode.engines.errors import ExecutionError
from trtnode.engines.model_facts import ModelFacts
from trtnode.serving.schema.model import ModelConfig


def get(url: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method, headers=headers)) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def samples(running: Running) -> dict[tuple[str, ...], float]:
    """Every sample by its name and label values, ordered by label name.

    The parser gives counters a suffix that Triton's don't have on the wire.
    """
    status, text = get(f"{running.http}/metrics")
    assert status == 200
    return {
        (_on_wire(sample.name), *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _on_wire(name: str) -> str:
    return name.removesuffix("_total") if name.startswith("nv_") else name


def infer(running: Running, model: str = "fake", name: str = "x", **options) -> np.ndarray:
    return running.client.infer(model, [given(name, np.zeros(1, np.float32))], **options).as_numpy("y")


def test_a_server_that_loads_is_live_and_says_what_it_waits_for(start: Starter, fake: FakeExecutable) -> None:
    may_load = threading.Event()

    def load(model: ModelConfig):
        assert may_load.wait(120)
        return fake

    running = start("- {name: fake, path: fake.onnx}", loader=load, wait=False)

    assert get(f"{running.http}/livez") == (200, "live\n")
    assert get(f"{running.http}/readyz") == (503, "model 'fake' is loading\n")
    assert samples(running)["trtnode_model_ready", "fake", "1"] == 0
    may_load.set()


def test_requests_are_counted_by_outcome(start_fake: StartFake, fake: FakeExecutable) -> None:
    running = start_fake()
    for _ in range(3):
        infer(running)
    with pytest.raises(InferenceServerException):
        infer(running, name="nonsense")
    fake.error = ExecutionError("broken")
    with pytest.raises(InferenceServerException):
        infer(running)

    found = samples(running)

    assert found["nv_inference_request_success", "fake", "1"] == 3
    assert found["nv_inference_count", "fake", "1"] == 3
    assert found["nv_inference_exec_count", "fake", "1"] == 4
    assert found["nv_inference_request_failure", "fake", "OTHER", "1"] == 1
    assert found["nv_inference_request_failure", "fake", "BACKEND", "1"] == 1
    assert found["nv_inference_request_failure", "fake", "REJECTED", "1"] == 0
    assert found["nv_inference_pending_request_count", "fake", "1"] == 0


def test_phases_add_up_to_no_more_than_the_request(shared: Running) -> None:
    row = np.ones((1, 3), np.float32)
    inputs = [triton.InferInput(name, row.shape, "FP32") for name in "ab"]
    for one in inputs:
        one.set_data_from_numpy(row)
    for _ in range(20):
        shared.client.infer("two", inputs)

    found = samples(shared)

    phases = ("queue", "compute_input", "compute_infer", "compute_output")
    parts = [found[f"nv_inference_{phase}_duration_us", "two", "1"] for phase in phases]
    assert all(part > 0 for part in parts)
    assert sum(parts) <= found["nv_inference_request_duration_us", "two", "1"] + len(parts)


def test_latencies_are_a_histogram_by_outcome(start_fake: StartFake, fake: FakeExecutable) -> None:
    running = start_fake()
    for _ in range(3):
        infer(running)
    fake.error = ExecutionError("broken")
    with pytest.raises(InferenceServerException):
        infer(running)

    lines = get(f"{running.http}/metrics")[1].splitlines()

    name = "trtnode_request_duration_seconds"
    buckets = [line for line in lines if line.startswith(name + "_bucket") and 'outcome="success"' in line]
    values = [float(line.rpartition(" ")[2]) for line in buckets]
    assert f"# TYPE {name} histogram" in lines
    assert values == sorted(values)
    assert values[-1] == 3
    assert f'{name}_count{{model="fake",outcome="failure",version="1"}} 1.0' in lines


def test_counters_of_triton_are_counters_under_their_own_names(shared: Running) -> None:
    lines = get(f"{shared.http}/metrics")[1].splitlines()

    assert "# TYPE nv_inference_request_success counter" in lines
    assert not [line for line in lines if line.endswith(" untyped")]


def test_unknown_models_are_counted_without_their_names(start_fake: StartFake) -> None:
    running = start_fake()
    for name in ("one", "two"):
        with pytest.raises(InferenceServerException):
            infer(running, model=name)

    found = samples(running)

    assert found["nv_inference_request_failure", "", "OTHER", ""] == 2
    assert not any("one" in labels for labels in found)


def test_every_rejection_is_counted(start_fake: StartFake, fake: FakeExecutable) -> None:
    running = start_fake(server="limits: {max_requests: 1}")
    fake.gate.clear()
    thread = threading.Thread(target=infer, args=(running,))
    thread.start()
    assert fake.started.acquire(timeout=120)

    for _ in range(5):
        with pytest.raises(InferenceServerException):
            infer(running)

    assert samples(running)["nv_inference_request_failure", "fake", "REJECTED", "1"] == 5
    fake.gate.set()
    thread.join()


def test_native_fallbacks_are_counted_by_reason(start_fake: StartFake, fake: FakeExecutable) -> None:
    running = start_fake()
    fake.on_fallback("out_of_range")
    fake.on_fallback("out_of_range")
    fake.on_fallback("engine_error")

    found = samples(running)

    assert found["trtnode_native_fallback_total", "fake", "out_of_range", "1"] == 2
    assert found["trtnode_native_fallback_total", "fake", "engine_error", "1"] == 1


def test_small_requests_that_run_natively_are_counted_apart(start_fake: StartFake, fake: FakeExecutable) -> None:
    running = start_fake()
    fake.on_small()

    found = samples(running)

    assert found["trtnode_native_by_size_total", "fake", "1"] == 1
    assert not [name for name, *_ in found if name == "trtnode_native_fallback_total"]


def test_model_whose_device_is_lost_is_not_ready_any_more(
    start_fake: StartFake, fake: FakeExecutable, caplog: pytest.LogCaptureFixture
) -> None:
    running = start_fake()
    with grpc.insecure_channel(running.address) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=120)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING

        fake.on_loss("The GPU can't be used any more in this process. Restart the server.")

        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert not running.client.is_model_ready("fake")
    assert samples(running)["trtnode_model_ready", "fake", "1"] == 0
    assert get(f"{running.http}/readyz")[0] == 503
    assert "Model 'fake' is not ready any more: The GPU" in caplog.text


def test_what_a_model_became_is_shown(start_fake: StartFake, fake: FakeExecutable) -> None:
    fake.facts = ModelFacts(
        precision_asked="fp16",
        engines_built=3,
        engine="tensorrt-rtx",
        segments=4,
        unchecked=1,
        rejected=("segment_1: another CPU",),
    )
    running = start_fake()

    found = samples(running)

    assert found["trtnode_model_precision", "fp16", "fp32", "fake", "1"] == 1
    assert found["trtnode_engine_builds_total", "fake", "1"] == 3
    assert found["trtnode_engines_rejected", "fake", "1"] == 1
    assert found["trtnode_model_engines", "true", "tensorrt-rtx", "fake", "1"] == 3
    assert found["trtnode_model_engines", "false", "tensorrt-rtx", "fake", "1"] == 1
    assert found["trtnode_model_ready", "fake", "1"] == 1


def test_metrics_are_also_there_in_the_openmetrics_form(shared: Running) -> None:
    status, text = get(f"{shared.http}/metrics", Accept="application/openmetrics-text; version=1.0.0")

    assert status == 200
    assert text.endswith("# EOF\n")
    assert 'nv_inference_request_success{model="two",version="1"}' in text


def test_a_connection_that_sends_no_request_disturbs_nobody(
    start_fake: StartFake, capfd: pytest.CaptureFixture[str]
) -> None:
    running = start_fake(server="limits: {http_header_timeout_s: 2}")
    with socket.create_connection(("127.0.0.1", running.server.http_port)) as idle:
        assert get(f"{running.http}/livez")[0] == 200
        assert idle.recv(1) == b""  # the server has had enough

    with socket.create_connection(("127.0.0.1", running.server.http_port)) as broken:
        broken.sendall(b"\0\0\0\r\n\r\n")
        assert broken.recv(100)
    assert get(f"{running.http}/livez")[0] == 200
    assert "Traceback" not in capfd.readouterr().err
