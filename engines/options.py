"""Everything a user decides about compiling a model."""

from __future__ import annotations

import dataclasses
import pathlib

from partitioner import PartitionOptions


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """Everything that changes the built bytes or what they compute."""

    precision: str = "fp32"
    """Precision asked for. Only fp32 so far."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompileOptions:
    """How to compile a model."""

    engine: str = "auto"
    """Name of a backend; ``auto`` takes the best one here, ``native`` builds no engine."""
    build: BuildOptions = dataclasses.field(default_factory=BuildOptions)
    """Options of each engine."""
    partition: PartitionOptions = dataclasses.field(default_factory=PartitionOptions)
    """The user's wishes about where nodes run."""
    samples: pathlib.Path | None = None
    """An .npz of inputs to check engines with; generated inputs are used without one."""
    build_timeout_s: float = 600.0
    """Longest time one engine may take to build."""
    tune: bool = False
    """Measure on this machine, and keep an engine only where the model is faster with it."""
    threads: int | None = None
    """Threads of each engine and session while tuning measures; None leaves it to the libraries."""
