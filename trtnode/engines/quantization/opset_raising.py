"""Raises a model to the opset that first has the types to be written."""

from __future__ import annotations

import pathlib

import onnx
import onnx_ir as ir

from trtnode.engines.errors import QuantizationError
from trtnode.partitioner.model.loading import view_model
from trtnode.partitioner.model.opset_versions import keeps_its_meaning
from trtnode.partitioner.model.values import holds_map

FIRST_SCAN_WITHOUT_BATCH = 9


def raised_copy(model: onnx.ModelProto, wanted: int, ir_version: int) -> ir.Model:
    """Copy a model, at an opset where its own is older.

    The opset alone changes where every operator means the same in both. Else ONNX's converter rewrites the model.

    Args:
        model: Is not changed.
        wanted: The opset.
        ir_version: The version of the file format that came with it.

    Raises:
        QuantizationError: The converter can't.
    """
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), wanted)
    work = _viewed(model)
    if opset < wanted:
        if all(keeps_its_meaning(op, opset, wanted) for op in work.graph.all_nodes()):
            work.opset_imports[""] = wanted
        else:
            work = _viewed(_converted(model, opset, wanted))
    work.ir_version = max(work.ir_version, ir_version)
    return work


def _viewed(model: onnx.ModelProto) -> ir.Model:
    if not any(holds_map(value.type) for value in (*model.graph.input, *model.graph.output)):
        return ir.from_proto(model)
    copied = onnx.ModelProto()
    copied.CopyFrom(model)  # the view takes the types of such values out
    return view_model(copied, pathlib.Path("model"))


def _converted(model: onnx.ModelProto, opset: int, wanted: int) -> onnx.ModelProto:
    try:
        if opset < FIRST_SCAN_WITHOUT_BATCH and any(node.op_type == "Scan" for node in model.graph.node):
            raise ValueError("Scan had a batch, which the converter keeps")
        return onnx.version_converter.convert_version(model, wanted)
    except Exception as error:  # its C++ part raises RuntimeError and others
        message = str(error).strip().splitlines()[0].rstrip(".")
        raise QuantizationError(
            f"The model can't be raised from opset {opset} to {wanted}, the first with such types: "
            f"{message}. Export it at opset {wanted} or newer."
        ) from error
