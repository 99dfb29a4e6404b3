"""The version of ONNX Runtime, and the newest opset and IR version that it reads."""

from __future__ import annotations

import functools

import onnx

from trtnode.engines.errors import ModelLoadError
from trtnode.engines.onnxruntime.installation import installed_version
from trtnode.engines.onnxruntime.library import onnxruntime
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.partitioner.model.opset_versions import VersionLimits

OLD_OPSET = 13

OLD_IR_VERSION = 8
"""Of models that every ONNX Runtime reads."""


def native_version() -> str:
    """Return the version of the library, which takes long to import."""
    return installed_version() or str(onnxruntime.__version__)


@functools.cache
def native_limits() -> VersionLimits:
    """Find the newest opset and IR version that this ONNX Runtime reads, by trying models: it has no call for them."""
    opset = next(v for v in range(onnx.defs.onnx_opset_version(), 0, -1) if _reads(v, OLD_IR_VERSION))
    ir_version = next(v for v in range(onnx.IR_VERSION, 0, -1) if _reads(OLD_OPSET, v))
    return VersionLimits(opset=opset, ir_version=ir_version)


def _reads(opset: int, ir_version: int) -> bool:
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    graph = onnx.GraphProto(name="probe", input=[value], output=[value])
    imports = [onnx.OperatorSetIdProto(domain="", version=opset)]
    try:
        NativeSession(onnx.ModelProto(ir_version=ir_version, opset_import=imports, graph=graph))
    except ModelLoadError:
        return False
    return True
