"""How finely weights are held in eight bits, and that sums of 16 bits never overflow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from engines.quantization import SCHEMES
from engines.weight_steps import weight_step

LONG = SCHEMES["openvino"]
SHORT = LONG.reduced()
FLAT = SCHEMES["onnxruntime"].reduced()


def conv(*channels: list[list[float]]) -> np.ndarray:
    """Weights of a convolution along one axis: positions of inputs of channels."""
    return np.array(channels, np.float32)


@pytest.mark.parametrize(
    ("weights", "scheme", "expected"),
    [
        pytest.param(conv([[1, -3], [2, 2]]), LONG, [3], id="the-largest-weight"),
        pytest.param(conv([[1, -3], [2, 2]]), SHORT, [3], id="neighbours-of-unequal-sign-do-not-add-up"),
        pytest.param(conv([[1, 3], [2, 2]]), SHORT, [5], id="neighbours-of-one-sign-do"),
        pytest.param(conv([[-1, 0], [-2, 3]]), SHORT, [3], id="negative-ones-too"),
        pytest.param(conv([[1, 0], [2, 0], [3, 0], [-4, 0]]), SHORT, [4], id="pairs-begin-at-even-channels"),
        pytest.param(conv([[1, 0], [1, 0], [3, 0]]), SHORT, [3], id="the-last-of-an-odd-number-is-alone"),
        pytest.param(conv([[1, 2, 3]]), SHORT, [3], id="positions-are-apart"),
        pytest.param(conv([[1, 2, 3]]), FLAT, [3], id="positions-are-neighbours-in-one-matrix"),
        pytest.param(conv([[2, 2, 3]]), FLAT, [4], id="of-which-pairs-begin-at-even-ones"),
        pytest.param(conv([[1, 1]], [[0, 0]]), LONG, [1, 1], id="a-channel-of-zeros-takes-the-largest"),
    ],
)
def test_a_step_follows_what_is_added_up(weights, scheme, expected) -> None:
    np.testing.assert_allclose(weight_step(weights, 0, scheme), np.float32(expected) / 127)


def test_a_matrix_has_channels_along_its_second_axis() -> None:
    weights = np.float32([[1, 5], [2, -6], [4, 1]])

    np.testing.assert_allclose(weight_step(weights, 1, SHORT), np.float32([4, 6]) / 127)


def test_weights_without_channels_have_seven_bits() -> None:
    assert weight_step(np.float32([1, -4, 2]), None, SHORT) == pytest.approx(8 / 127)
    assert weight_step(np.float32([1, -4, 2]), None, LONG) == pytest.approx(4 / 127)


@given(hnp.arrays(np.float32, st.tuples(*[st.integers(1, 5)] * 3), elements=st.floats(-8, 8, width=16)))
def test_no_pair_of_products_overflows_sixteen_bits(weights: np.ndarray) -> None:
    step = weight_step(weights, 0, SHORT)

    integers = np.rint(weights / step[:, np.newaxis, np.newaxis]).astype(int)
    for first in range(0, weights.shape[1], 2):
        pair = integers[:, first : first + 2]
        assert 255 * np.maximum(pair, 0).sum(axis=1).max() < 2**15
        assert 255 * np.minimum(pair, 0).sum(axis=1).min() >= -(2**15)
