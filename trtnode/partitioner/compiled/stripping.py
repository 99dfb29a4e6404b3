"""Strips a compiled model of the nodes that engines replaced, or of the engines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import onnx
import onnx_ir as ir

from trtnode.partitioner.compiled.references import put_together, references_from_bytes
from trtnode.partitioner.compiled.trtnode import SIZES_DOMAIN
from trtnode.partitioner.errors import CompiledModelError
from trtnode.partitioner.graph.view import TRTNODE_DOMAIN
from trtnode.partitioner.model import protobuf_walk
from trtnode.partitioner.model.mapped_weights import engine_part

SMALL_ELEMENTS = 1024
"""Constants up to this size may hold shapes, axes or indices that the shapes of results depend on."""


def strip_fallback(model: onnx.ModelProto, *, keep_sizes: bool = False) -> None:
    """Remove the functions of TrtNodes, and the weights that only they read, in place.

    TrtNodes keep only their run-time inputs, and hold the whole of their engines. The rest of the model stays complete.

    Args:
        model: The model.
        keep_sizes: True keeps the functions without large weights in ``SIZES_DOMAIN``.
    """
    sizes = list(_size_functions(model)) if keep_sizes else []
    make_engines_whole(model)
    run_time = {value.name for value in model.graph.input}
    constants = {t.name for graph in protobuf_walk.graphs(model) for t in graph.initializer} - run_time
    kept = [f for f in model.functions if f.domain != TRTNODE_DOMAIN]
    del model.functions[:]
    model.functions.extend(kept)
    for node in protobuf_walk.nodes(model):
        if node.domain == TRTNODE_DOMAIN:
            inputs = [name for name in node.input if name not in constants]
            del node.input[:]
            node.input.extend(inputs)
    _drop_unused_functions(model)
    outputs = {value.name for graph in protobuf_walk.graphs(model) for value in graph.output}
    used = {name for node in protobuf_walk.nodes(model) for name in node.input} | outputs | run_time
    for graph in protobuf_walk.graphs(model):
        weights = [tensor for tensor in graph.initializer if tensor.name in used]
        del graph.initializer[:]
        graph.initializer.extend(weights)
    model.functions.extend(sizes)


def _size_functions(model: onnx.ModelProto) -> Iterator[onnx.FunctionProto]:
    functions = {function.overload: function for function in model.functions if function.domain == TRTNODE_DOMAIN}
    run_time = {value.name for value in model.graph.input}
    weights = {tensor.name: tensor for tensor in model.graph.initializer if tensor.name not in run_time}
    for node in model.graph.node:
        if node.domain == TRTNODE_DOMAIN and node.overload in functions:
            function = onnx.FunctionProto.FromString(functions[node.overload].SerializeToString())
            function.domain = SIZES_DOMAIN
            for formal, actual in zip(list(function.input), node.input, strict=False):
                if actual in weights:
                    _replace_weight(function, formal, weights[actual])
            yield function


def _replace_weight(function: onnx.FunctionProto, name: str, weight: onnx.TensorProto) -> None:
    """Make a small weight a constant of a function, and of a large one only its type known."""
    if math.prod(weight.dims) > SMALL_ELEMENTS or onnx.external_data_helper.uses_external_data(weight):
        kind = onnx.helper.make_tensor_value_info(name, weight.data_type, list(weight.dims))
        function.value_info.append(kind)
        return
    function.input.remove(name)
    constant = onnx.helper.make_node("Constant", [], [name])
    constant.attribute.append(onnx.AttributeProto(name="value", type=onnx.AttributeProto.TENSOR, t=weight))
    function.node.insert(0, constant)


def strip_engines(model: onnx.ModelProto) -> None:
    """Replace TrtNodes by the nodes of their functions, in subgraphs too, in place.

    Raises:
        CompiledModelError: A TrtNode has no function, or one with other inputs and outputs.
    """
    functions = {function.overload: function for function in model.functions if function.domain == TRTNODE_DOMAIN}
    for graph in reversed(list(protobuf_walk.graphs(model))):  # subgraphs before their nodes, which are copied
        nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in _restored(graph, functions)]
        del graph.node[:]
        graph.node.extend(nodes)
    kept = [function for function in model.functions if function.domain != TRTNODE_DOMAIN]
    del model.functions[:]
    model.functions.extend(kept)


def make_engines_whole(model: onnx.ModelProto) -> None:
    """Put the weights that engines share with the model into the engines, in place."""
    tensors = {tensor.name: tensor for graph in protobuf_walk.graphs(model) for tensor in graph.initializer}
    for node in protobuf_walk.nodes(model):
        held = {attribute.name: attribute for attribute in node.attribute}
        listed = [name for name in held if engine_part(name)[0] == "engine_references"]
        for name in listed if node.domain == TRTNODE_DOMAIN else ():
            suffix = engine_part(name)[1]
            read = {index: tensors[one] for index, one in enumerate(node.input) if one in tensors}
            weights = {index: ir.serde.deserialize_tensor(tensor) for index, tensor in read.items()}
            references = references_from_bytes(held[name].t.raw_data)
            engine = held[f"engine{suffix}"].t
            engine.raw_data = put_together(engine.raw_data, references, weights).tobytes()
            engine.dims[:] = [len(engine.raw_data)]
            node.attribute.remove(held[name])


def _restored(graph: onnx.GraphProto, functions: Mapping[str, onnx.FunctionProto]) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        if node.domain != TRTNODE_DOMAIN:
            yield node
            continue
        function = functions.get(node.overload)
        if function is None or (function.input, function.output) != (node.input, node.output):
            raise CompiledModelError(node.name, "its function is not what it was written with")
        yield from function.node


def _drop_unused_functions(model: onnx.ModelProto) -> None:
    """Remove functions that no node calls, then those that only they called."""
    while True:
        called = {(node.domain, node.op_type) for node in protobuf_walk.nodes(model)}
        kept = [function for function in model.functions if (function.domain, function.name) in called]
        if len(kept) == len(model.functions):
            return
        del model.functions[:]
        model.functions.extend(kept)
