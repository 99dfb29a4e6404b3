"""Reads a model file, and refuses what can't be a model with a sentence that says why."""

from __future__ import annotations

import pathlib

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from partitioner.errors import ExternalDataError, ModelFileError
from partitioner.graph import DECLARED_TYPE, holds_map


def load_model(path: pathlib.Path) -> ir.Model:
    """Read an ONNX file; external data stays on disk until it is needed.

    Raises:
        ModelFileError: The file is missing, unreadable, or not a whole ONNX model.
        ExternalDataError: An initializer's data file is missing, too short, or outside the model's folder.
    """
    model = view_model(read_proto(path), path)
    ir.external_data.set_base_dir(model.graph, path.parent)
    return model


def view_model(proto: onnx.ModelProto, path: pathlib.Path) -> ir.Model:
    """Turn a model's protobuf into its onnx_ir form.

    onnx_ir knows no map types, which only traditional machine learning models use: such values are left untyped,
    and keep their declaration in ``ir.Value.meta`` for when they are written again.

    Raises:
        ModelFileError: The file at ``path`` holds something that contradicts the ONNX format.
    """
    for value_info in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        _forget_negative_sizes(value_info.type.tensor_type)
    declared = {v.name: _take_type(v) for v in (*proto.graph.input, *proto.graph.output) if holds_map(v.type)}
    try:
        model = ir.from_proto(proto)
    except Exception as error:  # onnx_ir raises whatever the broken field makes it raise
        raise ModelFileError(path, f"not a valid ONNX model: {error}.", "Export it again.") from error
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
    for tensor in _tensors(proto.graph):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        info = {entry.key: entry.value for entry in tensor.external_data}
        location = info.get("location", "")
        target = (folder / location).resolve()
        if not location or not target.is_relative_to(folder):
            raise ExternalDataError(path, tensor.name, location, "that is outside the model's folder")
        if not target.is_file():
            raise ExternalDataError(path, tensor.name, location, "there is no such file")
        needed = int(info.get("offset", 0)) + int(info.get("length", 0))
        if target.stat().st_size < needed:
            problem = f"that file has {target.stat().st_size} bytes of the {needed} that are needed"
            raise ExternalDataError(path, tensor.name, location, problem)


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


def _tensors(graph: onnx.GraphProto) -> list[onnx.TensorProto]:
    found = list(graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                found.append(attribute.t)
            for body in [attribute.g, *attribute.graphs] if attribute.HasField("g") else attribute.graphs:
                found.extend(_tensors(body))
    return found
