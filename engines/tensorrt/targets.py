"""Builds for GPUs that are not here. TensorRT for RTX alone can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engines.errors import BuildError


def set_targets(trt: Any, config: Any, targets: Sequence[str]) -> None:
    """Name the GPUs to build for; without any the library builds for every one from Ampere on.

    Args:
        trt: The module of the library.
        config: A ``trt.IBuilderConfig``.
        targets: Names, for example ``sm86``.

    Raises:
        BuildError: The library doesn't know one.
    """
    if not targets:
        return
    config.num_compute_capabilities = len(targets)
    for index, name in enumerate(targets):
        if not config.set_compute_capability(trt.ComputeCapability.__members__[name.upper()], index):
            raise BuildError(f"{trt.__name__} refuses target {name}.")
