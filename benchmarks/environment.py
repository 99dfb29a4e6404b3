"""What a measurement was made on."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import pathlib
import platform

PACKAGES = ("trtnode", "onnx", "onnxruntime", "openvino", "numpy", "grpcio")

SPEED_FEATURES = (
    "avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16",
)  # fmt: skip
"""Instruction sets that decide how fast a precision can be, as Linux names them."""


def describe_environment() -> dict[str, object]:
    """Time, processor, its features, cores, load and versions."""
    flags = _cpuinfo("flags").split()
    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "processor": _cpuinfo("model name") or platform.processor(),
        "features": [feature for feature in SPEED_FEATURES if feature in flags],
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "load_average": describe_load(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
    }


def describe_load() -> list[float]:
    """Load average of the last 1, 5 and 15 minutes."""
    return [round(load, 2) for load in os.getloadavg()]


def _cpuinfo(field: str) -> str:
    """What Linux says about the first core; empty where it says nothing."""
    info = pathlib.Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.split(":")[0].strip() == field), "")
