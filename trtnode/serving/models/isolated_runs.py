"""Runs parts of a served model in a process of its own.

These are nodes in onnx.reference, since Python would hold this one's interpreter, and requests whose text nothing
bounds, since ONNX Runtime doesn't count it. The process may use so much memory, and each run so much time. It is
started again for the run after one that took more.
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
from trtnode.engines.errors import (
    ExecutionError,
    LastResortError,
    MemoryLimitError,
    ModelLoadError,
    OutOfMemoryError,
    WorkerError,
    WorkerTimeoutError,
)
from trtnode.engines.onnxruntime.compatibility import open_native
from trtnode.engines.onnxruntime.session import NativeSession

P = ParamSpec("P")
R = TypeVar("R")

OWN_BYTES = 160 << 20
"""Memory of the process before it runs anything: an interpreter and ONNX Runtime."""
START_TIMEOUT_S = 120.0
"""Time for the process to start and load one node."""


class IsolatedRuns:
    """The process of one model. It ends with the last evaluator or runner that it gave out."""

    def __init__(self, *, memory_bytes: int, timeout_s: float) -> None:
        """Start nothing yet.

        Args:
            memory_bytes: Limit of the memory of the runs in the process.
            timeout_s: Longest time of one node, or run.
        """
        self._timeout_s = timeout_s
        self._folder = TemporaryFolder()
        self._worker = SubprocessWorker(memory_bytes=memory_bytes + OWN_BYTES)
        self._numbers = itertools.count()
        weakref.finalize(self, self._worker.close)

    def open_reference(self, model: onnx.ModelProto) -> Evaluator:
        """Load a model of one node in the process, and return what evaluates it there, one run at a time."""
        path = self._folder.path / f"{next(self._numbers)}.onnx"
        write_model(model, path)
        self._call(load, START_TIMEOUT_S, path)
        return functools.partial(self._evaluate, path)

    def open_native(self, path: pathlib.Path) -> IsolatedModel:
        """Return what runs a model file in ONNX Runtime in the process, one run at a time."""
        return IsolatedModel(path, self._call_native)

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

    def _call_native(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return self._worker.call(function, self._timeout_s, *args, **kwargs)
        except WorkerTimeoutError as error:
            advice = "Raise server.limits.reference_timeout_s, or model_memory_mb so that it runs in the server."
            problem = f"the text of this request took longer than {self._timeout_s:g} s, in a process apart"
            raise ExecutionError(f"{problem}. {advice}") from error
        except (WorkerError, ModelLoadError) as error:
            raise MemoryLimitError(f"its text, in a process apart ({error})") from error


class IsolatedModel:
    """A model file in ONNX Runtime, in another process.

    Attributes:
        outputs: Names of the outputs.
    """

    def __init__(self, path: pathlib.Path, call: Callable[..., Any]) -> None:
        self._path = path
        self._call = call
        self.outputs: tuple[str, ...] = call(outputs_of, path)

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> list[Any]:
        """Return results in the order of ``outputs``.

        Raises:
            MemoryLimitError: They take more memory than the process may use.
            ExecutionError: ONNX Runtime failed, or took too long.
        """
        results: list[Any] = self._call(run_natively, self._path, dict(feeds), outputs)
        return results


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


def outputs_of(model: pathlib.Path) -> tuple[str, ...]:
    """Return the names of the outputs of the model in a file, which this process loads.

    Raises:
        ModelLoadError: ONNX Runtime refuses it.
    """
    return _native_session(model).outputs


def run_natively(model: pathlib.Path, feeds: Mapping[str, Any], outputs: Sequence[str] | None) -> list[Any]:
    """Run the model in a file in ONNX Runtime, in this process.

    Raises:
        ModelLoadError: ONNX Runtime refuses it.
        ExecutionError: It failed.
    """
    return _native_session(model).run(feeds, outputs)


@functools.cache
def _native_session(model: pathlib.Path) -> NativeSession:
    return open_native(model, threads=1, name=str(model))
