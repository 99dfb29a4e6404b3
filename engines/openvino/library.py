"""OpenVINO's Python API, imported on first use and without its usage reports.

OpenVINO reports usage over the network if ``openvino_telemetry`` is importable, and has no switch that needs no file.
So that import is blocked before OpenVINO's own.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from partitioner.lazy_imports import LateModule

sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

if TYPE_CHECKING:
    import openvino as ov
    from openvino import _pyopenvino as ov_c
else:
    ov = LateModule("openvino")
    ov_c = LateModule("openvino._pyopenvino")

__all__ = ["ov", "ov_c"]
