"""Walks over a model's protobuf, subgraphs and functions included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx


def graphs(proto: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """Yield the graph of a model, then every subgraph in it and in its functions."""
    yield proto.graph
    for holder in (proto.graph.node, *(function.node for function in proto.functions)):
        yield from _subgraphs(holder)


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
    for subgraph in _subgraphs(listed):
        yield from subgraph.node


def tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield every tensor of a model, the initializers of its graph first."""
    for graph in graphs(proto):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
    for node in nodes(proto):
        for attribute in node.attribute:
            yield from (*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors)
            if attribute.HasField("sparse_tensor"):
                yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)


def _subgraphs(holder: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    for node in holder:
        for attribute in node.attribute:
            for subgraph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield subgraph
                yield from _subgraphs(subgraph.node)
