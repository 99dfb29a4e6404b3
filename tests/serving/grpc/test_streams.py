"""ModelStreamInfer: several requests on one call, errors in its middle, and every way to end it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import grpc
import numpy as np
import pytest

from tests.serving.conftest import FakeExecutable, Starter, StartFake
from tests.serving.grpc.conftest import WAIT_S, RawStream, Stream, message
from trtnode.serving.grpc.streams import MAX_PENDING


@pytest.fixture
def raw(start_fake: StartFake) -> Iterator[Callable[..., RawStream]]:
    running = start_fake()
    with grpc.insecure_channel(running.address) as channel:
        yield lambda **options: RawStream(channel, **options)


def test_requests_of_one_stream_are_answered_by_their_ids(start_fake: StartFake) -> None:
    stream = Stream(start_fake("instances: 4").client)

    for number in range(100):
        stream.send(number, request_id=str(number))
    results = [stream.next() for _ in range(100)]

    assert {r.get_response().id: float(r.as_numpy("y")[0]) for r in results} == {str(n): n + 1.0 for n in range(100)}


def test_a_fast_request_overtakes_a_slow_one(start: Starter, fake: FakeExecutable) -> None:
    fake.gate.clear()
    quick = type(fake)()
    models = "- {name: fake, path: fake.onnx, warmup: 0}\n- {name: quick, path: fake.onnx, warmup: 0}\n"
    running = start(models, loader=lambda model: fake if model.name == "fake" else quick)
    stream = Stream(running.client)

    stream.send(request_id="slow")
    assert fake.started.acquire(timeout=WAIT_S)
    stream.send(model="quick", request_id="fast")

    assert stream.next().get_response().id == "fast"
    fake.gate.set()
    assert stream.next().get_response().id == "slow"


def test_an_error_stands_in_its_answer_and_the_stream_goes_on(start_fake: StartFake) -> None:
    stream = Stream(start_fake().client)

    stream.send(model="nowhere")
    assert "nowhere" in str(stream.error())
    stream.send(1)

    assert stream.next().as_numpy("y").tolist() == [2]


def test_an_error_names_its_request(raw: Callable[..., RawStream]) -> None:
    stream = raw()

    stream.send(message(id="7", name="nowhere"))
    answer = next(stream)

    assert "nowhere" in answer.error_message
    assert answer.infer_response.id == "7"
    assert not answer.infer_response.outputs


def test_a_failed_run_is_an_error_of_its_request_alone(start_fake: StartFake, fake: FakeExecutable) -> None:
    stream = Stream(start_fake().client)
    fake.error = RuntimeError("secret")

    stream.send()
    error = stream.error()
    fake.error = None
    stream.send()

    assert "its log says why" in str(error)
    assert "secret" not in str(error)
    assert stream.next()


def test_a_client_may_ask_for_a_status_instead_of_error_messages(raw: Callable[..., RawStream]) -> None:
    stream = raw(metadata=[("triton_grpc_error", "true")])

    stream.send(message(1))
    assert next(stream).infer_response.raw_output_contents[0] == np.float32(2).tobytes()
    stream.send(message(name="nowhere"))
    with pytest.raises(grpc.RpcError) as caught:
        next(stream)

    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert "nowhere" in caught.value.details()


@pytest.mark.parametrize("wanted", [True, False])
def test_each_answer_is_marked_as_the_last_of_its_request(start_fake: StartFake, wanted: bool) -> None:
    stream = Stream(start_fake().client)

    stream.send(1, enable_empty_final_response=wanted)
    stream.send(2, enable_empty_final_response=wanted)

    for _ in range(2):  # nothing comes after the one answer of a request
        response = stream.next().get_response()
        assert response.parameters["triton_final_response"].bool_param
        assert response.outputs


def test_the_final_response_parameter_has_a_type(raw: Callable[..., RawStream]) -> None:
    stream = raw()

    stream.send(message(parameters={"triton_enable_empty_final_response": {"int64_param": 1}}))

    assert "'triton_enable_empty_final_response' should be a bool_param" in next(stream).error_message


def test_a_stream_without_requests_ends_well(raw: Callable[..., RawStream]) -> None:
    stream = raw()

    stream.close()

    assert list(stream.call) == []
    assert stream.call.code() is grpc.StatusCode.OK


def test_closing_a_tritonclient_stream_waits_for_its_answers(start_fake: StartFake) -> None:
    running = start_fake()
    stream = Stream(running.client)

    for number in range(20):
        stream.send(number)
    running.client.stop_stream()

    assert stream.answers.qsize() == 20


def test_more_requests_than_a_stream_may_have_pending_are_all_answered(raw: Callable[..., RawStream]) -> None:
    stream = raw()

    for number in range(3 * MAX_PENDING):
        stream.send(message(number))
    stream.close()

    assert len(list(stream.call)) == 3 * MAX_PENDING
