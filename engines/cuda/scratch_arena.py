"""The scratch memory of a stream: one block for all its engines, of the largest size that one of them needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable
from typing import Any

Place = Callable[[int, int], None]
"""Gives an execution context the address and size, in bytes, of its scratch memory."""


@dataclasses.dataclass(frozen=True, slots=True)
class _User:
    size: int
    place: Place


class Arena:
    """Scratch memory that execution contexts share, because a stream runs one of them at a time.

    Attributes:
        address: Of the block; 0 where there is none.
        size: Bytes. It is the largest need of a user, never the sum.
    """

    def __init__(self, driver: Any) -> None:
        self.address = 0
        self.size = 0
        self._allocate = driver.mem_alloc
        self._block: Any = None
        self._users: dict[Hashable, _User] = {}

    def attach(self, user: Hashable, size: int, place: Place) -> None:
        """Give memory to an execution context. The stream must be idle.

        Args:
            user: Identifies the context.
            size: Bytes that it needs at most.
            place: Called now, and again whenever the block moves.
        """
        if size > self.size:
            self._move(size)
        self._users[user] = _User(size, place)
        if self.size:
            place(self.address, self.size)

    def detach(self, user: Hashable) -> None:
        """Forget an execution context, and give back the memory that it alone needed. The stream must be idle."""
        if self._users.pop(user, None) is None:
            return
        needed = max((other.size for other in self._users.values()), default=0)
        if needed < self.size:
            self._move(needed)

    def _move(self, size: int) -> None:
        """Replace the block. The new one is allocated first, so that a full GPU leaves the old one in use."""
        block = self._allocate(size) if size else None
        if self._block is not None:
            self._block.free()
        self._block, self.address, self.size = block, int(block) if block is not None else 0, size
        for user in self._users.values():
            if size:
                user.place(self.address, size)
