"""Parts of a real cluster of three raylets die, or change, while clients send requests."""

from __future__ import annotations

import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

losses = pytest.importorskip("benchmarks.ray_cluster.losses", reason="Ray is not installed", exc_type=ImportError)
REQUESTS = 200


@pytest.fixture(scope="module")
def scene() -> Iterator[Any]:
    folder = pathlib.Path("/tmp") / f"cluster{os.getpid()}"
    folder.mkdir()
    with losses.open_scene(folder) as opened:
        yield opened
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize(
    "event", ["replica killed", "ingress killed", "node killed", "proxy killed", "controller killed"]
)
def test_a_client_that_tries_again_once_loses_nothing(scene: Any, event: str) -> None:
    tally = losses.during(scene, event, REQUESTS)

    assert tally.lost == []
    assert tally.sent >= REQUESTS


@pytest.mark.parametrize("event", ["good model", "1, 3, 1 replicas", "more load, then less", "bad model"])
def test_a_change_of_models_fails_no_request(scene: Any, event: str) -> None:
    tally = losses.during(scene, event, REQUESTS)

    assert tally.failed == {}
    assert tally.sent >= REQUESTS


def test_the_log_advises_several_replicas_to_serve_a_compiled_file(scene: Any) -> None:
    assert "serve a file that `trtnode compile` wrote" in scene.served.log.read_text()
