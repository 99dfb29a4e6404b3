"""ModelStreamInfer: several requests on one call, errors in its middle, and every way to end it."""

import asyncio
import logging
import queue
import threading
import time

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException

from protos import ModelInferRequest, ModelStreamInferResponse
from serving.streams import MAX_PENDING

WAIT_S = 120
METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"


def inputs(value: float = 0, size: int = 1) -> list[triton.InferInput]:
    x = triton.InferInput("x", [size], "FP32")
    x.set_data_from_numpy(np.full(size, value, np.float32))
    return [x]


def message(value: float = 0, name: str = "fake", **fields) -> ModelInferRequest:
    request = ModelInferRequest(model_name=name, raw_input_contents=[np.float32(value).tobytes()], **fields)
    request.inputs.add(name="x", datatype="FP32", shape=[1])
    return request


class Stream:
    """A stream of tritonclient's, with its answers in the order of their arrival."""

    def __init__(self, client: triton.InferenceServerClient, **options) -> None:
        self.client = client
        self.answers: queue.Queue = queue.Queue()
        client.start_stream(lambda result, error: self.answers.put((result, error)), **options)

    def send(self, value: float = 0, model: str = "fake", **options) -> None:
        self.client.async_stream_infer(model, inputs(value), **options)

    def next(self) -> triton.InferResult:
        result, error = self.answers.get(timeout=WAIT_S)
        assert error is None, error
        return result

    def error(self) -> InferenceServerException:
        result, error = self.answers.get(timeout=WAIT_S)
        assert result is None
        return error


class RawStream:
    """A stream without any library between it and the server."""

    def __init__(self, channel: grpc.Channel, **options) -> None:
        self._requests: queue.Queue = queue.Queue()
        call = channel.stream_stream(METHOD, ModelInferRequest.SerializeToString, ModelStreamInferResponse.FromString)
        self.call = call(iter(self._requests.get, None), **options)

    def send(self, request: ModelInferRequest) -> None:
        self._requests.put(request)

    def close(self) -> None:
        self._requests.put(None)

    def __next__(self) -> ModelStreamInferResponse:
        return next(self.call)


@pytest.fixture
def raw(start_fake):
    running = start_fake()
    with grpc.insecure_channel(running.address) as channel:
        yield lambda **options: RawStream(channel, **options)


def eventually(condition) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def stream_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("stream-reader")}


def test_requests_of_one_stream_are_answered_by_their_ids(start_fake) -> None:
    stream = Stream(start_fake("instances: 4").client)

    for number in range(100):
        stream.send(number, request_id=str(number))
    results = [stream.next() for _ in range(100)]

    assert {r.get_response().id: float(r.as_numpy("y")[0]) for r in results} == {str(n): n + 1.0 for n in range(100)}


def test_one_stream_carries_requests_to_several_models(shared) -> None:
    with triton.InferenceServerClient(shared.address) as client:
        stream = Stream(client)
        for name, datatype in (("FLOAT", "FP32"), ("INT64", "INT64")):
            x = triton.InferInput("x", [1, 2], datatype)
            x.set_data_from_numpy(np.array([[1, 2]], triton_dtype(datatype)))
            client.async_stream_infer(name, [x], request_id=name)
        results = {result.get_response().model_name: result.as_numpy("y").tolist() for result in take(stream, 2)}
        client.stop_stream()

    assert results == {"FLOAT": [[1, 2]], "INT64": [[1, 2]]}


def triton_dtype(datatype: str) -> type:
    return {"FP32": np.float32, "INT64": np.int64}[datatype]


def take(stream: Stream, count: int) -> list[triton.InferResult]:
    return [stream.next() for _ in range(count)]


def test_a_fast_request_overtakes_a_slow_one(start, fake) -> None:
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


def test_an_error_stands_in_its_answer_and_the_stream_goes_on(start_fake) -> None:
    stream = Stream(start_fake().client)

    stream.send(model="nowhere")
    assert "nowhere" in str(stream.error())
    stream.send(1)

    assert stream.next().as_numpy("y").tolist() == [2]


def test_an_error_names_its_request(raw) -> None:
    stream = raw()

    stream.send(message(id="7", name="nowhere"))
    answer = next(stream)

    assert "nowhere" in answer.error_message
    assert answer.infer_response.id == "7"
    assert not answer.infer_response.outputs


def test_a_failed_run_is_an_error_of_its_request_alone(start_fake, fake) -> None:
    stream = Stream(start_fake().client)
    fake.error = RuntimeError("secret")

    stream.send()
    error = stream.error()
    fake.error = None
    stream.send()

    assert "its log says why" in str(error)
    assert "secret" not in str(error)
    assert stream.next()


def test_a_client_may_ask_for_a_status_instead_of_error_messages(raw) -> None:
    stream = raw(metadata=[("triton_grpc_error", "true")])

    stream.send(message(1))
    assert next(stream).infer_response.raw_output_contents[0] == np.float32(2).tobytes()
    stream.send(message(name="nowhere"))
    with pytest.raises(grpc.RpcError) as caught:
        next(stream)

    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert "nowhere" in caught.value.details()


@pytest.mark.parametrize("wanted", [True, False])
def test_each_answer_is_marked_as_the_last_of_its_request(start_fake, wanted: bool) -> None:
    stream = Stream(start_fake().client)

    stream.send(1, enable_empty_final_response=wanted)
    stream.send(2, enable_empty_final_response=wanted)

    for _ in range(2):  # nothing comes after the one answer of a request
        response = stream.next().get_response()
        assert response.parameters["triton_final_response"].bool_param
        assert response.outputs


def test_a_unary_answer_has_no_such_mark(start_fake) -> None:
    response = start_fake().client.infer("fake", inputs()).get_response()

    assert not response.parameters


def test_the_final_response_parameter_has_a_type(raw) -> None:
    stream = raw()

    stream.send(message(parameters={"triton_enable_empty_final_response": {"int64_param": 1}}))

    assert "'triton_enable_empty_final_response' should be a bool_param" in next(stream).error_message


def test_half_closing_waits_for_every_answer(raw, fake) -> None:
    stream = raw()
    fake.gate.clear()
    for number in range(5):
        stream.send(message(number))
    stream.close()
    assert fake.started.acquire(timeout=WAIT_S)

    fake.gate.set()
    answers = list(stream.call)

    assert len(answers) == 5
    assert stream.call.code() is grpc.StatusCode.OK


def test_a_stream_without_requests_ends_well(raw) -> None:
    stream = raw()

    stream.close()

    assert list(stream.call) == []
    assert stream.call.code() is grpc.StatusCode.OK


def test_closing_a_tritonclient_stream_waits_for_its_answers(start_fake) -> None:
    running = start_fake()
    stream = Stream(running.client)

    for number in range(20):
        stream.send(number)
    running.client.stop_stream()

    assert stream.answers.qsize() == 20


def test_more_requests_than_a_stream_may_have_pending_are_all_answered(raw) -> None:
    stream = raw()

    for number in range(3 * MAX_PENDING):
        stream.send(message(number))
    stream.close()

    assert len(list(stream.call)) == 3 * MAX_PENDING


def test_a_client_that_does_not_read_keeps_nobody_else_waiting(start_fake, fake) -> None:
    running = start_fake()
    size = 1 << 20
    request = ModelInferRequest(model_name="fake", raw_input_contents=[bytes(4 * size)])
    request.inputs.add(name="x", datatype="FP32", shape=[size])
    with grpc.insecure_channel(running.address, [("grpc.max_receive_message_length", -1)]) as channel:
        stream = RawStream(channel)
        for _ in range(24):  # 96 MB of answers that nobody takes
            stream.send(request)
        eventually(lambda: fake.runs == 24)

        assert running.client.infer("fake", inputs(1)).as_numpy("y").tolist() == [2]
        assert len([next(stream) for _ in range(24)]) == 24


def test_idle_streams_hold_no_thread_that_runs_models(start_fake) -> None:
    running = start_fake()
    clients = [triton.InferenceServerClient(running.address) for _ in range(12)]
    for client in clients:
        stream = Stream(client)
        stream.send()
        stream.next()

    assert running.server.in_flight == 0
    assert running.client.infer("fake", inputs()).as_numpy("y").tolist() == [1]
    for client in clients:
        client.close()


def test_cancelling_a_stream_drops_its_waiting_requests(start_fake, fake) -> None:
    running = start_fake()
    stream = Stream(running.client)
    fake.gate.clear()
    for _ in range(20):
        stream.send()
    assert fake.started.acquire(timeout=WAIT_S)
    eventually(lambda: running.server.in_flight == 20)

    running.client.stop_stream(cancel_requests=True)
    eventually(lambda: not stream_threads())
    fake.gate.set()
    eventually(lambda: running.server.in_flight == 0)

    assert fake.runs < 20
    assert running.client.infer("fake", inputs()).as_numpy("y").tolist() == [1]


def test_cancelled_requests_leave_the_queue_of_a_batched_model(start_fake, fake) -> None:
    running = start_fake("batching: {max_batch_size: 4, max_queue_delay_us: 0}")
    fake.gate.clear()
    fake.runs = 0
    stream = Stream(running.client)
    for number in range(20):
        stream.send(number)
    assert fake.started.acquire(timeout=WAIT_S)
    eventually(lambda: running.server.in_flight == 20)

    running.client.stop_stream(cancel_requests=True)
    eventually(lambda: running.server.in_flight <= 4)  # only what is being executed
    fake.gate.set()
    eventually(lambda: running.server.in_flight == 0)

    assert fake.runs <= 2


def test_a_client_that_vanishes_leaves_nothing_behind(start_fake, fake) -> None:
    running = start_fake()
    fake.gate.clear()
    channel = grpc.insecure_channel(running.address)
    stream = RawStream(channel)
    stream.send(message())
    assert fake.started.acquire(timeout=WAIT_S)

    channel.close()
    eventually(lambda: not stream_threads())
    fake.gate.set()

    eventually(lambda: running.server.in_flight == 0)


def test_a_deadline_ends_a_stream(start_fake, fake) -> None:
    running = start_fake()
    fake.gate.clear()
    stream = Stream(running.client, stream_timeout=0.2)
    stream.send()

    assert stream.error().status() == "StatusCode.DEADLINE_EXCEEDED"
    fake.gate.set()


def test_requests_of_streams_count_towards_the_limit(start_fake, fake) -> None:
    running = start_fake(server="limits: {max_requests: 2}")
    fake.gate.clear()
    stream = Stream(running.client)
    for number in range(3):
        stream.send(number)

    assert "server.limits.max_requests" in str(stream.error())
    fake.gate.set()
    assert len(take(stream, 2)) == 2


def test_streams_beyond_the_limit_are_refused(start_fake) -> None:
    running = start_fake(server="limits: {streams: 1}")
    first = Stream(running.client)
    first.send()
    first.next()

    with triton.InferenceServerClient(running.address) as other:
        error = Stream(other).error()
        other.stop_stream()
    running.client.stop_stream()

    assert error.status() == "StatusCode.UNAVAILABLE"
    assert "server.limits.streams" in str(error)
    with triton.InferenceServerClient(running.address) as third:
        stream = Stream(third)
        stream.send()
        assert stream.next()


def test_bytes_that_are_no_message_end_their_stream_alone(start_fake) -> None:
    running = start_fake()
    with grpc.insecure_channel(running.address) as channel, pytest.raises(grpc.RpcError) as caught:
        list(channel.stream_stream(METHOD)(iter([b"\xff\xff\xff\xff"])))

    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert running.client.infer("fake", inputs()).as_numpy("y").tolist() == [1]


def test_stopping_answers_what_is_in_flight_and_ends_idle_streams(start_fake, fake) -> None:
    running = start_fake()
    fake.gate.clear()
    with triton.InferenceServerClient(running.address) as client:
        idle, busy = Stream(client), Stream(running.client)
        idle.send(model="nowhere")
        idle.error()
        busy.send(4)
        assert fake.started.acquire(timeout=WAIT_S)

        stopped: queue.Queue = queue.Queue()
        threading.Thread(target=lambda: stopped.put(running.server.stop(WAIT_S))).start()
        eventually(lambda: not running.client.is_server_ready())
        busy.send(5)
        assert "the server is stopping" in str(busy.error())
        fake.gate.set()

        assert busy.next().as_numpy("y").tolist() == [5]
        for stream in (busy, idle):
            error = stream.error()
            assert (error.status(), "the server is stopping" in str(error)) == ("StatusCode.UNAVAILABLE", True)
        assert stopped.get(timeout=WAIT_S)
    eventually(lambda: not stream_threads())


def test_streams_work_with_the_asyncio_client(start_fake) -> None:
    running = start_fake()

    async def exchange() -> list[float]:
        async def requests():
            for number in range(10):
                yield {"model_name": "fake", "inputs": inputs(number), "request_id": str(number)}

        async with triton_aio.InferenceServerClient(running.address) as client:
            found = []
            async for result, error in client.stream_infer(requests()):
                assert error is None
                found.append(float(result.as_numpy("y")[0]))
            return found

    assert sorted(asyncio.run(exchange())) == [float(n + 1) for n in range(10)]


def test_each_request_of_a_stream_has_its_lines_in_the_log(start_fake, caplog) -> None:
    stream = Stream(start_fake().client)

    with caplog.at_level(logging.DEBUG, "serving.logs"):
        stream.send(1)
        stream.next()
        stream.send(model="nowhere")
        stream.error()

    lines = [line for line in caplog.messages if line.startswith("ModelStreamInfer of ipv4:127.0.0.1:")]
    assert [line.split(": ")[1].split()[0] for line in lines] == ["OK", "NOT_FOUND"]
