"""Pages of other sites, names of other servers, and clients that offer more or send less than usual."""

from __future__ import annotations

import socket
import time

import numpy as np
import pytest

from tests.serving.conftest import FakeExecutable, Running, StartFake
from tests.serving.rest.conftest import LENGTH
from tests.serving.rest.test_limits import fake_request

INFER = "/v2/models/fake/infer"
PAUSE_S = 0.05
"""Time after which the next piece of a request is one of its own."""


def exchange(
    running: Running, start: str, *lines: str, body: bytes = b"", half_close: bool = False, cut: bytes = b""
) -> bytes:
    """Send a request on a connection of its own, in three pieces around ``cut``; return all that comes back."""
    head = "\r\n".join([start, f"Content-Length: {len(body)}", "Connection: close", *lines, "", ""])
    with socket.create_connection(("127.0.0.1", running.server.http_port), timeout=120) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in (head.encode() + body).partition(cut) if cut else (head.encode() + body,):
            client.sendall(piece)
            time.sleep(PAUSE_S if cut else 0)
        if half_close:
            client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(1 << 16), b""))


def status(answer: bytes) -> int:
    return int(answer.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n").split()[1])


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        pytest.param([], 200, id="no-browser"),
        pytest.param(["Origin: http://localhost:PORT"], 200, id="own-page"),
        pytest.param(["Origin: https://tools.example"], 200, id="allowed-page"),
        pytest.param(["Sec-Fetch-Site: same-origin"], 200, id="own-fetch"),
        pytest.param(["Origin: https://evil.example"], 403, id="foreign-page"),
        pytest.param(["Origin: http://localhost:1"], 403, id="page-of-another-port"),
        pytest.param(["Origin: null"], 403, id="page-without-origin"),
        pytest.param(["Sec-Fetch-Site: cross-site"], 403, id="foreign-form"),
        pytest.param(["Sec-Fetch-Site: cross-site", "Origin: https://evil.example"], 403, id="foreign-fetch"),
    ],
)
def test_pages_of_other_sites_change_nothing(start_fake: StartFake, lines: list[str], code: int) -> None:
    running = start_fake(
        server="admin: {repository: true, settings: true}", http="allowed_origins: [https://tools.example]"
    )
    port = running.server.http_port
    host = f"Host: localhost:{port}"
    lines = [line.replace("PORT", str(port)) for line in lines]

    assert status(exchange(running, "POST /v2/repository/index HTTP/1.1", host, *lines)) == code
    assert status(exchange(running, "GET /livez HTTP/1.1", host, *lines)) == 200


@pytest.mark.parametrize(
    ("hosts", "code"),
    [
        pytest.param(["localhost"], 200, id="localhost"),
        pytest.param(["127.0.0.1:8002"], 200, id="address"),
        pytest.param(["[::1]:8002"], 200, id="address-of-version-6"),
        pytest.param(["10.1.2.3"], 200, id="address-of-a-probe"),
        pytest.param(["models.example:80"], 200, id="allowed"),
        pytest.param(["evil.example"], 421, id="another"),
        pytest.param(["localhost.evil.example"], 421, id="another-that-looks-alike"),
        pytest.param([], 400, id="none"),
        pytest.param(["localhost", "localhost"], 400, id="two"),
    ],
)
def test_a_server_on_loopback_answers_to_its_names(start_fake: StartFake, hosts: list[str], code: int) -> None:
    running = start_fake(http="allowed_hosts: [models.example]")

    answer = exchange(running, "GET /livez HTTP/1.1", *(f"Host: {host}" for host in hosts))

    assert status(answer) == code


def test_a_request_of_http_1_0_needs_no_host(start_fake: StartFake) -> None:
    assert b" 200 " in exchange(start_fake(), "GET /livez HTTP/1.0")


@pytest.mark.parametrize("cut", ["", "\r\n{:.3}", "\r\n{}", "h2c\r", "\r\n\r"])
@pytest.mark.parametrize("field", ["Upgrade", "upgrade", "UPGRADE"])
def test_an_offer_of_http_2_leaves_the_body(start_fake: StartFake, field: str, cut: str) -> None:
    body, headers = fake_request(1)
    offer = ["Connection: Upgrade, HTTP2-Settings", f"{field}: h2c", "HTTP2-Settings: AAEAAEAAAAIAAAAA"]
    lines = [f"{name}: {value}" for name, value in headers.items()]

    head = [f"POST {INFER} HTTP/1.1", "Host: localhost", *offer, *lines]
    answer = exchange(start_fake(), *head, body=body, cut=cut.format(field).encode())

    assert status(answer) == 200


@pytest.mark.parametrize("cut", ["", "\r\nUpg", "\r\nUpgrade", "live"])
def test_an_offer_behind_another_request_leaves_the_body_and_a_body_that_looks_like_one_stays(
    start_fake: StartFake, cut: str
) -> None:
    (text, headers), tensor = fake_request(3), b"\r\nUpgrade: h"
    sent = np.frombuffer(tensor, np.float32)
    body = text[: int(headers[LENGTH])] + tensor
    offer = ["Host: localhost", "Connection: Upgrade", "Upgrade: h2c", *(f"{n}: {v}" for n, v in headers.items())]

    first = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = exchange(start_fake(), f"{first}POST {INFER} HTTP/1.1", *offer, body=body, cut=cut.encode())

    assert answer.count(b"HTTP/1.1 200 ") == 2
    assert answer.endswith((sent + np.float32(1)).tobytes())


def test_a_client_that_sends_no_more_gets_its_answer(start_fake: StartFake, fake: FakeExecutable) -> None:
    running = start_fake()
    body, headers = fake_request(1)
    lines = [f"{name}: {value}" for name, value in headers.items()]

    answer = exchange(running, f"POST {INFER} HTTP/1.1", "Host: localhost", *lines, body=body, half_close=True)

    assert status(answer) == 200
