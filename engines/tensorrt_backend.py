"""TensorRT on an NVIDIA GPU. Where it is not installed, nodes are still labelled, by the table.

The library is optional and large, and importing it needs its native libraries; so it is imported here alone, and
whatever keeps it from that is told in a sentence.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Collection, Mapping
from typing import Any

from engines import tensorrt_labels, tensorrt_parser
from engines.base import Origin, PrecisionSupport
from engines.cuda_devices import Gpu, find_gpu
from engines.envelope import Device, Envelope
from engines.errors import BackendMissingError
from engines.lanes import LANES, Lanes
from engines.options import BuildOptions
from engines.pycuda_backend import has_driver, open_device
from engines.tensorrt_build import build_engine, properties
from engines.tensorrt_engine import TensorRtEngine
from engines.tensorrt_plan import PROFILED, deserialize
from partitioner import Allowance, Node, Verdict

try:
    import tensorrt

    LOAD_PROBLEM = ""
except (ImportError, OSError) as error:
    tensorrt = None
    LOAD_PROBLEM = "" if isinstance(error, ModuleNotFoundError) else str(error)
"""Why the module can't be imported although it is there; empty where it can, or where it is not there."""

OLDEST = (10, 3)
INSTALL = "Install it on a machine with an NVIDIA GPU: pip install 'trtnode[tensorrt]'"
NOT_INSTALLED = f"TensorRT is not installed here. {INSTALL}."
NO_PYCUDA = "TensorRT is installed, but pycuda is not, or it finds no CUDA driver. Install it: pip install pycuda"
NO_GPU = "TensorRT is installed, but no NVIDIA GPU or driver is here. Run nvidia-smi: it must list a GPU."


class TensorRtBackend:
    """Labels nodes for TensorRT 10.3 and newer."""

    name = "tensorrt"
    trusted_ops: frozenset[str] = frozenset()
    needs_shapes = True
    profiling_options: Mapping[str, str] = {PROFILED: "1", "CUDA_GRAPHS": "0"}  # what is replayed tells no layers

    @functools.cache  # noqa: B019  (one backend a process)
    def missing(self) -> str | None:
        """What keeps engines from being built and run here."""
        part = missing_part(tensorrt, load_problem=LOAD_PROBLEM, gpu=find_gpu())
        return part or (None if has_driver() else NO_PYCUDA)

    def version(self) -> str:
        """Full version of the tensorrt package.

        Raises:
            BackendMissingError: It is not installed.
        """
        return str(_library().__version__)

    def device(self) -> Device:
        """Compute capability and name of the first GPU.

        Raises:
            BackendMissingError: There is none.
        """
        gpu = find_gpu()
        if gpu is None:
            raise BackendMissingError(NO_GPU if tensorrt else NOT_INSTALLED)
        return Device(features=gpu.compute_capability, name=gpu.name)

    def label(self, node: Node, allow: Collection[Allowance] = ()) -> Verdict:
        """See ``engines.tensorrt_labels``."""
        return tensorrt_labels.label(node, allow)

    def precision_support(self) -> PrecisionSupport:
        """Each precision as it is asked for: a strongly typed network computes in the types of its model."""
        reduced = frozenset({"fp16", "bf16", "int8"})
        return PrecisionSupport(
            effective={name: name for name in ("fp32", *sorted(reduced))},
            typed=reduced - {"int8"},
            accelerated=reduced,
            carried=frozenset({"fp16"}),
        )

    def refusal(self, model: pathlib.Path) -> Verdict:
        """Ask TensorRT's parser; see ``engines.tensorrt_parser``.

        Raises:
            BackendMissingError: TensorRT is not installed.
        """
        return tensorrt_parser.ask_parser(_library(), model)

    def build_properties(self, options: BuildOptions) -> dict[str, str]:
        """TensorRT's settings. Precision is in the model itself: networks are strongly typed."""
        return properties(options.tensorrt)

    def build(self, model: pathlib.Path, options: BuildOptions) -> bytes:
        """See ``engines.tensorrt_build``.

        Raises:
            BackendMissingError: TensorRT is not installed.
            BuildError: It refuses the model.
        """
        return build_engine(_library(), model, options)

    def load(
        self, engine: bytes, envelope: Envelope, *, threads: int | None = None, origin: Origin | None = None
    ) -> TensorRtEngine:
        """Deserialize engine bytes for the lanes of the first GPU.

        Args:
            engine: As built.
            envelope: Already verified.
            threads: Not used: the host computes nothing.
            origin: Where the weights come from, of an engine that holds none.

        Raises:
            BackendMissingError: A part of the installation is missing.
            EngineRejectedError: TensorRT refuses the bytes or the weights, or their bindings are not the envelope's.
        """
        trt, lanes = _library(), self.lanes()
        with lanes.device:
            plan = deserialize(trt, engine, envelope, origin)
        return TensorRtEngine(plan, lanes, envelope.inputs, envelope.outputs)

    @functools.cache  # noqa: B019  (one backend a process)
    def lanes(self) -> Lanes:
        """The lanes that all models share; CUDA starts with the first engine that is loaded.

        Raises:
            BackendMissingError: pycuda or a GPU is missing.
        """
        return Lanes(open_device(), LANES)


def missing_part(library: Any, *, load_problem: str, gpu: Gpu | None) -> str | None:
    """Tell which part of a TensorRT installation is missing, and how to mend it; None if none is.

    Args:
        library: The tensorrt module; None where it can't be imported.
        load_problem: Why not, where the module is there; else empty.
        gpu: The GPU of this machine, if any.
    """
    if load_problem:
        return f"TensorRT is installed, but can't be loaded ({load_problem}). {INSTALL}."
    if library is None:
        return NOT_INSTALLED
    version = tuple(int(part) for part in library.__version__.split(".")[:2])
    if version < OLDEST:
        return f"TensorRT {library.__version__} is too old: 10.3 or newer is needed. {INSTALL}."
    return None if gpu else NO_GPU


def _library() -> Any:
    if tensorrt is None:
        raise BackendMissingError(NOT_INSTALLED)
    return tensorrt
