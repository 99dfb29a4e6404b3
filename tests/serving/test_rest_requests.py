"""REST requests that are wrong, too large, too slow, abandoned, or not allowed: what each is told."""

import contextlib
import gzip
import hashlib
import http.client
import json
import pathlib
import socket
import threading
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from engines import ExecutionError
from serving import http_front, rest_body, tokens
from serving.errors import AddressError
from serving.status import CODES, HTTP_STATUSES

ROW = np.array([[1, 2, 3]], np.float32)
LENGTH = "Inference-Header-Content-Length"
INFER = "/v2/models/two/infer"
ALL, ONE = "all-models-0123456789", "one-model-0123456789"


def call(
    running, path: str, body: bytes | None = None, *, method: str = "", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", running.server.http_port, timeout=120)
    with contextlib.closing(connection):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method or ("GET" if body is None else "POST"), path, body, named)
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read()


def refusal(running, path: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
    status, _, text = call(running, path, body, **headers)
    return status, json.loads(text)["error"]


def given(name: str = "a", **changes: Any) -> dict[str, Any]:
    fields = {"name": name, "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3], **changes}
    return {key: value for key, value in fields.items() if value is not None}


def behind(name: str, size: Any = 12) -> dict[str, Any]:
    return given(name, data=None, parameters={"binary_data_size": size})


def request(*inputs: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"inputs": inputs or [given("a"), given("b")], **more}).encode()


def with_tensors(text: bytes, tensors: bytes = 2 * ROW.tobytes()) -> tuple[bytes, dict[str, str]]:
    return text + tensors, {LENGTH: str(len(text))}


def status_after(running, path: str = INFER) -> int:
    """A good request, to see that the server goes on."""
    return call(running, path, request())[0]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        pytest.param(b"", "the body is no inference request: Invalid JSON: EOF", id="empty"),
        pytest.param(b"nonsense", "Invalid JSON", id="no-json"),
        pytest.param(request()[:-2], "Invalid JSON: EOF", id="cut-short"),
        pytest.param(b"[" * 100_000, "Invalid JSON: recursion limit", id="too-deep"),
        pytest.param(b"\xff\xfe{}", "Invalid JSON", id="no-utf-8"),
        pytest.param(b"[]", "Input should be an object", id="no-object"),
        pytest.param(b"{}", "inputs: Field required", id="no-inputs"),
        pytest.param(b'{"inputs": null}', "inputs: Input should be a valid array", id="null-inputs"),
        pytest.param(b'{"inputs": [7]}', "inputs.0: Input should be an object", id="input-no-object"),
        pytest.param(request(given(name=None)), "inputs.0.name: Field required", id="no-name"),
        pytest.param(request(given(shape=None)), "inputs.0.shape: Field required", id="no-shape"),
        pytest.param(request(given(datatype=None)), "inputs.0.datatype: Field required", id="no-datatype"),
        pytest.param(request(given(shape=[1.5, 3])), "inputs.0.shape.0: Input should be a valid integer", id="half"),
        pytest.param(request(given(shape="1,3")), "inputs.0.shape: Input should be a valid array", id="text-shape"),
        pytest.param(request(id=7), "id: Input should be a valid string", id="number-as-id"),
        pytest.param(request(parameters=[1]), "parameters: Input should be an object", id="parameters"),
        pytest.param(request(outputs=["sum"]), "outputs.0: Input should be an object", id="output-as-text"),
        pytest.param(request(given("a")), "input 'b' of model 'two' is missing", id="missing-input"),
        pytest.param(request(given("c")), "model 'two' has no input 'c'; it has 'a', 'b'", id="unknown-input"),
        pytest.param(request(given("a"), given("a")), "stands twice in the request", id="twice"),
        pytest.param(request(given(datatype="FP64")), "has type 'FP64', but takes FP32", id="other-type"),
        pytest.param(request(given(shape=[1, 4])), "has shape [1, 4], but takes [-1, 3]", id="other-shape"),
        pytest.param(request(given(shape=[-1, 3])), "no dimension may be negative", id="negative"),
        pytest.param(request(given(shape=[10**30, 3])), "fewer elements than shape", id="huge"),
        pytest.param(request(given(data=[1, 2])), "fewer elements than shape [1, 3] takes (3)", id="fewer"),
        pytest.param(request(given(data=[1, 2, 3, 4])), "more elements than shape [1, 3] takes (3)", id="more"),
        pytest.param(request(given(data=[[1, 2], 3])), 'of these types: "int", "list"', id="mixed-nesting"),
        pytest.param(request(given(data=["1", 2, 3])), 'of these types: "int", "str"', id="text-as-number"),
        pytest.param(request(given(data=[True, 2, 3])), 'of these types: "bool", "int"', id="truth-as-number"),
        pytest.param(request(given(data=[None, 2, 3])), 'of these types: "NoneType", "int"', id="null-as-number"),
        pytest.param(request(given(data=[1e39, 2, 3])), "outside the range of FP32", id="too-large"),
        pytest.param(request(given(data=[10**400, 2, 3])), "outside the range of FP32", id="far-too-large"),
        pytest.param(request(given(data=None)), "should have either 'data' or the parameter", id="no-data"),
        pytest.param(request(outputs=[{"name": "none"}]), "has no output 'none'", id="unknown-output"),
        pytest.param(request(outputs=[{"name": "sum"}] * 2), "is requested twice", id="output-twice"),
        pytest.param(request(parameters={"timeout": -1}), "'timeout' should be a number from 0", id="timeout"),
        pytest.param(request(parameters={"priority": 2**70}), "'priority' should be a number", id="priority"),
        pytest.param(request(parameters={"triton_x": 1}), "'triton_x' is reserved", id="reserved"),
        pytest.param(request(parameters={"binary_data_output": 1}), "should be true or false", id="flag"),
        pytest.param(
            request(given(parameters={"binary_data_size": 12})), "should have either 'data' or", id="two-sources"
        ),
        pytest.param(
            request(given(data=None, parameters={"shared_memory_region": "r"})), "shared_memory_byte_size", id="memory"
        ),
        pytest.param(
            request(parameters={"x": 10**400}), "the parameter 'x' is a larger number", id="parameter-too-large"
        ),
    ],
)  # fmt: skip
def test_a_request_at_fault_is_told_what_is_wrong(shared, body: bytes, told: str) -> None:
    status, text = refusal(shared, INFER, body)

    assert status == 400
    assert told in text
    assert status_after(shared) == 200


@pytest.mark.parametrize(
    ("model", "datatype", "data"),
    [
        ("INT8", "INT8", [128]),
        ("UINT8", "UINT8", [-1]),
        ("INT64", "INT64", [2**63]),
        ("UINT64", "UINT64", [2**64]),
    ],
)
def test_integers_outside_their_range_are_refused(shared, model: str, datatype: str, data: list[int]) -> None:
    body = request(given("x", shape=[1, 1], datatype=datatype, data=data))

    status, text = refusal(shared, f"/v2/models/{model}/infer", body)

    assert (status, text) == (400, f"input 'x' of model {model!r} has an element outside the range of {datatype}")


@pytest.mark.parametrize("number", ["NaN", "1.5", "Infinity", "-Infinity"])
def test_only_floats_take_fractions_and_nan(shared, number: str) -> None:
    def body(datatype: str) -> bytes:
        return request(given("x", shape=[1, 1], datatype=datatype, data=["N"])).replace(b'"N"', number.encode())

    status, _, text = call(shared, "/v2/models/DOUBLE/infer", body("FP64"))
    refused, told = refusal(shared, "/v2/models/INT32/infer", body("INT32"))

    assert (status, f'"data": [{number}]' in text.decode()) == (200, True)
    assert (refused, 'of these types: "float"' in told) == (400, True)


def test_the_largest_and_smallest_integers_travel_in_json(shared) -> None:
    for model, data in {"INT64": [-(2**63), 2**63 - 1], "UINT64": [0, 2**64 - 1]}.items():
        status, _, text = call(
            shared, f"/v2/models/{model}/infer", request(given("x", shape=[1, 2], datatype=model, data=data))
        )

        assert status == 200
        assert json.loads(text)["outputs"][0]["data"] == data


@pytest.mark.parametrize(
    ("sizes", "tensors", "told"),
    [
        pytest.param((12, 16), 24, "has binary_data_size 16, but 12 bytes follow the JSON for it", id="beyond-the-end"),
        pytest.param((12, 8), 24, "has 8 bytes of data, but shape [1, 3] of type FP32 takes 12", id="too-small"),
        pytest.param((24, 12), 36, "has 24 bytes of data, but shape [1, 3] of type FP32 takes 12", id="too-large"),
        pytest.param((12, 12), 30, "6 bytes follow the last tensor", id="left-over"),
        pytest.param((12, -12), 24, "has binary_data_size -12", id="negative"),
        pytest.param((12, 2**70), 24, "has binary_data_size", id="astronomic"),
        pytest.param((12, "12"), 24, "has binary_data_size '12'", id="text"),
        pytest.param((12, True), 24, "has binary_data_size True", id="truth"),
        pytest.param((12, 12), 0, "has binary_data_size 12, but 0 bytes follow", id="no-tensors"),
    ],
)
def test_sizes_that_lie_are_refused(shared, sizes: tuple[Any, Any], tensors: int, told: str) -> None:
    body, headers = with_tensors(request(behind("a", sizes[0]), behind("b", sizes[1])), bytes(tensors))

    status, text = refusal(shared, INFER, body, **headers)

    assert status == 400
    assert told in text
    assert status_after(shared) == 200


@pytest.mark.parametrize(
    ("length", "told"),
    [
        pytest.param("100000", "bytes, but inference-header-content-length is 100000", id="beyond-the-end"),
        pytest.param("10", "Invalid JSON: EOF", id="too-short"),
        pytest.param("0", "Invalid JSON: EOF", id="nothing"),
        pytest.param("-1", "should be a number of bytes, not '-1'", id="negative"),
        pytest.param("many", "should be a number of bytes, not 'many'", id="no-number"),
        pytest.param("9" * 5000, "should be a number of bytes, not '9999", id="astronomic"),
    ],
)
def test_a_json_length_that_lies_is_refused(shared, length: str, told: str) -> None:
    body, _ = with_tensors(request(behind("a"), behind("b")))

    status, text = refusal(shared, INFER, body, **{LENGTH: length})

    assert (status, told in text) == (400, True)


@pytest.mark.parametrize("padding", range(17))
def test_tensors_may_begin_at_any_byte(shared, padding: int) -> None:
    body, headers = with_tensors(
        request(behind("a"), behind("b"), id="x" * padding, parameters={"binary_data_output": True})
    )

    status, facts, answer = call(shared, INFER, body, **headers)

    assert status == 200
    assert np.frombuffer(answer[int(facts[LENGTH.lower()]) :][:12], np.float32).tolist() == [2, 4, 6]


def test_classification_is_refused_clearly(shared) -> None:
    body = request(outputs=[{"name": "sum", "parameters": {"classification": 3}}])

    status, text = refusal(shared, INFER, body)

    assert (status, text) == (501, "output 'sum' asks for a classification, which this server doesn't do")


def test_bad_text_in_raw_bytes_is_refused(shared) -> None:
    text = request(given("x", shape=[1, 1], datatype="BYTES", data=None, parameters={"binary_data_size": 6}))
    body, headers = with_tensors(text, b"\2\0\0\0\xff\xff")

    status, told = refusal(shared, "/v2/models/STRING/infer", body, **headers)

    assert (status, "not UTF-8 text" in told) == (400, True)


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_compressed_bodies_are_unpacked_whatever_their_route(shared, pack: Callable[[bytes], bytes]) -> None:
    name = "gzip" if pack is gzip.compress else "deflate"

    status, _, text = call(shared, INFER, pack(request()), content_encoding=name)
    listed, _, index = call(shared, "/v2/repository/index", pack(b'{"ready": true}'), content_encoding=name)

    assert (status, json.loads(text)["outputs"][0]["data"]) == (200, [2, 4, 6])
    assert (listed, bool(json.loads(index))) == (200, True)


@pytest.mark.parametrize(
    ("body", "encoding", "status", "told"),
    [
        pytest.param(request(), "gzip", 400, "can't be unpacked as its content-encoding says", id="not-packed"),
        pytest.param(gzip.compress(request())[:-9], "gzip", 400, "cut short", id="cut-short"),
        pytest.param(gzip.compress(request()) + b"x", "gzip", 400, "something follows it", id="more-behind"),
        pytest.param(gzip.compress(bytes(3 << 20)), "gzip", 413, "more than 1048576 bytes", id="bomb"),
        pytest.param(request(), "br", 501, "'br' is unknown here; use gzip or deflate", id="unknown"),
    ],
)
def test_bodies_that_can_not_be_unpacked_are_refused(small, body: bytes, encoding: str, status: int, told: str) -> None:
    code, text = refusal(small, "/v2/models/fake/infer", body, content_encoding=encoding)

    assert code == status
    assert told in text


@pytest.fixture
def small(start, fake) -> Any:
    """A server that takes requests of up to 1 MiB."""
    return start(
        "- {name: fake, path: fake.onnx, warmup: 0}\n",
        ports="grpc: {port: 0, max_message_mb: 1}, http: {port: 0}",
        loader=lambda model: fake,
    )


def fake_request(count: int) -> tuple[bytes, dict[str, str]]:
    text = request(given("x", shape=[count], data=None, parameters={"binary_data_size": 4 * count}),
                   parameters={"binary_data_output": True})  # fmt: skip
    return with_tensors(text, np.zeros(count, np.float32).tobytes())


def on_the_wire(body: bytes, headers: dict[str, str]) -> bytes:
    lines = {"Host": "x", "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return b"POST /v2/models/fake/infer HTTP/1.1\r\n" + head.encode() + b"\r\n" + body


def test_a_body_may_be_as_large_as_configured_and_not_larger(small) -> None:
    fits, headers = fake_request(260_000)
    large, more = fake_request(263_000)

    status, _, answer = call(small, "/v2/models/fake/infer", fits, **headers)
    refused, told = refusal(small, "/v2/models/fake/infer", large, **more)

    assert (status, answer[-4:]) == (200, np.float32(1).tobytes())
    assert (refused, told.startswith("the request has more than 1048576 bytes")) == (413, True)


def test_a_chunked_body_is_read_and_bounded_too(small) -> None:
    body, headers = fake_request(100)
    connection = http.client.HTTPConnection("127.0.0.1", small.server.http_port, timeout=120)
    with contextlib.closing(connection):
        connection.request("POST", "/v2/models/fake/infer", iter([body[:50], body[50:]]), headers, encode_chunked=True)
        answer = connection.getresponse()
        assert (answer.status, len(answer.read()) > 400) == (200, True)
        with contextlib.suppress(ConnectionError):
            connection.request("POST", "/v2/models/fake/infer", (bytes(1 << 16) for _ in range(64)), headers)
        assert connection.getresponse().status == 413


def test_a_body_that_stops_coming_is_given_up(start_fake, monkeypatch) -> None:
    monkeypatch.setattr(rest_body, "CLIENT_TIMEOUT_S", 0.2)
    running = start_fake()
    with socket.create_connection(("127.0.0.1", running.server.http_port)) as client:
        client.sendall(b"POST /v2/models/fake/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")

        answer = client.recv(1000)

    assert answer.startswith(b"HTTP/1.1 400 ")


def test_a_client_that_leaves_while_it_sends_disturbs_nobody(start_fake, fake, capfd) -> None:
    running = start_fake()
    with socket.create_connection(("127.0.0.1", running.server.http_port)) as client:
        client.sendall(b"POST /v2/models/fake/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")

    body, headers = fake_request(1)
    assert call(running, "/v2/models/fake/infer", body, **headers)[0] == 200
    assert "Traceback" not in capfd.readouterr().err


def test_a_request_whose_client_leaves_is_never_executed(start_fake, fake, eventually) -> None:
    running = start_fake("batching: {max_batch_size: 1}")
    body, headers = fake_request(1)
    runs = fake.runs
    fake.gate.clear()
    first = socket.create_connection(("127.0.0.1", running.server.http_port))
    first.sendall(on_the_wire(body, headers))
    eventually(lambda: fake.runs == runs + 1)

    with socket.create_connection(("127.0.0.1", running.server.http_port)) as second:
        second.sendall(on_the_wire(body, headers))
        eventually(lambda: running.server.in_flight == 2)
    eventually(lambda: running.server.in_flight == 1)

    fake.gate.set()
    assert first.recv(1000).startswith(b"HTTP/1.1 200 ")
    first.close()
    assert fake.runs == runs + 1


def test_a_client_that_does_not_read_its_answer_disturbs_nobody(small) -> None:
    body, headers = fake_request(250_000)
    with socket.create_connection(("127.0.0.1", small.server.http_port)) as lazy:
        for _ in range(3):
            lazy.sendall(on_the_wire(body, headers))

        assert call(small, "/v2/models/fake/infer", body, **headers)[0] == 200


def test_requests_beyond_the_limit_are_refused_and_counted(start_fake, fake) -> None:
    running = start_fake(server="limits: {max_requests: 1}")
    body, headers = fake_request(1)
    fake.gate.clear()
    statuses: list[int] = []
    path = "/v2/models/fake/infer"
    thread = threading.Thread(target=lambda: statuses.append(call(running, path, body, **headers)[0]))
    thread.start()
    assert fake.started.acquire(timeout=120)

    status, text = refusal(running, path, body, **headers)

    assert (status, "server.limits.max_requests" in text) == (503, True)
    assert 'trtnode_rejected_requests_total{model="fake",reason="max_requests",version="1"} 1.0' in metrics(running)
    fake.gate.set()
    thread.join()
    assert statuses == [200]


def metrics(running) -> str:
    return call(running, "/metrics")[2].decode()


def test_a_model_that_fails_is_an_internal_error(start_fake, fake) -> None:
    running = start_fake()
    fake.error = ExecutionError("the engine broke")
    body, headers = fake_request(1)

    assert refusal(running, "/v2/models/fake/infer", body, **headers) == (500, "the engine broke")


def test_what_nobody_foresaw_is_an_internal_error_without_its_text(start_fake, fake) -> None:
    running = start_fake()
    fake.error = ZeroDivisionError("secret")
    body, headers = fake_request(1)

    status, text = refusal(running, "/v2/models/fake/infer", body, **headers)

    assert (status, "secret" in text, "ModelInfer" in text) == (500, False, True)


def test_every_error_has_a_status() -> None:
    assert {code for _, code in CODES} == set(HTTP_STATUSES)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/models/two/infer", 405),
        ("POST", "/v2/models/two", 405),
        ("GET", "/v2/models/two/versions/x", 400),
        ("GET", "/v2/models/none/versions/1", 404),
        ("GET", "/v2/nonsense", 404),
        ("GET", "/v2/models/two/infer/more", 404),
        ("GET", "/v2/models/..%2f..%2fetc/config", 404),
        ("POST", "/v2/repository/index", 200),
    ],
)
def test_paths_and_verbs_that_are_not_there_are_told_so_in_json(shared, method: str, path: str, status: int) -> None:
    code, headers, text = call(shared, path, method=method)

    assert code == status
    assert headers["content-type"] == "application/json"
    assert status == 200 or json.loads(text)["error"]


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/v2/repository/index", b"{", "the body is no JSON"),
        ("/v2/repository/index", b"[]", "should be a JSON object"),
        ("/v2/repository/index", b'{"nonsense": 1}', "no field named"),
        ("/v2/repository/index", b'{"ready": 7}', "the body doesn't fit"),
        ("/v2/systemsharedmemory/region/r/register", b"{}", "byte_size of 1 or more"),
        ("/v2/systemsharedmemory/region/r/register", b'{"key": "/r", "byte_size": -1}', "the body doesn't fit"),
        ("/v2/logging", b'{"log_info": [1]}', "'log_info' should be text, a number from 0 or true or false"),
        ("/v2/logging", b'{"log_info": 1}', "'log_info' should be of type bool"),
        ("/v2/trace/setting", b'{"trace_level": ["LOUD"]}', "there is no trace level 'LOUD'"),
        ("/v2/trace/setting", b'{"trace_rate": "%d"}' % (10**50), "should be a whole number from 1 to"),
        ("/v2/trace/setting", b'{"trace_rate": "%s1"}' % (b"0" * 5000), "should be a whole number from 1 to"),
        ("/v2/logging", b'{"log_file": "\\ud800"}', "surrogates not allowed"),
    ],
)
def test_wrong_bodies_of_other_calls_are_told_what_is_wrong(with_memory, path: str, body: bytes, told: str) -> None:
    status, text = refusal(with_memory, path, body)

    assert status == 400
    assert told in text


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"parameters": 7}', "'parameters' should be a JSON object"),
        (b'{"parameters": {"config": [1]}}', "'config' should be text"),
        (b'{"parameters": {"config": 7}}', "'config' should be a string_param"),
        (b'{"parameters": {"config": "{}", "file:1/m.onnx": "no base64!"}}', "should be a file in base64"),
        (b'{"parameters": {"file:1/m.onnx": "eA=="}}', "files need the parameter 'config'"),
        (b'{"parameters": {"config": "{}", "file:1/../../m": "eA=="}}', "without '..'"),
    ],
)
def test_a_wrong_request_to_load_changes_nothing(start_fake, body: bytes, told: str) -> None:
    running = start_fake(server="admin: {repository: true}")

    status, text = refusal(running, "/v2/repository/models/fake/load", body)

    assert status == 400
    assert told in text
    assert call(running, "/v2/models/fake/ready")[0] == 200


@pytest.fixture
def guarded(tmp_path: pathlib.Path, monkeypatch, start_fake) -> Any:
    monkeypatch.setattr(tokens, "RECHECK_S", 0)
    file = tmp_path / "tokens.yaml"
    file.touch(0o600)
    file.write_text(
        f"tokens:\n- {{name: all, token: {ALL}}}\n"
        f"- {{name: one, sha256: {hashlib.sha256(ONE.encode()).hexdigest()}, models: [other]}}\n"
    )
    return start_fake(server=f"auth: {{tokens_file: {file}}}, admin: {{repository: true}}")


def test_every_call_needs_a_token(guarded) -> None:
    for path in ("/v2", "/v2/health/live", "/v2/models/fake", "/v2/models/stats", "/metrics", "/status.json", "/x",
                 "/models/fake/explain"):  # fmt: skip
        status, headers, _ = call(guarded, path)
        assert (status, headers["www-authenticate"]) == (401, "Bearer"), path
        assert call(guarded, path, authorization=f"Bearer {ALL}")[0] != 401, path


def test_a_token_is_asked_for_before_the_body_is_read(guarded) -> None:
    with socket.create_connection(("127.0.0.1", guarded.server.http_port)) as client:
        client.sendall(b"POST /v2/models/fake/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")

        assert client.recv(1000).startswith(b"HTTP/1.1 401 ")


def test_a_token_covers_its_models_and_rights_alone(guarded) -> None:
    body, headers = fake_request(1)

    def ask(path: str, token: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
        status, _, text = call(guarded, path, body, authorization=f"Bearer {token}", **headers)
        return status, text.decode(errors="replace")

    assert ask("/v2/models/fake/infer", ALL, body, **headers)[0] == 200
    assert ask("/v2/models/fake/infer", ONE, body, **headers)[0] == 403
    assert ask("/v2/models/fake", ONE)[0] == 403
    assert ask("/v2/models/other", ONE)[0] == 404
    assert ask("/v2/models/stats", ONE)[0] == 403
    assert ask("/models/fake/explain", ONE)[0] == 403
    assert ask("/v2/repository/models/fake/unload", ALL, b"")[0] == 403
    assert json.loads(ask("/status.json", ONE)[1])["models"] == []
    assert 'trtnode_refused_calls_total{reason="forbidden"} 5.0' in ask("/metrics", ALL)[1]


def test_a_stopping_server_answers_what_it_has_and_refuses_the_rest(start_fake, fake, eventually) -> None:
    running = start_fake()
    body, headers = fake_request(1)
    path, statuses = "/v2/models/fake/infer", []
    fake.gate.clear()
    thread = threading.Thread(target=lambda: statuses.append(call(running, path, body, **headers)[0]))
    thread.start()
    assert fake.started.acquire(timeout=120)
    stop = threading.Thread(target=running.server.stop, args=(20,))
    stop.start()
    eventually(lambda: call(running, "/v2/health/ready")[0] == 400)

    assert refusal(running, path, body, **headers) == (503, "the server is stopping; send the request to another one")
    assert call(running, "/v2/health/live")[0] == 200
    fake.gate.set()
    thread.join()
    stop.join()

    assert statuses == [200]
    with pytest.raises(ConnectionRefusedError):
        call(running, "/livez")


def test_idle_connections_do_not_keep_the_server_from_ending(start_fake) -> None:
    running = start_fake()
    with socket.create_connection(("127.0.0.1", running.server.http_port)) as idle:
        idle.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert idle.recv(1000)

        assert running.server.stop(5)


def test_no_packet_waits_for_the_acknowledgement_of_another(shared, monkeypatch) -> None:
    found = []
    made = http_front._Protocol.connection_made

    def connection_made(protocol, transport) -> None:
        found.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        made(protocol, transport)

    monkeypatch.setattr(http_front._Protocol, "connection_made", connection_made)
    call(shared, "/livez")

    assert found == [1]


def test_two_servers_do_not_share_a_port(start_fake, start, fake) -> None:
    first = start_fake()

    with pytest.raises(AddressError, match=r"change server\.http\.port"):
        start(
            "- {name: fake, path: fake.onnx}",
            ports=f"grpc: {{port: 0}}, http: {{port: {first.server.http_port}}}",
            loader=lambda model: fake,
        )
