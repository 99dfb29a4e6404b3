from __future__ import annotations

import http.client
from collections.abc import Iterator

import pytest

from trtnode.serving.rest.server import HttpServer
from trtnode.serving.schema.server import HttpConfig, ServerConfig
from trtnode.serving.security.authorization import Authorizer
from trtnode.serving.telemetry.metrics import Metrics
from trtnode.serving.telemetry.prometheus import exposition
from trtnode.serving.workers.stand_in import StandIn, StandInApp


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    config, counts = ServerConfig(http=HttpConfig(port=0)), Metrics()
    app = StandInApp(
        Authorizer(config.admin, None, counts),
        lambda accept: exposition(counts.registry, accept),
        lambda: ["worker 0: it is starting"],
    )
    made = StandIn()
    made.server = HttpServer(config, app, shares_port=True)
    yield made
    made.follow(has_workers=True)


def ask(stand_in: StandIn, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", stand_in.server.port, timeout=60)
    connection.request(method, path, headers={"Connection": "close"})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_a_server_without_workers_is_alive_and_not_ready(stand_in: StandIn) -> None:
    stand_in.follow(has_workers=True)
    stand_in.follow(has_workers=False)

    assert ask(stand_in, "/livez") == (200, "live\n")
    assert ask(stand_in, "/readyz") == (503, "worker 0: it is starting\n")
    assert "process_start_time_seconds" in ask(stand_in, "/metrics")[1]
    code, text = ask(stand_in, "/v2/models/m/infer", "POST")
    assert (code, "no worker process of the server is there now" in text) == (503, True)


def test_the_port_is_left_to_workers_before_the_first_and_behind_the_next_one(stand_in: StandIn) -> None:
    stand_in.follow(has_workers=False)
    assert stand_in.server.port == 0

    stand_in.follow(has_workers=True)
    stand_in.follow(has_workers=False)
    assert ask(stand_in, "/livez")[0] == 200
    stand_in.follow(has_workers=True)
    with pytest.raises(ConnectionRefusedError):
        ask(stand_in, "/livez")
