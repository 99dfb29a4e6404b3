"""The parts of a cache key that stand for this machine and these versions."""

from __future__ import annotations

import contextlib
import importlib.metadata
import pathlib

from trtnode.engines.artifact.cache import builder_version
from trtnode.engines.artifact.envelope import current_platform
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.cpu_features import processor_name, usable_flags
from trtnode.engines.backends.custom_operators import library_parts
from trtnode.engines.backends.plugins import foreign
from trtnode.engines.backends.protocols import Backend
from trtnode.engines.cores import usable_cores

PACKAGES = (
    *("onnxruntime", "onnxruntime-gpu", "openvino", "pycuda"),
    *("tensorrt", "tensorrt-cu12", "tensorrt-cu13", "tensorrt-rtx"),
)
"""Distributions that decide which engines there are."""


def build_environment(backend: Backend, options: BuildOptions | None = None) -> dict[str, str]:
    """Return the named parts of the key of whatever a library builds or says: they change where it would differ.

    Args:
        backend: The engine library.
        options: Of the build; None for answers that no option changes.
    """
    return {
        "backend": f"{backend.name} {backend.fingerprint(options or BuildOptions())}",
        "platform": current_platform(),
        "builder": builder_version(),
        **library_parts(),
    }


def machine_parts() -> dict[str, str]:
    """Return named parts of a key that change where another choice of engines might be made. No library is imported."""
    return {
        "platform": current_platform(),
        "processor": f"{sorted(usable_flags() or ())} {usable_cores().count}",
        "devices": str(sorted(path.name for path in pathlib.Path("/dev").glob("nvidia[0-9]*"))),
        "gpus": str(sorted(map(_gpu_name, pathlib.Path("/proc/driver/nvidia/gpus").glob("*/information")))),
        "releases": str([_release(name) for name in PACKAGES]),
        "plugins": str([(name, point.dist and point.dist.version) for name, point in foreign().items()]),
        "builder": builder_version(),
        **library_parts(),
    }


def measuring_environment(backend: Backend, native_version: str, options: BuildOptions | None = None) -> dict[str, str]:
    """Return the named parts of the key of whatever was measured: the processor itself and native execution count too.

    Args:
        backend: The engine library.
        native_version: Release of ONNX Runtime.
        options: Of the builds; None for the defaults.
    """
    asked = options or BuildOptions()
    on_gpu = not backend.on_cpu and backend.cannot_run_reason(asked) is None
    return {
        **build_environment(backend, options),
        "device": f"{backend.device() if on_gpu else ''} {processor_name()} {usable_cores().count}",
        "native": f"onnxruntime {native_version}",
    }


def _gpu_name(information: pathlib.Path) -> str:
    """Read the name of a GPU from the file that NVIDIA's driver has about it; empty where it says none."""
    with contextlib.suppress(OSError):
        for line in information.read_text(errors="replace").splitlines():
            if line.startswith("Model:"):
                return line.removeprefix("Model:").strip()
    return ""


def _release(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
