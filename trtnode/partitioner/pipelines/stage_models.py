"""Models of a pipeline's stages: reads them, converts them to one opset and makes their names distinct."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

import onnx
import onnx.version_converter
import onnx_ir as ir

from trtnode.partitioner.compiled.trtnode import embed_engines, is_compiled
from trtnode.partitioner.errors import ModelFileError, PipelineError
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.loading import load_model, view_model
from trtnode.partitioner.model.new_values import NewNames
from trtnode.partitioner.model.opset_versions import keeps_its_meaning
from trtnode.partitioner.model.values import all_values, dimensions
from trtnode.partitioner.passes.clean_up import inline_functions, lift_constants
from trtnode.partitioner.pipelines.blocks import OLDEST_OPSET

KeyPath = tuple[str | int, ...]
"""Path of a stage in the configuration, such as ``("preprocess", 1, "normalize")``."""

PATH: KeyPath = ("path",)
"""Path of the model itself in the configuration."""


def load_stage(path: pathlib.Path, place: KeyPath) -> ir.Model:
    """Read a file, inline its functions and turn its constants into initializers.

    Raises:
        ModelFileError: The model itself, at ``PATH``, can't be read.
        PipelineError: Another stage's file can't be read, or a file is compiled already.
    """
    try:
        model = load_model(path)
    except ModelFileError as error:
        if place == PATH:
            raise
        raise PipelineError(place, str(error)) from error
    if is_compiled(model):
        text = f"{path} is compiled already; name the ONNX model that it was compiled from"
        raise PipelineError(place, text)
    inline_functions(model)
    lift_constants(model)
    return model


def opset_of(model: ir.Model) -> int:
    """Return the ONNX opset that a model imports."""
    return model.opset_imports.get("", OLDEST_OPSET)


def at_opset(model: ir.Model, opset: int, place: KeyPath) -> ir.Model:
    """Convert a model to an opset that isn't older than its own.

    Raises:
        PipelineError: ONNX's converter refuses the model.
    """
    own = opset_of(model)
    if own == opset or all(keeps_its_meaning(op, own, opset) for op in model.graph.all_nodes()):
        model.opset_imports[""] = opset
        return model
    try:
        proto = onnx.version_converter.convert_version(embed_engines(Graph.of(model), (), {}), opset)
    except Exception as error:  # its C++ code raises RuntimeError and others
        reason = str(error).strip().splitlines()[0].rpartition("failed: ")[2].rstrip(".")
        text = f"can't be raised from opset {own} to the pipeline's, {opset} ({reason}); export it for opset {opset}"
        raise PipelineError(place, text) from error
    return view_model(proto, pathlib.Path(prefix_of(place)))


def set_apart(graph: ir.Graph, prefix: str) -> None:
    """Put a prefix before the name of each value, node and symbol, in subgraphs too."""
    for value in all_values(graph):
        if value.name:
            value.name = f"{prefix}/{value.name}"
        if value.shape is not None:
            value.shape = ir.Shape([f"{prefix}/{s}" if isinstance(s, str) else s for s in dimensions(value) or ()])
    for op in graph.all_nodes():
        if op.name:
            op.name = f"{prefix}/{op.name}"


def absorb(whole: ir.Model, part: ir.Model, place: KeyPath) -> None:
    """Move the nodes, constants and functions of a stage's model into the pipeline's.

    Defaults of inputs become constants.

    Raises:
        PipelineError: The two import a domain in different versions, or have functions of the same name.
    """
    for domain, version in part.opset_imports.items():
        known = whole.opset_imports.setdefault(domain, version)
        if known != version:
            text = f"needs version {version} of the operators of {domain!r}, another stage or the model version {known}"
            raise PipelineError(place, f"{text}; export both for one version")
    clash = part.functions.keys() & whole.functions.keys()
    if clash:
        raise PipelineError(place, f"its function {min(clash)[1]!r} has the name of another one; rename it")
    whole.functions.update(part.functions)
    whole.ir_version = max(whole.ir_version, part.ir_version)
    nodes, constants = list(part.graph), list(part.graph.initializers.values())
    for owned in (part.graph.inputs, part.graph.outputs, part.graph.initializers):
        owned.clear()
    part.graph.remove(nodes)
    whole.graph.extend(nodes)
    for value in constants:
        whole.graph.register_initializer(value)


def give_names(graph: ir.Graph, wanted: Mapping[str, ir.Value]) -> None:
    """Give names to values, and rename others that have these names."""
    values = list(all_values(graph))
    unused = NewNames([*wanted, *(value.name for value in values)])
    for value in values:
        own = value.name or ""
        if own in wanted and wanted[own] is not value:
            value.name = unused(own)
    for name, value in wanted.items():
        value.name = name


def prefix_of(place: KeyPath) -> str:
    """Return the prefix of the names of a stage's nodes and values."""
    return ".".join(map(str, place))
