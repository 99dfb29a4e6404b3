"""A server from start to stop: readiness, health, reflection, limits, draining."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from tritonclient.utils import InferenceServerException

from tests.serving.conftest import FakeExecutable, Running, Starter, StartFake, refusal
from tests.serving.process.conftest import NOT_SERVING, SERVING, infer, wait_until
from trtnode.engines.errors import ModelLoadError
from trtnode.serving.schema.model import ModelConfig

SERVICE = "inference.GRPCInferenceService"


def health(channel: grpc.Channel, service: str = "") -> int:
    return health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service)).status


def test_server_metadata_announces_only_what_is_there(shared: Running) -> None:
    metadata = shared.client.get_server_metadata()

    assert metadata.name == "trtnode"
    assert metadata.version
    assert list(metadata.extensions) == [
        "binary_tensor_data",
        "classification",
        "model_configuration",
        "model_repository",
        "schedule_policy",
        "sequence",
        "statistics",
    ]


def test_model_metadata_speaks_the_words_of_the_protocol(shared: Running) -> None:
    metadata = shared.client.get_model_metadata("two")

    assert (metadata.name, list(metadata.versions), metadata.platform) == ("two", ["1"], "onnxruntime_onnx")
    assert [(t.name, t.datatype, list(t.shape)) for t in metadata.inputs] == [
        ("a", "FP32", [-1, 3]),
        ("b", "FP32", [-1, 3]),
    ]
    assert [(t.name, t.datatype, list(t.shape)) for t in metadata.outputs] == [
        ("sum", "FP32", [-1, 3]),
        ("product", "FP32", [-1, 3]),
        ("size", "INT64", [2]),
    ]


def test_model_metadata_of_an_unknown_model_is_not_found(shared: Running) -> None:
    assert refusal(lambda: shared.client.get_model_metadata("three"))[0] == "NOT_FOUND"


@pytest.mark.parametrize(
    ("name", "version", "ready"), [("two", "", True), ("two", "1", True), ("two", "2", False), ("three", "", False)]
)
def test_model_ready_answers_for_unknown_models_too(shared: Running, name: str, version: str, ready: bool) -> None:
    assert shared.client.is_model_ready(name, version) is ready


def test_model_ready_refuses_a_version_that_is_no_number(shared: Running) -> None:
    assert refusal(lambda: shared.client.is_model_ready("two", "latest"))[0] == "INVALID_ARGUMENT"


@pytest.mark.parametrize("service", ["", SERVICE])
def test_health_check_knows_the_server_and_the_service(channel: grpc.Channel, service: str) -> None:
    assert health(channel, service) == SERVING


def test_health_check_of_another_service_is_not_found(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        health(channel, "other.Service")

    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def reflect(channel: grpc.Channel, **question) -> reflection_pb2.ServerReflectionResponse:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    return next(stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(**question)])))


def test_reflection_lists_every_service(channel: grpc.Channel) -> None:
    response = reflect(channel, list_services="")

    assert [service.name for service in response.list_services_response.service] == [
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
        SERVICE,
    ]


def test_a_client_can_call_with_reflection_alone(channel: grpc.Channel) -> None:
    pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))

    method = pool.FindServiceByName(SERVICE).methods_by_name["ModelInfer"]

    assert method.input_type.full_name == "inference.ModelInferRequest"


def test_a_server_is_not_ready_while_it_loads(start: Starter, fake: FakeExecutable) -> None:
    may_load = threading.Event()

    def load(model: ModelConfig):
        assert may_load.wait(120)
        return fake

    running = start("- {name: fake, path: fake.onnx}", loader=load, wait=False)
    with grpc.insecure_channel(running.address) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == NOT_SERVING
        assert running.client.is_server_live()
        assert not running.client.is_server_ready()
        assert not running.client.is_model_ready("fake")
        assert refusal(lambda: infer(running.client))[0] == "UNAVAILABLE"
        assert refusal(lambda: running.client.get_model_metadata("fake"))[0] == "UNAVAILABLE"

        may_load.set()

        assert next(watch).status == SERVING
    assert running.client.is_server_ready()
    assert infer(running.client).tolist() == [1]


@pytest.mark.parametrize(
    "error", [ModelLoadError("fake.onnx", "bad weights"), RuntimeError("bad weights")], ids=["expected", "unexpected"]
)
def test_a_required_model_that_fails_to_load_ends_the_server(
    start: Starter, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def load(model: ModelConfig):
        raise error

    running = start("- {name: fake, path: fake.onnx}", loader=load, wait=False)

    running.server.wait_for_stop()

    assert not running.server.wait_ready(0)
    assert str(running.server.failure).startswith("Model 'fake' is required but didn't load: ")
    assert "bad weights" in str(running.server.failure)
    assert "Model 'fake' did not load: " in caplog.text


def test_a_model_that_is_not_required_may_fail_to_load(
    start: Starter, fake: FakeExecutable, caplog: pytest.LogCaptureFixture
) -> None:
    def load(model: ModelConfig):
        if model.name == "broken":
            raise ModelLoadError("broken.onnx", "bad weights")
        return fake

    models = "- {name: broken, path: fake.onnx, required: false}\n- {name: fake, path: fake.onnx}"
    running = start(models, loader=load)

    assert running.client.is_server_ready()
    assert not running.client.is_model_ready("broken")
    assert refusal(lambda: running.client.infer("broken", []))[0] == "UNAVAILABLE"
    assert infer(running.client).tolist() == [1]


def test_a_failing_warm_up_is_logged_and_not_fatal(
    start: Starter, fake: FakeExecutable, caplog: pytest.LogCaptureFixture
) -> None:
    fake.error = ModelLoadError("fake", "zeros make no sense")

    running = start("- {name: fake, path: fake.onnx, warmup: 3}", loader=lambda model: fake)

    assert running.client.is_server_ready()
    assert "Model 'fake': the warm-up run on zeros failed: " in caplog.text
    assert "The model is served all the same; give it inputs that it can run on with warmup_inputs" in caplog.text


def test_warm_up_runs_as_often_as_configured(start: Starter, fake: FakeExecutable) -> None:
    start("- {name: fake, path: fake.onnx, warmup: 3}", loader=lambda model: fake)

    assert fake.runs == 3


def test_requests_beyond_the_limit_are_refused_at_once(start_fake: StartFake, fake: FakeExecutable) -> None:
    running = start_fake(server="limits: {max_requests: 3}")
    fake.gate.clear()

    with ThreadPoolExecutor(3) as pool:
        accepted = [pool.submit(infer, running.client) for _ in range(3)]
        wait_until(lambda: running.server.in_flight == 3)
        with pytest.raises(InferenceServerException, match=r"max_requests.*try later") as caught:
            infer(running.client, client_timeout=5)
        fake.gate.set()

    assert caught.value.status() == "StatusCode.UNAVAILABLE"
    assert [answer.result().tolist() for answer in accepted] == [[1]] * 3
    assert infer(running.client).tolist() == [1]


def test_probes_are_answered_while_every_inference_thread_is_busy(start_fake: StartFake, fake: FakeExecutable) -> None:
    running = start_fake()
    fake.gate.clear()

    with ThreadPoolExecutor(50) as pool:
        waiting = [pool.submit(infer, running.client) for _ in range(50)]
        wait_until(lambda: running.server.in_flight == 50)
        live, ready = running.client.is_server_live(), running.client.is_server_ready()
        fake.gate.set()

    assert live
    assert ready
    assert len([answer.result() for answer in waiting]) == 50


def test_many_health_watchers_hold_no_threads(start_fake: StartFake) -> None:
    running = start_fake()
    with grpc.insecure_channel(running.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watches = [stub.Watch(health_pb2.HealthCheckRequest()) for _ in range(20)]
        assert {next(watch).status for watch in watches} == {SERVING}

        assert health(channel) == SERVING
        assert running.client.is_server_live()


def test_watchers_may_leave_while_the_status_changes(start_fake: StartFake) -> None:
    running = start_fake()
    port = running.server._grpc
    with grpc.insecure_channel(running.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for _ in range(20):
            watches = [stub.Watch(health_pb2.HealthCheckRequest()) for _ in range(10)]
            assert all(next(watch).status in (SERVING, NOT_SERVING) for watch in watches)
            for number, watch in enumerate(watches):
                watch.cancel()
                port.show_ready(number % 2 == 0)
            port.show_ready(True)

        assert health(channel) == SERVING


def test_a_watch_of_an_unknown_service_says_so_and_stays_open(channel: grpc.Channel) -> None:
    watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service="other.Service"))

    assert next(watch).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    assert watch.is_active()
    watch.cancel()


def test_idle_reflection_streams_do_not_block_probes(start_fake: StartFake) -> None:
    running = start_fake()
    with grpc.insecure_channel(running.address) as channel:
        end = threading.Event()

        def questions():
            yield reflection_pb2.ServerReflectionRequest(list_services="")
            end.wait(120)

        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        streams = [stub.ServerReflectionInfo(questions()) for _ in range(10)]
        next(streams[0])

        assert health(channel) == SERVING
        assert running.client.is_server_ready()
        end.set()
