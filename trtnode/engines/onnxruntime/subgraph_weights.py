"""Weights of subgraphs, moved from the outer graph into the one subgraph that reads them.

ONNX Runtime runs a convolution in a subgraph slowly where its weight is an initializer of the outer graph, which is
where exporters leave the weights of If, Loop and Scan.
"""

from __future__ import annotations

import onnx

from trtnode.partitioner.model import protobuf_walk


def move_weights_inside(model: onnx.ModelProto) -> int:
    """Move each initializer that one subgraph reads, and nothing else does, into that subgraph, in place.

    Args:
        model: A model with its data inside. Initializers that are inputs or outputs of its graph stay.

    Returns:
        Number of initializers that were moved.
    """
    graph = model.graph
    subgraphs = list(protobuf_walk.subgraphs_within(graph.node))
    fixed = {value.name for value in (*graph.input, *graph.output)} | _read(graph)
    for subgraph in subgraphs:  # a name that means something of their own
        fixed.update(value.name for value in subgraph.input)
        fixed.update(tensor.name for tensor in subgraph.initializer)
        fixed.update(name for node in subgraph.node for name in node.output)
    readers: dict[str, list[onnx.GraphProto]] = {}
    for subgraph in subgraphs:
        for name in _read(subgraph) - fixed:
            readers.setdefault(name, []).append(subgraph)
    movable = {name for name, found in readers.items() if len(found) == 1}
    places = [place for place, tensor in enumerate(graph.initializer) if tensor.name in movable]
    for place in reversed(places):
        tensor = graph.initializer[place]
        readers[tensor.name][0].initializer.append(tensor)
        del graph.initializer[place]
    return len(places)


def _read(graph: onnx.GraphProto) -> set[str]:
    """Names that the graph's own nodes read, and that it hands out."""
    return {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
