"""Fields of protocol messages as bytes, for messages that are joined from parts, or cut, instead of made as objects."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor

VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5
"""Wire types: numbers of any length, of 64 bits, of 32 bits; strings, bytes and messages."""
MOST_FIELDS = 256
"""Fields of a message that are looked at one by one."""
VARINT_BITS = range(0, 70, 7)
"""Places of the groups of seven bits in a number of up to 64 bits."""
LONG_BYTES = 128 << 10
"""Messages up to this size can't hold enough fields to cost much, and are parsed without a look at them."""
MOST_PARTS = 16_384
"""Fields of a longer message, those of its inner messages included. Each may become an object of 250 bytes."""
PARTS_AT_A_TIME = 512
"""Fields that are counted until other threads may run."""
NUMBER_BYTES = 32 << 20
"""Memory of the packed numbers of a message. A byte on the wire may stand for eight."""

Layout = dict[int, Any]
"""A message's fields that need a look, by number: the layout of inner messages, the width of packed numbers."""
_WIDTHS = {
    FieldDescriptor.CPPTYPE_INT32: 4,
    FieldDescriptor.CPPTYPE_UINT32: 4,
    FieldDescriptor.CPPTYPE_INT64: 8,
    FieldDescriptor.CPPTYPE_UINT64: 8,
    FieldDescriptor.CPPTYPE_ENUM: 4,
}


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
        The other fields, and the contents of the field, which are views of ``message``. Where that has many fields,
        large other ones, or others than strings, bytes and messages, all of it and nothing.
    """
    view, position = memoryview(message), 0
    others: list[memoryview] = []
    contents: list[memoryview] = []
    for _ in range(MOST_FIELDS):
        if position == len(message):
            is_large = sum(map(len, others)) > LONG_BYTES
            return (message, ()) if is_large else (b"".join(others), contents)
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


def layout_of(descriptor: Any) -> Layout:
    """Return the layout of a kind of message, which doesn't hold its own kind."""
    layout: Layout = {}
    for field in descriptor.fields:
        kind = field.message_type
        if kind is not None:
            inner = layout_of(kind)
            if inner or any(one.is_repeated for one in kind.fields):
                layout[field.number] = inner
        elif field.is_repeated and field.cpp_type in _WIDTHS:
            layout[field.number] = _WIDTHS[field.cpp_type]
    return layout


def is_bounded(message: bytes, layout: Layout) -> bool:
    """Return whether the objects of a message take memory in proportion to it.

    Two bytes may stand for an object of 250, and a parser holds the interpreter until it has made all of them.

    Args:
        message: A message, or other bytes.
        layout: Of its kind.
    """
    return len(message) <= LONG_BYTES or _Look(message).fits(0, len(message), layout)


class _Look:
    """A look at the fields of a message, until they are more than there may be."""

    def __init__(self, message: bytes) -> None:
        self._message = message
        self._parts = MOST_PARTS
        self._number_bytes = NUMBER_BYTES

    def fits(self, position: int, end: int, layout: Layout) -> bool:
        """Return whether a message fits that stands at a place.

        Where bytes are no message, the parser stops at the same place, and has made objects of what was counted.
        """
        while position < end:
            self._parts -= 1
            if self._parts < 0:
                return False
            if not self._parts % PARTS_AT_A_TIME:
                time.sleep(0)
            tag, position = _read_varint(self._message, position)
            kind = tag & 7
            if kind == LENGTH_DELIMITED:
                size, begin = _read_varint(self._message, position)
                position = begin + size
                inner = layout.get(tag >> 3) if position <= end else None
                if inner is not None and not self._inner_fits(begin, position, inner):
                    return False
            elif kind == VARINT:
                _, position = _read_varint(self._message, position)
            else:  # the ends of groups, which are obsolete, have no contents
                position += {FIXED64: 8, FIXED32: 4}.get(kind, 0)
        return True

    def _inner_fits(self, begin: int, end: int, inner: Layout | int) -> bool:
        if not isinstance(inner, int):
            return self.fits(begin, end, inner)
        for start in range(begin, end, LONG_BYTES):  # in pieces, between which other threads run
            last_bytes = np.frombuffer(self._message, np.int8, min(LONG_BYTES, end - start), start) >= 0  # of numbers
            self._number_bytes -= inner * int(np.count_nonzero(last_bytes))
            if self._number_bytes < 0:
                return False
        return True


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
