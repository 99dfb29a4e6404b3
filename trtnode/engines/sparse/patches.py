"""Weights packed in patches: for products with a single column, such as those of a recurrence that reads one sequence.

Such a product reads each weight once, so the time that it takes to find a weight's column counts. With AVX-512, 16
columns of the input are found at once where they lie in one patch: 16 rows of blocks and 64 columns. The rows of a
patch are sorted by their number of vectors, since a processor that guesses wrongly where a row ends loses as much time
as a vector takes. ``kernels/matrix.h`` describes the format.
"""

from __future__ import annotations

import numpy as np

from trtnode.engines.sparse.packing import SparseWeights, stored_share

BLOCK = 4
"""Rows of a block."""

ROWS, COLUMNS = 16, 64
"""Of a patch, in blocks."""

SECOND_HALF = 128
"""In the place of a block whose column is in the second half of the patch."""

SPARE_PLACES = 16
"""Bytes behind the last patch: places are read 16 at a time."""

LEAST_SHARE = 0.125
"""Of blocks that are stored. With fewer, rows of a patch hold one or two, and zeros fill their vectors: at 0.1, patches
take 1.25 times the memory of rows of blocks for 0.85 of their time, and at 0.05, 1.5 times for 1.2."""


def pays(matrix: np.ndarray, hidden: int) -> bool:
    """Return whether patches cover the rows of each gate without a rest, and gain over rows of blocks."""
    fits = hidden % (BLOCK * ROWS) == 0 and hidden % COLUMNS == 0
    return fits and (stored_share(matrix, BLOCK) or 0.0) >= LEAST_SHARE


def with_gates_side_by_side(rows: np.ndarray, gates: int, hidden: int) -> np.ndarray:
    """Return rows, [directions x gates x hidden, ...], with all gates of a patch's units side by side.

    So a thread that computes these units reads their weights in one run.
    """
    by_unit = rows.reshape(-1, gates, hidden // (BLOCK * ROWS), BLOCK * ROWS, *rows.shape[1:])
    return by_unit.swapaxes(1, 2).reshape(rows.shape)


def pack_patches(matrix: np.ndarray) -> SparseWeights:
    """Pack a matrix [rows, columns] of whole patches, in blocks of four rows."""
    rows, columns = matrix.shape
    blocks = np.ascontiguousarray(matrix, np.float32).reshape(-1, ROWS, BLOCK, columns)
    values: list[np.ndarray] = [np.empty((0, BLOCK), np.float32)]
    steps: list[bytes] = []
    starts = [0]
    for row_of_patches in blocks:
        stored = 0
        for first in range(0, columns, COLUMNS):
            head, kept = _pack_patch(row_of_patches[:, :, first : first + COLUMNS])
            steps.append(head)
            values += kept
            stored += sum(map(len, kept)) // BLOCK
        starts.append(starts[-1] + stored)
    return SparseWeights(
        rows=rows,
        columns=columns,
        block=BLOCK,
        values=np.concatenate(values),
        steps=np.frombuffer(b"".join([*steps, bytes(SPARE_PLACES)]), np.uint8),
        starts=np.array(starts, np.int32),
        is_patched=True,
    )


def _pack_patch(patch: np.ndarray) -> tuple[bytes, list[np.ndarray]]:
    """Return the bytes of one patch, ``float32[16, 4, 64]``, and the blocks of its rows, in their order."""
    occupied = (patch != 0).any(axis=1)
    vectors = -(-occupied.sum(axis=1) // BLOCK)
    order = sorted(range(ROWS), key=lambda row: vectors[row] or COLUMNS)
    counts = np.bincount(vectors, minlength=COLUMNS // BLOCK + 1)[1:]
    places, kept = [], []
    for row in order[: int(counts.sum())]:
        columns = np.flatnonzero(occupied[row])
        padded = np.zeros(vectors[row] * BLOCK, np.intp)
        padded[: len(columns)] = columns
        blocks = patch[row].T[padded]
        blocks[len(columns) :] = 0
        kept.append(blocks)
        places.append(np.where(padded < COLUMNS // 2, padded, padded - COLUMNS // 2 + SECOND_HALF).astype(np.uint8))
    return bytes(counts.astype(np.uint8)) + bytes(order) + b"".join(map(bytes, places)), kept
