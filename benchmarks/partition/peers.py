"""Other systems that cut graphs. Each is driven by a module of its own, imported on first use."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable

from benchmarks.partition.wiring import Groups, Wiring
from engines.registry import get_backend


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a method made of a graph.

    Attributes:
        segments: How many pieces.
        groups: Node names of each segment; None where the system tells no more than how many there are.
        seconds: Time of the cut alone, without what brings the graph into the system's own form.
    """

    segments: int
    groups: Groups | None
    seconds: float


Prepare = Callable[[Wiring], Callable[[], Outcome]]
"""Bring a graph into a system's own form; the result cuts it, as often as it is called."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A system to compare with.

    Attributes:
        name: For tables.
        module: Has the function ``prepare``, a ``Prepare``.
        most_nodes: Larger graphs take it too long.
        timed: Whether its time is that of a cut alone.
    """

    name: str
    module: str
    most_nodes: int
    timed: bool = True


ORT_HELPER = Peer(name="ORT helper", module="benchmarks.partition.peer_ort", most_nodes=1_000_000)
TORCH_FX = Peer(name="torch.fx", module="benchmarks.partition.peer_fx", most_nodes=2_000)
HETERO = Peer(name="OV HETERO (both sides)", module="benchmarks.partition.peer_hetero", most_nodes=300, timed=False)

PEERS = (ORT_HELPER, TORCH_FX, HETERO)


def load(peer: Peer) -> Prepare | str:
    """Import a peer's driver.

    Returns:
        Its ``prepare``, or a sentence that says why there is none.
    """
    get_backend("openvino")  # blocks the package that would report usage over the network
    try:
        prepare: Prepare = importlib.import_module(peer.module).prepare
    except ImportError as error:
        return f"{peer.name} is left out: {error}. The extra trtnode[bench] has what it needs."
    return prepare
