"""Blocks of weights: what is stored, and which size of block pays."""

from __future__ import annotations

import itertools

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from trtnode.engines.sparse.packing import SparseWeights, best_block, pack, sparsity, stored_share


def blocks_of(rows: int, columns: int, block: int, zeros: float) -> np.ndarray:
    rng = np.random.default_rng(1)
    kept = np.repeat(rng.random((rows // block, columns)) >= zeros, block, axis=0)
    return (rng.standard_normal((rows, columns)) * kept).astype(np.float32)


def unpacked(packed: SparseWeights) -> np.ndarray:
    matrix = np.zeros((packed.rows, packed.columns), np.float32)
    for row, (first, last) in enumerate(itertools.pairwise(packed.starts)):
        places = packed.steps[first:last].cumsum(dtype=np.int64)
        matrix[row * packed.block : (row + 1) * packed.block, places] = packed.values[first:last].T
    return matrix


@hypothesis.given(
    st.integers(0, 99), st.sampled_from([1, 4, 8]), st.integers(1, 6), st.integers(1, 40), st.floats(0, 1)
)
def test_a_packed_matrix_unpacks_to_the_same(
    seed: int, block: int, block_rows: int, columns: int, density: float
) -> None:
    rng = np.random.default_rng(seed)
    shape = (block * block_rows, columns)
    matrix = (rng.standard_normal(shape) * (rng.random(shape) < density)).astype(np.float32)
    packed = pack(matrix, block)

    np.testing.assert_array_equal(unpacked(packed), matrix)
    assert all((values != 0).any() for values in packed.values)


def test_blocks_of_zeros_bridge_gaps_of_more_than_255_columns() -> None:
    matrix = np.zeros((8, 1500), np.float32)
    matrix[0, [0, 255, 511, 1499]] = matrix[4, 700] = 1

    packed = pack(matrix, 4)

    np.testing.assert_array_equal(unpacked(packed), matrix)
    assert list(packed.starts) == [0, 8, 11]


@pytest.mark.parametrize("block", [1, 4, 8])
def test_packed_weights_take_little_more_than_their_share_of_the_memory(block: int) -> None:
    matrix = blocks_of(256, 512, block, 0.9)
    packed = pack(matrix, block)

    stored = packed.values.nbytes + packed.steps.nbytes + packed.starts.nbytes

    assert stored <= (1 - sparsity(matrix)) * matrix.nbytes * 1.3


@pytest.mark.parametrize(
    ("block", "zeros", "expected"),
    [(4, 0.9, 4), (8, 0.9, 8), (1, 0.9, 1), (4, 0.35, None), (1, 0.6, None), (4, 0.0, None)],
)
def test_the_block_that_pays_most_is_taken_and_none_below_break_even(
    block: int, zeros: float, expected: int | None
) -> None:
    assert best_block(blocks_of(256, 256, block, zeros)) == expected


def test_small_matrices_and_those_with_infinite_values_stay_dense() -> None:
    assert best_block(blocks_of(16, 16, 4, 0.9)) is None
    matrix = blocks_of(256, 256, 4, 0.9)
    matrix[0, 0] = np.inf
    assert best_block(matrix) is None


def test_blocks_that_do_not_divide_the_rows_have_no_share() -> None:
    assert stored_share(np.ones((6, 4), np.float32), 4) is None
