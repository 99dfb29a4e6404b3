"""The tables about a partition, for its page and for a terminal. The page's script shows the rest of long ones."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import onnx_ir as ir

from trtnode.engines.sparse.survey import LayerSparsity
from trtnode.partitioner.cut.labels import ReasonCode
from trtnode.partitioner.cut.partition import Partition
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.serving.pages.explain_data import type_of

GRAPH_INPUT, GRAPH_OUTPUT, NATIVE = "graph input", "graph output", "native"

SHOWN_ROWS = 30
"""Rows that a page shows at first."""

MOST_CAUSES = 3
"""Reasons that differ in names alone are listed as one, unless there are as few as this."""

_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")

Cell = str | tuple[str, ...]
"""A text, or a kind and its values: ``nodes`` or ``tensor`` with what they link to, ``places`` with segments
and other places, ``path`` with the number of a split and its nodes, ``loss`` with a negative saving."""

PATH_ENDS = 4
"""Nodes at both ends of a path that are shown; the others are counted."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column: its label, a sentence about it, and whether it holds numbers."""

    label: str
    hint: str = ""
    number: bool = True


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of the page.

    Attributes:
        columns: At least one. A table of one column without a label is a list.
        rows: A cell for each column.
        sums: The last row, or nothing.
    """

    columns: tuple[Column, ...]
    rows: Sequence[Sequence[Cell]]
    sums: Sequence[str] = ()

    @property
    def shown(self) -> Sequence[Sequence[Cell]]:
        """Rows that stand in the page."""
        return self.rows[:SHOWN_ROWS]

    @property
    def folded(self) -> Sequence[Sequence[Cell]]:
        """Rows that the script shows on request."""
        return self.rows[SHOWN_ROWS:]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Native nodes of one operator with one reason.

    Attributes:
        op_type: The operator, or ``node`` where it doesn't matter.
        detail: The sentence, with "…" for names in which those of the nodes differ.
        nodes: The nodes.
        details: The whole sentence of each node, where they differ; else empty.
    """

    op_type: str
    detail: str
    nodes: tuple[str, ...]
    details: tuple[str, ...] = ()

    def table(self) -> Table:
        """Return the nodes as a table."""
        if not self.details:
            return Table(columns=(Column(label="", number=False),), rows=[[("nodes", name)] for name in self.nodes])
        columns = (Column(label="node", number=False), Column(label="reason", number=False))
        pairs = zip(self.nodes, self.details, strict=True)
        return Table(columns=columns, rows=[(("nodes", name), detail) for name, detail in pairs])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReasonGroup:
    """Native nodes with one reason code, the reasons of most nodes first."""

    code: str
    nodes: int
    reasons: tuple[Reason, ...]


def group_native(native: Sequence[dict[str, Any]], names: Set[str] = frozenset()) -> list[ReasonGroup]:
    """Group the native nodes of a report by reason code, then by operator and sentence.

    Many sentences that differ only in ``names``, those of nodes and tensors, are one cause. The largest groups come
    first, but those whose nodes only follow others after their causes. An unknown shape has one cause for nodes of all
    operators.
    """
    codes: dict[str, dict[tuple[str, str], list[tuple[str, str]]]] = {}
    for entry in native:
        reasons = codes.setdefault(entry["code"], {})
        op_type = "node" if entry["code"] == ReasonCode.UNKNOWN_SHAPE else entry["op_type"]
        key = op_type, _without(names, entry["detail"])
        reasons.setdefault(key, []).append((entry["node"], entry["detail"]))
    groups = [
        ReasonGroup(
            code=code,
            nodes=sum(map(len, reasons.values())),
            reasons=tuple(sorted(_reasons(reasons), key=lambda reason: -len(reason.nodes))),
        )
        for code, reasons in codes.items()
    ]
    return sorted(groups, key=lambda group: (group.code == ReasonCode.ATOMIC_GROUP, -group.nodes))


def _without(names: Set[str], detail: str) -> str:
    return _QUOTED.sub(lambda found: "…" if (found[1] or found[2]) in names else found[0], detail)


def _reasons(reasons: dict[tuple[str, str], list[tuple[str, str]]]) -> Iterable[Reason]:
    for (op_type, pattern), entries in reasons.items():
        by_detail: dict[str, list[str]] = collections.defaultdict(list)
        for node, detail in entries:
            by_detail[detail].append(node)
        if len(by_detail) > MOST_CAUSES:
            nodes, details = zip(*entries, strict=True)
            yield Reason(op_type=op_type, detail=pattern, nodes=nodes, details=details)
            continue
        for detail, found in by_detail.items():
            yield Reason(op_type=op_type, detail=detail, nodes=tuple(found))


def tables_of(report: dict[str, Any], sparse: Sequence[LayerSparsity]) -> dict[str, Table]:
    """Return the tables of a report for which there are facts, by name."""
    tables = {
        "segments": segment_table(report["segments"]),
        "rewrites": rewrite_table(report.get("rewrites", ())),
        "zeros": zeros_table(sparse),
        "splits": split_table(report["splits"]),
    }
    return {name: table for name, table in tables.items() if table.rows}


def measured_times(tuning: Mapping[str, Any]) -> dict[str, float]:
    """Return the time of the model with each choice of engines that was measured, in ms; one name of equal choices."""
    candidates = sorted(tuning["candidates"], key=lambda one: one["name"] == tuning["chosen"])
    distinct = {tuple(one["segments"]): one for one in candidates}
    return {one["name"]: one["p50_ms"] for one in distinct.values()}


def segment_table(segments: Sequence[dict[str, Any]]) -> Table:
    """Return the segments of a report with their estimates. A segment that loses time is marked."""
    rows: list[list[Cell]] = []
    for segment in segments:
        native, engine = segment["estimate"]["native_ms"], segment["estimate"]["engine_ms"]
        counts = (len(segment[key]) for key in ("nodes", "inputs", "outputs"))
        saved = _ms(native - engine)
        rows.append(
            [
                ("places", segment["name"]),
                *([", ".join(segment["steps"])] if "steps" in segment else []),
                *(f"{count:,}" for count in counts),
                _ms(native),
                _ms(engine),
                saved if native >= engine else ("loss", saved),
            ]
        )
    native, engine = (sum(s["estimate"][key] for s in segments) for key in ("native_ms", "engine_ms"))
    nodes = f"{sum(len(s['nodes']) for s in segments):,}"
    steps = [Column(label="steps", hint="models of the ensemble that it holds nodes of", number=False)]
    steps = steps if any("steps" in segment for segment in segments) else []
    return Table(
        columns=(
            Column(label="segment", number=False),
            *steps,
            Column(label="nodes"),
            Column(label="reads", hint="tensors that enter it"),
            Column(label="writes", hint="tensors that leave it"),
            Column(label="native ms", hint="estimated time of its nodes in ONNX Runtime, in milliseconds"),
            Column(label="engine ms", hint="estimated time in the engine with its copies, in milliseconds"),
            Column(label="saves ms", hint="the difference; below zero, the engine is slower"),
        ),
        rows=rows,
        sums=("all", *("" for _ in steps), nodes, "", "", _ms(native), _ms(engine), _ms(native - engine))
        if len(rows) > 1
        else (),
    )


def rewrite_table(rewrites: Sequence[dict[str, Any]]) -> Table:
    """Return a row for each equal rewrite: its nodes, and how many times as fast they are, alone and in context."""
    rows = [
        (
            one["rule"],
            str(len(one["nodes"])),
            *(f"{one['gain'][where]:g}" for where in ("alone", "in_context")),
        )
        for one in rewrites
    ]
    columns = (
        Column(label="rewrite", number=False),
        Column(label="places"),
        Column(label="alone", hint="Time of the old nodes over that of the new ones, where it was measured."),
        Column(label="in context", hint="The same between two convolutions or products of matrices."),
    )
    return Table(columns=columns, rows=rows)


def zeros_table(layers: Sequence[LayerSparsity]) -> Table:
    """Return a row for each layer with many zeros: its weights, and what leaving the zeros out could gain."""
    columns = (
        Column(label="layer", number=False),
        Column(label="operator", number=False),
        Column(label="weights", number=False),
        Column(label="zeros"),
        *(Column(label=f"by {rows}", hint="share of values that blocks of so many rows store") for rows in (1, 4, 8)),
        Column(label="2:4", hint="whether TensorRT's sparse kernels fit (--sparse)", number=False),
        Column(label="gain", hint="expected times as fast as a dense engine; not measured"),
    )
    rows = [
        (
            ("nodes", layer.node),
            layer.op_type,
            str([*layer.weights]),
            f"{layer.zeros:.0%}",
            *(f"{layer.stored[rows]:.0%}" if rows in layer.stored else "" for rows in (1, 4, 8)),
            "yes" if layer.two_of_four else "no",
            f"{layer.gain:.1f}",
        )
        for layer in layers
    ]
    return Table(columns=columns, rows=rows)


def split_table(splits: Sequence[dict[str, Any]]) -> Table:
    """Return the paths that leave an engine and come back."""
    rows: list[list[Cell]] = [
        [
            ("places", split["between"][0]),
            ("places", split["between"][1]),
            ("path", str(number), *_ends(split["witness"])),
        ]
        for number, split in enumerate(splits)
    ]
    columns = (Column(label=label, number=False) for label in ("leaves", "comes back to", "path"))
    return Table(columns=tuple(columns), rows=rows)


def _ends(path: Sequence[str]) -> list[str]:
    """Return a path with its middle counted instead of listed, where it is long."""
    between = len(path) - 2 * PATH_ENDS
    return [*path] if between < 2 else [*path[:PATH_ENDS], f"… {between:,} more …", *path[-PATH_ENDS:]]


def crossing_values(partition: Partition) -> list[ir.Value]:
    """Return every distinct tensor that enters or leaves a segment."""
    return list(dict.fromkeys(v for segment in partition.segments for v in (*segment.inputs, *segment.outputs)))


def boundary_table(partition: Partition) -> Table:
    """Return every distinct tensor that enters or leaves a segment: its type, who writes it and who reads it."""
    segment_of = {node.name: segment.name for segment in partition.segments for node in segment.nodes}
    writer: dict[ir.Value, str] = {}
    readers: dict[ir.Value, dict[str, None]] = collections.defaultdict(dict)
    for node in partition.graph.nodes:
        where = segment_of.get(node.name, NATIVE)
        writer.update(dict.fromkeys(node.op.outputs, where))
        for value in node.reads:
            readers[value][where] = None
    for value in partition.graph.outputs:
        readers[value][GRAPH_OUTPUT] = None
    crossing = crossing_values(partition)
    rows: list[list[Cell]] = []
    least = dict(zip(partition.graph.tensors, partition.graph.topology.sizes.tolist(), strict=True))
    for value in crossing:
        origin = writer.get(value, GRAPH_INPUT)
        read_by = [name for name in readers[value] if name != origin]
        rows.append(
            [("tensor", value.name or ""), type_of(value), _bytes([value], least), ("places", origin),
             ("places", *read_by)]
        )  # fmt: skip
    return Table(
        columns=(
            Column(label="tensor", number=False),
            Column(label="type", number=False),
            Column(label="bytes", hint="of one run; a dimension without a size counts as 1"),
            Column(label="from", number=False),
            Column(label="to", number=False),
        ),
        rows=rows,
        sums=(f"{len(rows):,} tensors", "", _bytes(crossing, least), "", "") if len(rows) > 1 else (),
    )


def _bytes(values: Sequence[ir.Value], least: Mapping[ir.Value, int]) -> str:
    """The bytes of values; the least that they can be where some have no size."""
    known = all(TensorSpec.of(value).size_bytes for value in values)
    return f"{'' if known else '≥ '}{sum(least[value] for value in values):,}"


def _ms(value: float) -> str:
    return f"{value:.3f}".replace("-", "\N{MINUS SIGN}")
