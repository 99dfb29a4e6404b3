"""A graph as arrays of node and tensor numbers, which makes the cut fast."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

LARGEST = 2**62
"""Bytes of a tensor that count; beyond, it is as large as any."""

GRAPH_INPUT = -1
"""Producer of a tensor that no node produces."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Topology:
    """Edges and tensors of a graph. Nodes are numbered in topological order; constants and unread inputs have none.

    Attributes:
        predecessors: Nodes that a node reads from, each once, by node.
        successors: Nodes that read from a node, each once, by node.
        edges: The same as two rows, ``int[2, E]``: from, to.
        uses: Reader and tensor of every read, in order of nodes, ``int[2, U]``.
        producers: Node that makes a tensor, or ``GRAPH_INPUT``, by tensor.
        pins: Nodes of all tensors, tensor by tensor: the producer if there is one, then the readers.
        pin_starts: First index in ``pins`` of each tensor, and the length of ``pins`` at the end.
        pairs: Two neighbouring pins of one tensor, and the tensor, ``int[3, P]``.
        sizes: Bytes of a tensor, by tensor.
        leaving: True if a tensor is an output of the graph, by tensor.
    """

    predecessors: Sequence[Sequence[int]]
    successors: Sequence[Sequence[int]]
    edges: np.ndarray
    uses: np.ndarray
    producers: np.ndarray
    pins: np.ndarray
    pin_starts: np.ndarray
    pairs: np.ndarray
    sizes: np.ndarray
    leaving: np.ndarray

    @classmethod
    def of(
        cls, reads: Sequence[Sequence[int]], producers: Sequence[int], *, sizes: Sequence[int], leaving: Sequence[bool]
    ) -> Topology:
        """Complete a topology.

        Args:
            reads: Tensors that each node reads, by node.
            producers: Node that makes a tensor, or ``GRAPH_INPUT``, by tensor.
            sizes: Bytes of a tensor, by tensor; declared dimensions may make it any number.
            leaving: True if a tensor is an output of the graph, by tensor.
        """
        pins: list[list[int]] = [[] if producer == GRAPH_INPUT else [producer] for producer in producers]
        predecessors: list[Sequence[int]] = []
        successors: list[list[int]] = [[] for _ in reads]
        for node, tensors in enumerate(reads):
            before = {producers[tensor]: None for tensor in tensors}
            before.pop(GRAPH_INPUT, None)
            predecessors.append(tuple(before))
            for tensor in tensors:
                pins[tensor].append(node)
            for predecessor in before:
                successors[predecessor].append(node)
        flat = np.array([node for nodes in pins for node in nodes], dtype=np.int64)
        counts = [len(nodes) for nodes in pins]
        uses = [(node, tensor) for node, tensors in enumerate(reads) for tensor in tensors]
        edges = [(before, node) for node, nodes in enumerate(predecessors) for before in nodes]
        return cls(
            predecessors=predecessors,
            successors=successors,
            edges=np.array(edges, dtype=np.int64).reshape(-1, 2).T.copy(),
            uses=np.array(uses, dtype=np.int64).reshape(-1, 2).T.copy(),
            producers=np.array(producers, dtype=np.int64),
            pins=flat,
            pin_starts=np.cumsum([0, *counts], dtype=np.int64),
            pairs=_pairs(flat, np.repeat(np.arange(len(counts)), counts)),
            sizes=np.array([min(size, LARGEST) for size in sizes], dtype=np.int64),
            leaving=np.array(leaving, dtype=bool),
        )

    def read_elsewhere(self, places: np.ndarray) -> np.ndarray:
        """Return, by tensor, whether its nodes have several places.

        Args:
            places: Number of a node's place, by node.
        """
        one, other, tensors = self.pairs
        different = np.zeros(len(self.producers), dtype=bool)
        different[tensors[places[one] != places[other]]] = True
        return different


def _pairs(pins: np.ndarray, tensors: np.ndarray) -> np.ndarray:
    """Return neighbours in ``pins`` that belong to one tensor, with the tensor."""
    same = tensors[1:] == tensors[:-1]
    return np.stack([pins[:-1][same], pins[1:][same], tensors[1:][same]])


def as_booleans(flags: Sequence[bool]) -> np.ndarray:
    """Return flags as ``bool[N]``, faster than ``numpy.array`` does."""
    return np.frombuffer(bytes(flags), dtype=bool)
