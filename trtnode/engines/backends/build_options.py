"""Settings of a build."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Annotated

from trtnode.engines.backends.names import TARGET_NAMES, TargetName, target_problem
from trtnode.engines.backends.shape_range import Profile
from trtnode.partitioner.options import Option

MOST_MEBIBYTES = 2**30


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TensorRtOptions:
    """Options of TensorRT's builder, and of its engines."""

    workspace_mb: Annotated[
        int | None,
        Option("Scratch memory, in MiB; none for all there is.", least=1, most=MOST_MEBIBYTES, metavar="N"),
    ] = None
    optimization_level: Annotated[
        int, Option("Effort of the builder's search, from 0 to 5.", least=0, most=5, metavar="N")
    ] = 3
    hardware_compatible: Annotated[
        bool, Option("Build for other GPU generations too, from compute capability 8.0 on; engines are slower.")
    ] = False
    version_compatible: Annotated[bool, Option("Build for later TensorRT releases too.")] = False
    sparse: Annotated[bool, Option("Use structured sparsity, where two in four weights are zero.")] = False
    cuda_graphs: Annotated[bool, Option("Replay executions as CUDA graphs.")] = True
    targets: Annotated[
        tuple[TargetName, ...],
        Option(
            f"GPUs that tensorrt-rtx builds for: {', '.join(TARGET_NAMES)}; none for every one from Ampere on.",
            metavar="SM,SM",
            separator=",",
            check=target_problem,
        ),
    ] = ()

    def chosen(self) -> list[str]:
        """Return the names of the options that differ from their defaults."""
        return [f.name for f in dataclasses.fields(self) if getattr(self, f.name) != f.default]


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
