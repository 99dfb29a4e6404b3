"""Names of dimensions as sizes: symbols, expressions of symbols, and names that only look like expressions."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from trtnode.engines.inputs.dimension_names import named, symbols_of, with_sizes
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.partitioner.model.values import Dimension


def inputs(*shapes: tuple[Dimension, ...]) -> list[TensorSpec]:
    return [TensorSpec(name=f"x{i}", dtype=ir.DataType.FLOAT, shape=shape) for i, shape in enumerate(shapes)]


@pytest.mark.parametrize(
    ("shapes", "symbols", "sizes", "fixed"),
    [
        pytest.param([("n", 3), ("n", "m")], ("n", "m"), {"n": 2, "m": 5}, [(2, 3), (2, 5)], id="equal-names"),
        pytest.param([("past",), ("past + new",)], ("past", "new"), {"past": 4, "new": 1}, [(4,), (5,)], id="sum"),
        pytest.param([("past",), ("past+1",)], ("past",), {"past": 4}, [(4,), (5,)], id="one-more"),
        pytest.param([("n",), ("n//2",)], ("n",), {"n": 5}, [(5,), (2,)], id="half"),
        pytest.param([("n",), ("n - 3",)], ("n",), {"n": 2}, None, id="below-zero"),
        pytest.param([("n",), ("n / 2",)], ("n",), {"n": 3}, None, id="no-whole-number"),
        pytest.param([("n",), ("Mod(4, n)",)], ("n",), {"n": 0}, None, id="division-by-zero"),
        pytest.param([("n",), (None,), (None,)], ("n", "size_0", "size_1"), None, None, id="no-names"),
        pytest.param([("batch-size",), ("batch-size",)], ("size_0",), {"size_0": 2}, [(2,), (2,)], id="hyphen"),
        pytest.param([("past seq",), ("?",)], ("size_0", "size_1"), None, None, id="no-symbols"),
        pytest.param([("n",), ("n + 9**9**9",)], ("n", "size_0"), None, None, id="a-power-is-never-computed"),
        pytest.param([("n",), ("n" + " + n" * 99,)], ("n", "size_0"), None, None, id="long"),
        pytest.param([("n",), ("(" * 90 + "n",)], ("n", "size_0"), None, None, id="not-closed"),
    ],
)
def test_sizes_follow_from_names(
    shapes: list[tuple[Dimension, ...]],
    symbols: tuple[str, ...],
    sizes: dict[str, int] | None,
    fixed: list[tuple[int, ...]] | None,
) -> None:
    found = named(inputs(*shapes))

    assert set(symbols_of(found)) == set(symbols)
    if sizes is not None:
        specs = with_sizes(found, sizes)
        assert (specs and [spec.shape for spec in specs]) == fixed
