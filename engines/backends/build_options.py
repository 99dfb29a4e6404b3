"""Settings of a build."""

from __future__ import annotations

import dataclasses
import pathlib

from trtnode.engines.backends.shape_range import Profile


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TensorRtOptions:
    """Settings of TensorRT's builder and of its engines."""

    workspace_mb: int | None = None
    """Most scratch memory of the GPU, in MiB; None for all of it."""
    optimization_level: int = 3
    """From 0, a quick build, to 5, the longest search."""
    hardware_compatible: bool = False
    """Build engines that run on every GPU from compute capability 8.0 on. They are slower."""
    version_compatible: bool = False
    """Build engines that run on later releases too."""
    sparse: bool = False
    """Use kernels for weights of which two in four are zero."""
    cuda_graphs: bool = True
    """Run executions as CUDA graphs."""
    details: bool = False
    """Keep the precision and kernel of each layer in the engine, for profiling."""
    strip_plan: bool = False
    """Build engines without weights. They get those of the nodes that they replace when they are loaded."""
    targets: tuple[str, ...] = ()
    """GPUs to build for, by name (``TARGET_NAMES``); none for every one from Ampere on."""

    def chosen(self) -> list[str]:
        """Return the names of the options that differ from their defaults, except ``details``, which no user gives."""
        options = [f for f in dataclasses.fields(self) if f.name != "details"]
        return [f.name for f in options if getattr(self, f.name) != f.default]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """Everything that changes the built bytes or their results."""

    precision: str = "fp32"
    """The precision of floats where the types of the model don't say it."""
    profiles: tuple[Profile, ...] = ()
    """Shapes to build for, where the library wants to know them."""
    tensorrt: TensorRtOptions = TensorRtOptions()
    """Settings of TensorRT alone."""
    timing_cache: pathlib.Path | None = None
    """A file of TensorRT's measurements. It makes later builds quicker and no different."""

    def with_weights(self) -> BuildOptions:
        """Return the same options for an engine that holds its weights."""
        return dataclasses.replace(self, tensorrt=dataclasses.replace(self.tensorrt, strip_plan=False))
