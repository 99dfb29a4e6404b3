"""int64 values beyond 32 bits, in which OpenVINO computes: where only their order counts, they end at its range.

Order is kept there, so what compares, chooses and moves gives the same elements. Results at an end of the range may
stand for others, and such a request is answered natively. T5's positions need this: they choose against the integer of
the logarithm of 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from trtnode.engines.artifact.envelope import SATURATED
from trtnode.engines.backends.protocols import Buffer
from trtnode.engines.openvino.indices import TABLE as INDEXED
from trtnode.partitioner.graph.view import Node
from trtnode.partitioner.model.values import has_subgraphs

ENDS = (np.iinfo(np.int32).min, np.iinfo(np.int32).max)

MOVES = frozenset("Expand Flatten Gather Identity Reshape Slice Split Squeeze Tile Transpose Unsqueeze".split())

KEEPS_ORDER = {**dict.fromkeys(("Concat", "Max", "Min")), **dict.fromkeys(MOVES, (0,)), "Where": (1, 2)}
"""Operators whose results are elements of these inputs; None stands for all."""

COMPARES = frozenset("Equal Greater GreaterOrEqual Less LessOrEqual".split())

READS_SIZES = frozenset({"Shape", "Size"})


def saturation_options(nodes: Sequence[Node], inputs: Sequence[ir.Value]) -> dict[str, str]:
    """Return the option of an envelope with the places of the inputs that may end at 32 bits; none where none may."""
    inside = {node.op for node in nodes}
    if any(has_subgraphs(op) for op in inside):
        return {}
    places = [n for n, v in enumerate(inputs) if v.dtype == ir.DataType.INT64 and _only_order_counts(v, inside)]
    return {SATURATED: json.dumps(places)} if places else {}


def saturated_of(options: Mapping[str, str]) -> frozenset[int]:
    """Read the places in the options of an envelope, which has checked them."""
    return frozenset(json.loads(options.get(SATURATED, "[]")))


def touches_an_end(results: Sequence[Buffer]) -> bool:
    """Return whether an integer among the results may stand for one beyond 32 bits."""
    return any(bool(np.isin(one, ENDS).any()) for one in results if one.dtype == np.int64)


def _only_order_counts(value: ir.Value, inside: set[ir.Node]) -> bool:
    pending, seen = [value], {value}
    while pending:
        for use in pending.pop().uses():
            op = use.node
            if op not in inside or op.op_type in READS_SIZES or _treats_ends_alike(op, use.idx):
                continue
            if op.op_type not in KEEPS_ORDER or use.idx not in (KEEPS_ORDER[op.op_type] or (use.idx,)):
                return False
            pending += [one for one in op.outputs if one not in seen]
            seen.update(op.outputs)
    return True


def _treats_ends_alike(op: ir.Node, place: int) -> bool:
    """Return whether the ends of the range do to an operator what values beyond do: as indices, all are outside."""
    if op.op_type in COMPARES:
        return _is_inner_constant(op.inputs[1 - place])
    return op.op_type in INDEXED and place == INDEXED[op.op_type].at


def _is_inner_constant(value: ir.Value | None) -> bool:
    constant = None if value is None or value.const_value is None else value.const_value.numpy()
    return constant is not None and bool(((constant > ENDS[0]) & (constant < ENDS[1])).all())
