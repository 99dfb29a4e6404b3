"""The common state of one simulated TensorRT, and the faults that a test gives it."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from simulated_cuda import SimulatedGpu

VARIABLE = "SIMULATED_TENSORRT"
"""Of the environment: the simulation that a child process is to load, as JSON."""


RTX = (99, 0)
"""Stands for a release of TensorRT in which there is what only TensorRT for RTX has."""


class UsageError(Exception):
    """Refusals of the library; the text goes to the log."""


@dataclasses.dataclass(kw_only=True)
class Faults:
    """Faults. All of them can be sent to a child process."""

    builder_missing: bool = False
    """The library does not start: there is no GPU, or a driver that is too old."""
    refuses: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    """Error code and text of the parser, by operator."""
    parser_is_silent: bool = False
    """The parser refuses without an error; only the log tells why."""
    build_fails: str = ""
    """A build gives None, with this line in the log."""
    build_crashes: bool = False
    """A build ends the process."""
    build_step_s: float = 0.0
    """Time that a build takes for each layer."""
    deserialize_fails: str = ""
    """Engines are None, with this line in the log."""
    context_fails: str = ""
    """Execution contexts are None, with this line in the log."""
    enqueue_fails_after: int | None = None
    """Number of enqueues that succeed before one returns False; those after it succeed again."""
    enqueue_fails: str = "Cuda failure: out of memory"
    """The text of the log."""
    profile_switch_fails: bool = False


@dataclasses.dataclass(kw_only=True)
class Simulation:
    """One simulated installation of TensorRT on one simulated GPU.

    Attributes:
        version: Of TensorRT.
        gpu: Its GPU.
        faults: Faults, which a test may change at any time.
        builds: Engines that were built in this process.
        enqueues: Executions that were asked for.
        timed_layers: Layers whose speed was measured, for lack of a timing cache that knows them.
        compiled_kernels: Kernels that were compiled when a context was made, for lack of a runtime cache that has them.
    """

    version: str = "11.4.0.106"
    gpu: SimulatedGpu = dataclasses.field(default_factory=SimulatedGpu)
    faults: Faults = dataclasses.field(default_factory=Faults)
    builds: int = 0
    enqueues: int = 0
    timed_layers: int = 0
    compiled_kernels: int = 0
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    @property
    def is_rtx(self) -> bool:
        """True if this is TensorRT for RTX, whose versions begin at 1."""
        return self.version.startswith("1.")

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor version; for TensorRT for RTX, one above all, since it lacks nothing of theirs."""
        major, minor = self.version.split(".")[:2]
        return RTX if self.is_rtx else (int(major), int(minor))

    @property
    def target(self) -> str:
        """The GPU, as TensorRT for RTX names it."""
        return "sm{}{}".format(*self.gpu.compute_capability)

    @property
    def machine(self) -> str:
        """The release and the GPU, to which measurements and compiled kernels are bound."""
        return f"{self.version} {self.gpu.name} {self.gpu.compute_capability}"

    def count_enqueue(self) -> None:
        """Note that an execution is asked for.

        Raises:
            UsageError: This is the one that a test lets fail.
        """
        with self.lock:
            self.enqueues += 1
            if self.faults.enqueue_fails_after is None:
                return
            self.faults.enqueue_fails_after -= 1
            if self.faults.enqueue_fails_after >= 0:
                return
            self.faults.enqueue_fails_after = None
        raise UsageError(self.faults.enqueue_fails)

    def to_json(self) -> str:
        """Return the description from which a child process makes the same simulation."""
        facts = {
            "version": self.version,
            "compute_capability": self.gpu.compute_capability,
            "total_bytes": self.gpu.total_bytes,
            "faults": dataclasses.asdict(self.faults),
        }
        return json.dumps(facts)

    @classmethod
    def of_process(cls) -> Simulation:
        """The simulation that the environment describes."""
        facts = json.loads(os.environ.get(VARIABLE, "{}"))
        capability = tuple(facts.get("compute_capability", (9, 0)))
        gpu = SimulatedGpu(compute_capability=capability, total_bytes=facts.get("total_bytes", 1 << 34))
        faults = Faults(**facts.get("faults", {}))
        return cls(version=facts.get("version", cls.version), gpu=gpu, faults=faults)


class Bound:
    """A class of the bindings. Each simulated module has subclasses of its own, which know it.

    Attributes:
        _sim: The simulation.
        _trt: The module.
    """

    _sim: Simulation
    _trt: Any


def swallow(callback: Callable[..., Any], *args: Any) -> Any:
    """Call back into Python as the bindings do: an exception is printed and lost.

    Returns:
        What the callback gives; None after an exception.
    """
    try:
        return callback(*args)
    except Exception:
        traceback.print_exc(file=sys.stderr)
        return None
