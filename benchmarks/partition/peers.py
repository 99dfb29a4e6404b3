"""Other systems that cut graphs, each with a driver module that is imported on first use."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable

from benchmarks.partition.labelled_graph import Groups, LabelledGraph


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PeerCut:
    """Cut of a graph by a method.

    Attributes:
        segments: Number of segments.
        groups: Node names of each segment.
        seconds: Time of the cut alone, without the conversion of the graph into the system's form.
    """

    segments: int
    groups: Groups
    seconds: float


Prepare = Callable[[LabelledGraph], Callable[[], PeerCut]]
"""Converts a graph into a system's form; the result cuts it at each call."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PeerPartitioner:
    """A system to compare with.

    Attributes:
        name: For tables.
        module: The module of its function ``prepare``, a ``Prepare``.
        most_nodes: Size of the largest graph that it can cut in a reasonable time.
    """

    name: str
    module: str
    most_nodes: int


ORT_HELPER = PeerPartitioner(name="ORT helper", module="benchmarks.partition.peer_ort", most_nodes=1_000_000)
TORCH_FX = PeerPartitioner(name="torch.fx", module="benchmarks.partition.peer_fx", most_nodes=2_000)

PEERS = (ORT_HELPER, TORCH_FX)


def load(peer: PeerPartitioner) -> Prepare | str:
    """Import a peer's driver.

    Returns:
        Its ``prepare``, or a sentence with the reason why there is none.
    """
    try:
        prepare: Prepare = importlib.import_module(peer.module).prepare
    except ImportError as error:
        return f"{peer.name} is left out: {error}. The extra trtnode[bench] has what it needs."
    return prepare
