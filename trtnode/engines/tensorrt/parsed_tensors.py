"""Compares the tensors of a parsed network with those of the model. It needs no GPU.

The parser takes some nodes for others without a word: pooling with ``ceil_mode`` whose last window starts in padding,
layouts of recurrent nodes, types that it narrows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx
import onnx_ir as ir

from trtnode.engines.errors import BuildError
from trtnode.engines.tensorrt.element_types import ELEMENT_TYPES
from trtnode.partitioner.model.protobuf_walk import subgraphs


def check_tensors(network: Any, model: onnx.ModelProto) -> None:
    """Refuse a network whose tensors have other types or shapes than the model's; sizes that vary fit any.

    Args:
        network: A ``trt.INetworkDefinition``, just parsed.
        model: The model that was parsed, with the types and shapes that are known inside it.

    Raises:
        BuildError: One differs.
    """
    for _, problem in misread_tensors(network, model):
        raise BuildError(problem)


def misread_tensors(network: Any, model: onnx.ModelProto) -> Iterator[tuple[str, str]]:
    """Yield the name of each tensor that ``check_tensors`` refuses, in the parser's order, and a sentence about it."""
    declared = {value.name: value for value in (*model.graph.value_info, *model.graph.output)}
    for tensor in results(network, model):
        if tensor.name in declared:
            value = declared[tensor.name]
            problem = _problem_of_type(value, tensor) or _problem_of_shape(value, tensor)
            if problem:
                yield tensor.name, problem


def results(network: Any, model: onnx.ModelProto) -> Iterator[Any]:
    """Yield the outputs of all layers, then those of the network; the last layer of a node has the name in ONNX.

    Layers of names that stand in a subgraph are left out: some models give a value outside of it the same name.
    """
    inside = {name for graph in subgraphs(model) for node in graph.node for name in node.output}
    for layer in map(network.get_layer, range(network.num_layers)):
        tensors = map(layer.get_output, range(layer.num_outputs))
        yield from (tensor for tensor in tensors if tensor is not None and tensor.name not in inside)
    yield from filter(None, map(network.get_output, range(network.num_outputs)))


def _problem_of_type(value: onnx.ValueInfoProto, tensor: Any) -> str:
    declared = ir.DataType(value.type.tensor_type.elem_type)
    if declared in (ir.DataType.UNDEFINED, ELEMENT_TYPES.get(tensor.dtype.name)):
        return ""
    return f"TensorRT's parser makes {value.name!r} {tensor.dtype.name}; in ONNX it is {declared.name}."


def _problem_of_shape(value: onnx.ValueInfoProto, tensor: Any) -> str:
    if not value.type.tensor_type.HasField("shape"):
        return ""
    declared = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in value.type.tensor_type.shape.dim]
    try:
        parsed = list(tensor.shape)
    except (RuntimeError, ValueError):  # the library knows no shape, or no rank
        return ""
    pairs = zip(declared, parsed, strict=False)
    if len(declared) == len(parsed) and all(a == b or a < 0 or b < 0 for a, b in pairs):
        return ""
    return f"TensorRT's parser gives {value.name!r} the shape {parsed}; in ONNX it is {declared}."
