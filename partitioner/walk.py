"""Walks over everything in a model's protobuf, bodies and functions included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx


def graphs(proto: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """The graph of a model, then every body in it and in its functions."""
    yield proto.graph
    for holder in (proto.graph.node, *(function.node for function in proto.functions)):
        yield from _bodies(holder)


def nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node of a model."""
    for graph in graphs(proto):
        yield from graph.node
    for function in proto.functions:
        yield from function.node


def tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a model, the initializers of its graph first."""
    for graph in graphs(proto):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
    for node in nodes(proto):
        for attribute in node.attribute:
            yield from (*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors)
            if attribute.HasField("sparse_tensor"):
                yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)


def _bodies(holder: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    for node in holder:
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield body
                yield from _bodies(body.node)
