"""Runs nodes of a served model in onnx.reference, in a process of their own: Python would hold this one's interpreter.

The process may use so much memory, and each run so much time. It is started again for the run after one that took more.
"""

from __future__ import annotations

import functools
import itertools
import pathlib
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

import onnx

from trtnode.engines.artifact.files import write_model
from trtnode.engines.artifact.temporary_folder import TemporaryFolder
from trtnode.engines.backends.reference import Evaluator, ReferenceSession
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.errors import LastResortError, MemoryLimitError, OutOfMemoryError, WorkerError, WorkerTimeoutError

P = ParamSpec("P")
R = TypeVar("R")

START_TIMEOUT_S = 120.0
"""Time for the process to start and load one node."""


class IsolatedReference:
    """The process of one model. It ends with the last evaluator that it gave out."""

    def __init__(self, *, memory_bytes: int, timeout_s: float) -> None:
        """Start nothing yet.

        Args:
            memory_bytes: Limit of the memory of the process.
            timeout_s: Longest time of one node.
        """
        self._timeout_s = timeout_s
        self._folder = TemporaryFolder()
        self._worker = SubprocessWorker(memory_bytes=memory_bytes)
        self._numbers = itertools.count()
        weakref.finalize(self, self._worker.close)

    def open(self, model: onnx.ModelProto) -> Evaluator:
        """Load a model of one node in the process, and return what evaluates it there, one run at a time."""
        path = self._folder.path / f"{next(self._numbers)}.onnx"
        write_model(model, path)
        self._call(load, START_TIMEOUT_S, path)
        return functools.partial(self._evaluate, path)

    def _evaluate(self, path: pathlib.Path, feeds: Mapping[str, Any]) -> Sequence[Any]:
        self._call(load, START_TIMEOUT_S, path)  # unless the process has it, since it was not started again
        return self._call(evaluate, self._timeout_s, path, feeds)

    def _call(self, function: Callable[P, R], timeout_s: float, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return self._worker.call(function, timeout_s, *args, **kwargs)
        except OutOfMemoryError as error:
            raise MemoryLimitError(f"onnx.reference: {error}") from error
        except WorkerTimeoutError as error:
            advice = "Raise server.limits.reference_timeout_s if it may take longer."
            raise LastResortError(f"onnx.reference took longer than {timeout_s:g} s. {advice}") from error
        except WorkerError as error:
            raise LastResortError(f"onnx.reference: {error}") from error


def load(model: pathlib.Path) -> None:
    """Load the model in a file, in this process.

    Raises:
        BuildError: onnx.reference refuses it.
    """
    _session(model)


def evaluate(model: pathlib.Path, feeds: Mapping[str, Any]) -> list[Any]:
    """Evaluate the model in a file, in this process.

    Raises:
        ExecutionError: onnx.reference failed.
    """
    return _session(model).run(feeds)


@functools.cache
def _session(model: pathlib.Path) -> ReferenceSession:
    return ReferenceSession(model)
