"""The facts of a partition's page beside its picture: tables, and the data of search and tooltips."""

from __future__ import annotations

import collections
import functools
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from partitioner import Node, Partition, ReasonCode, TensorSpec, describe
from partitioner.model.values import Dimension, is_constant
from serving.pages.drawing import Drawing, drawn_inputs

GRAPH_INPUT, GRAPH_OUTPUT, NATIVE = "graph input", "graph output", "native"


def group_native(native: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Group the native nodes of a report by reason code, then by operator and sentence.

    The largest groups come first, but those whose nodes only follow others after their causes. An unknown shape has one
    cause for nodes of all operators.
    """
    codes: dict[str, dict[tuple[str, str], list[str]]] = {}
    for entry in native:
        reasons = codes.setdefault(entry["code"], {})
        op_type = "node" if entry["code"] == ReasonCode.UNKNOWN_SHAPE else entry["op_type"]
        reasons.setdefault((op_type, entry["detail"]), []).append(entry["node"])
    groups = [
        {
            "code": code,
            "nodes": sum(map(len, reasons.values())),
            "reasons": [
                {"op_type": op_type, "detail": detail, "nodes": nodes}
                for (op_type, detail), nodes in sorted(reasons.items(), key=lambda item: -len(item[1]))
            ],
        }
        for code, reasons in codes.items()
    ]
    return sorted(groups, key=lambda group: (group["code"] == ReasonCode.ATOMIC_GROUP, -group["nodes"]))


def boundary_tensors(partition: Partition) -> list[dict[str, Any]]:
    """Every distinct tensor that enters or leaves a segment: its type, who writes it and who reads it."""
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
    crossing = dict.fromkeys(v for segment in partition.segments for v in (*segment.inputs, *segment.outputs))
    return [
        {
            "name": value.name,
            "type": type_of(value),
            "bytes": TensorSpec.of(value).size_bytes,
            "writer": writer.get(value, GRAPH_INPUT),
            "readers": [name for name in readers[value] if name != writer.get(value)],
        }
        for value in crossing
    ]


def page_data(partition: Partition, drawing: Drawing, report: dict[str, Any]) -> dict[str, Any]:
    """Return the data of the page's script. Nodes, tensors and reasons refer to each other by position."""
    tensors = _Tensors()
    segment_of = {name: index for index, segment in enumerate(report["segments"]) for name in segment["nodes"]}
    reasons = list(dict.fromkeys((entry["code"], entry["detail"]) for entry in report["native"]))
    number = {reason: index for index, reason in enumerate(reasons)}
    reason_of = {entry["node"]: number[entry["code"], entry["detail"]] for entry in report["native"]}
    nodes = [
        {
            "name": node.name,
            "op": node.op_type,
            "vertex": drawing.place[node.name],
            "segment": segment_of.get(node.name),
            "reason": reason_of.get(node.name),
            "reads": [tensors.number(value) for value in _inputs(node)],
            "writes": [tensors.number(value) for value in node.op.outputs if value.name],
        }
        for node in partition.graph.nodes
    ]
    return {
        "nodes": nodes,
        "edges": [[*edge, [tensors.number(v) for v in values]] for edge, values in drawing.edges.items()],
        "ends": _ends(partition, drawing, tensors),
        "tensors": tensors.facts,
        "reasons": reasons,
        "segments": [segment["name"] for segment in report["segments"]],
        "splits": [split["witness"] for split in report["splits"]],
        "boxes": drawing.boxes(),
    }


def type_of(value: ir.Value) -> str:
    """Element type and shape where they are known, for example ``float32[N, 3]``; else what is known."""
    spec = TensorSpec.of(value)
    if spec.dtype is not None:
        return _described(spec.dtype, spec.shape)
    return "unknown type" if value.type is None else str(value.type)


@functools.lru_cache(maxsize=1024)
def _described(dtype: ir.DataType, shape: tuple[Dimension, ...] | None) -> str:
    return describe(TensorSpec(name="", dtype=dtype, shape=shape))


class _Tensors:
    """Numbers values in the order in which they are first asked for."""

    def __init__(self) -> None:
        self._numbers: dict[ir.Value, int] = {}
        self.facts: list[dict[str, Any]] = []

    def number(self, value: ir.Value) -> int:
        if value not in self._numbers:
            self._numbers[value] = len(self.facts)
            self.facts.append({"name": value.name or "", "type": type_of(value), "constant": is_constant(value)})
        return self._numbers[value]


def _inputs(node: Node) -> list[ir.Value]:
    """Return the values that a node reads, in order: its inputs, constants included, then what its bodies capture."""
    return list(dict.fromkeys([*(v for v in node.op.inputs if v is not None), *node.reads]))


def _ends(partition: Partition, drawing: Drawing, tensors: _Tensors) -> list[dict[str, int]]:
    """Vertices of the graph's inputs and outputs that are drawn, with their tensors."""
    inputs, outputs = drawn_inputs(partition.graph), partition.graph.outputs
    first_output = len(drawing.vertices) - len(outputs)
    places = [*enumerate(inputs), *enumerate(outputs, first_output)]
    return [{"vertex": vertex, "tensor": tensors.number(value)} for vertex, value in places]
