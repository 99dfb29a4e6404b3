"""Estimates the time of nodes, to rank segments. Nothing here is measured.

A node takes the longer of computing and moving its data, plus the overhead of a call.
This is the roofline model (Williams, Waterman and Patterson, CACM 2009).
An engine moves its weights and the tensors that cross its boundary; a native stage moves every tensor.
Unknown dimensions count as one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from trtnode.partitioner.graph.topology import GRAPH_INPUT
from trtnode.partitioner.graph.view import Graph, Node, expected_bytes
from trtnode.partitioner.model.values import dimensions
from trtnode.partitioner.passes.contrib_operators import CONTRIB_DOMAIN

# Rough throughput and overheads of a machine: two cores of a current x86 server.
FLOPS_PER_S = 100e9
"""Floating-point operations a second."""

BYTES_PER_S = 10e9
"""Memory bandwidth."""

NATIVE_NODE_S = 2e-6
"""Overhead of a node that runs natively."""

ENGINE_NODE_S = 1e-6
"""Overhead of a node inside an engine."""

ENGINE_CALL_S = 20e-6
"""Overhead of an engine's call, including its threads' start and stop."""


class CostModel:
    """Estimates of one graph's times, in seconds."""

    def __init__(self, graph: Graph) -> None:
        compute = _all_flops(graph) / FLOPS_PER_S
        weights = _constant_bytes(graph) / BYTES_PER_S
        moved = _bytes_moved(graph) / BYTES_PER_S
        self._native = np.maximum(compute, weights + moved) + NATIVE_NODE_S
        self._engine = np.maximum(compute, weights) + ENGINE_NODE_S

    def native_s(self, nodes: Sequence[int]) -> float:
        """Return the time of nodes that run natively."""
        return float(self._native[list(nodes)].sum())

    def segment_s(self, nodes: Sequence[int], boundary_bytes: int) -> float:
        """Return the time of a segment that an engine runs."""
        return float(self._engine[list(nodes)].sum()) + ENGINE_CALL_S + boundary_bytes / BYTES_PER_S


def flops(node: Node) -> int:
    """Return the floating-point operations of a node; a multiply-accumulate counts as two."""
    rule = FLOPS.get(node.op_type, _elementwise) if node.domain in ("", CONTRIB_DOMAIN) else _elementwise
    return rule(node.op)


def _all_flops(graph: Graph) -> np.ndarray:
    """Return ``flops`` of each node. Most nodes count one for each element that they make."""
    made = graph.topology.producers != GRAPH_INPUT
    elements = np.array([_elements(value) for value in graph.tensors], dtype=np.float64)
    counts = np.bincount(graph.topology.producers[made], weights=elements[made], minlength=len(graph.nodes))
    for node in () if FLOPS.keys().isdisjoint(graph.op_types) else graph.nodes:
        if node.op_type in FLOPS:
            counts[node.index] = flops(node)
    return counts


def _constant_bytes(graph: Graph) -> np.ndarray:
    """Return the bytes of the constants that each node reads: of a table only as many as it takes out."""
    values = (*graph.tensors, *graph.model.graph.initializers.values())
    held: dict[ir.Value | None, int] = {v: expected_bytes(v) for v in values if v.const_value is not None}
    if not held:
        return np.zeros(len(graph.nodes))
    read = np.array([sum([held[value] for value in node.op.inputs if value in held]) for node in graph.nodes])
    for node in () if PICKING.isdisjoint(graph.op_types) else graph.nodes:
        if node.op_type in PICKING:
            read[node.index] = min(read[node.index], expected_bytes(node.op.outputs[0]))
    return read


def _bytes_moved(graph: Graph) -> np.ndarray:
    """Return the bytes of the tensors that each node reads and writes."""
    topology = graph.topology
    readers, tensors = topology.uses
    made = topology.producers != GRAPH_INPUT
    moved = np.zeros(len(graph.nodes))
    np.add.at(moved, readers, topology.sizes[tensors])
    np.add.at(moved, topology.producers[made], topology.sizes[made])
    return moved


def _sizes(value: ir.Value | None) -> tuple[int, ...]:
    shape = None if value is None else dimensions(value)
    return tuple(d if isinstance(d, int) else 1 for d in shape or ())


def _elements(value: ir.Value | None) -> int:
    return 1 if value is None or value.shape is None else _product(value.shape.dims)


@functools.lru_cache(maxsize=1024)
def _product(dims: Sequence[object]) -> int:
    return math.prod(d for d in dims if isinstance(d, int))


def _elementwise(op: ir.Node) -> int:
    return sum(map(_elements, op.outputs))


def _convolution(op: ir.Node) -> int:
    return 2 * _elements(op.outputs[0]) * math.prod(_sizes(op.inputs[1])[1:])


def _transposed_convolution(op: ir.Node) -> int:
    return 2 * _elements(op.inputs[0]) * math.prod(_sizes(op.inputs[1])[1:])


def _matrix_product(op: ir.Node) -> int:
    shared = _sizes(op.inputs[0])
    inner = shared[0 if op.op_type == "Gemm" and op.attributes.get_int("transA") else -1] if shared else 1
    return 2 * _elements(op.outputs[0]) * inner


def _recurrent(op: ir.Node) -> int:
    """Count both weight matrices once a step (``X[steps, batch, ...]``, ``W``, ``R``)."""
    steps = math.prod(_sizes(op.inputs[0])[:2])
    return 2 * steps * (_elements(op.inputs[1]) + _elements(op.inputs[2]))


PICKING = frozenset({"Gather", "GatherElements", "GatherND"})
"""Operators that take elements out of a table."""

FLOPS: Mapping[str, Callable[[ir.Node], int]] = {
    "Conv": _convolution,
    "ConvInteger": _convolution,
    "ConvTranspose": _transposed_convolution,
    "GRU": _recurrent,
    "Gemm": _matrix_product,
    "LSTM": _recurrent,
    "MatMul": _matrix_product,
    "MatMulInteger": _matrix_product,
    "MatMulNBits": _matrix_product,
    "RNN": _recurrent,
}
"""Operations by operator. Others count one for each element of their outputs."""
