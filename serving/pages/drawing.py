"""The graph in the picture of a partition: one vertex a node, or, for large graphs, one a segment and native group."""

from __future__ import annotations

import collections
import dataclasses
import unicodedata
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from partitioner import Graph, Node, Partition
from partitioner.cut.report import levels_of
from serving.pages.graph_layout import ROW_HEIGHT, Layout, Point, lay_out

MOST_NODES = 2000
"""Graphs with more nodes are drawn by segment."""

TITLE_COLUMN, SUBTITLE_COLUMN, PADDING = 7.9, 6.7, 22.0
"""Pixels of a character in the two lines of a vertex, set in a monospaced font, and around them."""

SUBTITLE_COLUMNS = 22


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Vertex:
    """A box of the picture.

    Attributes:
        kind: ``engine``, ``native``, ``input`` or ``output``.
        title: First line, whole.
        subtitle: Second line, shortened to fit.
        segment: Number of the segment, for ``engine``.
    """

    kind: str
    title: str
    subtitle: str
    segment: int | None = None

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
        layout: Places of both.
        place: Number of the vertex of each node, by identity.
        by_segment: Whether a vertex stands for many nodes.
    """

    vertices: tuple[Vertex, ...]
    edges: Mapping[tuple[int, int], tuple[ir.Value, ...]]
    layout: Layout
    place: Mapping[str, int]
    by_segment: bool

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


def draw(partition: Partition, *, most_nodes: int = MOST_NODES) -> Drawing:
    """Draw a partition node by node, or by segment if it has more than ``most_nodes`` nodes."""
    graph = partition.graph
    by_segment = len(graph.nodes) > most_nodes
    groups = _groups(partition) if by_segment else [[node] for node in graph.nodes]
    segment_of = {node.name: index for index, segment in enumerate(partition.segments) for node in segment.nodes}
    inputs = [Vertex(kind="input", title="input", subtitle=shorten(v.name or "")) for v in drawn_inputs(graph)]
    outputs = [Vertex(kind="output", title="output", subtitle=shorten(v.name or "")) for v in graph.outputs]
    middle = [_vertex(group, segment_of.get(group[0].name), partition, by_segment=by_segment) for group in groups]
    place = {node.name: len(inputs) + index for index, group in enumerate(groups) for node in group}
    vertices = (*inputs, *middle, *outputs)
    edges = _edges(graph, place, len(inputs) + len(middle))
    layout = lay_out([v.width for v in vertices], list(edges))
    return Drawing(vertices=vertices, edges=edges, layout=layout, place=place, by_segment=by_segment)


def drawn_inputs(graph: Graph) -> list[ir.Value]:
    """Return the graph's inputs but defaults that nothing reads, of which some exporters leave dozens."""
    return [v for v in graph.inputs if v.uses() or v.is_graph_output() or not v.is_initializer()]


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


def _vertex(group: Sequence[Node], segment: int | None, partition: Partition, *, by_segment: bool) -> Vertex:
    kind = "native" if segment is None else "engine"
    if not by_segment:
        return Vertex(kind=kind, title=group[0].op_type, subtitle=shorten(group[0].name), segment=segment)
    ops = collections.Counter(node.op_type for node in group)
    common = ops.most_common(1)[0][0] + ("" if len(ops) == 1 else ", …")
    if segment is None:
        title = f"{len(group)} native" if len(group) > 1 else "native"
        return Vertex(kind=kind, title=title, subtitle=shorten(common))
    count = f"{len(group):,} node{'' if len(group) == 1 else 's'}"
    return Vertex(kind=kind, title=partition.segments[segment].name, subtitle=count, segment=segment)


def _groups(partition: Partition) -> list[list[Node]]:
    """Nodes by segment, and native nodes of one level by connected group; in topological order.

    Inside a level the segment comes first: what runs in it waits for no native node of its level.
    """
    segment_of = {node.name: segment.name for segment in partition.segments for node in segment.nodes}
    names = [node.name for node in partition.graph.nodes]
    levels = dict(zip(names, levels_of(partition.graph, partition.segments), strict=True))
    leader = {node.name: node.name for node in partition.graph.nodes}

    def find(name: str) -> str:
        while leader[name] != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    for node in partition.graph.nodes:
        for other in node.predecessors:
            if levels[other] == levels[node.name] and not {other, node.name} & segment_of.keys():
                leader[find(node.name)] = find(other)
    groups: dict[tuple[int, bool, str], list[Node]] = collections.defaultdict(list)
    for node in partition.graph.nodes:
        native = node.name not in segment_of
        key = find(node.name) if native else segment_of[node.name]
        groups[levels[node.name], native, key].append(node)
    return [groups[key] for key in sorted(groups, key=lambda key: key[:2])]


def _edges(graph: Graph, place: Mapping[str, int], first_output: int) -> dict[tuple[int, int], tuple[ir.Value, ...]]:
    origin = {value: index for index, value in enumerate(drawn_inputs(graph))}
    origin.update({value: place[node.name] for node in graph.nodes for value in node.op.outputs})
    flows: dict[tuple[int, int], dict[ir.Value, None]] = collections.defaultdict(dict)
    for node in graph.nodes:
        for value in node.reads:
            if value in origin and origin[value] != place[node.name]:
                flows[origin[value], place[node.name]][value] = None
    for index, value in enumerate(graph.outputs):
        if value in origin:
            flows[origin[value], first_output + index][value] = None
    return {edge: tuple(values) for edge, values in sorted(flows.items(), key=lambda item: item[0])}


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
