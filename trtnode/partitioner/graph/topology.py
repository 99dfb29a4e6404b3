"""A graph as arrays of node and tensor numbers, which makes the cut fast."""

from __future__ import annotations

import dataclasses
import itertools
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
        makers, nodes = np.array(producers, dtype=np.int64), np.arange(len(reads))
        readers = np.repeat(nodes, np.fromiter(map(len, reads), np.int64, len(reads)))
        read = np.fromiter(itertools.chain.from_iterable(reads), np.int64, len(readers))
        made = np.flatnonzero(makers != GRAPH_INPUT)
        pinned = np.concatenate([made, read])
        order = np.argsort(pinned, kind="stable")
        pins, pinned = np.concatenate([makers[made], readers])[order], pinned[order]
        edges = _edges(makers[read], readers)
        before, after = edges
        by_origin = np.argsort(before, kind="stable")
        return cls(
            predecessors=_lists(before, after, len(reads)),
            successors=_lists(after[by_origin], before[by_origin], len(reads)),
            edges=edges,
            uses=np.stack([readers, read]),
            producers=makers,
            pins=pins,
            pin_starts=np.searchsorted(pinned, np.arange(len(makers) + 1)),
            pairs=_pairs(pins, pinned),
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


def _edges(makers: np.ndarray, readers: np.ndarray) -> np.ndarray:
    """Return each edge once, ``int[2, E]``, in the order of its first read.

    Args:
        makers: The node that makes what is read, or ``GRAPH_INPUT``, by read.
        readers: The node that reads it, by read.
    """
    inner = makers != GRAPH_INPUT
    edges = np.stack([makers[inner], readers[inner]])
    _, first = np.unique(edges[1] * (edges.max(initial=0) + 1) + edges[0], return_index=True)
    first.sort()
    return edges[:, first]


def _lists(values: np.ndarray, owners: np.ndarray, number: int) -> list[list[int]]:
    """Return the values of each owner in their order; owners are numbers below ``number`` and never fall."""
    bounds = np.searchsorted(owners, np.arange(number + 1)).tolist()
    flat = values.tolist()
    return [flat[begin:end] for begin, end in itertools.pairwise(bounds)]


def _pairs(pins: np.ndarray, tensors: np.ndarray) -> np.ndarray:
    """Return neighbours in ``pins`` that belong to one tensor, with the tensor."""
    same = tensors[1:] == tensors[:-1]
    return np.stack([pins[:-1][same], pins[1:][same], tensors[1:][same]])


def as_booleans(flags: Sequence[bool]) -> np.ndarray:
    """Return flags as ``bool[N]``, faster than ``numpy.array`` does."""
    return np.frombuffer(bytes(flags), dtype=bool)
