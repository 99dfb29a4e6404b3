"""Raises a model to the opset that first has the quantized tensors to be written."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from engines.errors import QuantizationError
from engines.quantization.schemes import QuantizedType
from partitioner.model.opset_versions import means_the_same


def raised_copy(model: onnx.ModelProto, numbers: QuantizedType) -> ir.Model:
    """Copy a model, at the opset of a quantized type where its own is older.

    The opset alone changes where every operator means the same in both. Else ONNX's converter rewrites the model.

    Raises:
        QuantizationError: The converter can't.
    """
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), numbers.opset)
    work = ir.from_proto(model)
    if opset < numbers.opset:
        if all(_keeps_its_meaning(op, opset, numbers.opset) for op in work.graph.all_nodes() if not op.domain):
            work.opset_imports[""] = numbers.opset
        else:
            work = ir.from_proto(_converted(model, opset, numbers.opset))
    work.ir_version = max(work.ir_version, numbers.ir_version)
    return work


def _keeps_its_meaning(op: ir.Node, opset: int, wanted: int) -> bool:
    if not onnx.defs.has(op.op_type, wanted, "") or onnx.defs.get_schema(op.op_type, wanted, "").deprecated:
        return False
    return means_the_same(op, wanted, opset)


def _converted(model: onnx.ModelProto, opset: int, wanted: int) -> onnx.ModelProto:
    try:
        return onnx.version_converter.convert_version(model, wanted)
    except Exception as error:  # its C++ part raises RuntimeError and others
        message = str(error).strip().splitlines()[0].rstrip(".")
        raise QuantizationError(
            f"The model can't be raised from opset {opset} to {wanted}, the first that can hold it quantized: "
            f"{message}. Export it at opset {wanted} or newer."
        ) from error
