"""ONNX Runtime's Python API, imported without its usage reports.

Official builds for Linux keep a device id and events in ``~/.cache/Microsoft`` and send them, from the moment of the
import on. ``ORT_DISABLE_TELEMETRY`` is read then, and nothing else comes in time. A user who sets it is heeded.
"""

from __future__ import annotations

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as ort_c

__all__ = ["onnxruntime", "ort_c"]
