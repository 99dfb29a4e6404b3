"""The data of a partition's page: what its script knows about nodes, tensors, reasons and the picture."""

from __future__ import annotations

import base64
import functools
import itertools
import json
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import onnx_ir as ir

from trtnode.partitioner.cut.partition import Partition
from trtnode.partitioner.graph.view import Node, TensorSpec, describe
from trtnode.partitioner.model.values import Dimension, dimensions, is_constant
from trtnode.serving.pages.drawing import Drawing

NOWHERE = -1
"""Stands for the segment of a native node, and for the reason of a node in a segment."""


def pack(data: object) -> str:
    """Return JSON values as text for a page: compressed with zlib, in base64. The same values give the same text."""
    text = json.dumps(data, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def page_data(partition: Partition, drawing: Drawing, report: dict[str, Any]) -> dict[str, Any]:
    """Return the data of the page's script, by column, since large graphs have many nodes and tensors.

    Nodes, tensors, types and reasons refer to each other by position. Lists of tensors stand one after the other, with
    a count for each node or edge.
    """
    tensors = _Tensors()
    nodes = partition.graph.nodes
    segment_of = {name: index for index, segment in enumerate(report["segments"]) for name in segment["nodes"]}
    reasons = _Numbers()
    reason_of = {entry["node"]: reasons[entry["code"], entry["detail"]] for entry in report["native"]}
    ops = _Numbers()
    number = {node.name: index for index, node in enumerate(nodes)}
    return {
        "nodes": {
            "name": [node.name for node in nodes],
            "op": [ops[node.op_type] for node in nodes],
            "vertex": [drawing.place[node.name] for node in nodes],
            "segment": [segment_of.get(node.name, NOWHERE) for node in nodes],
            "reason": [reason_of.get(node.name, NOWHERE) for node in nodes],
            "reads": tensors.lists(_inputs(node) for node in nodes),
            "writes": tensors.lists([v for v in node.op.outputs if v.name] for node in nodes),
        },
        "edges": {
            "source": [source for source, _ in drawing.edges],
            "target": [target for _, target in drawing.edges],
            "tensors": tensors.lists(drawing.edges.values()),
        },
        "ends": [[vertex, tensors[value]] for vertex, value in drawing.ends],
        "tensors": tensors.columns(),
        "ops": list(ops),
        "reasons": list(reasons),
        "segments": [segment["name"] for segment in report["segments"]],
        "splits": [[number[name] for name in split["witness"]] for split in report["splits"]],
        "boxes": list(itertools.chain.from_iterable(drawing.boxes())),
    }


def type_of(value: ir.Value) -> str:
    """Element type and shape where they are known, for example ``float32[N, 3]``; else what is known."""
    if isinstance(value.type, ir.TensorType) and value.type.dtype != ir.DataType.UNDEFINED:
        return _described(value.type.dtype, dimensions(value))
    return "unknown type" if value.type is None else str(value.type)


@functools.lru_cache(maxsize=1024)
def _described(dtype: ir.DataType, shape: tuple[Dimension, ...] | None) -> str:
    return describe(TensorSpec(name="", dtype=dtype, shape=shape))


class _Numbers(dict[Any, int]):
    """Numbers what it is asked for, in the order in which that happens first."""

    def __missing__(self, key: Any) -> int:
        self[key] = len(self)
        return self[key]


class _Tensors(_Numbers):
    """Numbers values, and lists them."""

    def lists(self, lists: Iterable[Sequence[ir.Value]]) -> dict[str, list[int]]:
        """Return the length of each list, and the steps from each number to the next over all of them."""
        taken = [[self[value] for value in values] for values in lists]
        flat = [0, *itertools.chain.from_iterable(taken)]
        return {"counts": [len(one) for one in taken], "steps": [b - a for a, b in itertools.pairwise(flat)]}

    def columns(self) -> dict[str, list[Any]]:
        types = _Numbers()
        return {
            "name": [value.name or "" for value in self],
            "type": [types[type_of(value)] for value in self],
            "constant": [int(is_constant(value)) for value in self],
            "types": list(types),
        }


def _inputs(node: Node) -> list[ir.Value]:
    """Return the values that a node reads, in order: its inputs, constants included, then what its bodies capture."""
    return list(dict.fromkeys([*(v for v in node.op.inputs if v is not None), *node.reads]))
