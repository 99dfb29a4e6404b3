"""Finds a backend by name, importing its library only then."""

from __future__ import annotations

import functools
import importlib

from engines.base import Backend
from engines.errors import UnknownBackendError

BACKENDS = {
    "openvino": ("engines.openvino_backend", "OpenVinoBackend"),
    "reference": ("engines.reference_backend", "ReferenceBackend"),
    "tensorrt": ("engines.tensorrt_backend", "TensorRtBackend"),
}
"""Module and class of each backend, by name."""

NATIVE = "native"
"""The name that asks for no engine at all."""

AUTO_ORDER = ("tensorrt", "openvino")
"""Backends that ``auto`` tries, the best first."""

ENGINE_NAMES = ("auto", *AUTO_ORDER, NATIVE)
"""What a user may ask for."""


def resolve_engine(name: str) -> str:
    """Turn ``auto`` into the name of the backend to use here.

    Raises:
        UnknownBackendError: The name is no backend's.
    """
    if name == "auto":
        return next(name for name in AUTO_ORDER if get_backend(name).missing() is None)
    if name != NATIVE and name not in BACKENDS:
        raise UnknownBackendError(name, ", ".join(ENGINE_NAMES))
    return name


def next_engine(asked: str, engine: str) -> str | None:
    """The backend to use where the one that was resolved turns out not to start; None unless ``auto`` was asked for."""
    later = AUTO_ORDER[AUTO_ORDER.index(engine) + 1 :] if asked == "auto" else ()
    return next((name for name in later if get_backend(name).missing() is None), None)


@functools.cache
def get_backend(name: str) -> Backend:
    """Import and make a backend; one instance a process.

    Raises:
        UnknownBackendError: The name is no backend's.
    """
    if name not in BACKENDS:
        raise UnknownBackendError(name, ", ".join(ENGINE_NAMES))
    module, attribute = BACKENDS[name]
    backend: Backend = getattr(importlib.import_module(module), attribute)()
    return backend
