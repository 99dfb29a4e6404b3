"""Fields of protocol messages as bytes, for messages that are joined from parts instead of made as objects."""

from __future__ import annotations

import functools

LENGTH_DELIMITED = 2
"""The wire type of strings, bytes and messages."""


@functools.lru_cache(4096)
def field_head(number: int, size: int) -> bytes:
    """Return what stands before the contents of a string, bytes or a message.

    Args:
        number: Of the field.
        size: Bytes of its contents.
    """
    return varint(number << 3 | LENGTH_DELIMITED) + varint(size)


def varint(value: int) -> bytes:
    """Return a number as protocol messages have it: seven bits a byte, the lowest first."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
