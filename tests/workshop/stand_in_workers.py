"""Workers that tests put in place of a child process, or before one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from trtnode.engines.build.context import BUILDERS
from trtnode.engines.errors import WorkerError, WorkerTimeoutError


class AnyWorker(Protocol):
    """The part of ``engines.Worker`` that compilations call."""

    def call(self, function: Callable[..., Any], timeout_s: float, /, *args: Any, **kwargs: Any) -> Any: ...


class InProcessWorker:
    """Runs jobs in this process, so that backends that a test registers are visible to them."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def call(self, function: Callable[..., Any], timeout_s: float, /, *args: Any, **kwargs: Any) -> Any:
        self.calls.append(function.__name__)
        return function(*args, **kwargs)


class LoadingHere(InProcessWorker):
    """Loads models in this process, so that measurements can be replaced."""

    is_clean = False

    def __init__(self, **_limits: Any) -> None:
        super().__init__()

    def close(self) -> None:
        BUILDERS.idle_s = 0.0  # this process compiles other models as well


class CrashingWorker:
    """A worker whose child crashes whenever it runs one of the functions named, or takes too long."""

    def __init__(self, inner: AnyWorker, *functions: str, takes_s: float | None = None) -> None:
        self.inner = inner
        self.functions = list(functions)
        self.takes_s = takes_s

    def call(self, function: Callable[..., Any], timeout_s: float, /, *args: Any, **kwargs: Any) -> Any:
        if function.__name__ in self.functions:
            if self.takes_s is not None:
                raise WorkerTimeoutError(function.__name__, self.takes_s)
            raise WorkerError(f"The process that ran {function.__name__} crashed (exit code -11).")
        return self.inner.call(function, timeout_s, *args, **kwargs)
