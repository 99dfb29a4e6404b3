"""A labelled graph as plain names: what every method is given, and what every score is computed from."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from partitioner import Graph, TensorSpec

Groups = tuple[tuple[str, ...], ...]
"""Node names of each segment."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """Who reads what from whom, and which nodes the engine takes.

    Attributes:
        reads: Names of the run-time values that a node or one of its bodies reads, by node in topological order.
        writes: Names of the values that a node produces, by node.
        supported: Nodes that the engine takes.
        sizes: Bytes of the values whose shapes are static; others count as none.
    """

    reads: Mapping[str, tuple[str, ...]]
    writes: Mapping[str, tuple[str, ...]]
    supported: frozenset[str]
    sizes: Mapping[str, int]

    @classmethod
    def of(cls, graph: Graph, supported: Collection[str]) -> Wiring:
        """Copy the names out of a graph."""
        produced = [value for node in graph.nodes for value in node.op.outputs if value.name]
        return cls(
            reads={node.name: tuple(v.name or "" for v in node.reads) for node in graph.nodes},
            writes={node.name: tuple(v.name for v in node.op.outputs if v.name) for node in graph.nodes},
            supported=frozenset(supported),
            sizes={value.name or "": TensorSpec.of(value).size_bytes for value in produced},
        )

    def producers(self) -> dict[str, str]:
        """The node that produces a value, by value."""
        return {value: node for node, values in self.writes.items() for value in values}

    def predecessors(self) -> dict[str, tuple[str, ...]]:
        """The nodes whose results a node reads, each once, by node in topological order."""
        producers = self.producers()
        return {
            node: tuple(dict.fromkeys(producers[v] for v in values if v in producers))
            for node, values in self.reads.items()
        }
