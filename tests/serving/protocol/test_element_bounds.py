"""Elements that a request's shapes stand for, counted before any is made, whatever way a tensor comes in."""

from __future__ import annotations

import pathlib
import struct
from collections.abc import Callable

import onnx
import pytest
import tritonclient.grpc as triton

from benchmarks.attacks.bombs import HEADER
from model_texts import parse
from tests.serving.conftest import Running, refusal
from tests.serving.protocol.conftest import Memory, tensor
from tests.serving.rest import conftest as rest
from trtnode.serving.protocol.wire_signature import MOST_STRINGS

MIB = 1 << 20
TEXT = "/v2/models/STRING/infer"
TOO_MANY = f"input 'x' of model 'STRING' has [1, {MOST_STRINGS + 1}] elements of BYTES; a request may have"
SPANS = "whose other dimensions span more elements than the 67108864 bytes of a message could hold"


def raw(name: str, datatype: str, shape: list[int], data: bytes = b"") -> triton.InferInput:
    one = triton.InferInput(name, shape, datatype)
    one._raw_content = data
    return one


def test_as_many_empty_strings_as_a_request_may_have_come_back(shared: Running) -> None:
    data = bytes(4 * MOST_STRINGS)

    answer = shared.client.infer("STRING", [raw("x", "BYTES", [1, MOST_STRINGS], data)])

    assert answer.get_response().raw_output_contents[0] == data


def test_more_strings_in_raw_contents_are_refused(shared: Running) -> None:
    sent = [raw("x", "BYTES", [1, MOST_STRINGS + 1], bytes(4 * MOST_STRINGS + 4))]

    code, message = refusal(lambda: shared.client.infer("STRING", sent))

    assert code == "RESOURCE_EXHAUSTED"
    assert TOO_MANY in message


def test_more_strings_in_typed_contents_are_refused_before_they_are_there(shared: Running) -> None:
    sent = triton.InferInput("x", [1, MOST_STRINGS + 1], "BYTES")
    sent._input.contents.bytes_contents.append(b"")

    code, message = refusal(lambda: shared.client.infer("STRING", [sent]))

    assert code == "RESOURCE_EXHAUSTED"
    assert TOO_MANY in message


@pytest.mark.parametrize("form", ["json", "behind-json"])
def test_more_strings_over_http_are_refused(shared: Running, form: str) -> None:
    shape = [1, MOST_STRINGS + 1]
    if form == "json":
        one = rest.given("x", shape=shape, datatype="BYTES", data=[""])
        body, headers = rest.request(one), {}
    else:
        data = bytes(4 * MOST_STRINGS + 4)
        size = {"binary_data_size": len(data)}
        one = rest.given("x", shape=shape, datatype="BYTES", data=None, parameters=size)
        body, headers = rest.with_tensors(rest.request(one), data)

    status, message = rest.refusal(shared, TEXT, body, **headers)

    assert status == 413
    assert TOO_MANY in message


def test_more_strings_in_shared_memory_are_refused(client: triton.InferenceServerClient, memory: Memory) -> None:
    client.register_system_shared_memory("many", memory.key, memory.byte_size)
    sent = tensor("x", (1, MOST_STRINGS + 1), "BYTES", "many", memory.byte_size)

    code, message = refusal(lambda: client.infer("STRING", [sent]))

    assert code == "RESOURCE_EXHAUSTED"
    assert TOO_MANY in message


@pytest.mark.parametrize("shape", [[0, 2**26], [0, 2**62]], ids=str)
def test_a_shape_without_elements_spans_no_more_than_a_message_could_hold(shared: Running, shape: list[int]) -> None:
    code, message = refusal(lambda: shared.client.infer("FLOAT", [raw("x", "FP32", shape)]))

    assert code == "RESOURCE_EXHAUSTED"
    assert SPANS in message


def test_the_same_holds_over_http(shared: Running) -> None:
    body = rest.request(rest.given("x", shape=[0, 2**26], data=[]))

    status, message = rest.refusal(shared, "/v2/models/FLOAT/infer", body)

    assert status == 413
    assert SPANS in message


def test_the_span_is_that_of_the_configured_message(start: Callable[..., Running], models: object) -> None:
    entry = f"- {{name: FLOAT, path: {models}/FLOAT.onnx, engine: native}}\n"
    running = start(entry, ports="grpc: {port: 0, max_message_mb: 1}, http: {port: 0}")

    assert running.client.infer("FLOAT", [raw("x", "FP32", [0, MIB // 4])]).as_numpy("y").shape == (0, MIB // 4)
    assert refusal(lambda: running.client.infer("FLOAT", [raw("x", "FP32", [0, MIB // 4 + 1])]))[0] == (
        "RESOURCE_EXHAUSTED"
    )


def test_a_shape_of_more_dimensions_than_any_array_has_is_refused(shared: Running) -> None:
    code, message = refusal(lambda: shared.client.infer("FLOAT", [raw("x", "FP32", [1] * 65, struct.pack("<f", 1))]))

    assert code == "INVALID_ARGUMENT"
    assert "has 65 dimensions; the most are 64" in message


def test_an_answer_that_no_message_holds_is_refused_and_the_client_is_not_called_slow(
    start: Callable[..., Running], tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = parse(f"{HEADER} g (float[n] x) => (float[m] y) {{ y = Concat<axis = 0>(x, x, x) }}")
    onnx.save(model, tmp_path / "thrice.onnx")
    entry = "- {name: thrice, path: thrice.onnx, engine: native}\n"
    running = start(entry, ports="grpc: {port: 0, max_message_mb: 1}, http: {port: 0}")

    code, message = refusal(lambda: running.client.infer("thrice", [raw("x", "FP32", [MIB // 8], bytes(MIB // 2))]))

    assert code == "RESOURCE_EXHAUSTED"
    assert "the answer of model 'thrice' has" in message
    assert "stopped reading" not in caplog.text
