"""The scales of weights in eight bits: fine, and without overflow in sums of 16 bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from trtnode.engines.quantization.qdq_writer import weight_step


def conv(*channels: list[list[float]]) -> np.ndarray:
    """Weights of a convolution along one axis: positions of inputs of channels."""
    return np.array(channels, np.float32)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        pytest.param(conv([[1, -3], [2, 2]]), [3], id="neighbours-of-unequal-sign-do-not-add-up"),
        pytest.param(conv([[1, 3], [2, 2]]), [5], id="neighbours-of-one-sign-do"),
        pytest.param(conv([[-1, 0], [-2, 3]]), [3], id="negative-ones-too"),
        pytest.param(conv([[1], [2], [3], [-4]]), [4], id="pairs-begin-at-even-channels"),
        pytest.param(conv([[1], [1], [3]]), [3], id="the-last-of-an-odd-number-is-alone"),
        pytest.param(conv([[1, 2, 4]]), [4], id="positions-of-one-channel-are-neighbours-in-a-row"),
        pytest.param(conv([[2, 3, 4]]), [5], id="of-which-pairs-begin-at-even-ones"),
        pytest.param(conv([[1], [1]], [[0], [0]]), [2, 2], id="a-channel-of-zeros-takes-the-largest"),
    ],
)
def test_a_step_follows_what_is_added_up(weights: np.ndarray, expected: list[int]) -> None:
    np.testing.assert_allclose(weight_step(weights, 0, short_sums=True), np.float32(expected) / 127)


def test_without_short_sums_the_largest_weight_counts() -> None:
    weights = conv([[1, -3], [2, 2]], [[0, 0], [0, 0]])

    np.testing.assert_allclose(weight_step(weights, 0, short_sums=False), np.float32([3, 3]) / 127)


def test_a_matrix_has_channels_along_its_second_axis() -> None:
    weights = np.float32([[1, 5], [2, -6], [4, 1]])

    np.testing.assert_allclose(weight_step(weights, 1, short_sums=True), np.float32([4, 6]) / 127)


def test_weights_without_channels_have_seven_bits() -> None:
    assert weight_step(np.float32([1, -4, 2]), None, short_sums=True) == pytest.approx(8 / 127)
    assert weight_step(np.float32([1, -4, 2]), None, short_sums=False) == pytest.approx(4 / 127)


def test_weights_of_groups_have_seven_bits() -> None:
    weights = conv([[1], [-4]], [[2], [0]])

    np.testing.assert_allclose(weight_step(weights, 0, short_sums=True, grouped=True), np.float32([8, 4]) / 127)


@given(hnp.arrays(np.float32, st.tuples(*[st.integers(1, 5)] * 3), elements=st.floats(-8, 8, width=16)))
def test_no_pair_of_products_overflows_sixteen_bits(weights: np.ndarray) -> None:
    step = weight_step(weights, 0, short_sums=True)

    integers = np.rint(weights / step[:, np.newaxis, np.newaxis]).astype(int)
    for first in range(0, weights.shape[1], 2):
        pair = integers[:, first : first + 2]
        assert 255 * np.maximum(pair, 0).sum(axis=1).max() < 2**15
        assert 255 * np.minimum(pair, 0).sum(axis=1).min() >= -(2**15)
