"""The contract of a second tier of the engine cache, which several machines share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol, Self


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry of the cache: plain JSON values, and the bytes of an engine, a compiled file or kernels, if any."""

    fields: Mapping[str, Any]
    content: bytes | None


class SecondTier(Protocol):
    """Entries by key. It never fails: what it can't do is left undone, with a warning.

    It can be sent to another process.
    """

    def fetch(self, key: str) -> Entry | None:
        """Return an entry that may be trusted; None where there is none."""
        ...

    def publish(self, key: str, entry: Entry) -> None:
        """Store an entry for others."""
        ...

    def follow(self, copy: Self) -> None:
        """Take over what has happened to a copy that comes back from another process."""
        ...
