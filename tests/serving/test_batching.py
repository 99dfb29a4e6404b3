"""Dynamic batching through a real server: what runs together, in which order, and what leaves the queue unanswered.

The executable records each execution and can be held back, so that a test decides what waits at the same time.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import onnx_ir
import pytest
import tritonclient.grpc as triton
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.utils import InferenceServerException

from engines import ExecutionError
from partitioner import TensorSpec
from protos import ModelInferRequest

PATIENCE_S = 120
POISON = 666


class Recorder:
    """Adds 1 to ``x``, and keeps what it was given. Fails on the number 666."""

    def __init__(self, columns: int | None = None, first: int | str = "n") -> None:
        self.inputs = (TensorSpec(name="x", dtype=onnx_ir.DataType.FLOAT, shape=(first, columns)),)
        self.outputs = (TensorSpec(name="y", dtype=onnx_ir.DataType.FLOAT, shape=(first, columns)),)
        self.description: dict[str, Any] = {
            "engine": "native",
            "segments": 0,
            "native_nodes": 1,
            "precision": {"asked": "fp32", "effective": "fp32"},
            "rejected": [],
        }
        self.on_fallback: Callable[[str], None] = lambda reason: None
        self.executed: list[list[float]] = []
        self.copied: list[bool] = []
        self.gate = threading.Event()
        self.gate.set()
        self.started = threading.Semaphore(0)

    def run(
        self, feeds: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None, times: Any = None
    ) -> dict[str, np.ndarray]:
        x = feeds["x"]
        self.executed.append(x[:, 0].tolist())
        self.copied.append(x.flags.writeable)  # requests are read-only views of their messages
        self.started.release()
        assert self.gate.wait(PATIENCE_S)
        if POISON in x:
            raise ExecutionError("poisoned")
        return {"y": x + np.float32(1)}

    def close(self) -> None:
        self.gate.set()

    def forget(self) -> None:
        """Leave out what the server ran while it loaded the model."""
        while self.started.acquire(blocking=False):
            pass
        self.executed.clear()
        self.copied.clear()


class Service:
    """A server with a recorder as its model, and requests to it."""

    def __init__(self, running: Any, fake: Recorder) -> None:
        self.running = running
        self.fake = fake
        self._threads = ThreadPoolExecutor(64)

    def infer(self, *rows: float, columns: int = 1, **options: Any) -> list[float]:
        x = triton.InferInput("x", [len(rows), columns], "FP32")
        x.set_data_from_numpy(np.repeat(np.array(rows, np.float32)[:, None], columns, 1))
        result: list[float] = self.running.client.infer("fake", [x], **options).as_numpy("y")[:, 0].tolist()
        return result

    def send(self, *rows: float, **options: Any) -> "Future[list[float]]":
        """Send a request, and return once it waits in the queue."""
        waiting = self.waiting()
        answer = self._threads.submit(self.infer, *rows, **options)
        self.wait_for(lambda: self.waiting() > waiting)
        return answer

    def block(self) -> "Future[list[float]]":
        """Send a request that runs, and doesn't end before the gate opens."""
        self.fake.gate.clear()
        answer = self._threads.submit(self.infer, 0)
        assert self.fake.started.acquire(timeout=PATIENCE_S)
        return answer

    def waiting(self) -> float:
        return self.sample("nv_inference_pending_request_count")

    def sample(self, name: str, **labels: str) -> float:
        text = generate_latest(self.running.server.metrics.registry).decode()
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, "the server never got there"
            time.sleep(0.001)


@pytest.fixture
def serve(start) -> Callable[..., Service]:
    """Start a server with a recorder and the given keys of ``batching``."""

    def start_service(batching: str = "", fake: Recorder | None = None, extra: str = "instances: 1") -> Service:
        recorder = fake or Recorder()
        model = f"- {{name: fake, path: fake.onnx, warmup: 0, {extra}, batching: {{{batching}}}}}\n"
        service = Service(start(model, loader=lambda _: recorder), recorder)
        recorder.forget()
        return service

    return start_service


def fails_with(code: str, answer: Callable[[], Any]) -> str:
    with pytest.raises(InferenceServerException) as caught:
        answer()
    assert caught.value.status() == f"StatusCode.{code}"
    return str(caught.value.message())


def test_requests_that_wait_at_the_same_time_run_together(serve) -> None:
    service = serve()
    blocker = service.block()
    answers = [service.send(1), service.send(2, 3), service.send(4)]

    service.fake.gate.set()

    assert [answer.result() for answer in answers] == [[2], [3, 4], [5]]
    assert blocker.result() == [1]
    assert service.fake.executed == [[0], [1, 2, 3, 4]]


def test_a_lone_request_runs_at_once_and_without_a_copy(serve) -> None:
    service = serve("max_queue_delay_us: 20000000")

    assert service.infer(1) == [2]
    assert service.infer(2) == [3]

    assert service.fake.copied == [False, False]


def test_a_batch_has_no_more_rows_than_allowed(serve) -> None:
    service = serve("max_batch_size: 4")
    service.block()
    answers = [service.send(number, number) for number in range(1, 6)]

    service.fake.gate.set()

    assert [answer.result() for answer in answers] == [[n + 1.0] * 2 for n in range(1, 6)]
    assert service.fake.executed == [[0], [1, 1, 2, 2], [3, 3, 4, 4], [5, 5]]


def test_a_preferred_size_runs_before_the_delay_is_over(serve) -> None:
    service = serve("max_queue_delay_us: 20000000, preferred_batch_sizes: [2]")
    service.block()
    answers = [service.send(number) for number in range(1, 5)]

    service.fake.gate.set()

    assert [answer.result() for answer in answers] == [[2], [3], [4], [5]]


def test_requests_of_different_shape_are_not_mixed_and_keep_their_order(serve) -> None:
    service = serve()
    service.block()
    answers = [service.send(1, columns=2), service.send(2, columns=2), service.send(3), service.send(4, columns=2)]

    service.fake.gate.set()

    assert [answer.result() for answer in answers] == [[2], [3], [4], [5]]
    assert service.fake.executed == [[0], [1, 2], [3], [4]]


def test_a_request_with_more_rows_than_a_batch_is_refused(serve) -> None:
    service = serve("max_batch_size: 2")

    message = fails_with("INVALID_ARGUMENT", lambda: service.infer(1, 2, 3))

    assert message == "the request has 3 rows, but 2 are the most (batching.max_batch_size)"


@pytest.mark.parametrize(
    ("batching", "sizes"),
    [
        ("max_batch_size: 4", [1, 1, 2, 3, 4]),
        ("max_batch_size: 40", [1, 1, 2, 4, 8, 16, 32, 40]),
        ("max_batch_size: 40, preferred_batch_sizes: [10, 20]", [1, 1, 10, 20, 40]),
    ],
)
def test_batch_sizes_run_before_the_first_request(start, batching: str, sizes: list[int]) -> None:
    fake = Recorder()
    model = f"- {{name: fake, path: fake.onnx, warmup: 2, batching: {{{batching}}}}}\n"

    start(model, loader=lambda _: fake)

    assert [len(rows) for rows in fake.executed][-len(sizes) :] == sizes


def test_a_full_queue_refuses_and_counts(serve) -> None:
    service = serve("max_queue_size: 2")
    service.block()
    answers = [service.send(1), service.send(2)]

    message = fails_with("UNAVAILABLE", lambda: service.infer(3))
    service.fake.gate.set()

    assert message == "2 requests wait for the model already (batching.max_queue_size); try later"
    assert [answer.result() for answer in answers] == [[2], [3]]
    assert service.sample("trtnode_rejected_requests_total", reason="queue_full") == 1
    assert service.sample("nv_inference_request_failure", reason="REJECTED") == 1


@pytest.mark.parametrize(
    ("batching", "options"),
    [
        pytest.param("timeout_ms: 30", {}, id="configured"),
        pytest.param("", {"timeout": 30_000}, id="of-the-request-in-microseconds"),
        pytest.param("timeout_ms: 20000", {"timeout": 30_000}, id="the-shorter-one"),
    ],
)
def test_a_request_leaves_the_queue_when_its_time_is_over_and_never_runs(serve, batching: str, options) -> None:
    service = serve(batching)
    service.block()

    message = fails_with("UNAVAILABLE", lambda: service.infer(1, **options))  # while the first one still runs
    service.fake.gate.set()

    assert "longer than its timeout or batching.timeout_ms allows" in message
    assert service.infer(2) == [3]
    assert service.fake.executed == [[0], [2]]
    assert service.sample("trtnode_rejected_requests_total", reason="timeout") == 1


@pytest.mark.parametrize("timeout_us", [2**62, 2**63 - 1])
def test_a_request_may_be_ready_to_wait_for_longer_than_any_clock_counts(serve, timeout_us: int) -> None:
    service = serve()
    service.block()

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(service.infer, 1, timeout=timeout_us)
        service.wait_for(lambda: service.waiting() == 1)
        service.fake.gate.set()

        assert answer.result() == [2]


def test_a_request_whose_client_leaves_never_runs(serve) -> None:
    service = serve()
    service.block()
    x = triton.InferInput("x", [1, 1], "FP32")
    x.set_data_from_numpy(np.ones((1, 1), np.float32))
    call = service.running.client.async_infer("fake", [x], lambda result, error: None)
    service.wait_for(lambda: service.waiting() == 1)

    call.cancel()
    service.wait_for(lambda: service.waiting() == 0)
    service.fake.gate.set()

    assert service.infer(2) == [3]
    assert service.fake.executed == [[0], [2]]
    assert service.sample("trtnode_rejected_requests_total", reason="cancelled") == 1
    service.wait_for(lambda: service.sample("nv_inference_request_failure", reason="CANCELED") == 1)


def test_a_request_whose_client_waits_no_longer_never_runs(serve) -> None:
    service = serve()
    service.block()

    fails_with("DEADLINE_EXCEEDED", lambda: service.infer(1, client_timeout=0.1))
    service.wait_for(lambda: service.waiting() == 0)
    service.fake.gate.set()

    assert service.infer(2) == [3]
    assert service.fake.executed == [[0], [2]]


def test_a_higher_priority_runs_first_and_equal_ones_keep_their_order(serve) -> None:
    service = serve("priority_levels: 2, max_batch_size: 1")
    service.block()
    answers = [service.send(1), service.send(2, priority=2), service.send(3, priority=1), service.send(4, priority=1)]

    service.fake.gate.set()

    assert [answer.result() for answer in answers] == [[2], [3], [4], [5]]
    assert service.fake.executed == [[0], [3], [4], [1], [2]]


def test_a_request_that_makes_a_batch_fail_fails_alone(serve) -> None:
    service = serve()
    service.block()
    good, bad, other = service.send(1), service.send(POISON), service.send(3)

    service.fake.gate.set()

    assert (good.result(), other.result()) == ([2], [4])
    assert fails_with("INTERNAL", bad.result) == "poisoned"
    assert service.fake.executed == [[0], [1, POISON, 3], [1], [POISON], [3]]
    assert service.sample("nv_inference_request_failure", reason="BACKEND") == 1


def test_batches_shrink_where_executions_are_too_slow_for_the_target(serve) -> None:
    service = serve("adaptive: true, latency_target_ms: 0.001")
    service.block()
    answers = [service.send(1), service.send(2)]

    service.fake.gate.set()

    assert [answer.result() for answer in answers] == [[2], [3]]
    assert service.fake.executed == [[0], [1], [2]]


def test_instances_run_batches_side_by_side(serve) -> None:
    service = serve("max_batch_size: 2", extra="instances: 2")
    service.block()
    service.block()
    answers = [service.send(number) for number in range(1, 5)]

    service.fake.gate.set()

    assert [answer.result() for answer in answers] == [[2], [3], [4], [5]]
    assert sorted(service.fake.executed) == [[0], [0], [1, 2], [3, 4]]


def test_a_server_that_stops_answers_what_waits(serve) -> None:
    service = serve()
    service.block()
    answers = [service.send(1), service.send(2)]
    stop = threading.Thread(target=service.running.server.stop, args=(PATIENCE_S,))
    stop.start()

    service.fake.gate.set()

    assert [answer.result() for answer in answers] == [[2], [3]]
    stop.join()


def test_a_model_without_a_batch_axis_is_served_one_by_one_and_the_log_says_so(serve, caplog) -> None:
    service = serve(fake=Recorder(first=1))
    service.block()
    answers = [service.send(1), service.send(2)]

    service.fake.gate.set()

    assert [answer.result() for answer in answers] == [[2], [3]]
    assert sorted(service.fake.executed) == [[0], [1], [2]]
    assert (
        "Model 'fake': requests run one by one, without batching: "
        "the first dimension of input 'x' of model 'fake' is fixed"
    ) in caplog.text


class Centred(Recorder):
    """Subtracts the mean over axis 0, so that axis is no batch axis."""

    def run(
        self, feeds: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None, times: Any = None
    ) -> dict[str, np.ndarray]:
        super().run(feeds, outputs)
        return {"y": feeds["x"] - feeds["x"].mean(0)}


def test_a_model_whose_rows_depend_on_each_other_is_served_one_by_one(serve, caplog) -> None:
    service = serve(fake=Centred())
    service.block()
    answers = [service.send(1, 3), service.send(5, 5)]

    service.fake.gate.set()

    assert [answer.result() for answer in answers] == [[-1, 1], [0, 0]]
    assert "so axis 0 is no batch axis" in caplog.text


def test_statistics_add_up(serve) -> None:
    service = serve()
    service.block()
    answers = [service.send(1), service.send(2, 3), service.send(POISON, columns=2)]
    service.fake.gate.set()
    for answer in answers[:2]:
        answer.result()
    fails_with("INTERNAL", answers[2].result)

    service.wait_for(lambda: service.sample("nv_inference_request_success") == 3)
    (stats,) = service.running.client.get_inference_statistics("fake", "1").model_stats

    assert (stats.name, stats.version, stats.inference_count, stats.execution_count) == ("fake", "1", 4, 3)
    assert [(batch.batch_size, batch.compute_infer.count) for batch in stats.batch_stats] == [(1, 1), (3, 1)]
    inference = stats.inference_stats
    assert (inference.success.count, inference.queue.count, inference.fail.count) == (3, 3, 1)
    parts = (inference.queue, inference.compute_input, inference.compute_infer, inference.compute_output)
    assert 0 < sum(part.ns for part in parts) <= inference.success.ns
    assert stats.last_inference > 0
    assert service.sample("nv_inference_count") == 4
    assert service.sample("nv_inference_exec_count") == 3
    assert service.sample("trtnode_batch_size_count") == 2
    assert service.sample("trtnode_batch_size_bucket", le="2") == 1
    assert service.sample("trtnode_batch_size_sum") == 4


def test_statistics_of_an_unknown_model_are_an_invalid_argument(shared) -> None:
    fails_with("INVALID_ARGUMENT", lambda: shared.client.get_inference_statistics("three"))
    fails_with("INVALID_ARGUMENT", lambda: shared.client.get_inference_statistics("two", "7"))


def test_statistics_without_a_name_are_of_all_models(shared) -> None:
    found = shared.client.get_inference_statistics().model_stats

    assert {stats.name for stats in found} >= {"two", "FLOAT", "STRING"}


def test_the_configuration_says_how_a_model_is_batched(serve) -> None:
    keys = "max_batch_size: 8, max_queue_delay_us: 700, preferred_batch_sizes: [2, 4], max_queue_size: 9"
    service = serve(f"{keys}, timeout_ms: 5, priority_levels: 3", fake=Recorder(columns=4), extra="instances: 2")

    config = service.running.client.get_model_config("fake").config

    assert (config.name, config.platform, config.max_batch_size) == ("fake", "onnxruntime_onnx", 8)
    assert [(one.name, one.data_type, list(one.dims)) for one in config.input] == [("x", 11, [4])]
    assert [(one.name, one.data_type, list(one.dims)) for one in config.output] == [("y", 11, [4])]
    assert [(group.name, group.count) for group in config.instance_group] == [("fake_0", 2)]
    batching = config.dynamic_batching
    assert list(batching.preferred_batch_size) == [2, 4]
    assert (batching.max_queue_delay_microseconds, batching.priority_levels) == (700, 3)
    policy = batching.default_queue_policy
    assert (policy.max_queue_size, policy.default_timeout_microseconds) == (9, 5000)
    assert config.parameters["engine"].string_value == "native"


def test_the_configuration_of_a_model_without_batching_has_whole_shapes(shared) -> None:
    config = shared.client.get_model_config("two").config

    assert config.max_batch_size == 0
    assert not config.HasField("dynamic_batching")
    assert [list(one.dims) for one in config.input] == [[-1, 3], [-1, 3]]
    fails_with("NOT_FOUND", lambda: shared.client.get_model_config("three"))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("timeout", {"string_param": "soon"}, "the parameter 'timeout' should be a number from 0, as int64_param"),
        ("timeout", {"int64_param": -1}, "the parameter 'timeout' should be a number from 0, as int64_param"),
        (
            "priority",
            {"double_param": 0.5},
            "the parameter 'priority' should be a number from 0, as uint64_param or int64_param",
        ),
    ],
)
def test_wishes_that_make_no_sense_are_refused(serve, name: str, value: dict[str, Any], message: str) -> None:
    service = serve()
    request = ModelInferRequest(
        model_name="fake",
        parameters={name: value},
        inputs=[{"name": "x", "datatype": "FP32", "shape": [1, 1]}],
        raw_input_contents=[bytes(4)],
    )

    with grpc.insecure_channel(service.running.address) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(request.SerializeToString())

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == message


@pytest.mark.parametrize("engine", ["native", "openvino"])
def test_batched_answers_equal_the_requests_own(start, models, engine: str) -> None:
    batching = "batching: {max_batch_size: 8, preferred_batch_sizes: [4, 8]}, instances: 2"
    running = start(f"- {{name: FLOAT, path: {models}/FLOAT.onnx, engine: {engine}, {batching}}}")
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal((1 + n % 3, 2 + n % 2)).astype(np.float32) for n in range(300)]

    def ask(array: np.ndarray) -> bool:
        x = triton.InferInput("x", array.shape, "FP32")
        x.set_data_from_numpy(array)
        return np.array_equal(running.client.infer("FLOAT", [x]).as_numpy("y"), array)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, arrays))
    (stats,) = running.client.get_inference_statistics("FLOAT").model_stats
    assert stats.inference_count == sum(map(len, arrays))
    assert stats.execution_count < len(arrays)


def test_texts_are_batched_too(start, models) -> None:
    running = start(f"- {{name: STRING, path: {models}/STRING.onnx, engine: native, batching: {{}}}}")

    def ask(number: int) -> bool:
        sent = np.array([[str(number).encode()]], object)
        x = triton.InferInput("x", sent.shape, "BYTES")
        x.set_data_from_numpy(sent)
        return running.client.infer("STRING", [x]).as_numpy("y").tolist() == sent.tolist()

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(100)))
