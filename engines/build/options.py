"""Everything a user decides about compiling a model."""

from __future__ import annotations

import dataclasses
import enum
import os
import pathlib

from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.shape_range import Profile
from trtnode.engines.precision.options import PrecisionOptions
from trtnode.partitioner.cut.labels import PartitionOptions

EVERY_ENGINE = "TRTNODE_ALL_ENGINES"
"""Environment variable that keeps all engines wherever options leave the choice open."""


class Choice(enum.Enum):
    """The rule by which engines stay in a model. Whatever it is, an engine that fails its check goes."""

    TUNED = "chosen by a long measurement"
    MEASURED = "chosen by a brief measurement"
    ESTIMATED = "chosen by the estimate"
    ALL = "all kept"


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
    measure: bool = True
    """True measures briefly on this machine, and keeps engines only where the model is faster with them. Without it,
    those go that the estimate calls slower."""
    tune: bool = False
    """True measures longer, and with more choices of engines."""
    all_engines: bool = False
    """True keeps engines that make the model slower, too."""
    approximate: bool = False
    """True approximates activations where that is measured to pay, inside the accuracy budget of the precision."""
    threads: int | None = None
    """Threads of each engine and session while they are measured; None leaves it to the libraries."""
    shares_cores: bool = False
    """True measures as beside other models: native threads sleep between runs, so they wake later."""
    without_rewrites: tuple[str, ...] = ()
    """Names of equal rewrites (``trtnode.engines.backends.names.REWRITE_NAMES``) to leave out."""
    sparse_weights: bool = True
    """True lets ``auto`` take engine sparse for a model with zeros enough, where it is measured to be faster."""
    reference: bool = True
    """True if onnx.reference, which is slow, may run nodes that neither ONNX Runtime nor an engine has a kernel for."""

    @property
    def choice(self) -> Choice:
        """The rule by which engines stay."""
        if self.tune:
            return Choice.TUNED
        if self.all_engines or os.environ.get(EVERY_ENGINE):
            return Choice.ALL
        return Choice.MEASURED if self.measure else Choice.ESTIMATED

    @property
    def measures(self) -> bool:
        """True if a measurement chooses the engines."""
        return self.choice in (Choice.TUNED, Choice.MEASURED)
