"""Describes the machine and the versions of a measurement."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import pathlib
import platform

from trtnode.engines.cores import usable_cores

PACKAGES = ("trtnode", "onnx", "onnxruntime", "openvino", "numpy", "grpcio")

SPEED_FEATURES = (
    "avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16",
)  # fmt: skip
"""Instruction sets that make reduced precisions fast, by their names in Linux."""


def describe_environment() -> dict[str, object]:
    """Return time, processor, its features, cores, memory, load and versions."""
    flags = _cpuinfo("flags").split()
    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "processor": _cpuinfo("model name") or platform.processor(),
        "features": [feature for feature in SPEED_FEATURES if feature in flags],
        "cores": usable_cores().count,
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "load_average": describe_load(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
    }


def describe_load() -> list[float]:
    """Return the load average of the last 1, 5 and 15 minutes."""
    return [round(load, 2) for load in os.getloadavg()]


def _cpuinfo(field: str) -> str:
    """Return a field of the first core from Linux; empty if there is none."""
    info = pathlib.Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.split(":")[0].strip() == field), "")
