"""Servers that load is put on, and the command that does it."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

import pytest

from simulated_server import SimulatedServer
from trtnode.serving.cli.program import main
from trtnode.serving.config.load import load_config
from trtnode.serving.models.loader import engine_loader
from trtnode.serving.process.single_process import Server

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples" / "digits"
READY_S = 240


@pytest.fixture
def simulated() -> Iterator[SimulatedServer]:
    """A server with the model ``plus``, which can fail and keeps what it gets."""
    with SimulatedServer() as server:
        yield server


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server of this project with the example model."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "servable.yaml").write_text(
        f"server: {{grpc: {{port: 0}}, http: {{port: 0}}}}\ncache: {{dir: {folder / 'cache'}}}\n"
        f"models:\n- {{name: digits, path: {EXAMPLES / 'digits.onnx'}, engine: native}}\n"
    )
    config = load_config(folder / "servable.yaml")
    server = Server(config, engine_loader(config))
    server.start()
    assert server.wait_ready(READY_S), server.failure
    yield f"127.0.0.1:{server.port}"
    server.stop(5)


@pytest.fixture
def bench() -> Callable[..., int]:
    """Runs ``trtnode bench server`` without a warm-up, and returns its exit code."""

    def run(address: str, *options: str, model: str = "plus", length: tuple[str, ...] = ("--requests", "20")) -> int:
        return main(["bench", "server", address, "--model", model, "--warmup", "0", *length, *options])

    return run
