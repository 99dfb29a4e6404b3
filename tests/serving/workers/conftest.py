"""A server of several processes."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from tests.serving.server_process import READY_S, ServerProcess

EXAMPLE = pathlib.Path(__file__).parents[3] / "examples" / "digits"
CONNECTIONS = 12
"""So many that all of them go to one of two workers once in two thousand times."""


class Group(ServerProcess):
    """A server of several processes."""

    def __init__(
        self,
        folder: pathlib.Path,
        models: str,
        *,
        server: str = "",
        port: int = 0,
        http_port: int = 0,
        cache: pathlib.Path = pathlib.Path("cache"),
    ) -> None:
        self._clients: list[triton.InferenceServerClient] = []
        (folder / "servable.yaml").write_text(
            f"server: {{grpc: {{port: {port}, workers: 2}}, http: {{port: {http_port}}}, {server}}}\n"
            f"cache: {{dir: {cache}}}\nmodels:\n{models}"
        )
        super().__init__(folder / "servable.yaml")

    @property
    def pids(self) -> dict[int, int]:
        """The last process of each worker, by the worker's number."""
        return {int(number): int(pid) for number, pid in re.findall(r"Worker (\d) is process (\d+)", self.log)}

    def wait_ready(self) -> None:
        self.wait_for("ready on")
        while self.http("/readyz")[0] != 200:
            assert self.child.poll() is None, self.log
            time.sleep(0.02)

    def connect(self) -> triton.InferenceServerClient:
        """Return a client with a connection of its own."""
        alone = [("grpc.use_local_subchannel_pool", 1)]
        self._clients.append(triton.InferenceServerClient(self.address, channel_args=alone))
        return self._clients[-1]

    def connect_to_all(self) -> list[triton.InferenceServerClient]:
        """Return clients whose connections are spread over the workers."""
        return [self.connect() for _ in range(CONNECTIONS)]

    def http(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.http_address}{path}", timeout=READY_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, sample: str) -> float:
        return float(re.search(rf"^{re.escape(sample)} (\S+)$", self.http("/metrics")[1], re.MULTILINE)[1])

    def close(self) -> None:
        for client in self._clients:
            client.close()
        for pid in self.pids.values():  # one that a test has stopped can't notice that its supervisor is gone
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        super().close()


@pytest.fixture(scope="module")
def running(models: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """A ready server with two models, for tests that leave it as it is."""
    digits = f"- {{name: digits, path: {EXAMPLE}/digits.onnx, engine: openvino, warmup: 0}}\n"
    group = Group(
        tmp_path_factory.mktemp("running"),
        entry(models) + digits,
        server="admin: {repository: true, shared_memory: true}",
    )
    group.wait_ready()
    yield group
    group.close()


Launch = Callable[..., Group]


@pytest.fixture
def launch(tmp_path_factory: pytest.TempPathFactory, warm_cache: pathlib.Path) -> Iterator[Launch]:
    groups: list[Group] = []

    def launch_group(models: str, **settings: Any) -> Group:
        groups.append(Group(tmp_path_factory.mktemp("group"), models, **{"cache": warm_cache, **settings}))
        return groups[-1]

    yield launch_group
    for group in groups:
        group.close()


def entry(models: pathlib.Path) -> str:
    """Return the entry of a model that adds its inputs."""
    return f"- {{name: m, path: {models}/two.onnx, engine: native, warmup: 0}}\n"


def infer(client: triton.InferenceServerClient) -> float:
    inputs = [triton.InferInput(name, [1, 3], "FP32") for name in "ab"]
    for one in inputs:
        one.set_data_from_numpy(np.ones((1, 3), np.float32))
    return float(client.infer("m", inputs).as_numpy("sum")[0, 0])


def status_of(call: Callable[[], object]) -> str:
    """Return how a call ended; empty if well."""
    try:
        call()
    except InferenceServerException as error:
        return error.status().removeprefix("StatusCode.")
    return ""


def is_alive(pid: int) -> bool:
    """Return whether a worker process is there; its number may have gone to another process."""
    try:
        return b"trtnode.serving.workers" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return False
