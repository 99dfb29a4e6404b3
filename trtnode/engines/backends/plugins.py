"""Finds the engines that are installed. Any package offers its own under the entry-point group ``trtnode.engines``.

An entry point has the name of an engine, and leads to an ``EngineLibrary``. Light: no library is imported here.
"""

from __future__ import annotations

import functools
import importlib.metadata
import logging
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import NamedTuple

from trtnode.engines.backends.names import AUTO, NATIVE, TYPED_ONNX

logger = logging.getLogger(__name__)

GROUP = "trtnode.engines"
OWN_PACKAGE = "trtnode"

JUDGES = ("onnxruntime", "reference", TYPED_ONNX)
"""Engines that stand for others where these can't run. No user can choose them."""


class EngineLibrary(NamedTuple):
    """The facts about an engine that are known before its library is imported.

    Attributes:
        backend: ``module:callable``; called without arguments, it returns the ``Backend``.
        place: Place in ``auto``, which takes the first engine that runs here; None keeps the engine out of it.
            Engines of this package have 10 (TensorRT), 20 (TensorRT for RTX), 30 (OpenVINO) and 40 (sparse).
        needs_gpu: True if ``auto`` passes over it on a machine without an NVIDIA GPU.
    """

    backend: str
    place: int | None = None
    needs_gpu: bool = False


TENSORRT = EngineLibrary("trtnode.engines.tensorrt.backend:tensorrt", place=10, needs_gpu=True)
TENSORRT_RTX = EngineLibrary("trtnode.engines.tensorrt.backend:tensorrt_rtx", place=20, needs_gpu=True)
OPENVINO = EngineLibrary("trtnode.engines.openvino.backend:OpenVinoBackend", place=30)
SPARSE = EngineLibrary("trtnode.engines.sparse.backend:SparseBackend", place=40)
ONNXRUNTIME = EngineLibrary("trtnode.engines.onnxruntime.backend:OnnxRuntimeBackend")
TYPED = EngineLibrary("trtnode.engines.onnxruntime.backend:TypedOnnxBackend")
REFERENCE = EngineLibrary("trtnode.engines.backends.reference:ReferenceBackend")


@functools.cache
def own() -> dict[str, EntryPoint]:
    """Return the engines of this package, by name. Those of all installed packages take longer to read."""
    found = next(iter(importlib.metadata.distributions(name=OWN_PACKAGE)), None)  # the one that is imported
    return {point.name: point for point in (found.entry_points.select(group=GROUP) if found else ())}


@functools.cache
def foreign() -> Mapping[str, EntryPoint]:
    """Return the engines of other packages, by name. A name that is taken stays with whoever has it."""
    found: dict[str, EntryPoint] = {}
    owners = dict.fromkeys((AUTO, NATIVE, *own()), OWN_PACKAGE)
    for owner, point in sorted((_owner(point), point) for point in importlib.metadata.entry_points(group=GROUP)):
        if owner == OWN_PACKAGE:
            continue
        if owners.setdefault(point.name, owner) == owner:
            found[point.name] = point
        else:
            taken = f"{owners[point.name]} has an engine of this name"
            logger.warning("Engine %r of package %s is left out, because %s", point.name, owner, taken)
    return found


def _owner(point: EntryPoint) -> str:
    return point.dist.name if point.dist else ""


def engine_problem(name: object) -> str | None:
    """Return the reason for which no user can ask for such an engine, with those that there are; None if one can."""
    if name in (AUTO, NATIVE) or (name in own() and name not in JUDGES) or name in foreign():
        return None
    return f"should be one of {', '.join(engine_names())}"


def engine_names() -> tuple[str, ...]:
    """Return the names that a user chooses from. None of the engines is imported."""
    return (AUTO, *(name for name in (*own(), *foreign()) if name not in JUDGES), NATIVE)


@functools.cache
def find_library(name: str) -> EngineLibrary | None:
    """Return an installed engine by its name; None, with a warning, where its entry point leads to none."""
    point = own().get(name) or foreign().get(name)
    try:
        library = point.load() if point else None
    except Exception as error:  # whatever importing a module can raise
        library = f"{type(error).__name__}: {error}"
    if point is None or isinstance(library, EngineLibrary):
        return library
    told = library if isinstance(library, str) else f"{point.value} is no EngineLibrary"
    logger.warning("Engine %r of package %s can't be used: %s", name, _owner(point), str(told).rstrip("."))
    return None


@functools.cache
def libraries_by_place() -> dict[str, EngineLibrary]:
    """Return the engines that ``auto`` chooses from, by name, the best first."""
    found = {name: find_library(name) for name in (*own(), *foreign())}
    placed = [(one.place, name, one) for name, one in found.items() if one is not None and one.place is not None]
    return {name: one for _, name, one in sorted(placed)}
