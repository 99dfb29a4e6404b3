"""What to measure of every model."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to measure of every model, beside the native baseline.

    Attributes:
        precisions: Keys of ``PRECISIONS``.
        peers: Keys of ``PEERS``.
        engine: What this project compiles for.
        via: process, grpc or both.
        threads: Threads of each engine; None leaves it to the libraries.
        rounds: Turns of each setting.
        layers: Whether layers are timed, too.
    """

    precisions: Sequence[str]
    peers: Sequence[str]
    engine: str
    via: Sequence[str]
    threads: int | None
    rounds: int
    layers: bool = False

    @property
    def steps(self) -> int:
        """How many steps a model's measurement has: compiling, loading and rounds."""
        compiled = len(self.precisions)
        profiled = 1 + compiled if self.layers else 0
        return compiled + (1 + compiled + len(self.peers)) + self.rounds + profiled
