"""Models with batching as clients see them: statistics, configuration, options and answers."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest

from tests.serving.batching.conftest import POISON, Recorder, Service, fails_with
from tests.serving.conftest import Running, Starter, given
from trtnode.protos import ModelInferRequest

MOST_WAVES = 10
"""Most waves of requests until some of them form a batch."""


def test_a_model_without_a_batch_axis_is_served_one_by_one_and_the_log_says_so(
    serve: Callable[..., Service], caplog: pytest.LogCaptureFixture
) -> None:
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


def test_a_model_whose_rows_depend_on_each_other_is_served_one_by_one(
    serve: Callable[..., Service], caplog: pytest.LogCaptureFixture
) -> None:
    service = serve(fake=Centred())
    service.block()
    answers = [service.send(1, 3), service.send(5, 5)]

    service.fake.gate.set()

    assert [answer.result() for answer in answers] == [[-1, 1], [0, 0]]
    assert "so axis 0 is no batch axis" in caplog.text


def test_statistics_add_up(serve: Callable[..., Service]) -> None:
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


def test_statistics_of_an_unknown_model_are_an_invalid_argument(shared: Running) -> None:
    fails_with("INVALID_ARGUMENT", lambda: shared.client.get_inference_statistics("three"))
    fails_with("INVALID_ARGUMENT", lambda: shared.client.get_inference_statistics("two", "7"))


def test_the_configuration_says_how_a_model_is_batched(serve: Callable[..., Service]) -> None:
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


def test_the_configuration_of_a_model_without_batching_has_whole_shapes(shared: Running) -> None:
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
def test_requests_that_make_no_sense_are_refused(
    serve: Callable[..., Service], name: str, value: dict[str, Any], message: str
) -> None:
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
def test_batched_answers_equal_the_requests_own(start: Starter, models: pathlib.Path, engine: str) -> None:
    batching = "batching: {max_batch_size: 8, preferred_batch_sizes: [4, 8], max_queue_delay_us: 200000}, instances: 2"
    running = start(f"- {{name: FLOAT, path: {models}/FLOAT.onnx, engine: {engine}, {batching}}}")
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal((1 + n % 3, 2 + n % 2)).astype(np.float32) for n in range(300)]

    def ask(array: np.ndarray) -> bool:
        return np.array_equal(running.client.infer("FLOAT", [given("x", array)]).as_numpy("y"), array)

    with ThreadPoolExecutor(16) as pool:
        for wave in range(1, MOST_WAVES + 1):  # on a busy machine one client may run after the other
            assert all(pool.map(ask, arrays))
            (stats,) = running.client.get_inference_statistics("FLOAT").model_stats
            if stats.execution_count < wave * len(arrays):
                break
    assert stats.inference_count == wave * sum(map(len, arrays))
    assert stats.execution_count < wave * len(arrays)


def test_texts_are_batched_too(start: Starter, models: pathlib.Path) -> None:
    running = start(f"- {{name: STRING, path: {models}/STRING.onnx, engine: native, batching: {{}}}}")

    def ask(number: int) -> bool:
        sent = np.array([[str(number).encode()]], object)
        return running.client.infer("STRING", [given("x", sent)]).as_numpy("y").tolist() == sent.tolist()

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(100)))
