"""The graph in the picture of a partition: one vertex a node, or, for large graphs, one a group of nodes."""

from __future__ import annotations

import collections
import dataclasses
import math
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import onnx_ir as ir

from trtnode.partitioner.cut.partition import Partition
from trtnode.partitioner.cut.report import levels_of
from trtnode.partitioner.graph.view import Graph, Node
from trtnode.serving.pages.graph_layout import ROW_HEIGHT, Layout, Point, lay_out

MOST_NODES = 2000
"""Graphs with more nodes are drawn by groups."""

MOST_GROUPS = 1000
"""The number of groups that a drawing may have."""

MOST_ENDS = 60
"""More inputs or outputs of the graph share a vertex."""

MOST_LINES, MOST_GROUP_LINES = 60, 12
"""The number of lines that a vertex may have on a side, node by node and by groups."""

TITLE_COLUMN, SUBTITLE_COLUMN, PADDING = 7.9, 6.7, 22.0
"""Pixels of a character in the two lines of a vertex, set in a monospaced font, and around them."""

SUBTITLE_COLUMNS = 22


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Vertex:
    """A box of the picture.

    Attributes:
        kind: ``engine``, ``native``, ``mixed`` for both, ``input`` or ``output``.
        title: First line, whole.
        subtitle: Second line, shortened to fit.
        segment: Number of the segment, for ``engine``.
        step: The step that its nodes come from, of an ensemble.
    """

    kind: str
    title: str
    subtitle: str
    segment: int | None = None
    step: str = ""

    @property
    def width(self) -> float:
        """Pixels that both lines need."""
        badge = 0 if self.segment is None else len(str(self.segment)) + 2
        lines = ((columns(self.title) + badge) * TITLE_COLUMN, columns(self.subtitle) * SUBTITLE_COLUMN)
        return round(max(64.0, *lines) + PADDING)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """The picture: boxes, lines between them, and where they go.

    Attributes:
        vertices: In topological order.
        edges: Pairs of vertices, with the values that flow between them.
        hidden_edges: Number of edges that are left out, since their vertices have too many.
        layout: Places of both.
        place: Number of the vertex of each node, by identity.
        ends: Number of the vertex of each input and output of the graph, in order, with the value.
        grouped: True if a vertex may stand for many nodes.
    """

    vertices: tuple[Vertex, ...]
    edges: Mapping[tuple[int, int], tuple[ir.Value, ...]]
    hidden_edges: int
    layout: Layout
    place: Mapping[str, int]
    ends: tuple[tuple[int, ir.Value], ...]
    grouped: bool

    def boxes(self) -> list[tuple[float, float, float, float]]:
        """Left, top, width and height of each vertex."""
        return [
            (round(x - v.width / 2, 1), y - ROW_HEIGHT / 2, v.width, ROW_HEIGHT)
            for v, (x, y) in zip(self.vertices, self.layout.centers, strict=True)
        ]

    def crossing(self) -> list[bool]:
        """Return whether each edge enters or leaves a segment."""
        return [self.vertices[source].segment != self.vertices[target].segment for source, target in self.edges]

    def paths(self) -> list[str]:
        """SVG path of each edge."""
        return [_path(route) for route in self.layout.routes]


def draw(partition: Partition, *, most_nodes: int = MOST_NODES, most_groups: int = MOST_GROUPS) -> Drawing:
    """Draw a partition node by node, or a graph of more than ``most_nodes`` nodes in at most ``most_groups`` groups."""
    graph = partition.graph
    grouped = len(graph.nodes) > most_nodes
    groups = _groups(partition, most_groups) if grouped else [[node] for node in graph.nodes]
    segment_of = {node.name: index for index, segment in enumerate(partition.segments) for node in segment.nodes}
    inputs, outputs = _input_groups(graph), _folded(graph.outputs)
    place = {node.name: len(inputs) + index for index, group in enumerate(groups) for node in group}
    steps = graph.steps
    vertices = (
        *(_end_vertex("input", values) for values in inputs),
        *(
            dataclasses.replace(_vertex(group, segment_of, partition, grouped=grouped), step=_common_step(group, steps))
            for group in groups
        ),
        *(_end_vertex("output", values) for values in outputs),
    )
    first_output = len(inputs) + len(groups)
    sources = [(index, value) for index, values in enumerate(inputs) for value in values]
    results = [(index, value) for index, values in enumerate(outputs, first_output) for value in values]
    flows = _edges(graph, place, sources, results)
    crowded = _crowded(flows, MOST_GROUP_LINES if grouped else MOST_LINES)
    edges = {edge: values for edge, values in flows.items() if edge not in crowded}
    layout = lay_out([v.width for v in vertices], list(edges))
    return Drawing(
        vertices=vertices,
        edges=edges,
        hidden_edges=len(crowded),
        layout=layout,
        place=place,
        ends=(*sources, *results),
        grouped=grouped,
    )


def _input_groups(graph: Graph) -> list[list[ir.Value]]:
    """Return the graph's inputs by vertex. Those that nothing reads share one, which keeps the picture narrow.

    Unread defaults are left out: some exporters leave dozens.
    """
    read = [v for v in graph.inputs if v.uses() or v.is_graph_output()]
    unread = [v for v in graph.inputs if not (v.uses() or v.is_graph_output() or v.is_initializer())]
    return [*_folded(read), *([unread] if unread else [])]


def _folded(values: Sequence[ir.Value]) -> list[list[ir.Value]]:
    return [list(values)] if len(values) > MOST_ENDS else [[value] for value in values]


def _end_vertex(kind: str, values: Sequence[ir.Value]) -> Vertex:
    unread = kind == "input" and not any(v.uses() or v.is_graph_output() for v in values)
    word = f"unread {kind}" if unread else kind
    title = word if len(values) == 1 else f"{len(values):,} {word}s"
    names = shorten(values[0].name or "") + (", …" if len(values) > 1 else "")
    return Vertex(kind=kind, title=title, subtitle=names)


def columns(text: str) -> int:
    """Columns that a text takes in a monospaced font."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def shorten(text: str) -> str:
    """The end of a text, which tells more than its beginning, where it is too long for a vertex."""
    if columns(text) <= SUBTITLE_COLUMNS:
        return text
    kept = text[1 - SUBTITLE_COLUMNS :]
    while columns(kept) >= SUBTITLE_COLUMNS:
        kept = kept[1:]
    return f"…{kept}"


def _vertex(group: Sequence[Node], segment_of: Mapping[str, int], partition: Partition, *, grouped: bool) -> Vertex:
    segments = sorted({segment_of[node.name] for node in group if node.name in segment_of})
    native = [node for node in group if node.name not in segment_of]
    kind = "mixed" if segments and (native or len(segments) > 1) else "engine" if segments else "native"
    segment = segments[0] if kind == "engine" else None
    if not grouped:
        return Vertex(kind=kind, title=group[0].op_type, subtitle=shorten(group[0].name), segment=segment)
    if kind == "native":
        ops = collections.Counter(node.op_type for node in group)
        common = ops.most_common(1)[0][0] + ("" if len(ops) == 1 else ", …")
        title = f"{len(group):,} native" if len(group) > 1 else "native"
        return Vertex(kind=kind, title=title, subtitle=shorten(common))
    count = f"{len(group):,} node{'' if len(group) == 1 else 's'}"
    if kind == "engine":
        return Vertex(kind=kind, title=partition.segments[segments[0]].name, subtitle=count, segment=segment)
    first, last = partition.segments[segments[0]].name, segments[-1]
    title = first if len(segments) == 1 else f"{first} to {last}"
    return Vertex(kind=kind, title=title, subtitle=f"{count}, {len(native):,} native")


def _common_step(group: Sequence[Node], steps: Mapping[str, str]) -> str:
    """Return the step of all nodes of a group; nothing where they differ."""
    found = {steps.get(node.name, "") for node in group}
    return found.pop() if len(found) == 1 else ""


def _groups(partition: Partition, most: int) -> list[list[Node]]:
    """Return at most so many groups of nodes, in topological order, as fine as that allows.

    A group is a segment or all native nodes of a level; else all nodes of neighbouring levels. Levels never fall along
    an edge, and what runs in a segment waits for no native node of its level. So no group waits for a later one.
    """
    graph = partition.graph
    segment_of = {node.name: segment.name for segment in partition.segments for node in segment.nodes}
    levels = levels_of(graph, partition.segments)
    step = math.ceil((max(levels, default=0) + 1) / most)
    keys: tuple[Callable[[Node], tuple[int, bool, str]], ...] = (
        lambda n: (levels[n.index], n.name not in segment_of, segment_of.get(n.name, "")),
        lambda n: (levels[n.index] // step, False, ""),
    )
    for key in keys:
        groups: dict[tuple[int, bool, str], list[Node]] = collections.defaultdict(list)
        for node in graph.nodes:
            groups[key(node)].append(node)
        if len(groups) <= most:
            break
    return [groups[key] for key in sorted(groups, key=lambda key: key[:2])]


def _edges(
    graph: Graph,
    place: Mapping[str, int],
    sources: Iterable[tuple[int, ir.Value]],
    results: Iterable[tuple[int, ir.Value]],
) -> dict[tuple[int, int], tuple[ir.Value, ...]]:
    origin = {value: vertex for vertex, value in sources}
    origin.update({value: place[node.name] for node in graph.nodes for value in node.op.outputs})
    flows: dict[tuple[int, int], dict[ir.Value, None]] = collections.defaultdict(dict)
    for node in graph.nodes:
        for value in node.reads:
            if value in origin and origin[value] != place[node.name]:
                flows[origin[value], place[node.name]][value] = None
    for vertex, value in results:
        if value in origin:
            flows[origin[value], vertex][value] = None
    return {edge: tuple(values) for edge, values in sorted(flows.items(), key=lambda item: item[0])}


def _crowded(edges: Collection[tuple[int, int]], most: int) -> set[tuple[int, int]]:
    """Return the edges that would hide the picture: those of vertices that have too many on a side.

    The edge from the nearest vertex stays, so that each vertex that reads something has an edge.
    """
    nearest: dict[int, int] = {}
    for source, target in edges:
        nearest[target] = max(source, nearest.get(target, source))
    sides: dict[tuple[int, int], list[tuple[int, int]]] = collections.defaultdict(list)
    for edge in edges:
        for side, vertex in enumerate(edge):
            sides[side, vertex].append(edge)
    crowded = {edge for found in sides.values() if len(found) > most for edge in found}
    return {(source, target) for source, target in crowded if nearest[target] != source}


def _path(route: Sequence[Point]) -> str:
    """A curve between rows and a straight line through each row that it passes."""
    (x, y), *rest = route
    parts = [f"M{x:g} {y:g}"]
    for index, (to_x, to_y) in enumerate(rest):
        middle = (y + to_y) / 2
        through_a_row = index % 2 == 1
        straight = through_a_row or x == to_x
        parts.append(f"V{to_y:g}" if straight else f"C{x:g} {middle:g} {to_x:g} {middle:g} {to_x:g} {to_y:g}")
        x, y = to_x, to_y
    return "".join(parts)
