"""Patches: what they hold unpacks to the matrix, and rows are sorted by what they hold."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import numpy as np
from hypothesis.extra import numpy as arrays

from trtnode.engines.sparse.packing import SparseWeights
from trtnode.engines.sparse.patches import BLOCK, COLUMNS, ROWS, SECOND_HALF, SPARE_PLACES, pack_patches


def unpacked(packed: SparseWeights) -> np.ndarray:
    """Read patches as kernels/matrix.h describes them."""
    matrix = np.zeros((packed.rows // BLOCK, BLOCK, packed.columns), np.float32)
    at = stored = 0
    for first_row in range(0, packed.rows // BLOCK, ROWS):
        for first_column in range(0, packed.columns, COLUMNS):
            counts, order = packed.steps[at : at + ROWS], packed.steps[at + ROWS : at + 2 * ROWS]
            at += 2 * ROWS
            assert sorted(order) == list(range(ROWS))
            for row, vectors in zip(order, np.repeat(np.arange(1, ROWS + 1), counts), strict=False):
                for place in packed.steps[at : at + 4 * vectors]:
                    column = first_column + place % SECOND_HALF + place // SECOND_HALF * COLUMNS // 2
                    matrix[first_row + row, :, column] += packed.values[stored]
                    stored += 1
                at += 4 * vectors
        assert stored == BLOCK * packed.starts[first_row // ROWS + 1]
    assert at + SPARE_PLACES == len(packed.steps)
    assert stored == len(packed.values)
    return matrix.reshape(packed.rows, packed.columns)


@hypothesis.settings(max_examples=30)
@hypothesis.given(
    st.integers(0, 99), st.integers(1, 3), st.integers(1, 3), arrays.arrays(np.float64, 3, elements=st.floats(0, 1))
)
def test_a_patched_matrix_unpacks_to_the_same(seed: int, down: int, across: int, densities: np.ndarray) -> None:
    rng = np.random.default_rng(seed)
    shape = (BLOCK * ROWS * down, COLUMNS * across)
    kept = rng.random(shape) < np.resize(densities, shape[0])[:, None]
    matrix = (rng.standard_normal(shape) * kept).astype(np.float32)

    np.testing.assert_array_equal(unpacked(pack_patches(matrix)), matrix)


def test_rows_without_a_block_stand_behind_the_others() -> None:
    matrix = np.zeros((BLOCK * ROWS, COLUMNS), np.float32)
    matrix[BLOCK * 3, :5] = 1
    matrix[BLOCK * 2 + 1, 63] = 1

    packed = pack_patches(matrix)

    assert list(packed.steps[:2]) == [1, 1]
    assert list(packed.steps[ROWS : ROWS + 3]) == [2, 3, 0]
    assert list(packed.steps[2 * ROWS : 2 * ROWS + 8]) == [SECOND_HALF + 31, 0, 0, 0, 0, 1, 2, 3]
