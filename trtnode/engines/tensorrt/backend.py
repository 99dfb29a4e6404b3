"""The backend of TensorRT, and of libraries with its API. Without the library, nodes are labelled by the tables.

An engine is loaded for stages of a model on a stream, and runs alone as well.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from trtnode.engines.artifact.envelope import TARGETS, Device, Envelope
from trtnode.engines.backends.build_options import BuildOptions, TensorRtOptions
from trtnode.engines.backends.protocols import DEFAULTS, Backend, Buffer, LoadOptions, ModelReading, PrecisionSupport
from trtnode.engines.cuda.context import has_driver, open_device
from trtnode.engines.cuda.devices import find_gpu
from trtnode.engines.cuda.programs import GpuPrograms, open_alone
from trtnode.engines.cuda.streams import STREAMS, ExecutionStream, GpuEngine, GpuStage, StreamPool
from trtnode.engines.errors import BackendMissingError
from trtnode.engines.tensorrt.builder import build_engine, properties
from trtnode.engines.tensorrt.labelling import labels, parser
from trtnode.engines.tensorrt.library import TENSORRT, TENSORRT_RTX, Installation, TensorRtLibrary, target_of
from trtnode.engines.tensorrt.loaded_engine import LoadedEngine, deserialize
from trtnode.engines.tensorrt.stage import TensorRtStage
from trtnode.engines.tensorrt.targets import check_types, lacking_precisions
from trtnode.engines.tensorrt.whole_model import read_model
from trtnode.partitioner.cut.labels import Verdict
from trtnode.partitioner.cut.options import Allowance
from trtnode.partitioner.graph.view import Node, TensorSpec

PORTABLE = "portable"
"""The device of engines for no target in particular."""

CUDA_INSTALL = "pip install 'trtnode[cuda]'"
NO_PYCUDA = f"is installed, but pycuda is not, or it finds no CUDA driver. Install it: {CUDA_INSTALL}"


class TensorRtEngine(GpuEngine):
    """A deserialized engine, for stages on streams, and for runs on the host's memory."""

    compiles_kernels = True

    def __init__(
        self, loaded: LoadedEngine, streams: StreamPool, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.streams = streams
        self.narrowed: Mapping[str, np.dtype] = {
            b.name: b.dtype for b in (*loaded.inputs, *loaded.outputs) if b.narrowed
        }
        self._loaded = loaded
        self._alone: list[GpuPrograms] = []  # shared by forks, and made when one of them first runs alone
        self._feeds: Sequence[Buffer] = ()
        self._results: Sequence[Buffer] | None = None

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer] | None) -> None:
        """Set the buffers of ``run``."""
        self._feeds, self._results = inputs, outputs

    def run(self) -> Sequence[Buffer]:
        """Copy the inputs to the GPU, run, and copy the results back.

        Raises:
            OutOfRangeError: The inputs are outside all profiles, or empty.
            ExecutionError: TensorRT or CUDA failed.
        """
        feeds = {spec.name: buffer for spec, buffer in zip(self.inputs, self._feeds, strict=True)}
        if not self._alone:
            self._alone.append(open_alone(self))
        results = self._alone[0].run(feeds)
        if self._results is None:
            return [results[spec.name] for spec in self.outputs]
        for spec, buffer in zip(self.outputs, self._results, strict=True):
            buffer[...] = results[spec.name]
        return self._results

    def take_kernels(self, kernels: bytes) -> bool:
        """Take kernels of an earlier process before the first run; return False where they are for something else."""
        with self.streams.device:
            return self._loaded.take_kernels(kernels)

    def kernels(self) -> bytes:
        """Return the kernels that were compiled so far, or taken; empty where the library compiles none."""
        with self.streams.device:
            return self._loaded.kernels()

    def fork(self) -> TensorRtEngine:
        """Return another user of the same execution contexts, which the streams keep apart."""
        engine = TensorRtEngine(self._loaded, self.streams, self.inputs, self.outputs)
        engine._alone = self._alone
        return engine

    def on_stream(self, stream: ExecutionStream, inputs: Sequence[str], outputs: Sequence[str]) -> GpuStage:
        """Return execution contexts of this engine on one stream, as a stage of a model."""
        return TensorRtStage(self._loaded, stream, inputs, outputs)


class TensorRtBackend(Backend):
    """Labels, builds and loads with one library, which ``trtnode.engines.tensorrt.library`` describes."""

    needs_shapes = True
    on_cpu = False
    reads_models = True

    def __init__(self, library: TensorRtLibrary) -> None:
        """Describe the library's engines, without importing its module."""
        self.name = library.engine
        self.build_options = frozenset(f.name for f in dataclasses.fields(TensorRtOptions)) - library.lacks
        self._library = library

    @functools.cache  # noqa: B019  (one backend a process)
    def unavailable_reason(self) -> str | None:
        """Return the part of the installation that is missing for a build, if any."""
        reason = self._library.unavailable_reason(self._installation, find_gpu())
        if reason or self._library.targets:
            return reason
        return None if has_driver() else f"{self._library.title} {NO_PYCUDA}"

    def cannot_run_reason(self, options: BuildOptions) -> str | None:
        """Return what is missing here to run engines for the targets of these options, if anything."""
        if not self._library.targets:
            return self.unavailable_reason()
        reason = self._library.cannot_run_reason(find_gpu(), options.tensorrt.targets)  # without importing it
        if reason or (reason := self.unavailable_reason()):
            return reason
        return None if has_driver() else f"pycuda is not installed, or finds no CUDA driver: {CUDA_INSTALL}"

    def version(self) -> str:
        """Return the part of the library's version that its engines are bound to.

        Raises:
            BackendMissingError: It is not installed.
        """
        parts = str(self._module().__version__).split(".")
        return ".".join(parts[: self._library.version_parts])

    def device(self) -> Device:
        """Return the compute capability and name of the first GPU.

        Raises:
            BackendMissingError: There is none.
        """
        gpu = find_gpu()
        if gpu is None:
            raise BackendMissingError(
                self._library.no_gpu if self._installation.module else self._library.not_installed
            )
        return Device(features=target_of(gpu) if self._library.targets else gpu.compute_capability, name=gpu.name)

    def target_device(self, options: BuildOptions) -> Device:
        """Return the targets of a library that has some, else the GPU of this machine.

        Raises:
            BackendMissingError: There is none.
        """
        if not self._library.targets:
            return self.device()
        asked = options.tensorrt.targets
        features = ",".join(self._library.covered(asked)) if asked else PORTABLE
        return Device(features=features, name=f"GPUs of {self._library.title}")

    def label(self, node: Node, allow: Collection[Allowance] = ()) -> Verdict:
        """Label a node by the tables; see ``trtnode.engines.tensorrt.labelling.labels``."""
        return labels.label(node, allow, self._library.table)

    def check_targets(self, node: Node, options: BuildOptions) -> Verdict:
        """Compare a node's types with those of the targets; see ``trtnode.engines.tensorrt.targets``."""
        return check_types(node, self._library.covered(options.tensorrt.targets))

    def precision_support(self, options: BuildOptions | None = None) -> PrecisionSupport:
        """Return each precision as it is asked for: a strongly typed network computes in the types of its model.

        Those that a target lacks are left out.
        """
        lacking = lacking_precisions(self._library.covered(options.tensorrt.targets if options else ()))
        reduced = frozenset({"fp16", "bf16", "int8", "fp8", "int4"}).difference(lacking)
        return PrecisionSupport(
            effective={name: name for name in ("fp32", *sorted(reduced))},
            typed=reduced & {"fp16", "bf16"},
            accelerated=reduced,
            lacking=lacking,
        )

    def check_support(self, model: pathlib.Path) -> Verdict:
        """Ask the library's parser; see ``trtnode.engines.tensorrt.labelling.parser``.

        Raises:
            BackendMissingError: The library is not installed.
        """
        return parser.ask_parser(self._module(), model)

    def read_model(self, model: pathlib.Path) -> ModelReading:
        """Have the library's parser read a whole model; see ``trtnode.engines.tensorrt.whole_model``.

        Raises:
            BackendMissingError: The library is not installed.
        """
        return read_model(self._module(), model)

    def build_properties(self, options: BuildOptions) -> dict[str, str]:
        """Return the library's settings. Precision is in the model itself, because networks are strongly typed."""
        settings = {**properties(self._library.options_of(options.tensorrt)), **self._library.runtime_settings}
        if self._library.targets:
            settings[TARGETS] = ",".join(self._library.covered(options.tensorrt.targets))
        return settings

    def build(self, model: pathlib.Path, options: BuildOptions) -> bytes:
        """Build a segment; see ``trtnode.engines.tensorrt.builder``.

        Raises:
            BackendMissingError: The library is not installed.
            BuildError: It refuses the model.
        """
        tensorrt = self._library.options_of(options.tensorrt)
        if tensorrt.targets:
            tensorrt = dataclasses.replace(tensorrt, targets=self._library.covered(tensorrt.targets))
        taken = dataclasses.replace(options, tensorrt=tensorrt)
        if self._library.targets:
            taken = dataclasses.replace(taken, timing_cache=None)  # nothing is measured where no GPU is
        return build_engine(self._module(), model, taken)

    def load(self, engine: bytes | memoryview, envelope: Envelope, options: LoadOptions = DEFAULTS) -> TensorRtEngine:
        """Deserialize engine bytes for the streams of the first GPU.

        Args:
            engine: As built.
            envelope: Already verified.
            options: Unused: the host computes nothing, and all models share the streams.

        Raises:
            BackendMissingError: A part of the installation is missing.
            EngineRejectedError: The library refuses the bytes, or their bindings are not the envelope's.
        """
        trt, streams = self._module(), self.streams()
        with streams.device:
            loaded = deserialize(trt, engine, envelope)
        return TensorRtEngine(loaded, streams, envelope.inputs, envelope.outputs)

    @functools.cache  # noqa: B019  (one backend a process)
    def streams(self) -> StreamPool:
        """Return the streams that all models share. CUDA starts with the first engine that is loaded.

        Raises:
            BackendMissingError: pycuda or a GPU is missing.
        """
        return StreamPool(open_device(), STREAMS)

    @functools.cached_property
    def _installation(self) -> Installation:
        return self._library.find()

    def _module(self) -> Any:
        if self._installation.module is None:
            raise BackendMissingError(self._library.not_installed)
        return self._installation.module


tensorrt = functools.partial(TensorRtBackend, TENSORRT)
tensorrt_rtx = functools.partial(TensorRtBackend, TENSORRT_RTX)
