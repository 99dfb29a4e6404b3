"""The contract of an engine library: a backend and its engines, which derive from these two classes.

A method with a body holds for libraries that have nothing else to say.
"""

from __future__ import annotations

import abc
import dataclasses
import pathlib
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from trtnode.engines.artifact.envelope import Device, Envelope, InputAxis
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.errors import BuildError
from trtnode.partitioner.cut.labels import SUPPORTED, Verdict
from trtnode.partitioner.cut.options import Allowance
from trtnode.partitioner.graph.view import Node, TensorSpec

Buffer = np.ndarray
"""Host memory that an engine reads or writes in place: C-contiguous, 64-byte aligned."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """Surroundings of an engine that is loaded.

    Attributes:
        threads: Threads of one execution; None leaves it to the library.
        instances: Executions at the same time.
        shares_cores: True if something else computes on the same cores, so that idle threads should leave them.
    """

    threads: int | None = None
    instances: int = 1
    shares_cores: bool = True


DEFAULTS = LoadOptions()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionSupport:
    """The precisions that a backend has on this device.

    Attributes:
        effective: The precision that it computes in, by the precision that is asked for, without those that it lacks.
        typed: Precisions that the types of a model ask for; the others are asked for by ``BuildOptions.precision``.
        accelerated: Precisions that this device computes in hardware, faster than float32.
        lacking: Precisions that the library has and a GPU that is built for lacks, each with the GPUs, in a few words.
    """

    effective: Mapping[str, str]
    typed: frozenset[str] = frozenset()
    accelerated: frozenset[str] = frozenset()
    lacking: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelReading:
    """The answer of a library that has read a whole model.

    Attributes:
        verdict: Of the first node that it refuses; ``SUPPORTED`` where it takes all.
        refused: Name of a tensor that this node makes; empty where the library names no node.
        tensors: Tensors that it has read, with the types and shapes that it infers; a dimension is None if it varies.
        sizes: Names of inputs whose values decide on shapes. An engine needs bounds of them.
    """

    verdict: Verdict
    refused: str = ""
    tensors: tuple[TensorSpec, ...] = ()
    sizes: tuple[str, ...] = ()


class Engine(abc.ABC):
    """A built segment, ready to run. It runs one request at a time; ``fork`` makes another for concurrent requests.

    Attributes:
        inputs: In binding order.
        outputs: In binding order.
        reads_in_place: True if ``run_on`` reads inputs where they lie, so that nobody needs to copy them to bound
            memory.
        compiles_kernels: True if kernels are compiled for the device of this machine when the engine first runs, which
            takes seconds.
        empty_places: As in the envelope: sets of places at which inputs may be empty at the same time.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    reads_in_place = False
    compiles_kernels = False
    empty_places: frozenset[frozenset[InputAxis]] = frozenset()

    @abc.abstractmethod
    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer] | None) -> None:
        """Set the buffers of ``run``. They must live until the next ``bind``.

        Args:
            inputs: One buffer for each input.
            outputs: One buffer for each output; None lets the engine allocate them, for shapes known after a run.
        """

    @abc.abstractmethod
    def run(self) -> Sequence[Buffer]:
        """Run once on the bound buffers.

        Returns:
            The outputs. Those that the engine allocated are valid until the next run.

        Raises:
            OutOfRangeError: The inputs hold values that this engine can't compute with.
            ExecutionError: The library failed.
        """

    @abc.abstractmethod
    def fork(self) -> Engine:
        """Return an engine that shares the weights of this one and has bindings of its own."""

    def run_on(self, inputs: Sequence[Buffer]) -> Sequence[Buffer]:
        """Run on contiguous arrays in the order of the engine's inputs, and keep none of them.

        The results belong to the caller.

        Raises:
            ExecutionError: The library failed.
        """
        self.bind(inputs, None)
        return [np.array(result) for result in self.run()]

    def made(self, array: Buffer) -> bool:
        """Return whether an array is a whole result of this engine, or of a fork, that ``run_on`` has handed out."""
        return False

    def take_kernels(self, kernels: bytes) -> bool:
        """Take kernels of an earlier process before the first run; return False where they are for something else."""
        return False

    def kernels(self) -> bytes:
        """Return the kernels that were compiled so far, or taken; empty where the library compiles none."""
        return b""


class Backend(abc.ABC):
    """One engine library.

    Attributes:
        name: As in options and envelopes.
        trusted_ops: Operators whose engines are used without a check where nothing else can compute them.
        clamped_ops: Operators that would address memory outside their tensors, had its engines no clamps.
        needs_shapes: True if engines run only on shapes that they were built for.
        on_cpu: True if engines compute on the processor, whose times the report estimates.
        reads_links: True if weights of the models that it builds from may lie in files with several hard links.
        reads_models: True if ``read_model`` reads models of many nodes in order, and infers shapes of its own.
        build_options: Names of the ``TensorRtOptions`` that its builder takes.
    """

    name: str
    trusted_ops: frozenset[str] = frozenset()
    clamped_ops: frozenset[str] = frozenset()
    needs_shapes = False
    on_cpu = True
    reads_links = False
    reads_models = False
    build_options: frozenset[str] = frozenset()

    @abc.abstractmethod
    def version(self) -> str:
        """Return the version of the library that its engines are bound to; engines of another version are refused."""

    @abc.abstractmethod
    def device(self) -> Device:
        """Return the device of this machine that engines run on."""

    def target_device(self, options: BuildOptions) -> Device:
        """Return what engines are built for with these options: the device of this machine, or others like it."""
        return self.device()

    def fingerprint(self, options: BuildOptions) -> str:
        """Return what of the library and this machine decides what these options build, for the keys of caches.

        It differs where ``version`` or the features of ``target_device`` do, and may cost less.
        """
        return f"{self.version()} {self.target_device(options).features}"

    @abc.abstractmethod
    def label(self, node: Node, allow: Collection[Allowance] = ()) -> Verdict:
        """Return whether the library computes this node right, or as the user allows."""

    def check_targets(self, node: Node, options: BuildOptions) -> Verdict:
        """Return whether all GPUs that these options build for compute this node in its types."""
        return SUPPORTED

    def unavailable_reason(self) -> str | None:
        """Return why nothing can be built here, and how to mend that; None if it can.

        An unavailable backend still labels nodes, by its tables alone.
        """
        return None

    def cannot_run_reason(self, options: BuildOptions) -> str | None:
        """Return in a few words why engines that are built with these options don't run here; None if they do."""
        return None

    def check_support(self, model: pathlib.Path) -> Verdict:
        """Ask the library itself about every node of a model, without building anything.

        Returns:
            Its verdict, in its own words where it refuses a node.
        """
        return SUPPORTED

    def read_model(self, model: pathlib.Path) -> ModelReading:
        """Have the library read the model in a file, without building anything. A crash of it ends the process.

        Raises:
            BuildError: The library can't read models of many nodes.
        """
        raise BuildError(f"{self.name} reads no model as a whole.")

    def index_options(self, nodes: Sequence[Node], inputs: Sequence[ir.Value]) -> dict[str, str]:
        """Return the option ``INDICES`` of the envelope of an engine; nothing where the library checks all indices."""
        return {}

    def may_be_empty(self, nodes: Sequence[Node], sizes: Collection[str]) -> bool:
        """Return whether an engine of these nodes leaves no memory where sizes of these names are 0."""
        return True

    def precision_support(self, options: BuildOptions | None = None) -> PrecisionSupport:
        """Return the precisions that there are on the device that these options build for; None for the defaults."""
        return PrecisionSupport(effective={"fp32": "fp32"})

    def build_properties(self, options: BuildOptions) -> dict[str, str]:
        """Return the library's settings for these options, by its own names. They go into the envelope."""
        return {}

    @abc.abstractmethod
    def build(self, model: pathlib.Path, options: BuildOptions) -> bytes:
        """Build the ONNX model in a file into engine bytes.

        Raises:
            BuildError: The library refuses the model, or changed its inputs or outputs.
        """

    @abc.abstractmethod
    def load(self, engine: bytes | memoryview, envelope: Envelope, options: LoadOptions = LoadOptions()) -> Engine:
        """Load engine bytes that ``envelope.verify`` has accepted.

        Args:
            engine: As built. Memory that may be written is the engine's own from now on.
            envelope: Their envelope.
            options: Its surroundings.

        Raises:
            EngineRejectedError: The library refuses the bytes.
        """
