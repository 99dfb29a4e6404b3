"""Fields of protocol messages as bytes, for messages that are joined from parts, or cut, instead of made as objects."""

from __future__ import annotations

import functools
from collections.abc import Sequence

LENGTH_DELIMITED = 2
"""The wire type of strings, bytes and messages."""
MOST_FIELDS = 256
"""Fields of a message that are looked at one by one."""
VARINT_BITS = range(0, 35, 7)
"""Places of the groups of seven bits in a number of up to 32 bits."""


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


def cut_field(message: bytes, number: int) -> tuple[bytes, Sequence[memoryview]]:
    """Take a field out of a message without a copy of its contents.

    Args:
        message: A message, or other bytes.
        number: Of a field that is bytes, and may be repeated.

    Returns:
        The other fields, and the contents of the field, which are views of ``message``. Where that has many fields, or
        others than strings, bytes and messages, all of it and nothing.
    """
    view, position = memoryview(message), 0
    others: list[memoryview] = []
    contents: list[memoryview] = []
    for _ in range(MOST_FIELDS):
        if position == len(message):
            return b"".join(others), contents
        tag, begin = _read_varint(message, position)
        size, begin = _read_varint(message, begin)
        end = begin + size
        if tag & 7 != LENGTH_DELIMITED or end > len(message):
            break
        if tag >> 3 == number:
            contents.append(view[begin:end])
        else:
            others.append(view[position:end])
        position = end
    return message, ()


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at a position, and where it ends; a number that ends nowhere reaches beyond the data."""
    value = 0
    for bits in VARINT_BITS:
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << bits
        if byte < 0x80:
            return value, position
    return 0, len(data) + 1
