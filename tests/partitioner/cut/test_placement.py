"""Placement of nodes to which the number of segments leaves a choice."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_cases import Case
from trtnode.partitioner.cut.levels import certifies, earliest_levels, latest_levels
from trtnode.partitioner.cut.placement import CROSSING_BYTES, place_nodes
from trtnode.partitioner.graph.topology import GRAPH_INPUT, Topology

LARGE = 100 * CROSSING_BYTES


def topology(*reads: Sequence[int], sizes: Sequence[int] | None = None) -> Topology:
    """Nodes with one output each, numbered like it. A node without any reads an input of its own."""
    inputs = itertools.count(len(reads))
    numbered = [tuple(some) or (next(inputs),) for some in reads]
    count = next(inputs)
    read = {tensor for some in numbered for tensor in some}
    return Topology.of(
        numbered,
        [*range(len(reads)), *[GRAPH_INPUT] * (count - len(reads))],
        sizes=[*(sizes or [4] * len(reads)), *[4] * (count - len(reads))],
        leaving=[tensor not in read for tensor in range(count)],
    )


def crossing_bytes(graph: Topology, inside: Sequence[bool], levels: Sequence[int]) -> int:
    """Bytes that cross the boundary of an engine, counted tensor by tensor."""
    total = 0
    for tensor, producer in enumerate(graph.producers.tolist()):
        pins = graph.pins[graph.pin_starts[tensor] : graph.pin_starts[tensor + 1]].tolist()
        places = {levels[node] if inside[node] else None for node in pins}
        if producer != GRAPH_INPUT and len(places) > 1:
            total += int(graph.sizes[tensor]) + CROSSING_BYTES
    return total


def least_crossing_bytes(graph: Topology, inside: Sequence[bool]) -> int:
    """By trying every legal placement with the fewest segments."""
    earliest = earliest_levels(graph, inside)
    latest = latest_levels(graph, inside, max(earliest))
    windows = (range(low, high + 1) for low, high in zip(earliest, latest, strict=True))
    legal = (
        levels
        for levels in itertools.product(*windows)
        if certifies(np.array(levels), graph, np.array(inside, dtype=bool))
    )
    return min(crossing_bytes(graph, inside, levels) for levels in legal)


@st.composite
def graphs(draw: st.DrawFn, most: int) -> tuple[Topology, list[bool]]:
    count, choose = draw(st.integers(3, most)), random.Random(draw(st.integers(0, 2**32)))
    reads = [
        sorted({choose.randrange(node) for _ in range(choose.choice([0, 1, 1, 2]))} if node else ())
        for node in range(count)
    ]
    sizes = [choose.choice([4, 4, LARGE]) for _ in range(count)]
    return topology(*reads, sizes=sizes), [choose.random() < 0.7 for _ in range(count)]


def test_a_group_that_shares_a_level_moves_as_one() -> None:
    # 1 -> 2 -> 3 is a chain beside a native detour from 0 to 5; 4 is the detour, 5 reads the chain.
    graph = topology((), (), (1,), (2,), (0,), (4, 3), sizes=[4, LARGE, LARGE, LARGE, 4, 4])

    assert place_nodes(graph, [True, True, True, True, False, True])[1:4].tolist() == [2, 2, 2]


def test_a_group_stays_together_before_any_tensor() -> None:
    graph = topology((), (0,), (0,), (1,), (3, 2), sizes=[LARGE, 4, 4, 4, 4])
    inside = [True, True, True, False, True]

    assert place_nodes(graph, inside)[2] == 1
    assert place_nodes(graph, inside, together=[(2, 4)])[2] == 2


def test_a_group_that_can_not_stay_together_adds_no_segment() -> None:
    graph = topology((), (0,), (1,))

    assert place_nodes(graph, [True, False, True], together=[(0, 2)]).tolist() == [1, 1, 2]


@pytest.mark.parametrize("inside", [[True] * 3, [False] * 3, []], ids=["all", "none", "empty"])
def test_one_level_or_none_is_not_placed(inside: list[bool]) -> None:
    graph = topology(*[(), (0,), (1,)][: len(inside)])

    assert place_nodes(graph, inside).tolist() == [int(engine) for engine in inside]


@settings(max_examples=300, derandomize=True)
@given(case=graphs(40))
def test_a_placement_is_legal_minimal_and_no_worse_than_as_early_or_as_late_as_possible(case: Case) -> None:
    graph, inside = case
    earliest = earliest_levels(graph, inside)
    fewest = max((level for level, engine in zip(earliest, inside, strict=True) if engine), default=0)

    levels = place_nodes(graph, inside)

    assert certifies(np.array(levels), graph, np.array(inside, dtype=bool))
    assert max((level for level, engine in zip(levels, inside, strict=True) if engine), default=0) == fewest
    baselines = (earliest, latest_levels(graph, inside, fewest)) if fewest else (earliest,)
    assert crossing_bytes(graph, inside, levels) <= min(crossing_bytes(graph, inside, b) for b in baselines)


def test_small_graphs_are_placed_nearly_as_well_as_by_trying_everything() -> None:
    choose = random.Random(7)
    least = found = 0
    for _ in range(400):
        count = choose.randint(4, 9)
        reads = [
            sorted({choose.randrange(n) for _ in range(choose.choice([0, 1, 1, 2]))} if n else ()) for n in range(count)
        ]
        graph = topology(*reads, sizes=[choose.choice([4, LARGE]) for _ in range(count)])
        inside = [choose.random() < 0.7 for _ in range(count)]
        least += least_crossing_bytes(graph, inside)
        found += crossing_bytes(graph, inside, place_nodes(graph, inside))

    assert found <= 1.01 * least


def exact_minimum(reads: Sequence[Sequence[int]], inside: Sequence[bool]) -> int:
    """The most runs of engine nodes that native nodes separate on one path, by following every path."""

    @functools.cache
    def runs(node: int) -> int:
        before = [(runs(p), inside[p]) for p in reads[node]]
        starts = [count + (inside[node] and not engine) for count, engine in before]
        return max([int(inside[node]), *starts])

    return max((runs(node) for node in range(len(reads))), default=0)


def test_a_thousand_random_graphs_are_cut_into_exactly_the_minimum() -> None:
    choose = random.Random(2026)
    for _ in range(1000):
        count = choose.randint(1, 80)
        native, near = choose.uniform(0.02, 0.5), choose.choice([3, 10, 80])
        reads = [
            sorted({choose.randrange(max(0, n - near), n) for _ in range(choose.choice([0, 1, 1, 2, 3]))} if n else ())
            for n in range(count)
        ]
        inside = [choose.random() > native for _ in range(count)]

        levels = place_nodes(topology(*reads), inside)

        assert certifies(levels, topology(*reads), np.array(inside))
        used = {level for level, engine in zip(levels, inside, strict=True) if engine}
        assert used == set(range(1, exact_minimum(reads, inside) + 1))
