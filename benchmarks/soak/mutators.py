"""Mutators of protocol messages, which make invalid messages from valid ones.

Half of the mutations change fields, so that the parser accepts the message: they clear, swap and double fields, and
change shapes and sizes. The other half change the bytes on the wire, for any transport.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

MOST_CHANGES = 3
"""Largest number of changes of one message."""

NUMBERS = (0, 1, -1, 2, 7, 255, 2**16, 2**31 - 1, -(2**31), 2**32, 2**53 + 1, 2**62, 2**63 - 1, -(2**63))
"""Wrong sizes: limits of the types, and numbers that overflow in a product."""

TEXTS = ("", "FP32", "INT64", "BYTES", "bf16", "0", "-1", "x" * 300, "../../etc/passwd", "\0", "é\n\x1b[2J", "%s{}")

VARINTS = (b"\x00", b"\x7f", b"\xff\x01", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
"""Lengths in wire format, from 0 to 2^64 - 1."""

_TEXT, _BYTES, _MESSAGE = FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_MESSAGE
_SIGNED_BITS = {FieldDescriptor.CPPTYPE_INT32: 32, FieldDescriptor.CPPTYPE_INT64: 64}
_UNSIGNED_BITS = {FieldDescriptor.CPPTYPE_UINT32: 32, FieldDescriptor.CPPTYPE_UINT64: 64}


@dataclasses.dataclass(frozen=True, slots=True)
class Mutator:
    """Mutates messages. The same seed and number give the same bytes.

    Attributes:
        valid: The messages to mutate.
        seed: Of all choices.
    """

    valid: Sequence[Message]
    seed: int

    def mutated(self, number: int) -> bytes:
        """Return the bytes of a mutated message, by its number in an endless sequence."""
        rng = random.Random(f"{self.seed}/{number}")
        message = rng.choice(self.valid)
        if rng.random() < 0.5:
            return mutate_bytes(message.SerializeToString(), rng)
        changed = type(message)()
        changed.CopyFrom(message)
        mutate_fields(changed, rng)
        return changed.SerializeToString()


def mutate_fields(message: Message, rng: random.Random) -> None:
    """Change fields of a message, or of messages within it, at random."""
    for _ in range(rng.randint(1, MOST_CHANGES)):
        owner, field = rng.choice(list(_fields(message)))
        if field.is_repeated:
            _mutate_items(owner, field, rng)
        elif rng.random() < 0.2:
            owner.ClearField(field.name)
        elif field.type != _MESSAGE:
            setattr(owner, field.name, _other(field, getattr(owner, field.name), rng))
        else:
            getattr(owner, field.name).SetInParent()


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Return bytes with a few bits, lengths or parts of them changed at random."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, MOST_CHANGES)):
        place = rng.randrange(len(changed) + 1)
        rng.choice(_BYTE_MUTATIONS)(changed, place, rng)
    return bytes(changed)


def _flip(data: bytearray, place: int, rng: random.Random) -> None:
    if place < len(data):
        data[place] ^= 1 << rng.randrange(8)


def _truncate(data: bytearray, place: int, _rng: random.Random) -> None:
    del data[place:]


def _cut_out(data: bytearray, place: int, rng: random.Random) -> None:
    del data[place : place + rng.randint(1, 16)]


def _repeat(data: bytearray, place: int, rng: random.Random) -> None:
    data[place:place] = data[place : place + rng.randint(1, 64)]


def _insert(data: bytearray, place: int, rng: random.Random) -> None:
    data[place:place] = rng.randbytes(rng.randint(1, 16))


def _replace_length(data: bytearray, place: int, rng: random.Random) -> None:
    data[place : place + 1] = rng.choice(VARINTS)


_BYTE_MUTATIONS: tuple[Callable[[bytearray, int, random.Random], None], ...] = (
    _flip, _truncate, _cut_out, _repeat, _insert, _replace_length,
)  # fmt: skip


def _fields(message: Message) -> Iterator[tuple[Any, Any]]:
    """Yield each field of a message and of the messages in it, set or not, with its message."""
    for field in message.DESCRIPTOR.fields:
        yield message, field
    for field, value in message.ListFields():
        for part in _messages(field, value):
            yield from _fields(part)


def _messages(field: FieldDescriptor, value: Any) -> list[Any]:
    if field.type != _MESSAGE:
        return []
    if _is_map(field):
        return list(value.values())
    return list(value) if field.is_repeated else [value]


def _mutate_items(owner: Any, field: FieldDescriptor, rng: random.Random) -> None:
    """Drop, double or swap items of a repeated field, or change one."""
    items = getattr(owner, field.name)
    if _is_map(field):
        _mutate_map(items, rng)
        return
    kept = list(items)
    change = rng.randrange(4)
    if change == 0 and kept:
        kept.pop(rng.randrange(len(kept)))
    elif change == 1 and kept:
        kept.append(rng.choice(kept))
    elif change == 2:
        rng.shuffle(kept)
    elif field.type != _MESSAGE:
        kept.insert(rng.randint(0, len(kept)), _other(field, rng.choice(kept or [None]), rng))
    copies = [_copy(one) for one in kept]
    owner.ClearField(field.name)
    getattr(owner, field.name).extend(copies)


def _mutate_map(items: Any, rng: random.Random) -> None:
    """Put a value under another key, or delete it."""
    keys = list(items)
    if not keys:
        return
    key = rng.choice(keys)
    if rng.random() < 0.5:
        items[rng.choice((*keys, *TEXTS))].CopyFrom(_copy(items[key]))
    else:
        del items[key]


def _copy(value: Any) -> Any:
    if not isinstance(value, Message):
        return value
    copy = type(value)()
    copy.CopyFrom(value)
    return copy


def _other(field: FieldDescriptor, value: Any, rng: random.Random) -> Any:
    """Return another value that the field can hold."""
    if field.type == _TEXT:
        return rng.choice((*TEXTS, (value or "")[::-1], (value or "x") * 2))
    if field.type == _BYTES:
        return mutate_bytes(value or b"", rng)
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return not value
    if field.enum_type is not None:
        return rng.choice(field.enum_type.values).number
    if field.cpp_type in _SIGNED_BITS:
        return _wrapped(rng.choice(NUMBERS), _SIGNED_BITS[field.cpp_type], signed=True)
    if field.cpp_type in _UNSIGNED_BITS:
        return _wrapped(rng.choice(NUMBERS), _UNSIGNED_BITS[field.cpp_type], signed=False)
    return rng.choice((0.0, -0.0, float("nan"), float("inf"), -1e38))


def _wrapped(number: int, bits: int, *, signed: bool) -> int:
    return int.from_bytes((number % 2**bits).to_bytes(bits // 8, "little"), "little", signed=signed)


def _is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return kind is not None and bool(kind.GetOptions().map_entry)
