"""Clients that want the HTTP port for themselves: headers without an end, connections without a request."""

from __future__ import annotations

import http.client
import itertools
import socket
from collections.abc import Iterable, Iterator

import pytest

from tests.serving.conftest import Eventually, FakeExecutable, Running, StartFake
from tests.serving.rest.conftest import call, fake_request, refusal
from trtnode.serving.rest import bounded_protocol, connection_table, server
from trtnode.serving.rest.bounded_protocol import PIPELINED

GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v2/models/fake/infer HTTP/1.1\r\nHost: localhost\r\n"
MUCH = 1 << 27
"""Bytes that an attack sends before it counts as one that nothing stopped."""


def connect(running: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", running.server.http_port), timeout=120)


def answer_of(connection: socket.socket) -> bytes:
    """Return all that comes until the server closes the connection."""
    parts = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def status_of(connection: socket.socket) -> int:
    """Read one answer, and return its status."""
    with http.client.HTTPResponse(connection) as answer:
        answer.begin()
        answer.read()
        return answer.status


def sent_until_closed(connection: socket.socket, pieces: Iterable[bytes]) -> int:
    """Send until the server closes the connection, or much has been sent; return the number of bytes."""
    size = 0
    for piece in pieces:
        try:
            connection.sendall(piece)
        except ConnectionError:
            break
        size += len(piece)
        if size > MUCH:
            break
    return size


def fields(count: int) -> bytes:
    return b"".join(b"a%d: b\r\n" % number for number in range(count))


def test_a_header_has_a_hundred_fields_at_most(shared: Running) -> None:
    for count, status in ((99, b"200"), (100, b"431")):  # and the host
        with connect(shared) as client:
            client.sendall(GET + fields(count) + b"\r\n")

            assert client.recv(1000).startswith(b"HTTP/1.1 " + status)


def test_fields_without_an_end_are_refused_after_a_hundred(shared: Running) -> None:
    with connect(shared) as client:
        client.sendall(GET + fields(101))

        answer = answer_of(client)

    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"connection: close" in answer
    assert b'{"error": "more than 100 header fields"}' in answer


@pytest.mark.parametrize(
    "beginning",
    [
        pytest.param(GET + b"a: ", id="value"),
        pytest.param(GET + b"a", id="name"),
        pytest.param(b"GET /", id="path"),
        pytest.param(POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\na: ", id="trailer"),
        pytest.param(POST + b"Transfer-Encoding: chunked\r\n\r\n1;", id="chunk-extension"),
    ],
)
def test_a_field_without_an_end_ends_its_connection(
    start_fake: StartFake, monkeypatch: pytest.MonkeyPatch, beginning: bytes
) -> None:
    monkeypatch.setattr(bounded_protocol, "UNWANTED_BYTES", 1 << 20)
    running = start_fake()
    with connect(running) as client:
        size = sent_until_closed(client, itertools.chain([beginning], itertools.repeat(b"b" * 4096)))

    assert size < MUCH
    assert call(running, "/livez")[0] == 200


def test_a_large_header_in_one_piece_is_refused_as_configured(start_fake: StartFake) -> None:
    running = start_fake(server="limits: {http_header_bytes: 2048}")

    assert call(running, "/livez", a="b" * 1900)[0] == 200
    assert refusal(running, "/livez", a="b" * 2100) == (431, "a header of more than 2048 bytes (http_header_bytes)")


def test_a_header_that_stays_incomplete_is_refused_though_bytes_keep_coming(
    start_fake: StartFake, eventually: Eventually
) -> None:
    running = start_fake(server="limits: {http_header_timeout_s: 1}")
    with connect(running) as client:
        client.sendall(GET + b"a: ")
        client.settimeout(0.05)
        answer = bytearray()

        def is_answered() -> bool:
            try:
                client.send(b"b")
                answer.extend(client.recv(1000))
            except TimeoutError:
                return False
            except ConnectionError:
                return True
            return bool(answer)

        eventually(is_answered)

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"no whole header within 1 s (http_header_timeout_s)" in answer


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.01)
    try:
        return not connection.recv(1000)
    except TimeoutError:
        return False
    except ConnectionError:
        return True


@pytest.fixture
def half_open(start_fake: StartFake, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Running, list[socket.socket]]]:
    """A server that takes four connections, with three that have sent half a header."""
    monkeypatch.setattr(connection_table, "FRESH_S", 0.0)
    running = start_fake(server="limits: {http_connections: 4, http_header_timeout_s: 600}")
    connections = []
    for _ in range(3):
        connections.append(connect(running))
        connections[-1].sendall(GET)
    yield running, connections
    for one in connections:
        one.close()


def test_when_full_the_connection_closes_whose_header_has_been_incomplete_longest(
    half_open: tuple[Running, list[socket.socket]], eventually: Eventually
) -> None:
    running, connections = half_open
    newer = [connect(running), connect(running)]
    newer[1].sendall(GET + b"\r\n")

    assert newer[1].recv(100).startswith(b"HTTP/1.1 200 ")

    eventually(lambda: is_closed(connections[0]))
    assert not any(map(is_closed, (*connections[1:], *newer)))
    for one in newer:
        one.close()


def test_a_connection_between_two_requests_gives_way_after_those_with_half_a_header(
    half_open: tuple[Running, list[socket.socket]], eventually: Eventually
) -> None:
    running, connections = half_open
    with connect(running) as idle:
        idle.sendall(GET + b"\r\n")
        assert idle.recv(100).startswith(b"HTTP/1.1 200 ")
        more = []
        for number in range(3):
            more.append(connect(running))
            more[-1].sendall(GET + b"\r\n")
            assert more[-1].recv(100).startswith(b"HTTP/1.1 200 ")
            eventually(lambda number=number: is_closed(connections[number]))  # type: ignore[misc]
        assert not is_closed(idle)

        with connect(running) as another:
            another.sendall(GET + b"\r\n")
            assert another.recv(100).startswith(b"HTTP/1.1 200 ")
            eventually(lambda: is_closed(idle))
        for one in more:
            one.close()


def test_probes_are_answered_while_every_connection_has_a_request_that_runs(
    start_fake: StartFake, fake: FakeExecutable, eventually: Eventually
) -> None:
    running = start_fake(server="limits: {http_connections: 2}")
    body, headers = fake_request(1)
    fake.gate.clear()
    with connect(running) as first, connect(running) as second:
        for one in (first, second):
            head = "".join(f"{name}: {value}\r\n" for name, value in {"Content-Length": len(body), **headers}.items())
            one.sendall(POST + head.encode() + b"\r\n" + body)
        eventually(lambda: running.server.in_flight == 2)

        for path in ("/livez", "/readyz", "/v2/health/live", "/v2/health/ready"):
            assert call(running, path)[0] == 200
        status, text = refusal(running, "/v2/models/fake")
        assert (status, "server.limits.http_connections" in text) == (503, True)

        fake.gate.set()
        assert first.recv(100).startswith(b"HTTP/1.1 200 ")
        assert second.recv(100).startswith(b"HTTP/1.1 200 ")
    eventually(lambda: call(running, "/v2/models/fake")[0] == 200)


def test_requests_in_one_piece_are_answered_up_to_a_bound(shared: Running) -> None:
    with connect(shared) as client:
        client.sendall((GET + b"\r\n") * PIPELINED + GET + b"Connection: close\r\n\r\n")
        assert answer_of(client).count(b"HTTP/1.1 200 ") == PIPELINED + 1
    with connect(shared) as client:
        client.sendall((GET + b"\r\n") * 10 * PIPELINED)
        assert answer_of(client).count(b"HTTP/1.1 200 ") <= PIPELINED

    assert call(shared, "/livez")[0] == 200


def test_a_client_that_sends_on_after_its_answer_is_cut_off(
    start_fake: StartFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_protocol, "UNWANTED_BYTES", 1 << 20)
    running = start_fake()
    head = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + bytes(1 << 16) + b"\r\n"
    with connect(running) as client:
        client.sendall(head)
        assert client.recv(100).startswith(b"HTTP/1.1 404 ")

        assert sent_until_closed(client, itertools.repeat(chunk)) < MUCH


def test_a_connection_serves_on_once_an_unwanted_body_has_ended(shared: Running) -> None:
    with connect(shared) as client:
        client.sendall(b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000\r\n\r\n")
        assert status_of(client) == 404

        client.sendall(bytes(300_000) + GET + b"\r\n")

        assert status_of(client) == 200


def test_a_client_that_takes_nothing_of_its_answer_is_cut_off(
    start_fake: StartFake, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(server, "READER_TIMEOUT_S", 0.5)
    running = start_fake("", "limits: {max_requests: 64}")
    body, headers = fake_request(4_000_000)
    lines = {"Content-Length": len(body), "Connection": "close", **headers}
    with connect(running) as client:
        client.sendall(POST + "".join(f"{k}: {v}\r\n" for k, v in lines.items()).encode() + b"\r\n" + body)

        def is_reset() -> bool:
            try:
                client.send(b"x")
            except ConnectionError:
                return True
            return False

        eventually(is_reset)
