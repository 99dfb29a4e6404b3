"""Words of messages that depend on numbers."""

from __future__ import annotations

from collections.abc import Collection

MOST_NAMED = 10
"""The most names in a message."""


def counted(number: int, noun: str) -> str:
    """Write how many there are of something, such as ``1 node`` and ``2 nodes``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def some_of(names: Collection[str]) -> str:
    """Write the first of many names in their order, and how many more there are."""
    shown = ", ".join(sorted(names)[:MOST_NAMED]) or "none"
    return f"{shown} and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else shown
