"""The last resort: nodes that neither ONNX Runtime nor an engine has a kernel for, in onnx.reference.

It is Python, so it is slow and holds the interpreter. Whoever opens a model says where it runs, if it may at all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import onnx

from trtnode.engines.backends.reference import Evaluator, ReferenceSession
from trtnode.engines.errors import BuildError, MemoryLimitError, WrongReferenceError
from trtnode.engines.onnxruntime.missing_kernels import nodes_without_kernel
from trtnode.engines.runtime.plan import first_result
from trtnode.partitioner.graph.extraction import extract_model
from trtnode.partitioner.graph.view import Graph, Node
from trtnode.partitioner.wording import counted

WRONG_IN_REFERENCE = {
    "StringNormalizer": "drops empty texts and accents there. Install the locale that the node names, or name C.UTF-8, "
    "and give it texts of shape [C] or [1, C], by a Reshape before it and one behind it",
}
"""Operators that onnx.reference computes wrongly: what it does, and what to do instead."""

OpenReference = Callable[[onnx.ModelProto], Evaluator]
"""Loads a model of one node in onnx.reference."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LastResort:
    """The nodes of a model that run in onnx.reference.

    Attributes:
        nodes: Operator of each, by the name of its first result.
        open: Loads one of them.
    """

    nodes: Mapping[str, str]
    open: OpenReference


def evaluate_here(model: onnx.ModelProto) -> Evaluator:
    """Load a model of one node to run in this process.

    Raises:
        BuildError: onnx.reference refuses it.
    """
    session = ReferenceSession(model)

    def evaluate(feeds: Mapping[str, Any]) -> list[Any]:
        try:
            return session.run(feeds)
        except MemoryError as error:
            raise MemoryLimitError(f"onnx.reference: {error}") from error

    return evaluate


def find_reference_nodes(graph: Graph, nodes: Iterable[Node]) -> dict[str, str]:
    """Return the nodes that ONNX Runtime has no kernel for, if onnx.reference takes them all.

    Args:
        graph: A cleaned graph.
        nodes: Those to ask about.

    Returns:
        Operator of each, by the name of its first result. Empty if onnx.reference lacks one of them, too.

    Raises:
        WrongReferenceError: onnx.reference is known to compute one of them wrongly.
    """
    missing = nodes_without_kernel(graph, nodes)
    for node in missing:
        if node.op_type in WRONG_IN_REFERENCE and not node.op.domain:
            raise WrongReferenceError(node.name, node.op_type, WRONG_IN_REFERENCE[node.op_type])
    if all(_is_referred(graph, node) for node in missing):
        return {first_result(node): node.op_type for node in missing}
    return {}


def count_operators(operators: Iterable[str]) -> str:
    """Return how many nodes there are of which operators, such as ``3 nodes (2 Adam, Gradient)``."""
    names = sorted(operators)
    counts = [(names.count(name), name) for name in dict.fromkeys(names)]
    listed = ", ".join(name if count == 1 else f"{count} {name}" for count, name in counts)
    return f"{counted(len(names), 'node')} ({listed})"


def _is_referred(graph: Graph, node: Node) -> bool:
    outputs = tuple(v for v in node.op.outputs if v.name)
    try:
        ReferenceSession(extract_model(graph, [node], inputs=node.reads, outputs=outputs))
    except BuildError:
        return False
    return True
