"""Errors over REST: statuses, texts and tokens."""

from __future__ import annotations

import hashlib
import json
import pathlib
import socket

import pytest

from tests.serving.conftest import FakeExecutable, Running, StartFake
from tests.serving.rest.conftest import call, fake_request, refusal
from trtnode.engines.errors import ExecutionError
from trtnode.serving.security import tokens
from trtnode.serving.service.status import CODES, HTTP_STATUSES

ALL, ONE = "all-models-0123456789", "one-model-0123456789"


def test_a_model_that_fails_is_an_internal_error(start_fake: StartFake, fake: FakeExecutable) -> None:
    running = start_fake()
    fake.error = ExecutionError("the engine broke")
    body, headers = fake_request(1)

    assert refusal(running, "/v2/models/fake/infer", body, **headers) == (500, "the engine broke")


def test_what_nobody_foresaw_is_an_internal_error_without_its_text(start_fake: StartFake, fake: FakeExecutable) -> None:
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
def test_paths_and_verbs_that_are_not_there_are_told_so_in_json(
    shared: Running, method: str, path: str, status: int
) -> None:
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
def test_wrong_bodies_of_other_calls_are_told_what_is_wrong(
    with_memory: Running, path: str, body: bytes, told: str
) -> None:
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
def test_a_wrong_request_to_load_changes_nothing(start_fake: StartFake, body: bytes, told: str) -> None:
    running = start_fake(server="admin: {repository: true}")

    status, text = refusal(running, "/v2/repository/models/fake/load", body)

    assert status == 400
    assert told in text
    assert call(running, "/v2/models/fake/ready")[0] == 200


@pytest.fixture
def guarded(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, start_fake: StartFake) -> Running:
    monkeypatch.setattr(tokens, "RECHECK_S", 0)
    file = tmp_path / "tokens.yaml"
    file.touch(0o600)
    file.write_text(
        f"tokens:\n- {{name: all, token: {ALL}}}\n"
        f"- {{name: one, sha256: {hashlib.sha256(ONE.encode()).hexdigest()}, models: [other]}}\n"
    )
    return start_fake(server=f"auth: {{tokens_file: {file}}}, admin: {{repository: true}}")


def test_every_call_needs_a_token(guarded: Running) -> None:
    for path in ("/v2", "/v2/health/live", "/v2/models/fake", "/v2/models/stats", "/metrics", "/status.json", "/x",
                 "/models/fake/explain"):  # fmt: skip
        status, headers, _ = call(guarded, path)
        assert (status, headers["www-authenticate"]) == (401, "Bearer"), path
        assert call(guarded, path, authorization=f"Bearer {ALL}")[0] != 401, path


def test_a_token_is_asked_for_before_the_body_is_read(guarded: Running) -> None:
    with socket.create_connection(("127.0.0.1", guarded.server.http_port)) as client:
        client.sendall(b"POST /v2/models/fake/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")

        assert client.recv(1000).startswith(b"HTTP/1.1 401 ")


def test_a_token_covers_its_models_and_rights_alone(guarded: Running) -> None:
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
