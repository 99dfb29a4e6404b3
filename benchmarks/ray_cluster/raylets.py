"""Several raylets on one machine, and the processes of each."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

from trtnode.serving.ray_serve.program import SETTINGS

WORKER_CPUS = 2
"""Cores that each raylet claims to have; what they share is this machine."""
PART_S = 120.0
"""The longest time until a part that should be there is there."""


class Raylets:
    """A head without models, and nodes with them. Killed processes are real ones.

    Attributes:
        address: For ``RAY_ADDRESS``.
        nodes: Those that may have models.
    """

    def __init__(self, folder: Path, nodes: int) -> None:
        """Start.

        Args:
            folder: For what Ray writes; sockets in it need a short path.
            nodes: Those that may have models.
        """
        os.environ.update({"RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": str(folder)})
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)
        self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        self.address = str(self._cluster.address)
        self.nodes: list[Any] = []
        for _ in range(nodes):
            self.add()

    def add(self) -> None:
        """Add a node."""
        self.nodes.append(self._cluster.add_node(num_cpus=WORKER_CPUS))

    def kill_node(self, node: Any) -> None:
        """Kill a raylet and with it all of its node."""
        self.nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def kill(self, title: str) -> None:
        """Kill one process, and wait until it is gone.

        Args:
            title: The beginning of its title, such as ``ray::ServeReplica:trtnode:digits``.
        """
        found = [pid for node in self.all_nodes() for pid in processes(node, title)]
        if not found:
            raise LookupError(f"no process is called {title}")
        os.kill(found[0], signal.SIGKILL)
        while _title(found[0]):
            time.sleep(0.01)

    def count(self, title: str) -> int:
        """Return the number of processes of this title."""
        return sum(len(processes(node, title)) for node in self.all_nodes())

    def wait_for(self, title: str, number: int) -> None:
        """Wait until there are so many processes of this title."""
        deadline = time.monotonic() + PART_S
        while self.count(title) != number:
            if time.monotonic() > deadline:
                raise TimeoutError(f"there are {self.count(title)} processes {title}, not {number}")
            time.sleep(0.5)

    def close(self) -> None:
        """End all."""
        self._cluster.shutdown()

    def all_nodes(self) -> list[Any]:
        """Return all nodes, the head last; proxies and ingresses may run there too."""
        return [*self.nodes, self._cluster.head_node]


def processes(node: Any, title: str) -> list[int]:
    """Return the ids of a node's processes whose title begins so."""
    (raylet,) = node.all_processes["raylet"]
    return [pid for pid in _children(raylet.process.pid) if _title(pid).startswith(title)]


def _children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            yield from map(int, task.read_text().split())


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
