"""Element types of TensorRT's tensors in ONNX's terms."""

from __future__ import annotations

import onnx_ir as ir

ELEMENT_TYPES = {
    "BF16": ir.DataType.BFLOAT16,
    "BOOL": ir.DataType.BOOL,
    "FLOAT": ir.DataType.FLOAT,
    "FP4": ir.DataType.FLOAT4E2M1,
    "FP8": ir.DataType.FLOAT8E4M3FN,
    "HALF": ir.DataType.FLOAT16,
    "INT32": ir.DataType.INT32,
    "INT4": ir.DataType.INT4,
    "INT64": ir.DataType.INT64,
    "INT8": ir.DataType.INT8,
    "UINT8": ir.DataType.UINT8,
}
"""ONNX's types of inputs and outputs, by TensorRT's names."""
