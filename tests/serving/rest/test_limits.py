"""Bodies, clients and ports at the edge: sizes, chunks, compression, clients that leave."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.client
import json
import socket
import threading
import zlib
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from tests.serving.conftest import Eventually, FakeExecutable, Running, Starter, StartFake
from tests.serving.rest.conftest import INFER, call, fake_request, refusal, request
from trtnode.serving.rest import body as request_body
from trtnode.serving.rest.bounded_protocol import BoundedProtocol


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_compressed_bodies_are_unpacked_whatever_their_route(shared: Running, pack: Callable[[bytes], bytes]) -> None:
    name = "gzip" if pack is gzip.compress else "deflate"

    status, _, text = call(shared, INFER, pack(request()), content_encoding=name)
    listed, _, index = call(shared, "/v2/repository/index", pack(b'{"ready": true}'), content_encoding=name)

    assert (status, json.loads(text)["outputs"][0]["data"]) == (200, [2, 4, 6])
    assert (listed, bool(json.loads(index))) == (200, True)


@pytest.mark.parametrize(
    ("body", "encoding", "status", "told"),
    [
        pytest.param(request(), "gzip", 400, "can't be unpacked", id="not-packed"),
        pytest.param(gzip.compress(request())[:-9], "gzip", 400, "cut short", id="cut-short"),
        pytest.param(gzip.compress(request()) + b"x", "gzip", 400, "something follows it", id="more-behind"),
        pytest.param(gzip.compress(bytes(3 << 20)), "gzip", 413, "more than 1048576 bytes", id="bomb"),
        pytest.param(request(), "br", 501, "'br' is unknown here; use gzip or deflate", id="unknown"),
    ],
)
def test_bodies_that_can_not_be_unpacked_are_refused(
    small: Running, body: bytes, encoding: str, status: int, told: str
) -> None:
    code, text = refusal(small, "/v2/models/fake/infer", body, content_encoding=encoding)

    assert code == status
    assert told in text


@pytest.fixture
def small(start: Starter, fake: FakeExecutable) -> Running:
    """A server that takes requests of up to 1 MiB."""
    return start(
        "- {name: fake, path: fake.onnx, warmup: 0}\n",
        ports="grpc: {port: 0, max_message_mb: 1}, http: {port: 0}",
        loader=lambda model: fake,
    )


def on_the_wire(body: bytes, headers: dict[str, str]) -> bytes:
    lines = {"Host": "localhost", "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return b"POST /v2/models/fake/infer HTTP/1.1\r\n" + head.encode() + b"\r\n" + body


def test_a_body_may_be_as_large_as_configured_and_not_larger(small: Running) -> None:
    fits, headers = fake_request(260_000)
    large, more = fake_request(263_000)

    status, _, answer = call(small, "/v2/models/fake/infer", fits, **headers)
    refused, told = refusal(small, "/v2/models/fake/infer", large, **more)

    assert (status, answer[-4:]) == (200, np.float32(1).tobytes())
    assert (refused, told.startswith("the request has more than 1048576 bytes")) == (413, True)


def test_a_chunked_body_is_read_and_bounded_too(small: Running) -> None:
    body, headers = fake_request(100)
    connection = http.client.HTTPConnection("127.0.0.1", small.server.http_port, timeout=120)
    with contextlib.closing(connection):
        connection.request("POST", "/v2/models/fake/infer", iter([body[:50], body[50:]]), headers, encode_chunked=True)
        answer = connection.getresponse()
        assert (answer.status, len(answer.read()) > 400) == (200, True)
        connection.request("POST", "/v2/models/fake/infer", (bytes(1 << 16) for _ in range(64)), headers)
        assert connection.getresponse().status == 413


CHUNK = b"10000\r\n" + bytes(1 << 16) + b"\r\n"


@pytest.mark.parametrize(
    ("length", "body"),
    [
        pytest.param("Content-Length: 16777216", bytes(1 << 24), id="whole"),
        pytest.param("Transfer-Encoding: chunked", 256 * CHUNK + b"0\r\n\r\n", id="in-chunks"),
    ],
)
@pytest.mark.parametrize("kept", ["close", "keep-alive"])
def test_a_body_beyond_the_limit_has_an_answer_that_a_client_can_read_once_it_has_sent_all(
    small: Running, length: str, body: bytes, kept: str
) -> None:
    head = f"POST /v2/models/fake/infer HTTP/1.1\r\nHost: localhost\r\nConnection: {kept}\r\n{length}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", small.server.http_port), timeout=120) as client:
        client.sendall(head + body)
        answer = b"".join(iter(lambda: client.recv(1 << 16), b""))

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer
    assert b"the request has more than 1048576 bytes (server.grpc.max_message_mb)" in answer


def test_a_client_that_asks_before_it_sends_a_large_body_is_told_at_once(small: Running) -> None:
    head = b"POST /v2/models/fake/infer HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
    head += b"Content-Length: 9999999\r\n\r\n"
    with socket.create_connection(("127.0.0.1", small.server.http_port), timeout=120) as client:
        client.sendall(head)

        assert client.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_a_body_that_stops_coming_is_given_up(start_fake: StartFake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_body, "CLIENT_TIMEOUT_S", 0.2)
    running = start_fake()
    with socket.create_connection(("127.0.0.1", running.server.http_port)) as client:
        client.sendall(b"POST /v2/models/fake/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")

        answer = client.recv(1000)

    assert answer.startswith(b"HTTP/1.1 400 ")


def test_a_client_that_leaves_while_it_sends_disturbs_nobody(
    start_fake: StartFake, fake: FakeExecutable, capfd: pytest.CaptureFixture[str]
) -> None:
    running = start_fake()
    with socket.create_connection(("127.0.0.1", running.server.http_port)) as client:
        client.sendall(b"POST /v2/models/fake/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")

    body, headers = fake_request(1)
    assert call(running, "/v2/models/fake/infer", body, **headers)[0] == 200
    assert "Traceback" not in capfd.readouterr().err


def test_a_request_whose_client_leaves_is_never_executed(
    start_fake: StartFake, fake: FakeExecutable, eventually: Eventually
) -> None:
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


def test_a_stopping_server_answers_what_it_has_and_refuses_the_rest(
    start_fake: StartFake, fake: FakeExecutable, eventually: Eventually
) -> None:
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
    eventually(lambda: is_refused(running, path, body, headers))

    assert refusal(running, path, body, **headers) == (503, "the server is stopping; send the request to another one")
    assert call(running, "/v2/health/live")[0] == 200
    fake.gate.set()
    thread.join()
    stop.join()

    assert statuses == [200]
    with pytest.raises(ConnectionRefusedError):
        call(running, "/livez")


def is_refused(running: Running, path: str, body: bytes, headers: Mapping[str, str]) -> bool:
    """Return whether a request is answered at once, which a model that is held back could not do."""
    with contextlib.closing(http.client.HTTPConnection(running.http.removeprefix("http://"), timeout=0.2)) as client:
        try:
            client.request("POST", path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            return client.getresponse().status == 503
        except TimeoutError:
            return False


def test_no_packet_waits_for_the_acknowledgement_of_another(shared: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    made = BoundedProtocol.connection_made

    def connection_made(protocol: asyncio.Protocol, transport: asyncio.Transport) -> None:
        found.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        made(protocol, transport)

    monkeypatch.setattr(BoundedProtocol, "connection_made", connection_made)
    call(shared, "/livez")

    assert found == [1]
