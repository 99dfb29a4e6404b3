"""The parts of a cache key that stand for this machine and these versions."""

from __future__ import annotations

import os

from engines.artifact.cache import builder_version
from engines.artifact.envelope import current_platform
from engines.backends.build_options import BuildOptions
from engines.backends.cpu_features import processor_name
from engines.backends.protocols import Backend


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
        "device": f"{backend.device() if on_gpu else ''} {processor_name()} {os.cpu_count()}",
        "native": f"onnxruntime {native_version}",
    }
