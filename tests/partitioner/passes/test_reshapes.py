"""Chains of nodes that move no element: random ones give the same values from fewer nodes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewriting import assert_same, model_of, op_types, rewritten
from trtnode.partitioner.passes.rewrites.reshapes import VIEWS

BATCH = "N"


@settings(max_examples=25)
@given(data=st.data(), batch=st.sampled_from([BATCH, 1, 3]))
def test_a_random_chain_computes_the_same_with_fewer_nodes(data: st.DataObject, batch: int | str) -> None:
    given_shape = (batch, *data.draw(st.lists(st.sampled_from([1, 1, 2, 3]), min_size=1, max_size=4)))
    source = model_of(data.draw(_chains(given_shape)), opset=11, shape=given_shape)

    result, _ = rewritten(source, "native")

    x = np.random.default_rng(0).standard_normal([2 if size == BATCH else size for size in given_shape])
    assert_same(result, source, x.astype(np.float32))
    kinds = op_types(result)
    assert len(kinds) <= len(source.graph.node)
    assert not any(one in VIEWS and other in VIEWS for one, other in itertools.pairwise(kinds))


@pytest.mark.parametrize(
    ("shape", "expected"), [(("N", 1, 4), ["Neg"]), (("N", 1, "M"), ["Squeeze", "Unsqueeze", "Neg"])]
)
def test_a_shape_with_two_sizes_that_vary_is_left_alone(shape: tuple[int | str, ...], expected: list[str]) -> None:
    source = model_of("a = Squeeze <axes = [1]> (x) b = Unsqueeze <axes = [1]> (a) y = Neg(b)", opset=11, shape=shape)

    result, _ = rewritten(source, "native")

    assert op_types(result) == expected


def test_an_inner_result_that_others_read_stays() -> None:
    source = model_of(
        "a = Squeeze <axes = [0]> (x) b = Unsqueeze <axes = [1]> (a) c = Neg(a) d = Neg(b) y = Identity(d)",
        opset=11,
        shape=(1, 4, 5),
        outputs=", float[?,?] c",
    )

    result, _ = rewritten(source, "native")

    assert op_types(result) == ["Squeeze", "Reshape", "Neg", "Neg", "Identity"]


@st.composite
def _chains(draw: st.DrawFn, shape: tuple[int | str, ...]) -> str:
    """Draw nodes from x to y that begin and end with one that computes."""
    sizes, nodes, last = list(shape), ["v0 = Relu(x)"], "v0"
    for step in range(1, draw(st.integers(2, 6))):
        call, sizes = draw(st.sampled_from(_steps(sizes)))
        nodes.append(f"v{step} = {call}({last})")
        last = f"v{step}"
    return " ".join([*nodes, f"y = Neg({last})"])


def _steps(sizes: list[int | str]) -> list[tuple[str, list[int | str]]]:
    rank = len(sizes)
    steps = [(f"Unsqueeze <axes = [{axis}]> ", [*sizes[:axis], 1, *sizes[axis:]]) for axis in range(rank + 1)]
    ones = [axis for axis, size in enumerate(sizes) if size == 1 and rank > 1]
    steps += [(f"Squeeze <axes = [{axis}]> ", [*sizes[:axis], *sizes[axis + 1 :]]) for axis in ones]
    for axis in range(rank - 1):
        order = [*range(axis), axis + 1, axis, *range(axis + 2, rank)]
        steps.append((f"Transpose <perm = {order}> ", [sizes[place] for place in order]))
    return [*steps, ("Concat <axis = 0> ", sizes), ("Split <axis = 0> ", sizes)]
