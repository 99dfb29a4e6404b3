"""The two interfaces that every engine library is reduced to."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import numpy as np
import onnx

from engines.envelope import Device, Envelope
from engines.options import BuildOptions
from partitioner import Allowance, Node, TensorSpec, Verdict

Buffer = np.ndarray
"""Host memory that an engine reads or writes in place: C-contiguous, 64-byte aligned."""

Origin = Callable[[], onnx.ModelProto]
"""Gives the model that an engine was built from."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionSupport:
    """What a backend computes in on this device.

    Attributes:
        effective: What it computes in, by the precision that is asked for; those that it lacks are not there.
        typed: Precisions that the types of a model ask for; the others are asked for by ``BuildOptions.precision``.
        accelerated: Precisions that this device computes in hardware, faster than float32.
        carried: Precisions in which its engines hand tensors on to each other, without a conversion for that.
    """

    effective: Mapping[str, str]
    typed: frozenset[str] = frozenset()
    accelerated: frozenset[str] = frozenset()
    carried: frozenset[str] = frozenset()


class Engine(Protocol):
    """A built segment, ready to run. Runs one request at a time; ``fork`` gives another for concurrent ones.

    Attributes:
        inputs: In binding order.
        outputs: In binding order.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer] | None) -> None:
        """Set where ``run`` reads and writes. The buffers must live until the next ``bind``.

        Args:
            inputs: One buffer an input.
            outputs: One buffer an output; None lets the engine allocate them, for shapes that only a run reveals.
        """
        ...

    def run(self) -> Sequence[Buffer]:
        """Run once on the bound buffers.

        Returns:
            The outputs; where the engine allocated them, they hold until the next run.

        Raises:
            OutOfRangeError: The inputs hold values that this engine can't compute with.
            ExecutionError: The library failed.
        """
        ...

    def fork(self) -> Engine:
        """An engine that shares the weights of this one and has bindings of its own."""
        ...


class Backend(Protocol):
    """One engine library.

    Attributes:
        name: As in options and envelopes.
        trusted_ops: Operators whose engines are used unseen where nothing else can compute them.
        needs_shapes: Whether engines run only on shapes that they were built for.
        profiling_options: With these in its envelope's options, an engine tells the times of its layers once it is
            loaded, if the library has them (``engines.layer_times``).
    """

    name: str
    trusted_ops: frozenset[str]
    needs_shapes: bool
    profiling_options: Mapping[str, str]

    def version(self) -> str:
        """Full version of the library; engines of another version are refused."""
        ...

    def device(self) -> Device:
        """What engines built here are built for."""
        ...

    def label(self, node: Node, allow: Collection[Allowance] = ()) -> Verdict:
        """Whether the library computes this node, and computes it right, or as the user allows."""
        ...

    def missing(self) -> str | None:
        """Why nothing can be built and run here, and how to mend it, in a sentence or two; None if it can.

        A backend of which something is missing still labels nodes, by its table alone.
        """
        ...

    def refusal(self, model: pathlib.Path) -> Verdict:
        """Ask the library itself whether it takes every node of a model, without building anything.

        Returns:
            Its verdict, in its own words where it refuses a node.
        """
        ...

    def precision_support(self) -> PrecisionSupport:
        """Which precisions there are, and what becomes of them."""
        ...

    def build_properties(self, options: BuildOptions) -> dict[str, str]:
        """The library's settings for these options, by its own names. They go into the envelope."""
        ...

    def build(self, model: pathlib.Path, options: BuildOptions) -> bytes:
        """Build the ONNX model in a file into engine bytes.

        Raises:
            BuildError: The library refuses the model, or changed its inputs or outputs.
        """
        ...

    def load(
        self, engine: bytes, envelope: Envelope, *, threads: int | None = None, origin: Origin | None = None
    ) -> Engine:
        """Load engine bytes that ``envelope.verify`` has accepted.

        Args:
            engine: As built.
            envelope: What travels with them.
            threads: Number of threads; None leaves it to the library.
            origin: For engines that hold no weights; None where there is nothing to take them from.

        Raises:
            EngineRejectedError: The library refuses the bytes.
        """
        ...
