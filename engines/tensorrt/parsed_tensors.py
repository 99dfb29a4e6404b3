"""Compares the tensors of a parsed network with those of the model. It needs no GPU.

The parser takes some nodes for others without a word: pooling with ``ceil_mode`` whose last window starts in padding,
layouts of recurrent nodes, types that it narrows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx
import onnx_ir as ir

from engines.errors import BuildError
from engines.tensorrt.element_types import ELEMENT_TYPES


def check_tensors(network: Any, model: onnx.ModelProto) -> None:
    """Refuse a network whose tensors have other types or shapes than the model's; sizes that vary fit any.

    Args:
        network: A ``trt.INetworkDefinition``, just parsed.
        model: The model that was parsed, with the types and shapes that are known inside it.

    Raises:
        BuildError: One differs.
    """
    declared = {value.name: value for value in (*model.graph.value_info, *model.graph.output)}
    for tensor in _results(network):
        if tensor is not None and tensor.name in declared:
            _check_type(declared[tensor.name], tensor)
            _check_shape(declared[tensor.name], tensor)


def _results(network: Any) -> Iterator[Any]:
    """Yield the outputs of all layers, then those of the network; the last layer of a node has the name in ONNX."""
    for layer in map(network.get_layer, range(network.num_layers)):
        yield from map(layer.get_output, range(layer.num_outputs))
    yield from map(network.get_output, range(network.num_outputs))


def _check_type(value: onnx.ValueInfoProto, tensor: Any) -> None:
    declared = ir.DataType(value.type.tensor_type.elem_type)
    if declared not in (ir.DataType.UNDEFINED, ELEMENT_TYPES.get(tensor.dtype.name)):
        raise BuildError(f"TensorRT's parser makes {value.name!r} {tensor.dtype.name}; in ONNX it is {declared.name}.")


def _check_shape(value: onnx.ValueInfoProto, tensor: Any) -> None:
    if not value.type.tensor_type.HasField("shape"):
        return
    declared = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in value.type.tensor_type.shape.dim]
    try:
        parsed = list(tensor.shape)
    except (RuntimeError, ValueError):  # the library knows no shape, or no rank
        return
    pairs = zip(declared, parsed, strict=False)
    if len(declared) != len(parsed) or any(a != b and a >= 0 and b >= 0 for a, b in pairs):
        raise BuildError(f"TensorRT's parser gives {value.name!r} the shape {parsed}; in ONNX it is {declared}.")
