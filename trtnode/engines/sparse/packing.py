"""Weights in blocks: how many blocks hold a non-zero, which size of block pays, and the packed form.

A block is some rows of one column of the matrix that a layer multiplies with: rows are output channels. The kernels
load a value of the input once for all rows of a block, so that a non-zero costs less in larger blocks.
"""

from __future__ import annotations

import dataclasses

import numpy as np

BLOCK_COSTS = {8: 0.95, 4: 1.0, 1: 1.9}
"""Time of one stored value, by rows of a block, against blocks of four. Rough, from single layers
with AVX-512: it only says which layers are worth a try."""

DENSE_COST = 0.62
"""Time that a dense engine takes for one value, on the same scale: blocks of four are tried from 38 % of zeros on."""

LONGEST_STEP = 255
"""Columns from one stored block to the next; 8 bits hold it."""

LEAST_VALUES = 1024
"""Of a layer. Smaller ones cost less than the call of an operator."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SparseWeights:
    """A matrix [rows, columns] of which only blocks with a non-zero are stored.

    Attributes:
        rows: Output channels.
        columns: Input values of each output.
        block: Rows of a block.
        values: ``float32[blocks, block]``, block row by block row.
        steps: ``uint8[blocks]``, columns from the block before in its row; from column 0 for the first one. Blocks of
            zeros stand where a step would be larger.
        starts: ``int32[rows / block + 1]``, the first block of each block row.
        is_patched: Whether all three are those of patches (``patches.py``).
    """

    rows: int
    columns: int
    block: int
    values: np.ndarray
    steps: np.ndarray
    starts: np.ndarray
    is_patched: bool = False


def sparsity(matrix: np.ndarray) -> float:
    """Return the share of zeros."""
    return 1 - np.count_nonzero(matrix) / matrix.size if matrix.size else 0.0


def stored_share(matrix: np.ndarray, block: int) -> float | None:
    """Return the share of values that blocks of so many rows store, zeros among them; None if rows don't divide."""
    if not matrix.size or matrix.shape[0] % block:
        return None
    return float(_occupied(matrix, block).mean())


def expected_gain(matrix: np.ndarray, block: int) -> float | None:
    """Return about how many times as fast as a dense engine these blocks are; None where they don't fit."""
    share = stored_share(matrix, block)
    return None if share is None else DENSE_COST / max(share * BLOCK_COSTS[block], 1e-3)


def best_block(matrix: np.ndarray, whole: int = 0) -> int | None:
    """Return the rows of the blocks that pay most; None where a dense engine is faster, or nothing fits.

    Args:
        matrix: The weights, [rows, columns].
        whole: A number of rows that blocks must divide; 0 for all of them.
    """
    largest_gain = DENSE_COST / max((1 - sparsity(matrix)) * min(BLOCK_COSTS.values()), 1e-3)
    if matrix.size < LEAST_VALUES or largest_gain <= 1 or not np.isfinite(matrix).all():
        return None
    fitting = [block for block in BLOCK_COSTS if whole % block == 0]
    gains = {block: gain for block in fitting if (gain := expected_gain(matrix, block)) is not None}
    best = max(gains, key=gains.__getitem__)
    return best if gains[best] > 1 else None


def pack(matrix: np.ndarray, block: int) -> SparseWeights:
    """Pack a matrix [rows, columns] whose rows are a multiple of ``block``."""
    rows, columns = matrix.shape
    blocks = np.ascontiguousarray(matrix, np.float32).reshape(rows // block, block, columns)
    row, column, steps = _steps(_occupied(matrix, block))
    return SparseWeights(
        rows=rows,
        columns=columns,
        block=block,
        values=blocks[row, :, column],
        steps=steps.astype(np.uint8),
        starts=np.searchsorted(row, np.arange(rows // block + 1)).astype(np.int32),
    )


def _steps(stored: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return row, column and step of each block. Blocks are added to ``stored`` where a step would be too long."""
    while True:
        row, column = np.nonzero(stored)
        steps = np.where(np.diff(row, prepend=-1) > 0, column, np.diff(column, prepend=0))
        long = steps > LONGEST_STEP
        if not long.any():
            return row, column, steps
        stored[row[long], column[long] - LONGEST_STEP] = True


def _occupied(matrix: np.ndarray, block: int) -> np.ndarray:
    """Return ``bool[rows / block, columns]``: True where a block holds a non-zero."""
    rows, columns = matrix.shape
    occupied: np.ndarray = (matrix != 0).reshape(rows // block, block, columns).any(axis=1)
    return occupied
