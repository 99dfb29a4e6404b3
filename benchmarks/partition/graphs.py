"""Generates ONNX graphs of any size from a seed, with static shapes, so that the bytes of all tensors are known."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from trtnode.partitioner.cut.labels import SUPPORTED, ReasonCode, Verdict
from trtnode.partitioner.graph.view import Graph, Node

NATIVE_OPS = frozenset({"Neg", "Sub"})
"""Operators that the imagined engine refuses; it takes Add, ReduceSum and Relu."""

WIDE, NARROW = 256, 1
"""Elements of a tensor. ReduceSum makes a wide one narrow; an operator with two inputs gives the wider of them."""

NEAR = 12
"""Number of preceding nodes that a node of ``local`` may read."""

REDUCED = 0.25
"""Share of side branches, of sources and of one-input nodes of ``local`` that reduce their input, as scales do."""

WIDENED = 0.05
"""Share of two-input nodes of ``local`` that read the graph's input: without these all tensors would end up narrow."""

_CONSTANT = ir.tensor(np.ones((1, WIDE), np.float32))
_REFUSED = Verdict(ReasonCode.UNSUPPORTED_OP, "The engine of this benchmark refuses it.")


def supports(node: Node) -> Verdict:
    """Return whether the imagined engine takes a node."""
    return _REFUSED if node.op_type in NATIVE_OPS else SUPPORTED


def generate(family: str, *, size: int, native_share: float, seed: int = 0) -> Graph:
    """Generate a graph.

    Args:
        family: A key of ``FAMILIES``.
        size: Number of nodes.
        native_share: Share of nodes that the engine refuses, between 0 and 1.
        seed: The same arguments and seed give the same graph.
    """
    rng = random.Random(f"{family} {size} {native_share} {seed}")
    sketch = _Sketch(rng, size, native_share)
    FAMILIES[family](sketch, rng)
    return Graph.of(sketch.model())


class _Sketch:
    """A graph that grows by one node at a time to a given size."""

    def __init__(self, rng: random.Random, size: int, native_share: float) -> None:
        native = round(size * native_share)
        self._native = [True] * native + [False] * (size - native)
        rng.shuffle(self._native)
        self.input = _value("x", WIDE)
        self.size = size
        self._ops: list[ir.Node] = []
        self._initializers: list[ir.Value] = []
        self._widths = {self.input: WIDE}

    @property
    def room(self) -> int:
        """Number of nodes that are missing."""
        return self.size - len(self._ops)

    def add(self, reads: Sequence[ir.Value], *, reduces: bool = False) -> ir.Value:
        """Add a node that reads one or two values; if it reads one and is not native, it may reduce it."""
        assert self.room
        index = len(self._ops)
        native = self._native[index]
        width = max(self._widths[value] for value in reads)
        if len(reads) == 2:
            op_type = "Sub" if native else "Add"
        elif native:
            op_type = "Neg"
        else:
            op_type = "ReduceSum" if reduces else "Relu"
        width = NARROW if op_type == "ReduceSum" else width
        result = _value(f"v{index}", width)
        self._widths[result] = width
        self._ops.append(ir.Node("", op_type, reads, outputs=[result], name=f"n{index}"))
        return result

    def add_constant_fed(self, *, reduces: bool) -> ir.Value:
        """Add a node that reads a new initializer alone."""
        weight = _value(f"w{len(self._initializers)}", WIDE)
        weight.const_value = _CONSTANT
        self._initializers.append(weight)
        self._widths[weight] = WIDE
        return self.add([weight], reduces=reduces)

    def model(self) -> ir.Model:
        """Return the finished model; values without readers are its outputs."""
        assert not self.room
        outputs = [op.outputs[0] for op in self._ops if not op.outputs[0].uses()]
        graph = ir.Graph(
            [self.input],
            outputs,
            nodes=self._ops,
            initializers=self._initializers,
            opset_imports={"": 21},
            name="generated",
        )
        return ir.Model(graph, ir_version=10)


def _value(name: str, width: int) -> ir.Value:
    return ir.Value(name=name, shape=ir.Shape((1, width)), type=ir.TensorType(ir.DataType.FLOAT))


def _local(sketch: _Sketch, rng: random.Random) -> None:
    """Add nodes that each read one or two of the preceding values; a few read the graph's input."""
    recent = [sketch.input]
    while sketch.room:
        reads = rng.sample(recent, min(len(recent), rng.choice((1, 2, 2))))
        if len(reads) == 2 and rng.random() < WIDENED:
            reads[1] = sketch.input
        result = sketch.add(reads, reduces=len(reads) == 1 and rng.random() < REDUCED)
        recent = [*recent[-NEAR + 1 :], result]


def _branches(sketch: _Sketch, rng: random.Random) -> None:
    """Fork into parallel branches, join them pair by pair, fork again."""
    trunk = sketch.input
    while sketch.room:
        ends = [_chain(sketch, trunk, rng.randint(6, 16))]
        for _ in range(rng.randint(4, 8)):
            head = sketch.add([trunk], reduces=rng.random() < REDUCED) if sketch.room else trunk
            ends.append(_chain(sketch, head, rng.randint(5, 15)))
        while len(ends) > 1 and sketch.room:
            ends = [*ends[2:], sketch.add(ends[:2])]
        trunk = ends[-1]


def _chain(sketch: _Sketch, value: ir.Value, length: int) -> ir.Value:
    for _ in range(min(length, sketch.room)):
        value = sketch.add([value])
    return value


def _const_fed(sketch: _Sketch, rng: random.Random) -> None:
    """Add sources that read initializers alone, then a chain whose nodes also read the sources.

    Two fifths of the nodes are sources, which stand for weights' DequantizeLinear nodes and shape arithmetic.
    """
    sources = [sketch.add_constant_fed(reduces=rng.random() < REDUCED) for _ in range(sketch.size * 2 // 5)]
    trunk = sketch.input
    while sketch.room:
        fed = sources and rng.random() < len(sources) / sketch.room
        trunk = sketch.add([trunk, sources.pop()] if fed else [trunk])


FAMILIES: Mapping[str, Callable[[_Sketch, random.Random], None]] = {
    "local": _local,
    "branches": _branches,
    "const_fed": _const_fed,
}
"""Generators of the families by name."""
