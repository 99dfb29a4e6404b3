"""Reads a model file, and refuses what can't be a model with a sentence that says why."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Iterable, Iterator

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from partitioner.errors import ExternalDataError, ModelFileError
from partitioner.graph import DECLARED_TYPE, holds_map, read_values


def load_model(path: pathlib.Path) -> ir.Model:
    """Read an ONNX file; external data stays on disk until it is needed.

    Raises:
        ModelFileError: The file is missing, unreadable, or not a whole ONNX model.
        ExternalDataError: An initializer's data file is missing, too short, or outside the model's folder.
    """
    model = view_model(read_proto(path), path)
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        ir.external_data.set_base_dir(graph, path.parent)
    return model


def view_model(proto: onnx.ModelProto, path: pathlib.Path) -> ir.Model:
    """Turn a model's protobuf into its onnx_ir form, nodes in topological order.

    onnx_ir knows no map types, which only traditional machine learning models use: such values are left untyped,
    and keep their declaration in ``ir.Value.meta`` for when they are written again. Nor does it know sparse
    initializers, which are made dense, as ONNX Runtime does it.

    Raises:
        ModelFileError: The file at ``path`` holds something that contradicts the ONNX format.
    """
    for value_info in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        _forget_negative_sizes(value_info.type.tensor_type)
    declared = {v.name: _take_type(v) for v in (*proto.graph.input, *proto.graph.output) if holds_map(v.type)}
    try:
        _make_dense(proto, path.parent)
        model = ir.from_proto(proto)
    except Exception as error:  # onnx_ir raises whatever the broken field makes it raise
        raise ModelFileError(path, f"not a valid ONNX model: {_root(error)}", "Export it again.") from error
    _sort(path, model.graph)
    for value in (*model.graph.inputs, *model.graph.outputs):
        if value.name in declared:
            value.meta[DECLARED_TYPE] = declared[value.name]
    return model


def read_proto(path: pathlib.Path) -> onnx.ModelProto:
    """Read an ONNX file as protobuf, external data checked but not loaded.

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
    check_external_data(path, proto)
    return proto


def check_external_data(path: pathlib.Path, proto: onnx.ModelProto) -> None:
    """Refuse external data that is missing, too short, or not below the model's own folder.

    Raises:
        ExternalDataError: Names the tensor and the location that the file gives.
    """
    folder = path.parent.resolve()
    for tensor in _tensors(proto):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        info = {entry.key: entry.value for entry in tensor.external_data}
        location = info.get("location", "")
        target = (folder / location.replace("\0", "")).resolve()
        if not location or "\0" in location or not target.is_relative_to(folder):
            raise ExternalDataError(path, tensor.name, location, "that is outside the model's folder")
        if not target.is_file():
            raise ExternalDataError(path, tensor.name, location, "there is no such file")
        offset, length = info.get("offset", "0"), info.get("length", "0")
        if not (offset.isdecimal() and length.isdecimal()):
            raise ExternalDataError(path, tensor.name, location, f"offset {offset!r} or length {length!r} is no number")
        needed = int(offset) + max(int(length), _size_bytes(tensor))
        if target.stat().st_size < needed:
            problem = f"that file has {target.stat().st_size} bytes of the {needed} that are needed"
            raise ExternalDataError(path, tensor.name, location, problem)


def _size_bytes(tensor: onnx.TensorProto) -> int:
    """Size of a tensor's data; 0 for element types without a fixed size, which can't be external."""
    if tensor.data_type in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING):
        return 0
    return math.ceil(math.prod(tensor.dims) * ir.DataType(tensor.data_type).bitwidth / 8)


def _sort(path: pathlib.Path, graph: ir.Graph) -> None:
    """Sort nodes, and refuse those that no order makes computable."""
    for op in graph:
        for value in read_values(op):
            if not _is_defined(value):
                problem = f"node {op.name or op.op_type!r} reads {value.name!r}, which nothing produces."
                raise ModelFileError(path, problem, "Export it again.")
    for value in graph.outputs:
        if not _is_defined(value):
            raise ModelFileError(path, f"nothing produces the output {value.name!r}.", "Export it again.")
    try:
        graph.sort()
    except ValueError:
        raise ModelFileError(path, "its nodes form a cycle.", "Export it again.") from None


def _is_defined(value: ir.Value) -> bool:
    return value.producer() is not None or value.is_graph_input() or value.is_initializer()


def _make_dense(proto: onnx.ModelProto, folder: pathlib.Path) -> None:
    for graph in _graphs(proto):
        graph.initializer.extend(_dense(sparse, folder) for sparse in graph.sparse_initializer)
        graph.ClearField("sparse_initializer")
    for node in _nodes(proto):
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "sparse_value":
                dense = _dense(attribute.sparse_tensor, folder)
                attribute.CopyFrom(onnx.AttributeProto(name="value", type=onnx.AttributeProto.TENSOR, t=dense))


def _dense(sparse: onnx.SparseTensorProto, folder: pathlib.Path) -> onnx.TensorProto:
    values = onnx.numpy_helper.to_array(sparse.values, str(folder))
    indices = onnx.numpy_helper.to_array(sparse.indices, str(folder))
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 1:
        dense.flat[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return onnx.numpy_helper.from_array(dense, sparse.values.name)


def _root(error: BaseException) -> str:
    """What started it, as a sentence; the exceptions around it only say where it was noticed."""
    return f"{str(error).rstrip('.')}." if error.__cause__ is None else _root(error.__cause__)


def _forget_negative_sizes(kind: onnx.TypeProto.Tensor) -> None:
    """Some exporters write an unknown dimension as -1; shape inference would calculate with it."""
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
        raise ModelFileError(path, "not an ONNX model: it has no graph.", "Export it again.")
    if not proto.opset_import and proto.ir_version >= 3:
        raise ModelFileError(path, "names no operator set (opset_import is empty).", "Export it again.")
    newest = onnx.defs.onnx_opset_version()
    for opset in proto.opset_import:
        if opset.domain in ("", "ai.onnx") and opset.version > newest:
            raise ModelFileError(
                path,
                f"needs ONNX opset {opset.version}; onnx {onnx.__version__} knows opsets up to {newest}.",
                "Update the onnx package, or export the model for an older opset.",
            )


def _graphs(proto: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """The graph of a model and every body in it and in its functions."""
    yield proto.graph
    for nodes in (proto.graph.node, *(function.node for function in proto.functions)):
        yield from _bodies(nodes)


def _bodies(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    for node in nodes:
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield body
                yield from _bodies(body.node)


def _nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    for graph in _graphs(proto):
        yield from graph.node
    for function in proto.functions:
        yield from function.node


def _tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    for graph in _graphs(proto):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
    for node in _nodes(proto):
        for attribute in node.attribute:
            yield from (*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors)
            if attribute.HasField("sparse_tensor"):
                yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)
