"""The plan of a measurement: settings and rounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from trtnode.engines.backends.names import NanAnswer


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Settings of every model, beside the native baseline.

    Attributes:
        precisions: Keys of ``PRECISIONS``.
        peers: Keys of ``PEERS``.
        engine: The engine to compile for.
        via: process, grpc or both.
        threads: Threads of each engine; None for the libraries' choice.
        rounds: Turns of each setting.
        nan: As ``--nan``; None leaves it to the default.
        without_rewrites: Equal rewrites to leave out.
    """

    precisions: Sequence[str]
    peers: Sequence[str]
    engine: str
    via: Sequence[str]
    threads: int | None
    rounds: int
    nan: NanAnswer | None = None
    without_rewrites: tuple[str, ...] = ()

    @property
    def compiled_with(self) -> str:
        """The command whose options models are compiled with, beside their precision."""
        return f"trtnode compile --nan {self.nan}" if self.nan else "trtnode compile"

    @property
    def steps(self) -> int:
        """Number of steps of a model's measurement: compiling, loading and rounds."""
        compiled = len(self.precisions)
        return compiled + (1 + compiled + len(self.peers)) + self.rounds
