"""Places the vertices of a directed acyclic graph in rows, top to bottom, and routes its edges between them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

ROW_HEIGHT = 40.0
ROW_GAP = 34.0
VERTEX_GAP = 26.0
BEND_GAP = 14.0
"""Room beside the place where a long edge passes a row."""

BEND_BUDGET = 8_000
"""Most places where long edges pass rows, over the whole drawing. Longer edges beyond it are drawn straight."""

BEND_PULL = (1, 2, 8)
"""The attraction of a neighbour: vertex to vertex, vertex to bend, bend to bend."""

BEND_WEIGHT, LEAF_WEIGHT = 3.0, 0.1
"""The weight with which a bend insists on its place, and that of a vertex that nothing reads."""

ORDER_SWEEPS = 6
PLACE_SWEEPS = 8

Edge = tuple[int, int]
Point = tuple[float, float]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The positions of all parts, in pixels from the top left corner.

    Attributes:
        centers: Middle of each vertex.
        routes: For each edge the places it passes, both ends included: bottom of the source to top of the target.
        width: Of the whole drawing.
        height: Of the whole drawing.
    """

    centers: tuple[Point, ...]
    routes: tuple[tuple[Point, ...], ...]
    width: float
    height: float


def lay_out(widths: Sequence[float], edges: Sequence[Edge]) -> Layout:
    """Lay out a graph whose vertices are numbered in topological order.

    A vertex stands one row below the lowest that it reads from. Where an edge passes rows it gets a narrow place in
    each (a bend), so that it goes around vertices instead of behind them; all edges out of a vertex share their
    bends. Rows are ordered by the mean position of their neighbours, then placed as near to their neighbours' mean
    as the order allows (Sugiyama's scheme). The same graph always gets the same layout.

    Args:
        widths: Of each vertex, in pixels.
        edges: Pairs of vertex numbers, the lower one first.

    Returns:
        The layout, in O(n log n) for n vertices, edges and bends.
    """
    grid = _Grid(widths, edges)
    for sweep in range(ORDER_SWEEPS):
        grid.order(downward=sweep % 2 == 0)
    for sweep in range(PLACE_SWEEPS):
        grid.place(downward=sweep % 2 == 0, both_sides=sweep >= PLACE_SWEEPS - 2)
    grid.place(downward=True, both_sides=False)  # chains hang straight
    return grid.layout()


def assign_rows(count: int, edges: Sequence[Edge]) -> list[int]:
    """Give each vertex the length of the longest path to it; one that reads nothing comes down to its first reader."""
    rows = [0] * count
    for source, target in sorted(edges):
        rows[target] = max(rows[target], rows[source] + 1)
    reading = {target for _, target in edges}
    first_reader: dict[int, int] = {}
    for source, target in edges:
        first_reader[source] = min(rows[target], first_reader.get(source, rows[target]))
    return [
        first_reader[vertex] - 1 if vertex in first_reader and vertex not in reading else row
        for vertex, row in enumerate(rows)
    ]


class _Grid:
    """Rows of items: the vertices under their own numbers, bends under the numbers after them."""

    def __init__(self, widths: Sequence[float], edges: Sequence[Edge]) -> None:
        self._vertices = len(widths)
        self._edges = edges
        self._row_of = assign_rows(len(widths), edges)
        self._widths = list(widths)
        self._bends = self._bend_long_edges()
        self._above, self._below = self._neighbours()
        self._rows: list[list[int]] = [[] for _ in range(max(self._row_of, default=-1) + 1)]
        for item, row in enumerate(self._row_of):
            self._rows[row].append(item)
        self._x = [0.0] * len(self._row_of)
        for items in self._rows:
            self._spread(items, dict.fromkeys(items, 0.0))

    def order(self, *, downward: bool) -> None:
        """Sort each row by the mean position of its neighbours in the row before."""
        position = {item: index for items in self._rows for index, item in enumerate(items)}
        neighbours = self._above if downward else self._below
        for items in self._rows if downward else reversed(self._rows):
            means = {
                item: sum(position[n] for n in neighbours[item]) / len(neighbours[item])
                if neighbours[item]
                else position[item]
                for item in items
            }
            items.sort(key=means.__getitem__)
            position.update({item: index for index, item in enumerate(items)})

    def place(self, *, downward: bool, both_sides: bool) -> None:
        """Move each row as near to its neighbours as its order and the gaps allow."""
        for items in self._rows if downward else reversed(self._rows):
            wanted = {}
            for item in items:
                near = self._above[item] if downward else self._below[item]
                near = [*self._above[item], *self._below[item]] if both_sides or not near else near
                wanted[item] = self._mean_place(item, near)
            self._spread(items, wanted)

    def layout(self) -> Layout:
        left = min((self._x[v] - self._widths[v] / 2 for v in range(len(self._x))), default=0.0)
        right = max((self._x[v] + self._widths[v] / 2 for v in range(len(self._x))), default=0.0)
        self._x = [x - left for x in self._x]
        step = ROW_HEIGHT + ROW_GAP
        return Layout(
            centers=tuple(
                (round(self._x[v], 1), self._row_of[v] * step + ROW_HEIGHT / 2) for v in range(self._vertices)
            ),
            routes=tuple(self._route(source, target) for source, target in self._edges),
            width=round(right - left, 1),
            height=max(len(self._rows) * step - ROW_GAP, 0.0),
        )

    def _bend_long_edges(self) -> dict[tuple[int, int], int]:
        """Add bends for the long edges, shortest first; return the bend of a vertex's edges in a row."""
        lowest: dict[int, int] = {}
        for source, target in self._edges:
            lowest[source] = max(self._row_of[target], lowest.get(source, 0))
        bends: dict[tuple[int, int], int] = {}
        for source, last in sorted(lowest.items(), key=lambda item: item[1] - self._row_of[item[0]]):
            passed = range(self._row_of[source] + 1, last)
            if len(bends) + len(passed) > BEND_BUDGET:
                break
            for row in passed:
                bends[source, row] = len(self._row_of)
                self._row_of.append(row)
                self._widths.append(0.0)
        return bends

    def _neighbours(self) -> tuple[list[list[int]], list[list[int]]]:
        above: list[list[int]] = [[] for _ in self._row_of]
        below: list[list[int]] = [[] for _ in self._row_of]
        links = {
            (self._bends.get((source, self._row_of[target] - 1), source), target) for source, target in self._edges
        }
        links.update((self._bends.get((source, row - 1), source), bend) for (source, row), bend in self._bends.items())
        for upper, lower in sorted(links):
            above[lower].append(upper)
            below[upper].append(lower)
        return above, below

    def _mean_place(self, item: int, near: Sequence[int]) -> float:
        """Mean place of neighbours. Bends pull each other hardest, so that long edges run straight."""
        if not near:
            return self._x[item]
        pulls = [BEND_PULL[(item >= self._vertices) + (n >= self._vertices)] for n in near]
        return sum(self._x[n] * pull for n, pull in zip(near, pulls, strict=True)) / sum(pulls)

    def _weight(self, item: int) -> float:
        if item >= self._vertices:
            return BEND_WEIGHT
        return 1.0 if self._below[item] else LEAF_WEIGHT

    def _spread(self, items: Sequence[int], wanted: dict[int, float]) -> None:
        """Give a row the places that keep its gaps and differ least from its wanted (least squares).

        Without the gaps that is isotonic regression: neighbours whose wanted cross share their mean.
        """
        offsets = [0.0]
        for left, right in itertools.pairwise(items):
            gap = VERTEX_GAP if max(left, right) < self._vertices else BEND_GAP
            offsets.append(offsets[-1] + (self._widths[left] + self._widths[right]) / 2 + gap)
        blocks: list[tuple[float, float, int]] = []
        for item, offset in zip(items, offsets, strict=True):
            mean, weight, size = wanted[item] - offset, self._weight(item), 1
            while blocks and blocks[-1][0] > mean:
                other, heavier, more = blocks.pop()
                mean = (mean * weight + other * heavier) / (weight + heavier)
                weight, size = weight + heavier, size + more
            blocks.append((mean, weight, size))
        starts = [mean for mean, _, size in blocks for _ in range(size)]
        for item, start, offset in zip(items, starts, offsets, strict=True):
            self._x[item] = start + offset

    def _route(self, source: int, target: int) -> tuple[Point, ...]:
        step = ROW_HEIGHT + ROW_GAP
        points = [(self._x[source], self._row_of[source] * step + ROW_HEIGHT)]
        for row in range(self._row_of[source] + 1, self._row_of[target]):
            if (source, row) in self._bends:
                x = self._x[self._bends[source, row]]
                points += [(x, row * step), (x, row * step + ROW_HEIGHT)]
        points.append((self._x[target], self._row_of[target] * step))
        return tuple((round(x, 1), y) for x, y in points)
