"""Libraries with TensorRT's Python API, as values. A library's module is imported here alone, on demand.

The module is optional and large, and its import needs native libraries.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Collection, Mapping
from typing import Any

from trtnode.engines.backends.build_options import TensorRtOptions
from trtnode.engines.backends.names import TARGET_NAMES, TargetName
from trtnode.engines.cuda.devices import Gpu
from trtnode.engines.tensorrt.labelling import rtx, tables


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A library on this machine.

    Attributes:
        module: The Python module; None where it can't be imported.
        load_problem: The reason where the module is here and can't be imported; else empty.
    """

    module: Any
    load_problem: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TensorRtLibrary:
    """The facts that distinguish one library from another with the same API.

    Attributes:
        engine: Name of its engines in options and envelopes.
        title: Its name in sentences.
        module: Name of its Python module.
        oldest: The oldest release that works.
        install: Tells how to install it.
        table: The nodes that its parser and its builder take.
        lacks: Names of the ``TensorRtOptions`` that its builder lacks; they have no effect.
        targets: GPUs that it builds for, on any machine; none if it builds for the GPU of this machine alone.
        portable: GPUs that an engine for no target in particular runs on.
        runtime_settings: Settings that only its runtime has. They go into the envelope.
        version_parts: An engine runs on releases that agree with its own in so many parts of the version; None for all.
    """

    engine: str
    title: str
    module: str
    oldest: tuple[int, int]
    install: str
    table: tables.ParserTable
    lacks: frozenset[str] = frozenset()
    targets: tuple[TargetName, ...] = ()
    portable: tuple[TargetName, ...] = ()
    runtime_settings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    version_parts: int | None = None

    @property
    def not_installed(self) -> str:
        """The sentence for machines without the library."""
        return f"{self.title} is not installed here. {self.install}."

    @property
    def no_gpu(self) -> str:
        """The sentence for machines without a GPU."""
        if self.targets:
            return f"{self.title} builds engines here, and runs them on an NVIDIA GPU with a driver; none is here."
        return f"{self.title} is installed, but no NVIDIA GPU or driver is here. Run nvidia-smi: it must list a GPU."

    def find(self) -> Installation:
        """Import the module."""
        try:
            return Installation(module=importlib.import_module(self.module))
        except ModuleNotFoundError:
            return Installation(module=None)
        except (ImportError, OSError) as error:
            return Installation(module=None, load_problem=str(error))

    def unavailable_reason(self, installation: Installation, gpu: Gpu | None) -> str | None:
        """Tell which part of an installation is missing, and how to mend it; None if none is.

        Args:
            installation: From ``find``.
            gpu: The GPU of this machine, if any. A library with targets builds without one.
        """
        if installation.load_problem:
            return f"{self.title} is installed, but can't be loaded ({installation.load_problem}). {self.install}."
        if installation.module is None:
            return self.not_installed
        version = installation.module.__version__
        if tuple(int(part) for part in version.split(".")[:2]) < self.oldest:
            oldest = ".".join(map(str, self.oldest))
            return f"{self.title} {version} is too old: {oldest} or newer is needed. {self.install}."
        return None if gpu or self.targets else self.no_gpu

    def cannot_run_reason(self, gpu: Gpu | None, targets: Collection[TargetName]) -> str | None:
        """Return in a few words why engines for these targets don't run on a GPU; None if they do."""
        if gpu is None:
            return "no GPU here"
        here, built = target_of(gpu), self.covered(targets)
        return None if here in built else f"the GPU here is {here}, and they are for {', '.join(built)}"

    def covered(self, targets: Collection[TargetName]) -> tuple[TargetName, ...]:
        """Return the GPUs that engines for these targets run on, in the library's order."""
        return tuple(name for name in self.targets if name in targets) if targets else self.portable

    def options_of(self, options: TensorRtOptions) -> TensorRtOptions:
        """Return the options without those that the builder lacks."""
        defaults = TensorRtOptions()
        return dataclasses.replace(options, **{name: getattr(defaults, name) for name in self.lacks})


def target_of(gpu: Gpu) -> str:
    """Return the target that a GPU is, for example ``sm86``."""
    return f"sm{gpu.compute_capability.replace('.', '')}"


TENSORRT = TensorRtLibrary(
    engine="tensorrt",
    title="TensorRT",
    module="tensorrt",
    oldest=(10, 3),
    install="Install it on a machine with an NVIDIA GPU: pip install 'trtnode[tensorrt]'",
    table=tables.TENSORRT,
    lacks=frozenset({"targets"}),
)

TENSORRT_RTX = TensorRtLibrary(
    engine="tensorrt-rtx",
    title="TensorRT for RTX",
    module="tensorrt_rtx",
    oldest=(1, 7),
    install="Install it: pip install 'trtnode[tensorrt-rtx]'",
    table=rtx.RTX,
    lacks=frozenset({"hardware_compatible", "optimization_level", "version_compatible"}),
    targets=TARGET_NAMES,
    portable=tuple(name for name in TARGET_NAMES if name != "sm75"),
)
"""Its engines are portable over GPUs, and bound to one release of the library."""
