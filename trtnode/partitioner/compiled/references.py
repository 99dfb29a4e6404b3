"""Engine bytes without the weights that stand in the same file.

An engine often holds initializers of its model as they are. Such ranges are left out, and listed by where they go and
which input of the TrtNode has their bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from trtnode.partitioner.model.mapped_weights import MappedTensor, map_pages

LEAST_BYTES = 1024
"""Smaller ranges stay in the engine."""

MOST_TIMES = 4
"""Ranges take at most this many times the bytes of the weights: a small file can't ask for any amount of memory."""

_PIECE_BYTES = 1 << 20
_WORD = np.dtype("<u8")
_KEYS = 1 << 16
_FEW_WORDS = 1 << 12


class Reference(NamedTuple):
    """A range of an engine that equals bytes of an initializer.

    Attributes:
        offset: Of its first byte in the engine.
        length: In bytes.
        weight: Index of the initializer among the TrtNode's inputs.
        start: Of the range in the initializer's bytes.
        widened: 1 if these are the bytes of a float16 initializer's values as float32, else 0.
    """

    offset: int
    length: int
    weight: int
    start: int = 0
    widened: int = 0


Weights = Mapping[int, ir.TensorProtocol]
"""Initializers by their index among a TrtNode's inputs."""


def find_references(engine: np.ndarray, weights: Weights) -> Iterator[Reference]:
    """Find the weights that an engine holds whole, as they are or widened to float32.

    Args:
        engine: Its bytes, uint8[N].
        weights: Of its TrtNode.

    Yields:
        Ranges that don't overlap, in order.
    """
    forms = [_Sought.of(index, *form) for index, tensor in weights.items() for form in _forms(tensor)]
    sought = sorted((form for form in forms if form), key=lambda form: (form.word, -len(form.data)))
    words = np.array([form.word for form in sought], _WORD)
    position = end = 0
    while sought and position < len(engine):
        for place, word in _places(engine[position : position + _PIECE_BYTES + 7], words):
            for form in sought[np.searchsorted(words, word) : np.searchsorted(words, word, "right")]:
                offset = position + place - form.place
                if offset >= end and np.array_equal(engine[offset : offset + len(form.data)], form.data):
                    yield Reference(offset, len(form.data), form.weight, widened=form.widened)
                    end = offset + len(form.data)
                    break
        position = max(position + _PIECE_BYTES, end)


def without_ranges(engine: np.ndarray, references: Sequence[Reference]) -> bytes:
    """Return the bytes of an engine that no reference stands for."""
    starts = [0, *(one.offset + one.length for one in references)]
    ends = [*(one.offset for one in references), len(engine)]
    return b"".join(engine[start:end].data for start, end in zip(starts, ends, strict=True))


def put_together(rest: bytes | memoryview, references: Sequence[Reference], weights: Weights) -> np.ndarray:
    """Return the whole engine, uint8[N].

    Args:
        rest: What ``without_ranges`` has left.
        references: In order.
        weights: Of its TrtNode.

    Raises:
        ValueError: They aren't references of these weights.
    """
    most = MOST_TIMES * sum(tensor.nbytes for tensor in weights.values())
    if any(min(one) < 0 for one in references) or sum(one.length for one in references) > most:
        raise ValueError("its references have impossible sizes")
    stored = np.frombuffer(rest, np.uint8)
    engine = np.empty(len(stored) + sum(one.length for one in references), np.uint8)
    position = taken = 0
    for one in references:
        own = one.offset - position
        source = dict(_forms(weights[one.weight])).get(one.widened) if one.weight in weights else None
        found = source[one.start : one.start + one.length] if source is not None else ()
        if own < 0 or taken + own > len(stored) or len(found) != one.length:
            raise ValueError(f"it has no {one.length} bytes of input {one.weight} at {one.offset}")
        engine[position : one.offset] = stored[taken : taken + own]
        engine[one.offset : one.offset + one.length] = found
        position, taken = one.offset + one.length, taken + own
    engine[position:] = stored[taken:]
    return engine


def references_to_bytes(references: Sequence[Reference]) -> bytes:
    """Return references as five 64-bit integers each, little-endian."""
    return np.array(references, "<i8").tobytes()


def references_from_bytes(data: bytes) -> list[Reference]:
    """Read references.

    Raises:
        ValueError: These are none.
    """
    return [Reference(*row) for row in np.frombuffer(data, "<i8").reshape(-1, len(Reference._fields)).tolist()]


def stored_bytes(tensor: ir.TensorProtocol) -> np.ndarray:
    """Return the bytes of a tensor as files hold them, uint8[N], without a copy where it lies in a file."""
    if isinstance(tensor, MappedTensor):
        map_pages(tensor.data, tensor.offset, tensor.nbytes)
        return tensor.numpy().reshape(-1).view(np.uint8)
    return np.frombuffer(tensor.tobytes(), np.uint8)


def _forms(tensor: ir.TensorProtocol) -> Iterator[tuple[int, np.ndarray]]:
    if tensor.dtype != ir.DataType.STRING:
        yield 0, stored_bytes(tensor)
    if tensor.dtype == ir.DataType.FLOAT16:
        yield 1, tensor.numpy().reshape(-1).astype("<f4").view(np.uint8)


class _Sought(NamedTuple):
    """Bytes to look for by eight of them: the rarest near the start that aren't zero, as zeros abound in weights."""

    weight: int
    widened: int
    data: np.ndarray
    place: int
    word: int

    @classmethod
    def of(cls, weight: int, widened: int, data: np.ndarray) -> _Sought | None:
        if len(data) < LEAST_BYTES:
            return None
        words = data[: min(len(data) // 8 * 8, _PIECE_BYTES)].view(_WORD)
        for some in (words[:_FEW_WORDS], words):
            values, places, counts = np.unique(some, return_index=True, return_counts=True)
            if len(values) > 1:
                rarest = np.lexsort((places, counts + len(some) * (values == 0)))[0]
                return cls(weight, widened, data, 8 * int(places[rarest]), int(values[rarest]))
        return None


def _places(piece: np.ndarray, words: np.ndarray) -> list[tuple[int, int]]:
    """Return each place of a piece where one of the words begins, and the word. A table of two bytes sorts out most."""
    keys = np.zeros(_KEYS, bool)
    keys[words % _KEYS] = True
    pairs = (piece[odd : odd + (len(piece) - odd) // 2 * 2].view("<u2") for odd in (0, 1))
    starts = [2 * np.flatnonzero(keys[both]) + odd for odd, both in enumerate(pairs)]
    places = np.sort(np.concatenate(starts))
    places = places[places + 8 <= len(piece)]
    found = np.lib.stride_tricks.sliding_window_view(piece, 8)[places].view(_WORD)[:, 0] if len(places) else words[:0]
    known = np.isin(found, words)
    return list(zip(places[known].tolist(), found[known].tolist(), strict=True))
