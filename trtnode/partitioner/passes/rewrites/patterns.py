"""Patterns over nodes, found from their last node back.

A pattern is built of calls: ``call("Mul", X, call("Tanh", X))`` with ``X = Any("x")`` fits ``Mul(a, Tanh(a))`` and
``Mul(Tanh(a), a)``. The same name always stands for the same value.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from trtnode.partitioner.model.values import ONNX_DOMAINS, is_constant

COMMUTATIVE = frozenset({"Add", "Mul"})

NUMBER_TOLERANCE = 1e-4
"""Relative difference up to which a constant is taken for a number: exporters round 1/6 and the square root of 2/π."""


@dataclasses.dataclass(frozen=True, slots=True)
class Any:
    """Any value. The same name is the same value."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Constant:
    """A constant of any size, by name."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Number:
    """A constant of one element with this value."""

    value: float


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """The only result of a node of ONNX's own domain."""

    op_type: str
    inputs: tuple[Pattern, ...]


Pattern = Any | Constant | Number | Call


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """A place that fits a pattern.

    Attributes:
        values: Bound values, by name.
        nodes: Nodes of the pattern's calls; the last one of the graph comes first.
    """

    values: Mapping[str, ir.Value]
    nodes: tuple[ir.Node, ...]

    @property
    def root(self) -> ir.Node:
        """The node whose result the pattern describes."""
        return self.nodes[0]

    def call(self, op_type: str) -> ir.Node:
        """Return the first node of an operator."""
        return next(op for op in self.nodes if op.op_type == op_type)


def call(op_type: str, *inputs: Pattern) -> Call:
    """Return the pattern of a node's result."""
    return Call(op_type, inputs)


def find(op: ir.Node, patterns: Sequence[Call]) -> Found | None:
    """Return the first fit of patterns that end at a node and whose inner results nobody else reads."""
    for pattern in patterns:
        if pattern.op_type != op.op_type:  # as of most nodes
            continue
        for found in _fits(pattern, op.outputs[0], Found({}, ())):
            if is_closed(found.nodes):
                return found
    return None


def is_closed(nodes: Sequence[ir.Node]) -> bool:
    """Return whether only nodes of a group read the results of all but its first node."""
    inside = set(nodes)
    return all(
        inside.issuperset(value.consumers()) and not value.is_graph_output() for op in nodes[1:] for value in op.outputs
    )


def number_in(value: ir.Value | None) -> float | None:
    """Return the value of a constant of one element; None for anything else."""
    array = array_in(value)
    return None if array is None or array.size != 1 else float(array.reshape(()))


def array_in(value: ir.Value | None) -> np.ndarray | None:
    """Return the elements of a constant; None for any other value."""
    if value is None or not is_constant(value) or value.const_value is None or value.dtype == ir.DataType.STRING:
        return None
    return value.const_value.numpy()


def is_float32(value: ir.Value | None) -> bool:
    """Return whether a value is a float32 tensor."""
    return value is not None and value.dtype == ir.DataType.FLOAT


def _fits(pattern: Pattern, value: ir.Value | None, found: Found) -> Iterator[Found]:
    if value is None:
        return
    if isinstance(pattern, Call):
        yield from _fits_call(pattern, value, found)
    elif isinstance(pattern, Number):
        number = number_in(value)
        if number is not None and math.isclose(number, pattern.value, rel_tol=NUMBER_TOLERANCE):
            yield found
    elif (isinstance(pattern, Any) or is_constant(value)) and found.values.get(pattern.name, value) is value:
        yield Found({**found.values, pattern.name: value}, found.nodes)


def _fits_call(pattern: Call, value: ir.Value, found: Found) -> Iterator[Found]:
    op = value.producer()
    if op is None or op.op_type != pattern.op_type or op.domain not in ONNX_DOMAINS or len(op.outputs) != 1:
        return
    given = op.inputs[: len(pattern.inputs)]
    if len(given) < len(pattern.inputs):
        return
    nodes = found.nodes if op in found.nodes else (*found.nodes, op)
    orders = [given, given[::-1]] if op.op_type in COMMUTATIVE else [given]
    for order in orders:
        yield from _fits_all(pattern.inputs, order, Found(found.values, nodes))


def _fits_all(patterns: Sequence[Pattern], values: Sequence[ir.Value | None], found: Found) -> Iterator[Found]:
    if not patterns:
        yield found
        return
    for first in _fits(patterns[0], values[0], found):
        yield from _fits_all(patterns[1:], values[1:], first)
