"""Requests that are lost while parts of a cluster are killed, models change and replicas come and go."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ray_cluster.callers import Callers, Tally
from benchmarks.ray_cluster.raylets import Raylets
from benchmarks.ray_cluster.served import ServedOnRay

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
FEEDS = {"image": np.zeros((1, 1, 8, 8), np.float32)}
MODEL = "ray::ServeReplica:trtnode:digits"
INGRESS = "ray::ServeReplica:trtnode:~ingress"
PROXY, CONTROLLER = "ray::ProxyActor", "ray::ServeController"
THREADS, PAUSE_S = 4, 0.05
CROWD = 24
"""Further clients, that don't pause."""
SLOW = {"max_batch_size": 64, "max_queue_delay_us": 100_000}
"""Batching for which each request waits, so that a client without a pause has one in a replica at nearly all times."""
BEFORE = 100
"""Requests before the event."""


@dataclasses.dataclass(slots=True)
class Scene:
    """A cluster that serves the example network in two replicas on two nodes.

    Attributes:
        callers: Clients that send requests during an event.
    """

    raylets: Raylets
    served: ServedOnRay
    folder: Path
    callers: Callers | None = None

    def model(
        self, *, path: Path = EXAMPLE, batching: Mapping[str, int] | None = None, **scaling: Any
    ) -> list[Mapping[str, Any]]:
        """Return the section of the model."""
        scaling = {"replicas": 2, "cpus": 0.5, **scaling}
        model = {"name": "digits", "path": str(path), "engine": "native", "threads": 1, "scaling": scaling}
        return [model | ({"batching": batching} if batching else {})]

    def recover(self, replicas: int = 2) -> None:
        """Wait until everything is there again."""
        while len(self.raylets.nodes) < 2:
            self.raylets.add()
        self.raylets.wait_for(MODEL, replicas)
        self.served.wait_ready()


def kill_replica(scene: Scene) -> None:
    """Kill a replica of the model."""
    scene.raylets.kill(MODEL)
    scene.recover()


def kill_ingress(scene: Scene) -> None:
    """Kill an ingress."""
    scene.raylets.kill(INGRESS)
    scene.raylets.wait_for(INGRESS, 2)


def kill_node(scene: Scene) -> None:
    """Kill a raylet, with all replicas and the proxy of its node."""
    scene.raylets.kill_node(scene.raylets.nodes[-1])
    scene.recover()


def kill_proxy(scene: Scene) -> None:
    """Kill the proxy of a node that has models."""
    before = scene.raylets.count(PROXY)
    scene.raylets.kill(PROXY)
    scene.raylets.wait_for(PROXY, before)


def kill_controller(scene: Scene) -> None:
    """Kill Ray Serve's controller."""
    scene.raylets.kill(CONTROLLER)
    scene.raylets.wait_for(CONTROLLER, 1)


def update(scene: Scene) -> None:
    """Serve a new file of the model."""
    changed = scene.folder / "changed.onnx"
    changed.write_bytes(EXAMPLE.read_bytes())
    scene.served.replace(scene.model(path=changed))


def bad_update(scene: Scene) -> None:
    """Try to serve a model that doesn't load."""
    broken = scene.folder / "broken.onnx"
    broken.write_bytes(b"no model")
    command = scene.served.run(scene.model(path=broken))
    if command.wait(300) != 1:
        raise RuntimeError(f"a model that doesn't load was served: {scene.served.log.read_text()}")


def kill_node_after_bad_update(scene: Scene) -> None:
    """Kill a node where the last change has failed; what it had isn't started again."""
    bad_update(scene)
    scene.raylets.kill_node(scene.raylets.nodes[-1])
    time.sleep(20)  # until everybody knows
    scene.served.process = None
    scene.served.start(scene.model())
    scene.recover()


def scale(scene: Scene) -> None:
    """Go to one replica, to three, and to one."""
    for replicas in (1, 3, 1):
        scene.served.replace(scene.model(replicas=replicas))
        scene.recover(replicas)
    scene.served.replace(scene.model())
    scene.recover()


def follow_load(scene: Scene) -> None:
    """Have so many requests that one replica becomes three, then so few that three become one."""
    assert scene.callers is not None
    bounds: dict[str, Any] = {"replicas": 1, "min": 1, "max": 3, "target_ongoing_requests": THREADS}
    scene.served.replace(scene.model(batching=SLOW, **bounds, upscale_delay_s=2, downscale_delay_s=5))
    scene.recover(1)
    with scene.callers.crowd(CROWD):
        scene.raylets.wait_for(MODEL, 3)
        scene.served.wait_for_answers_of(3)
    scene.recover(1)
    scene.served.replace(scene.model())
    scene.recover()


EVENTS: Mapping[str, Callable[[Scene], None]] = {
    "replica killed": kill_replica,
    "ingress killed": kill_ingress,
    "node killed": kill_node,
    "proxy killed": kill_proxy,
    "controller killed": kill_controller,
    "good model": update,
    "1, 3, 1 replicas": scale,
    "more load, then less": follow_load,
    "bad model": bad_update,
    "bad model, then node killed": kill_node_after_bad_update,
}


@contextlib.contextmanager
def open_scene(folder: Path) -> Iterator[Scene]:
    """Serve on a cluster of a head and two nodes; end everything afterwards.

    Args:
        folder: For all files; with a short path.
    """
    raylets = Raylets(folder, nodes=2)
    try:
        served = ServedOnRay(folder, raylets.address)
        try:
            scene = Scene(raylets, served, folder)
            served.start(scene.model())
            raylets.wait_for(MODEL, 2)
            yield scene
            served.stop()
        finally:
            served.close()
    finally:
        raylets.close()


def during(scene: Scene, event: str, requests: int) -> Tally:
    """Return what becomes of requests during an event.

    Args:
        scene: Where it happens; whole again afterwards.
        event: One of ``EVENTS``.
        requests: The least number of requests.
    """
    with Callers(scene.served.grpc, "digits", FEEDS, threads=THREADS, pause_s=PAUSE_S, least=requests) as callers:
        scene.callers = callers
        callers.wait_for(BEFORE)
        EVENTS[event](scene)
    return callers.tally
