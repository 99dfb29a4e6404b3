"""Walks over a model's protobuf, subgraphs and functions included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx


class Parts:
    """The parts of a model that hold others, found in one walk: in Python, each walk over large graphs takes long.

    Attributes:
        graphs: The graph of the model, then every subgraph in it and in its functions.
        bearers: Every node with attributes. Those outside of functions come first.
        outside: Number of the nodes with attributes outside of functions.
    """

    def __init__(self, proto: onnx.ModelProto) -> None:
        self.graphs = [proto.graph]
        self.bearers: list[onnx.NodeProto] = []
        self._functions = proto.functions
        self._walk(proto.graph.node)
        self.outside = len(self.bearers)
        for function in proto.functions:
            self._walk(function.node)

    def attributes(self) -> Iterator[tuple[str, onnx.AttributeProto]]:
        """Yield every attribute with its place, defaults of functions included."""
        for node in self.bearers:
            for attribute in node.attribute:
                yield f"attribute {attribute.name!r} of node {node.name or node.op_type!r}", attribute
        for function in self._functions:
            for attribute in function.attribute_proto:
                yield f"attribute {attribute.name!r} of function {function.name!r}", attribute

    def tensors(self) -> Iterator[onnx.TensorProto]:
        """Yield every tensor, the initializers of the model's graph first."""
        for graph in self.graphs:
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield from (sparse.values, sparse.indices)
        for _, attribute in self.attributes():
            yield from (*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors)
            if attribute.HasField("sparse_tensor"):
                yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)

    def _walk(self, holder: Iterable[onnx.NodeProto]) -> None:
        bearers = [node for node in holder if node.attribute]
        self.bearers += bearers
        for subgraph in subgraphs_within(bearers):
            self.graphs.append(subgraph)
            self.bearers += [node for node in subgraph.node if node.attribute]


def graphs(proto: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """Yield the graph of a model, then every subgraph in it and in its functions."""
    yield from Parts(proto).graphs


def subgraphs(proto: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """Yield every subgraph in the graph of a model and in its functions."""
    yield from Parts(proto).graphs[1:]


def nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield every node of a model."""
    for graph in graphs(proto):
        yield from graph.node
    for function in proto.functions:
        yield from function.node


def nodes_within(holder: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes, then those of their subgraphs."""
    listed = list(holder)
    yield from listed
    for subgraph in subgraphs_within(listed):
        yield from subgraph.node


def tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield every tensor of a model, the initializers of its graph first."""
    return Parts(proto).tensors()


def subgraphs_within(holder: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    """Yield the subgraphs of nodes, each before those in it."""
    for node in holder:
        for attribute in node.attribute:
            for subgraph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield subgraph
                yield from subgraphs_within(subgraph.node)
