"""Equal nodes become one.

Proof. Two nodes of the same operator, version and attributes that read the same values, in the same order, make the
same results, unless they draw random numbers (``RANDOM_OPS``) or belong to a domain whose operators nobody here knows.
So the readers of the second may read the first one's results. A result that leaves the graph keeps its node.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import onnx_ir as ir

from trtnode.partitioner.model.values import ONNX_DOMAINS, RANDOM_OPS, has_subgraphs
from trtnode.partitioner.passes.rewrites.replacement import Place

MOST_ELEMENTS = 64
"""Limit of tensors among attributes that are compared."""


def find_equal_nodes(graph: ir.Graph) -> Iterator[Place]:
    """Find each node that an earlier one makes needless. The graph is sorted; a place is to be applied at once."""
    first: dict[Hashable, ir.Node] = {}
    for op in list(graph):
        key = _key(op)
        earlier = op if key is None else first.setdefault(key, op)
        if earlier is not op and not any(value.is_graph_output() for value in op.outputs):
            yield _place(op, earlier)


def _place(op: ir.Node, earlier: ir.Node) -> Place:
    def apply() -> None:
        assert op.graph is not None
        ir.convenience.replace_all_uses_with(op.outputs, earlier.outputs)
        op.graph.remove(op, safe=True)

    return Place((op,), apply)


def _key(op: ir.Node) -> Hashable | None:
    """Return what nodes of equal results have in common; None for a node like no other."""
    if op.domain not in ONNX_DOMAINS or op.op_type in RANDOM_OPS or has_subgraphs(op):
        return None
    attributes: tuple[tuple[str, str | None], ...] = ()
    if op.attributes:  # most nodes of large graphs have none
        attributes = tuple(sorted((name, _content(attribute)) for name, attribute in op.attributes.items()))
        if any(content is None for _, content in attributes):
            return None
    used = tuple([bool(value.name) for value in op.outputs])
    return op.op_type, op.version, attributes, tuple(map(id, op.inputs)), used


def _content(attribute: ir.Attr) -> str | None:
    if attribute.type == ir.AttributeType.TENSOR:
        tensor = attribute.as_tensor()
        return None if tensor.size > MOST_ELEMENTS else repr((tensor.dtype, tensor.shape, tensor.tobytes()))
    return f"{attribute.type}:{attribute.value!r}"
