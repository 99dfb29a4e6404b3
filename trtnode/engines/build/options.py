"""Everything a user decides about compiling a model. The names of the fields are those of keys, flags and arguments."""

from __future__ import annotations

import dataclasses
import enum
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from trtnode.engines.backends.build_options import BuildOptions, TensorRtOptions
from trtnode.engines.backends.names import ALL_REWRITES, LIBRARY_NAMES, REWRITE_NAMES, SPARSE, rewrite_problem
from trtnode.engines.backends.plugins import engine_problem
from trtnode.engines.backends.shape_range import Profile, profiles_of
from trtnode.engines.precision.options import PrecisionOptions
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.options import Option

EVERY_ENGINE = "TRTNODE_ALL_ENGINES"
"""Environment variable that keeps all engines where options leave the choice open."""

LONGEST_S = 7 * 24 * 3600


class Choice(enum.Enum):
    """The rule by which engines stay in a model. Whatever it is, an engine that fails its check goes."""

    MEASURED = "chosen by a brief measurement"
    ESTIMATED = "chosen by the estimate"
    ALL = "all kept"


def _every_engine() -> bool:
    return bool(os.environ.get(EVERY_ENGINE))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceOptions:
    """The engine, and the rule by which it stays."""

    gone: ClassVar[Mapping[str, str]] = {
        "tune": "engines are measured by default; leave it out, or ask to measure again"
    }

    engine: Annotated[
        str,
        Option(
            f"The engine of the nodes that it supports: {', '.join(LIBRARY_NAMES)}, or another installed one; auto "
            "takes the best one here, native builds none.",
            metavar="NAME",
            check=engine_problem,
        ),
    ] = "auto"
    measure: Annotated[
        bool,
        Option("Measure for up to 10 s, and keep engines that make the model faster; without, by the estimate."),
    ] = True
    measure_again: Annotated[
        bool, Option("Measure although the choice of an earlier compilation is remembered, and remember the new one.")
    ] = False
    all_engines: Annotated[
        bool, Option(f"Keep engines that make the model slower, too; {EVERY_ENGINE}=1 does so by default.")
    ] = dataclasses.field(default_factory=_every_engine)
    sparse_weights: Annotated[
        Literal["auto", "off"], Option("auto measures a sparse engine against the dense one.")
    ] = "auto"

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the option and the fault of each that contradicts another one."""
        if self.engine == SPARSE and self.sparse_weights == "off":
            yield "sparse_weights", "off leaves out the engine that is asked for"
        if self.measure_again and not self.measures and not _every_engine():
            yield "measure_again", "other options leave nothing to measure; leave out this or those"

    @property
    def choice(self) -> Choice:
        """The rule by which engines stay."""
        if self.all_engines:
            return Choice.ALL
        return Choice.MEASURED if self.measure else Choice.ESTIMATED

    @property
    def measures(self) -> bool:
        """True if a measurement chooses the engines."""
        return self.choice is Choice.MEASURED


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """The build of each engine, and its check."""

    shapes: Annotated[
        tuple[Profile, ...],
        Option(
            "Shapes that TensorRT builds for: NAME:1x3x224x224, or three shapes; once for each input, and again for "
            "each further profile. NAME:=1x64,4x64,8x64 gives the values of an input that holds sizes, such as the "
            "shape of a Reshape. Requests of other shapes run natively.",
            metavar="NAME:MIN,OPT,MAX",
            read=profiles_of,
        ),
    ] = ()
    tensorrt: Annotated[TensorRtOptions, Option("Options of TensorRT's builder.")] = dataclasses.field(
        default_factory=TensorRtOptions
    )
    build_timeout_s: Annotated[
        float, Option("Longest time that one engine may take to build.", least=0.1, most=LONGEST_S, metavar="S")
    ] = 1800.0
    check_inputs: Annotated[
        pathlib.Path | None,
        Option("Inputs to check the engines with (.npz, or texts), instead of generated ones.", metavar="IN.npz"),
    ] = None

    @property
    def build(self) -> BuildOptions:
        """The options of each engine, before a segment adds its own."""
        return BuildOptions(tensorrt=self.tensorrt)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompileOptions(EngineOptions, PrecisionOptions, ChoiceOptions):
    """Options of one compilation."""

    partition: Annotated[PartitionOptions, Option("The nodes that an engine may take.")] = dataclasses.field(
        default_factory=PartitionOptions
    )
    no_optimize: Annotated[
        tuple[str, ...],
        Option(
            "Equal rewrites of the graph to leave out, by name, or all; `trtnode explain` names those that it would "
            "get.",
            metavar="NAME",
            bare=ALL_REWRITES,
            choices=(*REWRITE_NAMES, ALL_REWRITES),
            check=rewrite_problem,
        ),
    ] = ()
    reference: Annotated[
        bool | None,
        Option(
            "Run nodes without any kernel in onnx.reference, slowly; a server does so only if asked to, in a process "
            "of their own."
        ),
    ] = None
    custom_op_libraries: Annotated[
        tuple[pathlib.Path, ...],
        Option(
            "Library of custom operators that the model uses, for ONNX Runtime, or onnxruntime-extensions for that of "
            "the installed package.",
            name="custom_op_library",
            metavar="PATH",
        ),
    ] = ()
    declared_sizes: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    """Shapes of inputs that hold besides those in the file, by name; -1 for a size that the file decides."""
    threads: int | None = None
    """Threads of each engine and session while they are measured; None leaves it to the libraries."""
    shares_cores: bool = False
    """True measures as beside other models: native threads sleep between runs, so they wake later."""
    padded: bool = False
    """True measures on one size though samples have many: requests will be padded to few."""

    @property
    def rewrites_left_out(self) -> tuple[str, ...]:
        """The names of the equal rewrites to leave out."""
        return REWRITE_NAMES if ALL_REWRITES in self.no_optimize else self.no_optimize
