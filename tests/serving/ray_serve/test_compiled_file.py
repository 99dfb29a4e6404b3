"""A node joins a Ray cluster with an empty cache: its replica serves the compiled file, and builds nothing."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

cluster_utils = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed: make test-ray")

MODEL = pathlib.Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
WAIT_S = 200


class Nodes:
    """A cluster with a head without models, and a command that serves on it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._grpc, self._http = free_port(), free_port()
        os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0", RAY_TMPDIR=str(folder))
        head = {"num_cpus": 0, "include_dashboard": False}
        self._cluster: Any = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
        self.served: subprocess.Popen[bytes] | None = None

    def add(self, name: str) -> None:
        """Add a node that has room for one replica, and an engine cache of its own."""
        self._cluster.add_node(num_cpus=1, env_vars={"XDG_CACHE_HOME": str(self._folder / name)})

    def serve(self, replicas: int) -> None:
        compiled = self._folder / "digits.onnx"
        compiling = ["compile", str(MODEL), "-o", str(compiled), "--engine", "openvino", "--all-engines"]
        subprocess.run([sys.executable, "-m", "trtnode", *compiling], check=True, stdout=subprocess.DEVNULL)
        model = {"name": "digits", "path": str(compiled)}
        config = self._folder / "servable.yaml"
        content = {
            "server": {"grpc": {"port": self._grpc}, "http": {"port": self._http}},
            "models": [{**model, "scaling": {"replicas": replicas, "cpus": 1}}],
        }
        config.write_text(json.dumps(content))
        command = [sys.executable, "-m", "trtnode", "serve", "--config", str(config), "--on", "ray"]
        environment = {**os.environ, "RAY_ADDRESS": self._cluster.address}
        with (self._folder / "log").open("wb") as log:
            self.served = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def counts(self, metric: str) -> list[int]:
        """Return the values of a metric of the replicas, in rising order."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._http}/metrics", timeout=20) as answer:
                text = answer.read().decode()
        except OSError:
            return []
        return sorted(int(float(value)) for value in re.findall(rf"^{re.escape(metric)}.* (\S+)$", text, re.MULTILINE))

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert self.served is None or self.served.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < deadline, (self._folder / "log").read_text()
            time.sleep(0.5)

    def close(self) -> None:
        if self.served is not None:
            self.served.send_signal(signal.SIGTERM)
            self.served.wait(60)
        self._cluster.shutdown()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    folder = pathlib.Path("/tmp") / f"nodes{os.getpid()}"  # sockets in it have short names only
    folder.mkdir()
    nodes = Nodes(folder)
    try:
        yield nodes
    finally:
        nodes.close()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_node_that_joins_without_a_cache_builds_nothing(nodes: Nodes) -> None:
    nodes.add("first")
    nodes.serve(replicas=2)
    nodes.wait(lambda: nodes.counts('trtnode_model_engines{checked="true",engine="openvino"') == [1])

    nodes.add("second")
    nodes.wait(lambda: nodes.counts('trtnode_model_engines{checked="true",engine="openvino"') == [1, 1])

    assert nodes.counts('trtnode_engine_builds_total{model="digits"') == [0, 0]
