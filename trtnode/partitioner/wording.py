"""Words of messages that depend on numbers."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Write how many there are of something, such as ``1 node`` and ``2 nodes``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
