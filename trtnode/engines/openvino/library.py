"""OpenVINO's Python API, imported without its usage reports, and with bounded memory for shapes.

OpenVINO reports usage over the network if ``openvino_telemetry`` is importable, and has no switch that needs no file.
So that import is blocked before OpenVINO's own.
An engine makes kernels for each shape that it meets. Its CPU plugin keeps them for each engine, and oneDNN, which is a
part of it, keeps them once more for the process. The environment alone bounds the second of these.
"""

from __future__ import annotations

import os
import sys

KEPT_KERNELS, KEPT_IN_INT8, KEPT_TWICE = 256, 1024, 128
"""Kernels that are kept, of each type of layer, the same of int8 engines, and in oneDNN. Equal layers share them, so an
encoder needs three of its matrix products for a shape, and one of most other types; but in int8 each has its own."""

os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(KEPT_TWICE))
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

import openvino as ov
from openvino import _pyopenvino as ov_c
from openvino import opset16 as opset
from openvino import passes

__all__ = ["KEPT_IN_INT8", "KEPT_KERNELS", "opset", "ov", "ov_c", "passes"]
