"""Parallel convolutions that are added become one convolution of the same result."""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st

from plain_runtime import passes_checker
from rewriting import SHAPE, assert_same, model_of, op_types, rewritten


@st.composite
def blocks(draw: st.DrawFn) -> tuple[str, dict[str, np.ndarray], int]:
    """Parallel convolutions of equal strides and groups, normalized or not, and perhaps the value itself."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    groups, dilation = draw(st.sampled_from([1, 2, 8])), draw(st.sampled_from([1, 2]))
    stride = draw(st.sampled_from([1, 2]))
    sides = draw(st.lists(st.sampled_from([1, 3, 5]), min_size=1, max_size=4))
    arrays: dict[str, np.ndarray] = {}
    nodes, added = [], []

    def normalize(value: str) -> str:
        if draw(st.booleans()):
            return value
        names = [f"{value}_{kind}" for kind in "sbmv"]
        arrays.update({name: (rng.random(8) + 0.5).astype(np.float32) for name in names})
        nodes.append(f"{value}_n = BatchNormalization({value}, {', '.join(names)})")
        return f"{value}_n"

    for place, side in enumerate(sides):
        arrays[f"kernel{place}"] = rng.standard_normal((8, 8 // groups, side, side)).astype(np.float32)
        bias = draw(st.booleans())
        arrays |= {f"offset{place}": rng.standard_normal(8).astype(np.float32)} if bias else {}
        pad = side // 2 * dilation
        inputs = f"x, kernel{place}" + (f", offset{place}" if bias else "")
        nodes.append(
            f"c{place} = Conv <pads = [{pad}, {pad}, {pad}, {pad}], strides = [{stride}, {stride}], group = {groups}, "
            f"dilations = [{dilation}, {dilation}]> ({inputs})"
        )
        added.append(normalize(f"c{place}"))
    if stride == 1 and (len(sides) == 1 or draw(st.booleans())):
        added.append(normalize("x"))
    if len(added) == 1:
        added.append("c0")
    if draw(st.booleans()):
        nodes.append(f"sum = Sum({', '.join(added)})")
    else:
        nodes += [f"a{n} = Add({f'a{n - 1}' if n > 1 else added[0]}, {added[n]})" for n in range(1, len(added))]
        nodes.append(f"sum = Identity(a{len(added) - 1})")
    return " ".join([*nodes, "y = Relu(sum)"]), arrays, len(set(added))


@settings(max_examples=40)
@given(block=blocks())
def test_branches_become_one_convolution_of_the_same_result(
    block: tuple[str, dict[str, np.ndarray], int],
) -> None:
    nodes, arrays, _ = block
    source = model_of(nodes)
    source.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)

    result, _ = rewritten(source, "native")

    if op_types(result) != ["Conv", "Relu"]:  # one convolution is added to itself, or the value to its normalization
        assert nodes.count("Conv") == 1
    assert passes_checker(result)
    assert_same(result, source, x)
