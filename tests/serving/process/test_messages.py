"""Requests of few bytes that stand for many objects, sent to a server process."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator

import grpc
import pytest

from benchmarks.attacks.message_attacks import (
    BODIES,
    INFER,
    MESSAGES,
    SIZES,
    STREAM,
    TEXT_PATH,
    post_body,
    send_message,
    strings_in_json,
    unread_streams,
)
from benchmarks.attacks.probes import Prober
from benchmarks.attacks.server import AttackedServer
from benchmarks.soak.process_stats import StatsSampler, read_stats

MORE_MB = 200
Make = Callable[[], bytes]


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedServer]:
    with AttackedServer(tmp_path_factory.mktemp("attacked"), 256, 1) as server:
        yield server


class Watched:
    """The memory and the probes of a server while the context lasts."""

    def __init__(self, server: AttackedServer) -> None:
        self._server = server
        self._idle_mb = read_stats(server.pid).rss_mb
        self._sampler = StatsSampler(server.pid, 0.02)
        self._prober = Prober(server.http, server.grpc)

    def __enter__(self) -> None:
        self._sampler.__enter__()
        self._prober.__enter__()

    def __exit__(self, *exception: object) -> None:
        self._prober.__exit__(*exception)
        self._sampler.__exit__(*exception)
        assert self._server.alive
        assert self._prober.http.failed + self._prober.grpc.failed == 0
        most_mb = max((sample.rss_mb for sample in self._sampler.samples), default=0)
        assert most_mb - self._idle_mb <= MORE_MB


@pytest.mark.parametrize(("make", "method"), [*((make, INFER) for make in MESSAGES), (MESSAGES[0], STREAM)])
def test_a_message_of_many_fields_is_refused_before_objects_are_made(
    attacked: AttackedServer, make: Make, method: str
) -> None:
    message = make()
    with Watched(attacked):
        assert send_message(attacked.grpc, message, method) is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("make", SIZES)
def test_a_message_whose_shapes_stand_for_more_than_its_bytes_is_refused_before_memory_is_taken(
    attacked: AttackedServer, make: Make
) -> None:
    message = make()
    with Watched(attacked):
        assert send_message(attacked.grpc, message) is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_million_strings_in_json_are_refused_before_they_are_made(attacked: AttackedServer) -> None:
    body = strings_in_json()
    with Watched(attacked):
        assert post_body(attacked.http, body, TEXT_PATH)[0] == 400


@pytest.mark.parametrize("rpc", ["RepositoryModelLoad", "LogSettings", "TraceSetting"])
def test_a_message_of_any_rpc_has_a_bound(attacked: AttackedServer, rpc: str) -> None:
    entries = b"".join(b"\x1a\x05\x0a\x03%3x\x0a\x05\x0a\x03%3x" % (n, n) for n in range(0xFFF)) * 700
    with Watched(attacked):
        code = send_message(attacked.grpc, entries, f"/inference.GRPCInferenceService/{rpc}")

    assert code is grpc.StatusCode.INVALID_ARGUMENT


def test_streams_that_read_nothing_are_owed_no_more_than_the_buffer(attacked: AttackedServer) -> None:
    attacker = multiprocessing.get_context("spawn").Process(
        target=unread_streams, args=(attacked.grpc, time.monotonic() + 3), daemon=True
    )
    with Watched(attacked):
        attacker.start()
        attacker.join()


@pytest.mark.parametrize("make", BODIES)
def test_json_of_many_values_is_refused_before_it_is_read(attacked: AttackedServer, make: Make) -> None:
    body = make()
    with Watched(attacked):
        status, answer = post_body(attacked.http, body)

    assert status == 400
    assert b"error" in answer


@pytest.mark.parametrize("path", ["/v2/repository/models/digits/load", "/v2/repository/index"])
def test_json_of_every_method_has_a_bound(attacked: AttackedServer, path: str) -> None:
    body = b'{"parameters": {"config": [' + b"[[]]," * 10_000_000 + b"1]}}"
    with Watched(attacked):
        assert post_body(attacked.http, body, path)[0] == 400
