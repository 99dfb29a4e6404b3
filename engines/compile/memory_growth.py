"""Measures the memory that a model takes, in a process that does nothing else. Linux only."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable
from typing import TypeVar

from trtnode.engines.backends.names import NATIVE
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.build.jobs import AsRunner
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.compile.prepare import load_executable
from trtnode.engines.errors import EngineError
from trtnode.engines.inputs.samples import find_samples
from trtnode.engines.process_memory import give_back_free_memory, resident_bytes, status_bytes
from trtnode.engines.runtime.executor import Executable
from trtnode.engines.tuning.timing import LIKELY_SIZES, with_one_row
from trtnode.partitioner.errors import PartitionError

TIMEOUT_S = 600.0

RUNS = 3
"""Runs of the model: from the second on, ONNX Runtime may allocate otherwise than in the first."""

CLEAR_REFS, RESET_PEAK = pathlib.Path("/proc/self/clear_refs"), "5"
"""The file that takes the word to forget the peak so far: proc_pid_clear_refs(5)."""

M = TypeVar("M")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGrowth:
    """Growth of a process by one model, without its libraries.

    Attributes:
        load_bytes: Growth of resident memory by loading.
        run_bytes: Growth of the peak over that, by running.
    """

    load_bytes: int
    run_bytes: int

    @property
    def peak_bytes(self) -> int:
        """Growth of the peak by both."""
        return self.load_bytes + self.run_bytes


def measure_memory(model: pathlib.Path, *, engine: str, given: pathlib.Path | None = None) -> MemoryGrowth | None:
    """Load and run a model file in a process of its own.

    Args:
        model: Compiled or not.
        engine: Its engine, whose library is loaded before.
        given: The user's own inputs; generated ones of likely sizes without.

    Returns:
        None where it can't be measured: the model runs on no known input, or this is no Linux.
    """
    try:
        with SubprocessWorker() as worker:
            return worker.call(_measure, TIMEOUT_S, model, engine, given)
    except (EngineError, PartitionError, OSError):
        return None


def growth_of(open_model: Callable[[], M], run: Callable[[M], object]) -> MemoryGrowth:
    """Measure the growth of this process by a model, on which nothing else must work meanwhile.

    Args:
        open_model: Loads it.
        run: Runs it, as often as it should.

    Raises:
        OSError: This is no Linux.
    """
    before = resident_bytes()
    model = open_model()
    give_back_free_memory()  # pages that loading has freed would hide what runs take
    loaded = resident_bytes()
    CLEAR_REFS.write_text(RESET_PEAK)
    run(model)
    return MemoryGrowth(load_bytes=max(0, loaded - before), run_bytes=max(0, status_bytes("VmHWM") - loaded))


def _measure(model: pathlib.Path, engine: str, given: pathlib.Path | None) -> MemoryGrowth:
    if engine != NATIVE:
        get_backend(engine).version()
    return growth_of(lambda: load_executable(model), lambda executable: _run(executable, given))


def _run(executable: Executable, given: pathlib.Path | None) -> None:
    samples = find_samples(AsRunner(executable), with_one_row(executable.inputs), given, sizes=LIKELY_SIZES)
    if not samples:
        raise EngineError("It runs on no known input.")
    for _ in range(RUNS):
        executable.run(samples[0])
