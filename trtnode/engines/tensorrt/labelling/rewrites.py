"""Rewrites a segment so that TensorRT's parser reads it as ONNX means it.

Each pass is a function that changes a model in place and keeps its results: exactly, except where its docstring states
the loss. Names of inputs and outputs stay, and their types except float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from trtnode.engines.errors import BuildError
from trtnode.engines.tensorrt.labelling.operators import OPSETS
from trtnode.partitioner.graph.qdq import (
    DEQUANTIZE,
    MIDDLE,
    QUANTIZE,
    describe_quantization,
    is_integer_bias,
    is_paired,
)
from trtnode.partitioner.model.new_values import add_constant
from trtnode.partitioner.model.opset_versions import VersionLimits, lower_versions
from trtnode.partitioner.model.values import dimensions, input_of, tensor_of

INT8_STEPS, UINT8_STEPS = 127, 255

PRODUCER = "trtnode"
"""The producer of rewritten models. The parser reads models by some producers, such as TensorRT, in another way."""

NEVER_NEGATIVE = frozenset({"Abs", "Relu", "Sigmoid", "Softmax", "Softplus"})
"""Operators whose results quantization to uint8 doesn't clip at zero."""


Pass = Callable[[ir.Model], None]


def prepare(model: onnx.ModelProto, passes: Sequence[Pass]) -> onnx.ModelProto:
    """Rewrite a model.

    Args:
        model: A segment as a standalone model, whose nodes ``trtnode.engines.tensorrt.labelling.labels`` has accepted.
        passes: ``PASSES``, to ask the parser about its nodes and to build it.

    Returns:
        Another model with the same inputs and outputs.

    Raises:
        BuildError: A fault is left that no pass can correct.
    """
    rewritten = ir.from_proto(model)
    for rewrite in passes:
        rewrite(rewritten)
    return ir.to_proto(rewritten)


def stamp_versions(model: ir.Model) -> None:
    """State an opset that the parser knows: every operator means the same there."""
    lower_versions(model, VersionLimits(opset=OPSETS[-1], ir_version=model.ir_version or 10))
    model.opset_imports[""] = max(model.opset_imports[""], OPSETS[0])


def stamp_producer(model: ir.Model) -> None:
    """Name this program as the one that has written the model."""
    model.producer_name = PRODUCER


def fold_integer_biases(model: ir.Model) -> None:
    """Compute DequantizeLinear of int32 constants, which the parser doesn't know (operator specification)."""
    for op in list(model.graph.all_nodes()):
        if not is_integer_bias(op):
            continue
        steps, scale = (value.const_value.numpy() for value in op.inputs[:2] if value and value.const_value)
        dtype = (op.outputs[0].dtype or _float_of(op)).numpy()
        bias = _constant(op, "bias", (steps * scale.astype(np.float32)).astype(dtype).reshape(steps.shape))
        if op.outputs[0].is_graph_output():
            _replace(op, ir.node("Identity", [bias]))
        else:
            assert op.graph is not None
            ir.convenience.replace_all_uses_with(op.outputs[0], bias)
            op.graph.remove(op, safe=True)


def write_slice_axes(model: ir.Model) -> None:
    """Name the axes of a Slice of the first axes; the parser takes all axes where none is named."""
    for op in list(model.graph.all_nodes()):
        if op.op_type != "Slice" or len(op.inputs) < 3 or input_of(op, 3) is not None:
            continue
        starts = op.inputs[1]
        shape = None if starts is None else dimensions(starts)
        if shape and isinstance(shape[0], int) and starts is not None and starts.dtype is not None:
            op.resize_inputs(max(4, len(op.inputs)))
            op.replace_input_with(3, _constant(op, "axes", np.arange(shape[0], dtype=starts.dtype.numpy())))


def multiply_as_matrices(model: ir.Model) -> None:
    """Make a row of a vector that a stack of matrices multiplies, which the parser does for a single matrix alone."""
    for op in list(model.graph.all_nodes()):
        shapes = [None if value is None else dimensions(value) for value in op.inputs]
        if op.op_type != "MatMul" or None in shapes or len(shapes[0] or ()) != 1 or len(shapes[1] or ()) < 3:
            continue
        vector, matrices = op.inputs
        row = _before(op, "Reshape", vector, _constant(op, "row", np.array([1, -1])))
        product = _before(op, "MatMul", row.outputs[0], matrices)
        kept = np.array([0] * (len(shapes[1] or ()) - 2) + [-1])
        _replace(op, ir.node("Reshape", [product.outputs[0], _constant(op, "kept", kept)]))


def center_uint8(model: ir.Model) -> None:
    """Turn uint8 quantization around 128 into int8 around zero, which holds exactly the same numbers."""
    for quantizer in _uint8_quantizers(model, MIDDLE):
        for op in _both_ends(quantizer):
            _set_zero_point(op)


def narrow_uint8(model: ir.Model) -> None:
    """Turn uint8 quantization from zero up into int8 with the scale times 255/127.

    The parser would keep the scale and clip at half the range. The largest number stays; steps become twice as
    coarse, so that a value changes by at most one and a half of the old steps. Below zero, uint8 clips: where that
    may happen, a Relu does it.
    """
    for quantizer in _uint8_quantizers(model, 0):
        source = quantizer.inputs[0]
        assert source is not None
        producer = source.producer()
        if producer is None or producer.op_type not in NEVER_NEGATIVE:
            quantizer.replace_input_with(0, _before(quantizer, "Relu", source).outputs[0])
        for op in _both_ends(quantizer):
            _scale(op, UINT8_STEPS / INT8_STEPS)
            _set_zero_point(op)


def open_uint8(model: ir.Model) -> None:
    """Compute uint8 quantization in floats where its other end is outside: uint8 crosses through a Cast."""
    for op in list(model.graph):
        end = _uint8_end(op)
        if end is None:
            continue
        if op.op_type == QUANTIZE and end.is_graph_output():
            levels = _quantized(op)
            for reader in end.consumers():
                _dequantize(reader, levels)
            _replace(op, ir.node("Cast", levels.outputs, {"to": ir.DataType.UINT8.value}))
        elif end.is_graph_input():
            _dequantize(op, _before(op, "Cast", end, to=_float_of(op).value))


def refuse_uint8(model: ir.Model) -> None:
    """Refuse uint8 quantization that is left, for the parser would read it as int8.

    Raises:
        BuildError: There is such a node.
    """
    for op in model.graph.all_nodes():
        if _uint8_end(op) is not None:
            raise BuildError(f"{op.op_type} {op.name!r} is uint8, which TensorRT misreads.")


def narrow_doubles(model: ir.Model) -> None:
    """Replace float64 by float32, inputs and outputs included: TensorRT does so too, without a word.

    A result keeps about seven digits. Label rules let float64 through only where the user allows it.
    """
    for graph in (model.graph, *model.graph.subgraphs()):
        for value in graph.initializers.values():
            if value.dtype == ir.DataType.DOUBLE and value.const_value is not None:
                value.const_value = _narrowed(value.const_value)
        made = (v for op in graph for v in op.outputs)
        for value in (*graph.inputs, *graph.initializers.values(), *made):
            if value.dtype == ir.DataType.DOUBLE:
                value.dtype = ir.DataType.FLOAT
    for op in model.graph.all_nodes():
        _narrow_attributes(op)


PASSES: Sequence[Pass] = (
    stamp_producer,
    stamp_versions,
    write_slice_axes,
    multiply_as_matrices,
    fold_integer_biases,
    center_uint8,
    narrow_uint8,
    open_uint8,
    refuse_uint8,
    narrow_doubles,
)
"""In order."""


def _narrow_attributes(op: ir.Node) -> None:
    for name in ("dtype", "to"):
        if op.attributes.get_int(name, 0) == ir.DataType.DOUBLE:
            op.attributes[name] = ir.AttrInt64(name, ir.DataType.FLOAT.value)
    value = op.attributes.get("value")
    if value is not None and value.type == ir.AttributeType.TENSOR and value.as_tensor().dtype == ir.DataType.DOUBLE:
        op.attributes["value"] = ir.AttrTensor("value", _narrowed(value.as_tensor()))


def _narrowed(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    return ir.tensor(tensor.numpy().astype(np.float32), name=tensor.name)


def _uint8_quantizers(model: ir.Model, zero_point: int) -> list[ir.Node]:
    """Return QuantizeLinear nodes to uint8 with a zero point, whose results only DequantizeLinear reads."""
    return [
        op
        for op in model.graph.all_nodes()
        if op.op_type == QUANTIZE
        and op.outputs[0].dtype == ir.DataType.UINT8
        and is_paired(op)
        and describe_quantization(op).zero_point == zero_point
    ]


def _uint8_end(op: ir.Node) -> ir.Value | None:
    """Return the quantized end of QuantizeLinear or DequantizeLinear if it is uint8; else None."""
    ends = {QUANTIZE: op.outputs, DEQUANTIZE: op.inputs}.get(op.op_type, ())
    return next((value for value in ends[:1] if value is not None and value.dtype == ir.DataType.UINT8), None)


def _both_ends(quantizer: ir.Node) -> list[ir.Node]:
    readers = quantizer.outputs[0].consumers()
    assert all(op.op_type == DEQUANTIZE for op in readers)
    return [quantizer, *readers]


def _set_zero_point(op: ir.Node) -> None:
    """Make a node's zero points int8 zeros, in the shape of its scale."""
    zeros = _constant(op, "zero_point", np.zeros(tensor_of(op.inputs[1]).numpy().shape, np.int8))
    op.resize_inputs(3)
    op.replace_input_with(2, zeros)
    op.attributes.pop("output_dtype", None)
    if op.op_type == QUANTIZE:
        op.outputs[0].dtype = ir.DataType.INT8


def _quantized(op: ir.Node) -> ir.Node:
    """Compute the result of QuantizeLinear as whole floats, before its node (operator specification)."""
    steps = _before(op, "Round", _before(op, "Div", *op.inputs[:2]).outputs[0])
    shifted = _before(op, "Add", steps.outputs[0], _number(op, "zero_point", _zero_point(op)))
    positive = _before(op, "Max", shifted.outputs[0], _number(op, "least", 0))
    return _before(op, "Min", positive.outputs[0], _number(op, "most", UINT8_STEPS))


def _dequantize(op: ir.Node, levels: ir.Node) -> None:
    """Replace DequantizeLinear by its computation from whole floats."""
    centred = _before(op, "Sub", levels.outputs[0], _number(op, "zero_point", _zero_point(op)))
    _replace(op, ir.node("Mul", [centred.outputs[0], op.inputs[1]]))


def _before(op: ir.Node, op_type: str, *inputs: ir.Value | None, **attributes: int) -> ir.Node:
    assert op.graph is not None
    added = ir.node(op_type, inputs, attributes)
    op.graph.insert_before(op, added)
    return added


def _replace(op: ir.Node, by: ir.Node) -> None:
    assert op.graph is not None
    ir.convenience.replace_nodes_and_values(op.graph, op, [op], [by], op.outputs, by.outputs)


def _zero_point(op: ir.Node) -> int:
    zero = input_of(op, 2)
    return 0 if zero is None or zero.const_value is None else int(zero.const_value.numpy().reshape(()))


def _float_of(op: ir.Node) -> ir.DataType:
    """Return the type in which a quantizing node computes, which is that of its scale."""
    scale = op.inputs[1]
    assert scale is not None
    assert scale.dtype is not None
    return scale.dtype


def _number(op: ir.Node, kind: str, number: int) -> ir.Value:
    return _constant(op, kind, np.array(number, _float_of(op).numpy()))


def _scale(op: ir.Node, factor: float) -> None:
    array = tensor_of(op.inputs[1]).numpy()
    op.replace_input_with(1, _constant(op, "scale", (array.astype(np.float64) * factor).astype(array.dtype)))


def _constant(op: ir.Node, kind: str, array: np.ndarray) -> ir.Value:
    """Add an initializer to a node's graph that no other node reads."""
    assert isinstance(op.graph, ir.Graph)
    return add_constant(op.graph, f"{PRODUCER}:{op.outputs[0].name}:{kind}", array)
