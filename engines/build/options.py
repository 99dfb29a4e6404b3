"""Everything a user decides about compiling a model."""

from __future__ import annotations

import dataclasses
import pathlib

from engines.backends.build_options import BuildOptions
from engines.backends.shape_range import Profile
from engines.precision.options import PrecisionOptions
from partitioner import PartitionOptions


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompileOptions:
    """Options of one compilation."""

    engine: str = "auto"
    """Name of a backend; ``auto`` takes the best one here, ``native`` builds no engine."""
    build: BuildOptions = dataclasses.field(default_factory=BuildOptions)
    """Options of each engine."""
    precision: PrecisionOptions = dataclasses.field(default_factory=PrecisionOptions)
    """Precision of the engines, and its accuracy budget."""
    partition: PartitionOptions = dataclasses.field(default_factory=PartitionOptions)
    """Options of the cut: which nodes must run natively."""
    samples: pathlib.Path | None = None
    """An .npz of inputs to check engines with; generated inputs are used without one."""
    shapes: tuple[Profile, ...] = ()
    """Shapes of the model's inputs to build engines for, by name, once a profile."""
    build_timeout_s: float = 600.0
    """Longest time one engine may take to build."""
    tune: bool = False
    """True measures on this machine, and keeps an engine only where the model is faster with it."""
    threads: int | None = None
    """Threads of each engine and session while tuning measures; None leaves it to the libraries."""
    shares_cores: bool = False
    """True if tuning measures as beside other models: native threads sleep between runs, so they wake later."""
