"""Optimizers of ONNX Runtime that change answers or crash, each switched off for the models that have its pattern."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator, Mapping

import onnx
from onnx import TensorProto

from trtnode.engines.onnxruntime.workarounds.mentioned import model_with
from trtnode.partitioner.model import protobuf_walk

MOVES = frozenset({"MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that QDQPropagationTransformer puts between a DequantizeLinear and a QuantizeLinear of its own."""


ABOVE_A_RELU = frozenset({TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16})
"""Types that ReluQuantRewrite knows, so that it removes a Relu only where the lowest number stands for zero."""

DISABLED = "optimization.disable_specified_optimizers"
"""Session option: names of optimizers."""


def optimizer_options(source: pathlib.Path | onnx.ModelProto) -> dict[str, str]:
    """Return the session options that switch off the optimizers that would harm a model.

    Args:
        source: A file or a small model.
    """
    model = model_with(source, ["DequantizeLinear", "QuantizeLinear", "If", "BatchNormalization"])
    if model is None:
        return {}
    names = [name for name, has_pattern in PATTERNS.items() if any(map(has_pattern, _scopes(model)))]
    return {DISABLED: ";".join(names)} if names else {}


def moves_dequantized_int32(scope: onnx.GraphProto | onnx.FunctionProto) -> bool:
    """Return whether a DequantizeLinear of int32, or of an unknown type, is moved.

    The optimizer quantizes the result again, to uint8, and its values saturate: 7000.7 becomes 25.5. From opset 21 on,
    or with a zero point, it asks for a QuantizeLinear of int32, which doesn't exist.
    https://github.com/microsoft/onnxruntime/issues/25001
    """
    moved = {node.input[0] for node in scope.node if node.op_type in MOVES and node.input}
    wide = [n.input[0] for n in scope.node if n.op_type == "DequantizeLinear" and n.output[0] in moved]
    narrow = _narrow(scope) if wide else set()
    return any(name not in narrow for name in wide)


def quantizes_behind_relu(scope: onnx.GraphProto | onnx.FunctionProto) -> bool:
    """Return whether results of a Relu become numbers of 4 bits, 8-bit floats, or of an unknown type.

    The optimizer removes the Relu, as if these types had no negative numbers.
    """
    positive = {node.output[0] for node in scope.node if node.op_type == "Relu"}
    readers = [n for n in scope.node if n.op_type == "QuantizeLinear" and n.input and n.input[0] in positive]
    tensors = scope.initializer if readers and isinstance(scope, onnx.GraphProto) else ()
    known = {tensor.name for tensor in tensors if tensor.data_type in ABOVE_A_RELU}
    return any((n.attribute if len(n.input) < 3 else n.input[2] not in known) for n in readers)


def nests_ifs(scope: onnx.GraphProto | onnx.FunctionProto, levels: int = 3) -> bool:
    """Return whether a graph has an If within an If within an If.

    Where their conditions are constant, the optimizer puts the chosen branches in the place of the Ifs, and may read
    the name of a value that went with one of them. It does if the branches have operators that ONNX Runtime expands,
    such as CastLike and Mish.
    """
    if levels == 0:
        return True
    ifs = [node for node in scope.node if node.op_type == "If"]
    return isinstance(scope, onnx.GraphProto) and any(nests_ifs(a.g, levels - 1) for i in ifs for a in i.attribute)


def trains_normalizations(scope: onnx.GraphProto | onnx.FunctionProto) -> bool:
    """Return whether a BatchNormalization is in training mode.

    Its kernel writes new statistics over those that it is given, if nobody reads them. The optimizer makes one constant
    of equal ones, so that the scale changes with the variance, and equal requests get unlike answers.
    """
    norms = [node for node in scope.node if node.op_type == "BatchNormalization"]
    return any(a.name == "training_mode" and a.i for node in norms for a in node.attribute)


PATTERNS: Mapping[str, Callable[[onnx.GraphProto | onnx.FunctionProto], bool]] = {
    "QDQPropagationTransformer": moves_dequantized_int32,
    "ReluQuantRewrite": quantizes_behind_relu,
    "ConstantFolding": nests_ifs,
    "ConstantSharing": trains_normalizations,
}
"""The pattern of each, in one graph or function."""


def _narrow(scope: onnx.GraphProto | onnx.FunctionProto) -> set[str]:
    """Return the values that are known to be of another type than int32."""
    found = {node.output[0] for node in scope.node if node.op_type == "QuantizeLinear"}
    if isinstance(scope, onnx.GraphProto):
        int32 = TensorProto.INT32
        found |= {v.name for v in (*scope.input, *scope.value_info) if v.type.tensor_type.elem_type not in (0, int32)}
        found |= {t.name for t in scope.initializer if t.data_type != int32}
    return found


def _scopes(model: onnx.ModelProto) -> Iterator[onnx.GraphProto | onnx.FunctionProto]:
    yield from protobuf_walk.graphs(model)
    yield from model.functions
