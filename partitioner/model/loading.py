"""Reads a model file, and refuses a damaged one with a sentence that says why."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Callable, Mapping

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from partitioner.errors import ModelFileError
from partitioner.model import protobuf_walk
from partitioner.model.declared_sizes import EXPORT, check_declared_sizes
from partitioner.model.external_data import check_external_data, lazy_tensor, take_data_inside
from partitioner.model.values import DECLARED_TYPE, holds_map, read_values


def load_model(path: pathlib.Path, *, check: Callable[[onnx.ModelProto, pathlib.Path], None] | None = None) -> ir.Model:
    """Read an ONNX file. External data of the graph's own initializers is read when needed.

    Args:
        path: The file.
        check: Function to call with the model as it was read, and its path.

    Raises:
        ModelFileError: The file is missing, unreadable, or not a whole ONNX model.
        ExternalDataError: An initializer's data file is missing, too short, or outside the model's folder.
    """
    proto = read_proto(path)
    if check is not None:
        check(proto, path)
    initializers = proto.graph.initializer
    take_data_inside(path, itertools.islice(protobuf_walk.tensors(proto), len(initializers), None))
    outside = [tensor for tensor in initializers if onnx.external_data_helper.uses_external_data(tensor)]
    model = view_model(proto, path)
    for tensor in outside:
        model.graph.initializers[tensor.name].const_value = lazy_tensor(path, tensor)
    return model


def view_model(proto: onnx.ModelProto, path: pathlib.Path) -> ir.Model:
    """Convert a model's protobuf to onnx_ir, nodes in topological order.

    onnx_ir has no map types, which only models of traditional machine learning use. Such values stay untyped.
    ``ir.Value.meta`` keeps their declaration for writing.
    onnx_ir has no sparse initializers either. They are made dense, as ONNX Runtime does it.

    Raises:
        ModelFileError: The model contradicts the ONNX format.
    """
    for opset in (*proto.opset_import, *(opset for function in proto.functions for opset in function.opset_import)):
        if opset.domain == "ai.onnx":
            opset.domain = ""  # a synonym; onnx_ir writes the empty name into nodes
    for value_info in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        _forget_negative_sizes(value_info.type.tensor_type)
    declared = {v.name: _take_type(v) for v in (*proto.graph.input, *proto.graph.output) if holds_map(v.type)}
    try:
        for tensor in protobuf_walk.tensors(proto):
            _check_fields(tensor)
        _check_attributes(proto)
        _make_dense(proto)
        model = ir.from_proto(proto)
    except Exception as error:  # onnx_ir lets exceptions of any type out
        raise ModelFileError(path, f"not a valid ONNX model: {_root(error)}", EXPORT) from error
    _sort(path, model.graph)
    for function in model.functions.values():
        _sort_function(path, function)
    for value in (*model.graph.inputs, *model.graph.outputs):
        if value.name in declared:
            value.meta[DECLARED_TYPE] = declared[value.name]
    return model


def read_proto(path: pathlib.Path) -> onnx.ModelProto:
    """Read an ONNX file as protobuf. Sizes and external data are checked; external data is not loaded.

    Raises:
        ModelFileError: As ``load_model``.
        ExternalDataError: As ``load_model``.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        problem = f"can't be read ({error.strerror})."
        raise ModelFileError(path, problem, "Check the path and its permissions.") from None
    try:
        proto = onnx.ModelProto.FromString(data)
    except DecodeError:
        raise ModelFileError(
            path, "not an ONNX file, or cut short.", "Copy or export it again and compare the file sizes."
        ) from None
    _check_header(path, proto)
    check_declared_sizes(path, proto)
    check_external_data(path, proto)
    return proto


def _sort(path: pathlib.Path, graph: ir.Graph) -> None:
    """Sort nodes topologically. Refuse undefined values and cycles."""
    for op in graph:
        for value in read_values(op):
            if not _is_defined(value):
                problem = f"node {op.name or op.op_type!r} reads {value.name!r}, which nothing produces."
                raise ModelFileError(path, problem, EXPORT)
    for value in graph.outputs:
        if not _is_defined(value):
            raise ModelFileError(path, f"nothing produces the output {value.name!r}.", EXPORT)
    try:
        graph.sort()
    except ValueError:
        raise ModelFileError(path, "its nodes form a cycle.", EXPORT) from None


def _sort_function(path: pathlib.Path, function: ir.Function) -> None:
    try:
        function.sort()
    except ValueError:
        raise ModelFileError(path, f"the nodes of function {function.name!r} form a cycle.", EXPORT) from None


def _is_defined(value: ir.Value) -> bool:
    return value.producer() is not None or value.is_graph_input() or value.is_initializer()


def _check_fields(tensor: onnx.TensorProto) -> None:
    """Refuse a tensor with elements in another field than its type's own, which its readers fail on.

    Raises:
        ValueError: It has some.
    """
    own = _FIELDS.get(tensor.data_type, "int32_data")
    others = [field for field in _ALL_FIELDS if field != own and len(getattr(tensor, field))]
    if others:
        name = onnx.TensorProto.DataType.Name(tensor.data_type)
        raise ValueError(f"tensor {tensor.name!r} of type {name} has elements in {others[0]}")


_FIELDS: Mapping[int, str] = {
    onnx.TensorProto.FLOAT: "float_data",
    onnx.TensorProto.COMPLEX64: "float_data",
    onnx.TensorProto.DOUBLE: "double_data",
    onnx.TensorProto.COMPLEX128: "double_data",
    onnx.TensorProto.INT64: "int64_data",
    onnx.TensorProto.UINT32: "uint64_data",
    onnx.TensorProto.UINT64: "uint64_data",
    onnx.TensorProto.STRING: "string_data",
}
"""The field of each type's elements where they are not raw; other types have ``int32_data``."""
_ALL_FIELDS = sorted({*_FIELDS.values(), "int32_data"})


def _check_attributes(proto: onnx.ModelProto) -> None:
    """Refuse attributes without a value: of no type, or for a function to give, outside of one.

    The first IR version had no types.

    Raises:
        ValueError: There is one.
    """
    for node in protobuf_walk.nodes(proto):
        for attribute in node.attribute:
            if not attribute.type and not attribute.ref_attr_name and proto.ir_version > 1:
                raise ValueError(f"attribute {attribute.name!r} of node {node.name or node.op_type!r} has no type")
    for node in protobuf_walk.nodes_within(proto.graph.node):
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                place = f"attribute {attribute.name!r} of node {node.name or node.op_type!r}"
                raise ValueError(f"{place} takes its value from a function, but is in none")


def _make_dense(proto: onnx.ModelProto) -> None:
    for graph in protobuf_walk.graphs(proto):
        graph.initializer.extend(_dense(sparse) for sparse in graph.sparse_initializer)
        graph.ClearField("sparse_initializer")
    for node in protobuf_walk.nodes(proto):
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "sparse_value":
                dense = _dense(attribute.sparse_tensor)
                attribute.CopyFrom(onnx.AttributeProto(name="value", type=onnx.AttributeProto.TENSOR, t=dense))


def _dense(sparse: onnx.SparseTensorProto) -> onnx.TensorProto:
    values = onnx.numpy_helper.to_array(sparse.values)
    indices = onnx.numpy_helper.to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 1:
        dense.flat[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return onnx.numpy_helper.from_array(dense, sparse.values.name)


def _root(error: BaseException) -> str:
    """Return the text of the first exception in a chain; the later ones only add the place."""
    return f"{str(error).rstrip('.')}." if error.__cause__ is None else _root(error.__cause__)


def _forget_negative_sizes(kind: onnx.TypeProto.Tensor) -> None:
    """Clear dimensions of -1: some exporters mean an unknown one, but shape inference computes with it."""
    for dimension in kind.shape.dim:
        if dimension.dim_value < 0:
            dimension.Clear()


def _take_type(value: onnx.ValueInfoProto) -> onnx.TypeProto:
    taken = onnx.TypeProto()
    taken.CopyFrom(value.type)
    value.ClearField("type")
    return taken


def _check_header(path: pathlib.Path, proto: onnx.ModelProto) -> None:
    if not proto.HasField("graph") or not proto.ir_version:
        raise ModelFileError(path, "not an ONNX model: it has no graph.", EXPORT)
    if not proto.opset_import and proto.ir_version >= 3:
        raise ModelFileError(path, "names no operator set (opset_import is empty).", EXPORT)
    newest = onnx.defs.onnx_opset_version()
    for opset in proto.opset_import:
        if opset.domain in ("", "ai.onnx") and opset.version > newest:
            raise ModelFileError(
                path,
                f"needs ONNX opset {opset.version}; onnx {onnx.__version__} knows opsets up to {newest}.",
                "Update the onnx package, or export the model for an older opset.",
            )
