"""What a measurement was made on."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import platform

PACKAGES = ("trtnode", "onnx", "onnxruntime", "openvino", "numpy", "grpcio")


def describe_environment() -> dict[str, object]:
    """Processor, cores, load and versions."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
    }


def _processor() -> str:
    info = pathlib.Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
