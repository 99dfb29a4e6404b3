"""Finds a backend by name, and imports its library when it is asked for."""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.names import AUTO, ENGINE_NAMES, LIBRARY_NAMES, NATIVE
from trtnode.engines.backends.protocols import Backend
from trtnode.engines.errors import BackendMissingError, UnknownBackendError

logger = logging.getLogger(__name__)

R = TypeVar("R")

BACKENDS: dict[str, tuple[str, ...]] = {
    "onnxruntime": ("trtnode.engines.onnxruntime.backend:OnnxRuntimeBackend",),
    "openvino": ("trtnode.engines.openvino.backend:OpenVinoBackend",),
    "reference": ("trtnode.engines.backends.reference:ReferenceBackend",),
    "sparse": ("trtnode.engines.sparse.backend:SparseBackend",),
    "tensorrt": ("trtnode.engines.tensorrt.backend:TensorRtBackend", "trtnode.engines.tensorrt.library:TENSORRT"),
    "tensorrt-rtx": (
        "trtnode.engines.tensorrt.backend:TensorRtBackend",
        "trtnode.engines.tensorrt.library:TENSORRT_RTX",
    ),
}
"""The class of each backend, by name, and what it is made with; each as module and attribute."""

ON_GPU = frozenset({"tensorrt", "tensorrt-rtx"})
"""Backends whose engines run on NVIDIA GPUs alone."""


def resolve_engine(name: str, options: BuildOptions | None = None) -> str:
    """Turn ``auto`` into the name of the best backend whose engines run here.

    Args:
        name: The name that the user gave.
        options: Of the builds; None for the defaults.

    Raises:
        UnknownBackendError: The name is no backend's.
    """
    if name == AUTO:
        return next(name for name in LIBRARY_NAMES if _runs_here(name, options))
    if name != NATIVE and name not in BACKENDS:
        raise UnknownBackendError(name, ", ".join(ENGINE_NAMES))
    return name


def with_next_engine(asked: str, run: Callable[[str], R], options: BuildOptions | None = None) -> R:
    """Run with the backend that a name stands for; where ``auto`` chose one that does not start, with the next one.

    Args:
        asked: The name that the user gave.
        run: Takes the name of a backend.
        options: As ``resolve_engine``.

    Raises:
        UnknownBackendError: The name is no backend's.
        BackendMissingError: The backend does not start, and there is no other to take its place.
    """
    engine = resolve_engine(asked, options)
    while True:
        try:
            return run(engine)
        except BackendMissingError as problem:
            other = _next_engine(asked, engine, options)
            if other is None:
                raise
            logger.warning("%s Until then, %s is used.", problem, other)
            engine = other


def _next_engine(asked: str, engine: str, options: BuildOptions | None) -> str | None:
    later = LIBRARY_NAMES[LIBRARY_NAMES.index(engine) + 1 :] if asked == AUTO else ()
    return next((name for name in later if _runs_here(name, options)), None)


def _runs_here(name: str, options: BuildOptions | None) -> bool:
    if name in ON_GPU and _imported("trtnode.engines.cuda.devices:find_gpu")() is None:
        return False  # without importing the backend, which takes longer than the others
    backend = get_backend(name)
    return backend.cannot_run_reason(options or BuildOptions()) is None and backend.unavailable_reason() is None


def only_builds_reason(engine: str, options: BuildOptions) -> str | None:
    """Return in a few words why an engine's library builds here and can't run; None if it runs, or is not here.

    Args:
        engine: Name of a backend, or ``native``.
        options: Of the builds.
    """
    if engine == NATIVE or get_backend(engine).unavailable_reason() is not None:
        return None
    return get_backend(engine).cannot_run_reason(options)


@functools.cache
def get_backend(name: str) -> Backend:
    """Import and make a backend; one instance a process.

    Raises:
        UnknownBackendError: The name is no backend's.
    """
    if name not in BACKENDS:
        raise UnknownBackendError(name, ", ".join(ENGINE_NAMES))
    make, *arguments = map(_imported, BACKENDS[name])
    backend: Backend = make(*arguments)
    return backend


def build_options_of(engine: str) -> frozenset[str]:
    """Names of the ``TensorRtOptions`` that an engine takes; none of ``native``."""
    return frozenset() if engine == NATIVE else get_backend(engine).build_options


def check_build_options(engine: str, options: BuildOptions) -> None:
    """Refuse options that an engine's library must not ignore, and name those that it has to ignore in a warning.

    Raises:
        BuildOptionError: There is one to refuse.
    """
    if engine != NATIVE:
        get_backend(engine).check_options(options)
    taken = build_options_of(engine)
    idle = [name for name in options.tensorrt.chosen() if name not in taken]
    if idle:
        logger.warning("Engine %s lacks these options, so they have no effect: %s", engine, ", ".join(idle))


def _imported(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)
