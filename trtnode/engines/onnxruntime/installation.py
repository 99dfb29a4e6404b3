"""Finds damaged installations of ONNX Runtime, which the library itself doesn't notice."""

from __future__ import annotations

import functools
import importlib.metadata
import logging

logger = logging.getLogger(__name__)

OVERLAID = ("onnxruntime", "onnxruntime-gpu")
"""Distributions with the same package folder: the last one installed has overwritten parts of the other."""


def overlay_problem() -> str | None:
    """Return how to mend an installation of both distributions of ONNX Runtime; None where at most one is installed."""
    versions = [_version(name) for name in OVERLAID]
    if None in versions:
        return None
    return (
        f"{OVERLAID[0]} {versions[0]} and {OVERLAID[1]} {versions[1]} are both installed and overwrite each other's "
        f"files. Keep one: pip uninstall --yes {' '.join(OVERLAID)} && pip install {OVERLAID[1]}"
    )


def installed_version() -> str | None:
    """Return the version by the package's metadata; None where a distribution of another name holds it."""
    return next(filter(None, map(_version, OVERLAID)), None)


@functools.cache
def warn_of_overlay() -> None:
    """Log ``overlay_problem`` once a process."""
    problem = overlay_problem()
    if problem:
        logger.warning("%s", problem)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
