"""Small types: sizes, memory, loggers, and the base classes of what users hand in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from simulated_tensorrt.enums import Severity
from simulated_tensorrt.simulation import Bound, swallow

MAX_DIMS = 8


class Dims(Sequence[int]):
    """Equal to tuples and lists, but not to one another, and not hashable."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, shape: Sequence[int] = ()) -> None:
        if len(shape) > MAX_DIMS:
            raise ValueError(f"The maximum number of dimensions is {MAX_DIMS}")
        self._sizes = tuple(int(size) for size in shape)

    def __len__(self) -> int:
        return len(self._sizes)

    def __getitem__(self, index: Any) -> Any:
        return self._sizes[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self._sizes)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Dims):
            raise TypeError("__eq__(): incompatible function arguments")
        return isinstance(other, tuple | list) and self._sizes == tuple(other)

    def __repr__(self) -> str:
        return repr(self._sizes)


class IHostMemory(bytes):
    """Host memory that the library owns; a buffer."""

    @property
    def nbytes(self) -> int:
        return len(self)


class NeedsInit:
    """A base that a subclass must initialize."""

    _started = False

    def __init__(self) -> None:
        self._started = True


def started(value: Any, kind: type) -> Any:
    """Check that an argument is of a kind and that its base was initialized.

    Raises:
        TypeError: As the bindings do.
    """
    if not isinstance(value, kind) or not getattr(value, "_started", True):
        raise TypeError(f"incompatible function arguments: {type(value).__name__} is no {kind.__name__}")
    return value


def pure_virtual(name: str) -> RuntimeError:
    """Return the exception for a method that only a subclass has, as pybind11 words it."""
    return RuntimeError(f'Tried to call pure virtual function "{name}"')


class ILogger(NeedsInit):
    Severity = Severity
    INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = Severity

    def log(self, severity: Severity, msg: str) -> None:
        raise pure_virtual("ILogger::log")


class IOutputAllocator(NeedsInit):
    """Gives memory for outputs whose size only a run tells.

    A subclass has ``reallocate_output_async(tensor_name, memory, size, alignment, stream)`` or
    ``reallocate_output(tensor_name, memory, size, alignment)``, and ``notify_shape(tensor_name, shape)``.
    """


class IProgressMonitor(NeedsInit):
    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        raise pure_virtual("IProgressMonitor::phase_start")

    def step_complete(self, phase_name: str, step: int) -> bool:
        raise pure_virtual("IProgressMonitor::step_complete")

    def phase_finish(self, phase_name: str) -> None:
        raise pure_virtual("IProgressMonitor::phase_finish")


class Speaks(Bound):
    """An object that logs. What a logger raises is printed and lost."""

    def __init__(self, logger: ILogger) -> None:
        self._logger = started(logger, ILogger)

    def _error(self, text: str) -> None:
        swallow(self._logger.log, Severity.ERROR, text)

    def _warn(self, text: str) -> None:
        swallow(self._logger.log, Severity.WARNING, text)


class ShowsLogger(Speaks):
    """One that tells which logger it has."""

    @property
    def logger(self) -> ILogger:
        return self._logger
