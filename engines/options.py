"""Everything a user decides about compiling a model."""

from __future__ import annotations

import dataclasses
import pathlib

from engines.budget import AccuracyBudget, DefaultBudget
from engines.precision_rules import PrecisionRule
from engines.profiles import Profile
from partitioner import PartitionOptions


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TensorRtOptions:
    """How TensorRT's builder searches for kernels, and what its engines may run on."""

    workspace_mb: int | None = None
    """Most scratch memory of the GPU, in MiB; None for all of it."""
    optimization_level: int = 3
    """From 0, a quick build, to 5, the longest search."""
    hardware_compatible: bool = False
    """Whether engines run on every GPU from compute capability 8.0 on; they are slower then."""
    version_compatible: bool = False
    """Whether engines run on later releases too."""
    sparse: bool = False
    """Whether kernels for weights may be used of which two in four are zero."""
    cuda_graphs: bool = True
    """Whether executions are replayed as CUDA graphs."""
    details: bool = False
    """Whether engines tell what their layers compute in and by which kernels, where they are profiled."""
    strip_plan: bool = False
    """Whether engines hold no weights, and get those of the nodes that they replace when they are loaded."""

    def chosen(self) -> list[str]:
        """Names of the options that are not left as they are by default, but for ``details``, which no user gives."""
        options = [f for f in dataclasses.fields(self) if f.name != "details"]
        return [f.name for f in options if getattr(self, f.name) != f.default]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """Everything that changes the built bytes or what they compute."""

    precision: str = "fp32"
    """What an engine computes floats in, where the types of its model don't say so."""
    profiles: tuple[Profile, ...] = ()
    """Shapes to build for, where the library wants to know them."""
    tensorrt: TensorRtOptions = TensorRtOptions()
    """What only TensorRT asks for."""
    timing_cache: pathlib.Path | None = None
    """A file of what TensorRT's builds measure, which makes later builds quicker and no different."""

    def with_weights(self) -> BuildOptions:
        """The same, for an engine that holds its weights."""
        return dataclasses.replace(self, tensorrt=dataclasses.replace(self.tensorrt, strip_plan=False))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Where ranges come from, and samples to judge accuracy on."""

    data: str | None = None
    """Samples of the inputs: an .npz file, a folder of them, or ``module:function``."""
    ranges: pathlib.Path | None = None
    """A table that ``trtnode calibrate`` wrote; without one, ranges are learnt from the data."""
    method: str = "minmax"
    """How ranges follow from samples."""
    percentile: float = 99.99
    """Share of values to keep, in percent, for the method of this name."""
    samples: int | None = 200
    """The most to learn from; None for all."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionOptions:
    """What engines are to compute in, and how exact answers must stay."""

    asked: str = "fp32"
    """``fp32``, ``fp16``, ``bf16``, ``int8``, or ``auto`` for the fastest measured one of each segment."""
    rules: tuple[PrecisionRule, ...] = ()
    """Other precisions for some nodes; the first rule that fits a node counts."""
    calibration: Calibration = dataclasses.field(default_factory=Calibration)
    """Where ranges come from."""
    budget: AccuracyBudget = dataclasses.field(default_factory=DefaultBudget)
    """A precision in which answers move further is given up."""

    @property
    def is_float32(self) -> bool:
        """Whether nothing else than float32 is asked for."""
        return {self.asked, *(rule.precision for rule in self.rules)} == {"fp32"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompileOptions:
    """How to compile a model."""

    engine: str = "auto"
    """Name of a backend; ``auto`` takes the best one here, ``native`` builds no engine."""
    build: BuildOptions = dataclasses.field(default_factory=BuildOptions)
    """Options of each engine."""
    precision: PrecisionOptions = dataclasses.field(default_factory=PrecisionOptions)
    """What engines compute in."""
    partition: PartitionOptions = dataclasses.field(default_factory=PartitionOptions)
    """The user's wishes about where nodes run."""
    samples: pathlib.Path | None = None
    """An .npz of inputs to check engines with; generated inputs are used without one."""
    shapes: tuple[Profile, ...] = ()
    """Shapes of the model's inputs to build engines for, by name, once a profile."""
    build_timeout_s: float = 600.0
    """Longest time one engine may take to build."""
    tune: bool = False
    """Measure on this machine, and keep an engine only where the model is faster with it."""
    threads: int | None = None
    """Threads of each engine and session while tuning measures; None leaves it to the libraries."""
    shares_cores: bool = False
    """Whether tuning measures as beside other models: native threads wait asleep between runs, so they wake later."""
