"""OpenVINO's Python API, imported without its usage reports.

OpenVINO reports usage over the network if ``openvino_telemetry`` is importable, and has no switch that needs no file.
So that import is blocked before OpenVINO's own.
"""

from __future__ import annotations

import sys

sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

import openvino as ov
from openvino import _pyopenvino as ov_c
from openvino import opset13

__all__ = ["opset13", "ov", "ov_c"]
