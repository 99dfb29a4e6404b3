"""A labelled graph as plain names, the input of every method and every score."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from trtnode.partitioner.graph.view import Graph, TensorSpec

Groups = tuple[tuple[str, ...], ...]
"""Node names of each segment."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LabelledGraph:
    """Reads and writes of each node, and the nodes that the engine takes.

    Attributes:
        reads: Names of the run-time values that a node or one of its subgraphs reads, by node in topological order.
        writes: Names of the values that a node produces, by node.
        supported: Nodes that the engine takes.
        sizes: Bytes of the values with static shapes; others count as 0.
    """

    reads: Mapping[str, tuple[str, ...]]
    writes: Mapping[str, tuple[str, ...]]
    supported: frozenset[str]
    sizes: Mapping[str, int]

    @classmethod
    def of(cls, graph: Graph, supported: Collection[str]) -> LabelledGraph:
        """Copy the names from a graph."""
        produced = [value for node in graph.nodes for value in node.op.outputs if value.name]
        return cls(
            reads={node.name: tuple(v.name or "" for v in node.reads) for node in graph.nodes},
            writes={node.name: tuple(v.name for v in node.op.outputs if v.name) for node in graph.nodes},
            supported=frozenset(supported),
            sizes={value.name or "": TensorSpec.of(value).size_bytes for value in produced},
        )

    def producers(self) -> dict[str, str]:
        """Return the node that produces a value, by value."""
        return {value: node for node, values in self.writes.items() for value in values}

    def predecessors(self) -> dict[str, tuple[str, ...]]:
        """Return the nodes whose results a node reads, each once, by node in topological order."""
        producers = self.producers()
        return {
            node: tuple(dict.fromkeys(producers[v] for v in values if v in producers))
            for node, values in self.reads.items()
        }
