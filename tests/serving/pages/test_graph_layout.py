"""The places of the vertices of a drawn graph, and the paths of its edges."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtnode.serving.pages.graph_layout import BEND_BUDGET, ROW_HEIGHT, VERTEX_GAP, Layout, assign_rows, lay_out


def random_edges(seed: int, count: int) -> list[tuple[int, int]]:
    choose = random.Random(seed)
    near = {(choose.randrange(max(0, i - 9), i), i) for i in range(1, count)}
    far = {(choose.randrange(i), i) for i in range(1, count, 5)}
    return sorted(near | far)


def boxes(layout: Layout, widths: list[float]) -> list[tuple[float, float, float]]:
    """Left, right and middle height of each vertex."""
    return [(x - w / 2, x + w / 2, y) for (x, y), w in zip(layout.centers, widths, strict=True)]


@settings(max_examples=40, derandomize=True)
@given(seed=st.integers(0, 2**32), count=st.integers(0, 60))
def test_vertices_keep_their_distance_and_edges_run_downward(seed: int, count: int) -> None:
    edges = random_edges(seed, count)
    widths = [60.0 + 7 * (i % 9) for i in range(count)]

    layout = lay_out(widths, edges)

    placed = sorted(boxes(layout, widths), key=lambda box: (box[2], box[0]))
    gaps = [b[0] - a[1] for a, b in itertools.pairwise(placed) if a[2] == b[2]]
    assert all(gap >= VERTEX_GAP - 0.2 for gap in gaps)
    assert all(left >= 0 and right <= layout.width + 0.2 for left, right, _ in placed)
    assert all(a[1] < b[1] for route in layout.routes for a, b in itertools.pairwise(route))
    assert [(route[0][0], route[-1][0]) for route in layout.routes] == [
        (layout.centers[a][0], layout.centers[b][0]) for a, b in edges
    ]


@settings(max_examples=40, derandomize=True)
@given(seed=st.integers(0, 2**32), count=st.integers(3, 60))
def test_long_edges_pass_beside_vertices(seed: int, count: int) -> None:
    widths = [80.0] * count

    layout = lay_out(widths, random_edges(seed, count))

    bends = [point for route in layout.routes for point in route[1:-1]]
    hidden = [
        (x, y)
        for x, y in bends
        for left, right, middle in boxes(layout, widths)
        if left < x < right and abs(y - middle) <= ROW_HEIGHT / 2
    ]
    assert hidden == []


def test_a_chain_hangs_straight() -> None:
    layout = lay_out([60, 90, 120, 70], [(0, 1), (1, 2), (2, 3)])

    assert len({x for x, _ in layout.centers}) == 1


def test_an_input_stands_right_above_its_first_reader() -> None:
    rows = assign_rows(5, [(0, 2), (2, 3), (3, 4), (1, 4)])

    assert rows == [0, 2, 1, 2, 3]


def test_the_same_graph_gets_the_same_layout() -> None:
    edges = random_edges(7, 300)

    assert lay_out([80] * 300, edges) == lay_out([80] * 300, edges)


@pytest.mark.parametrize("count", [pytest.param(0, id="none"), pytest.param(1, id="one"), pytest.param(5, id="five")])
def test_vertices_without_edges_stand_in_one_row(count: int) -> None:
    layout = lay_out([80] * count, [])

    assert {y for _, y in layout.centers} <= {ROW_HEIGHT / 2}
    assert len(layout.centers) == count


def test_edges_beyond_the_budget_of_bends_run_straight() -> None:
    chain = [(i, i + 1) for i in range(999)]
    far = [(i, 999) for i in range(0, 900, 2)]

    layout = lay_out([80] * 1000, sorted({*chain, *far}))

    assert min(len(route) for route in layout.routes) == 2
    assert sum(len(route) for route in layout.routes) < 60_000


@pytest.mark.parametrize("count", [2000, 8000])
def test_large_graphs_get_no_more_bends_than_the_budget(count: int) -> None:
    layout = lay_out([100] * count, random_edges(1, count))

    assert len({point for route in layout.routes for point in route[1:-1]}) <= 2 * BEND_BUDGET
