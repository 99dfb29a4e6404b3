"""Facts of an engine that follow from its ONNX graph: inputs, outputs, those that hold sizes, and scratch memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

import onnx
from onnx import TensorProto

DTYPES = {
    TensorProto.FLOAT: "FLOAT",
    TensorProto.DOUBLE: "FLOAT",
    TensorProto.FLOAT16: "HALF",
    TensorProto.BFLOAT16: "BF16",
    TensorProto.FLOAT8E4M3FN: "FP8",
    TensorProto.INT8: "INT8",
    TensorProto.UINT8: "UINT8",
    TensorProto.INT32: "INT32",
    TensorProto.INT64: "INT64",
    TensorProto.BOOL: "BOOL",
}
"""Name of the DataType of an input or output, by its ONNX element type. DOUBLE becomes FLOAT without a word."""

DATA_DEPENDENT = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Unique"})
"""Operators whose values decide the shape of what they give."""

SCRATCH_ALIGNMENT = 256
Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tensor:
    """An input or output of an engine.

    Attributes:
        name: In the model.
        dtype: Name of its DataType.
        element: ONNX element type.
        shape: Sizes, -1 where they vary.
        symbols: Names of the sizes; empty where they have none.
        is_input: True for an input.
        on_host: True if it holds sizes, and is read on the host.
        data_dependent: True if only a run reveals its shape.
    """

    name: str
    dtype: str
    element: int
    shape: Shape
    symbols: tuple[str, ...]
    is_input: bool
    on_host: bool = False
    data_dependent: bool = False

    @property
    def item_bytes(self) -> int:
        """Bytes of an element."""
        return onnx.helper.tensor_dtype_to_np_dtype(self.element).itemsize


def shape_of(value: onnx.ValueInfoProto) -> Shape:
    """Sizes of a value, -1 where they vary."""
    return tuple(d.dim_value if d.HasField("dim_value") else -1 for d in value.type.tensor_type.shape.dim)


def describe(model: onnx.ModelProto, sizes: set[str]) -> tuple[Tensor, ...]:
    """Inputs, then outputs, of a model whose shapes were inferred; ``sizes`` names the inputs that hold sizes."""
    late = data_dependent_values(model.graph)
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [_tensor(v, True, sizes, late) for v in model.graph.input if v.name not in weights]
    return (*inputs, *(_tensor(v, False, sizes, late) for v in model.graph.output))


def _tensor(value: onnx.ValueInfoProto, is_input: bool, sizes: set[str], late: set[str]) -> Tensor:
    element, shape = value.type.tensor_type.elem_type, shape_of(value)
    return Tensor(
        name=value.name,
        dtype=DTYPES.get(element, ""),
        element=element,
        shape=shape,
        symbols=tuple(d.dim_param for d in value.type.tensor_type.shape.dim),
        is_input=is_input,
        on_host=is_input and value.name in sizes,
        data_dependent=value.name in late and -1 in shape,
    )


def data_dependent_values(graph: onnx.GraphProto) -> set[str]:
    """Values that stem from an operator whose values decide shapes."""
    found: set[str] = set()
    for node in graph.node:
        if node.op_type in DATA_DEPENDENT or found.intersection(node.input):
            found.update(node.output)
    return found


def narrow_doubles(model: onnx.ModelProto) -> None:
    """Make float64 inputs and outputs float32, as the parser does without a word."""
    graph, double = model.graph, TensorProto.DOUBLE
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type != double:
            continue
        inner = f"{value.name}:double"
        for node in graph.node:
            node.input[:] = [inner if name == value.name else name for name in node.input]
            node.output[:] = [inner if name == value.name else name for name in node.output]
        if value in graph.input:
            graph.node.insert(0, onnx.helper.make_node("Cast", [value.name], [inner], to=double))
        else:
            graph.node.append(onnx.helper.make_node("Cast", [inner], [value.name], to=TensorProto.FLOAT))
        value.type.tensor_type.elem_type = TensorProto.FLOAT


def scratch_bytes(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> int:
    """Memory for all values between inputs and outputs, each aligned; sizes that are not known count as one."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    del fixed.graph.value_info[:]
    for value in fixed.graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False):
            dim.dim_value = size
    inferred = onnx.shape_inference.infer_shapes(fixed)
    return sum(_aligned(_size_bytes(value)) for value in inferred.graph.value_info)


def _size_bytes(value: onnx.ValueInfoProto) -> int:
    element = value.type.tensor_type.elem_type
    if not element:
        return 0
    return math.prod(max(n, 1) for n in shape_of(value)) * onnx.helper.tensor_dtype_to_np_dtype(element).itemsize


def _aligned(size: int) -> int:
    return -(-size // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT


def by_name(tensors: Iterable[Tensor]) -> dict[str, Tensor]:
    """Tensors by their names."""
    return {tensor.name: tensor for tensor in tensors}
