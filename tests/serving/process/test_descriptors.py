"""A server that may open few files, and clients that open many connections."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Iterator

import pytest

from benchmarks.attacks import http2
from benchmarks.attacks.grpc_attacks import METADATA, START, WHOLE
from benchmarks.attacks.probes import health, readyz
from benchmarks.attacks.server import AttackedServer
from benchmarks.soak.process_stats import read_stats
from tests.serving.conftest import Eventually
from tests.serving.rest.conftest import INFER
from trtnode.serving.security import descriptors
from trtnode.serving.security.descriptors import bounded_connections, raise_descriptor_limit

CONNECTIONS = 300
MORE_MB = 200
MOST_LINES = 1000
"""Some lines a second, on a machine that takes minutes. Without a bound there would be a hundred thousand."""


@pytest.fixture(scope="module")
def few_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedServer]:
    """A server whose process may open 128 files."""
    with AttackedServer(tmp_path_factory.mktemp("few_files"), descriptors=128, workers=1) as server:
        yield server


@pytest.mark.slow
@pytest.mark.parametrize(
    "beginning",
    [
        pytest.param(b"", id="silent"),
        pytest.param(b"GET /livez HTTP/1.1\r\nHost: localhost\r\na: ", id="half-a-header"),
        pytest.param(f"POST {INFER} HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 9\r\n\r\n".encode(), id="half-a-body"),
    ],
)
def test_more_connections_than_descriptors_keep_no_probe_from_an_answer(
    few_files: AttackedServer, eventually: Eventually, beginning: bytes
) -> None:
    lines, idle_mb = len(few_files.log_lines()), read_stats(few_files.pid).rss_mb
    with contextlib.ExitStack() as stack:
        for number in range(CONNECTIONS):
            client = stack.enter_context(socket.create_connection(few_files.http, timeout=120))
            with contextlib.suppress(ConnectionError):  # it may have given way already
                client.sendall(beginning)
            if number % 100 == 0 or number > CONNECTIONS - 5:
                eventually(lambda: readyz(few_files.http))
                eventually(lambda: health(few_files.grpc))

        assert read_stats(few_files.pid).rss_mb < idle_mb + MORE_MB
    assert len(few_files.log_lines()) - lines <= MOST_LINES
    assert few_files.alive


@pytest.mark.slow
def test_refused_calls_that_repeat_a_large_field_take_bounded_memory_and_no_lines_of_the_log(
    few_files: AttackedServer, eventually: Eventually
) -> None:
    lines, idle_mb = len(few_files.log_lines()), read_stats(few_files.pid).rss_mb
    kept = http2.frame(http2.HEADERS, WHOLE, 1, http2.call(METADATA) + http2.indexed_field(b"a", b"b" * 3900))
    bombs = b"".join(
        http2.frame(http2.HEADERS, WHOLE, stream, http2.call(METADATA) + http2.NEWEST * 16000)
        for stream in range(3, 2003, 2)
    )
    with socket.create_connection(few_files.grpc, timeout=5) as client:
        with contextlib.suppress(OSError):
            client.sendall(START + kept + bombs)
        eventually(lambda: readyz(few_files.http))

        assert read_stats(few_files.pid).rss_mb < idle_mb + 2 * MORE_MB
    assert len(few_files.log_lines()) - lines <= MOST_LINES


def test_a_port_takes_no_more_connections_than_its_share_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (256, 1024))

    assert bounded_connections("server.limits.http_connections", 100, 1 / 2) == 100
    assert not caplog.text
    assert bounded_connections("server.limits.http_connections", 512, 1 / 2) == 128
    assert "server.limits.http_connections is 512, but this process may open 256 files" in caplog.text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param((1024, 4096), (4096, 4096), id="as-many-as-it-may"),
        pytest.param((1024, resource.RLIM_INFINITY), (descriptors.ENOUGH, resource.RLIM_INFINITY), id="enough"),
        pytest.param((256, 256), None, id="no-more"),
        pytest.param((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None, id="without-a-bound"),
    ],
)
def test_a_server_asks_for_the_descriptors_that_it_may_have(
    monkeypatch: pytest.MonkeyPatch, before: tuple[int, int], after: tuple[int, int] | None
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: before)
    monkeypatch.setattr(resource, "setrlimit", lambda _kind, limits: asked.append(limits))

    raise_descriptor_limit()

    assert asked == ([] if after is None else [after])
