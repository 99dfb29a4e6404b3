"""Reads a model file, and refuses a damaged one with a sentence that says why."""

from __future__ import annotations

import itertools
import logging
import pathlib
from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from trtnode.partitioner.errors import ModelFileError
from trtnode.partitioner.model import protobuf_walk
from trtnode.partitioner.model.declared_sizes import EXPORT, check_declared_sizes
from trtnode.partitioner.model.external_data import OutsideData, check_external_data
from trtnode.partitioner.model.garbage import without_collections
from trtnode.partitioner.model.mapped_weights import read_around_weights
from trtnode.partitioner.model.plain_models import is_plain, read_plain_model
from trtnode.partitioner.model.regular_files import read_regular
from trtnode.partitioner.model.repairs import decode_names, has_undecoded_names, repair
from trtnode.partitioner.model.value_types import TypeReader, forget_negative_sizes
from trtnode.partitioner.model.values import DECLARED_TYPE, holds_map, is_sorted, read_values

logger = logging.getLogger(__name__)

_Loaded = tuple[ir.Model, onnx.ModelProto, bool]
"""A model, the protobuf that it was read from, and whether that is plain with its nodes in order."""


@without_collections()
def load_model(path: pathlib.Path, *, check: Callable[[onnx.ModelProto, pathlib.Path], None] | None = None) -> ir.Model:
    """Read an ONNX file. External data of the graph's own initializers is read when needed.

    Args:
        path: The file.
        check: Function to call with the model as it was read, and its path.

    Raises:
        ModelFileError: The file is missing, unreadable, or not a whole ONNX model.
        ExternalDataError: An initializer's data file is missing, too short, or outside the model's folder.
    """
    return _load(path, check)[0]


@without_collections()
def load_with_protobuf(path: pathlib.Path) -> tuple[ir.Model, onnx.ModelProto | None]:
    """Read an ONNX file, as ``load_model``.

    Returns:
        The model, and the protobuf that it was read from, if that is plain and its nodes have the model's order.
    """
    model, proto, in_order = _load(path, None)
    return model, proto if in_order else None


def _load(path: pathlib.Path, check: Callable[[onnx.ModelProto, pathlib.Path], None] | None) -> _Loaded:
    proto, parts, outside = _read_file(path, around_weights=True)
    if check is not None:
        check(proto, path)
    initializers = proto.graph.initializer
    outside.take_rest_inside(itertools.islice(parts.tensors(), len(initializers), None))
    model, in_order = _view(proto, path, parts)
    outside.map_attributes(model.graph)
    for tensor in filter(onnx.external_data_helper.uses_external_data, initializers):
        model.graph.initializers[tensor.name].const_value = outside.tensor(tensor)
    return model, proto, in_order


def view_model(proto: onnx.ModelProto, path: pathlib.Path) -> ir.Model:
    """Convert a model's protobuf to onnx_ir, nodes in topological order.

    onnx_ir has no map types, which only models of traditional machine learning use. Such values stay untyped.
    ``ir.Value.meta`` keeps their declaration for writing.
    onnx_ir has no sparse initializers either. They are made dense, as ONNX Runtime does it.

    Raises:
        ModelFileError: The model contradicts the ONNX format.
    """
    return _view(proto, path, protobuf_walk.Parts(proto))[0]


def _view(proto: onnx.ModelProto, path: pathlib.Path, parts: protobuf_walk.Parts) -> tuple[ir.Model, bool]:
    """Convert a model. Returns it, and whether it is plain and its nodes were in order."""
    for opset in (*proto.opset_import, *(opset for function in proto.functions for opset in function.opset_import)):
        if opset.domain == "ai.onnx":
            opset.domain = ""  # a synonym; onnx_ir writes the empty name into nodes
    for value_info in (*proto.graph.input, *proto.graph.output):
        forget_negative_sizes(value_info.type)
    declared = {v.name: _take_type(v) for v in (*proto.graph.input, *proto.graph.output) if holds_map(v.type)}
    try:
        faults = repair(proto, parts)
        parts = protobuf_walk.Parts(proto) if faults else parts
        _check_attributes(proto, parts)
        _make_dense(parts)
        model, in_order = _read(proto, parts)
        if has_undecoded_names(model.graph):
            faults += decode_names(proto)
            model, in_order = _read(proto, parts)
    except Exception as error:  # onnx_ir lets exceptions of any type out
        raise ModelFileError(path, f"not a valid ONNX model: {_root(error)}", EXPORT) from error
    for fault in faults:
        logger.warning("%s: %s ONNX Runtime reads this model, so it is read in the same way", path, fault)
    if not in_order:
        _sort(path, model.graph)
    for value in model.graph.outputs:
        if not _is_defined(value):
            raise ModelFileError(path, f"nothing produces the output {value.name!r}.", EXPORT)
    for function in model.functions.values():
        _sort_function(path, function)
    for value in (*model.graph.inputs, *model.graph.outputs):
        if value.name in declared:
            value.meta[DECLARED_TYPE] = declared[value.name]
    return model, in_order


def read_proto(path: pathlib.Path, *, around_weights: bool = False) -> onnx.ModelProto:
    """Read an ONNX file as protobuf. Sizes and external data are checked; external data is not loaded.

    Args:
        path: The file.
        around_weights: True if large weights in a large file become external data in the same file.

    Raises:
        ModelFileError: As ``load_model``.
        ExternalDataError: As ``load_model``.
    """
    return _read_file(path, around_weights=around_weights)[0]


def _read_file(
    path: pathlib.Path, *, around_weights: bool = False
) -> tuple[onnx.ModelProto, protobuf_walk.Parts, OutsideData]:
    try:
        read = read_around_weights(path) if around_weights else None
        proto, data = read or (onnx.ModelProto.FromString(read_regular(path)), None)
    except OSError as error:
        problem = f"can't be read ({error.strerror})."
        raise ModelFileError(path, problem, "Check the path and its permissions.") from None
    except DecodeError:
        raise ModelFileError(
            path, "not an ONNX file, or cut short.", "Copy or export it again and compare the file sizes."
        ) from None
    _check_header(path, proto)
    parts = protobuf_walk.Parts(proto)
    check_declared_sizes(path, proto, parts)
    check_external_data(path, proto, parts)
    return proto, parts, OutsideData(path, data)


def _read(proto: onnx.ModelProto, parts: protobuf_walk.Parts) -> tuple[ir.Model, bool]:
    """Convert a model; the types of its graph's values apart, since onnx_ir converts each one anew.

    Returns:
        The model, and True if its nodes are surely in order.
    """
    if is_plain(proto, parts):
        return read_plain_model(proto)
    if proto.functions:  # before IR version 10, their values' types stand there too
        for info in proto.graph.value_info:
            forget_negative_sizes(info.type)
        return ir.from_proto(proto), False
    infos = list(proto.graph.value_info)
    proto.graph.ClearField("value_info")
    model = ir.from_proto(proto)
    proto.graph.value_info.extend(infos)
    values = dict(model.graph.initializers)
    values.update((value.name or "", value) for op in model.graph for value in op.outputs)
    types = TypeReader()
    for info in infos:
        value = values.get(info.name)
        if value is not None and not (value.is_graph_input() or value.is_graph_output()):
            types.declare(value, info)
    return model, False


def _sort(path: pathlib.Path, graph: ir.Graph) -> None:
    """Sort nodes topologically. Refuse undefined values and cycles."""
    for op in graph:
        for value in read_values(op):
            if not _is_defined(value):
                problem = f"node {op.name or op.op_type!r} reads {value.name!r}, which nothing produces."
                raise ModelFileError(path, problem, EXPORT)
    try:
        if not is_sorted(graph):
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


def _check_attributes(proto: onnx.ModelProto, parts: protobuf_walk.Parts) -> None:
    """Refuse attributes of no type, which only the first IR version had, and tensors of no type in them.

    Raises:
        ValueError: There is one.
    """
    for node in parts.bearers:
        for attribute in node.attribute:
            if not attribute.type and not attribute.ref_attr_name and proto.ir_version > 1:
                raise ValueError(f"attribute {attribute.name!r} of node {node.name or node.op_type!r} has no type")
            if attribute.type == onnx.AttributeProto.TENSOR and not attribute.t.data_type:
                raise ValueError(f"the tensor in {attribute.name!r} of node {node.name or node.op_type!r} has no type")


def _make_dense(parts: protobuf_walk.Parts) -> None:
    for graph in parts.graphs:
        graph.initializer.extend(_dense(sparse) for sparse in graph.sparse_initializer)
        graph.ClearField("sparse_initializer")
    for node in parts.bearers:
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


def _take_type(value: onnx.ValueInfoProto) -> onnx.TypeProto:
    taken = onnx.TypeProto()
    taken.CopyFrom(value.type)
    value.ClearField("type")
    return taken


def _check_header(path: pathlib.Path, proto: onnx.ModelProto) -> None:
    if not proto.HasField("graph") or not proto.HasField("ir_version"):
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
