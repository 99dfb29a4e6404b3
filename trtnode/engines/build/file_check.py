"""Checks a compiled file as a whole, in the worker process: it is loaded, run, and compared with its source."""

from __future__ import annotations

import functools
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trtnode.engines.backends.progress import Progress, report
from trtnode.engines.build.jobs import CHECKING, ENGINE_S, ROOM, problem_of
from trtnode.engines.build.native_runs import NativeRun, NativeRuns, SampledModel, kept_runs, run_natively
from trtnode.engines.build.tolerance import accumulates_quantized, find_difference
from trtnode.engines.errors import EMPTY_TENSOR, EngineError
from trtnode.engines.inputs.samples import Feeds, find_samples
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.engines.process_memory import give_back_free_pages
from trtnode.engines.runtime.executor import Executable, open_executable
from trtnode.engines.runtime.options import ALONE, RunOptions
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.partitioner.model.loading import load_model
from trtnode.partitioner.model.regular_files import file_version

_kept: list[tuple[object, Executable]] = []


def check_compiled(
    compiled: pathlib.Path,
    source: SampledModel,
    *,
    engines: bool = True,
    vary: bool = True,
    keep: RunOptions | None = None,
) -> str | None:
    """Load a compiled file in plain ONNX Runtime, and with its engines if it is to, run, and compare with its source.

    Args:
        compiled: The file.
        source: The model that it was compiled from. Where its runs were kept, they are not repeated.
        engines: Compare with engines, too.
        vary: Do so on all samples. One shows that the file is whole if its engines have answered the others before.
        keep: Open it with these options, and keep it open for ``take_open``; None closes it.

    Returns:
        None if all agree, else a sentence.
    """
    began = time.monotonic()
    native = _Source(source.path)
    runs = kept_runs(source) or run_natively(native.open, source, vary=engines and vary, scales=False)
    give_back_free_pages()
    report(Progress(CHECKING, 0, 1, max(ENGINE_S, ROOM * (time.monotonic() - began))))
    if not vary:
        runs = NativeRuns(usual=runs.usual[:1])
    problem = _problem_of_plain(compiled, native, runs.usual)  # the same library runs the same nodes
    give_back_free_pages()
    problem = problem or (_problem_of_engines(compiled, native, runs, keep) if engines else None)
    report(Progress(CHECKING, 1, 1))
    return problem


class _Source:
    """The model that a compiled file is compared with. It is loaded only while it runs, for the sake of memory."""

    def __init__(self, path: pathlib.Path) -> None:
        self.open = functools.partial(NativeSession, path, brief=True, name=str(path))
        self._quantized = accumulates_quantized(op.op_type for op in load_model(path).graph)

    def first_difference(self, run: Callable[[Feeds], Mapping[str, Any]], runs: Sequence[NativeRun]) -> str | None:
        """Return how results differ from the native ones; those that differ from run to run are not compared."""
        for one in runs:
            actual = run(one.feeds)
            for name in (name for name in one.values if name not in one.feeds):
                problem = find_difference(one.values[name], actual[name], quantized=self._quantized)
                if problem and self._repeats(one, name):
                    return f"output {name!r}: {problem}"
        return None

    def _repeats(self, one: NativeRun, name: str) -> bool:
        return find_difference(one.values[name], self.open().run(one.feeds, [name])[0]) is None


def _problem_of_plain(compiled: pathlib.Path, source: _Source, runs: Sequence[NativeRun]) -> str | None:
    try:
        plain = NativeSession(compiled, brief=True, packs=False, name="the compiled model")
        return source.first_difference(lambda feeds: dict(zip(plain.outputs, plain.run(feeds), strict=True)), runs)
    except EngineError as error:
        return problem_of(error)


def _problem_of_engines(
    compiled: pathlib.Path, source: _Source, runs: NativeRuns, keep: RunOptions | None
) -> str | None:
    fallbacks: list[str] = []
    varied = [one for one in runs.varied if not one.scaled]
    try:
        executable = open_executable(load_model(compiled), compiled, folder=compiled.parent, run=keep or ALONE)
        if not executable.facts.segments:
            return "; ".join(executable.facts.rejected)
        executable.on_fallback = fallbacks.append
        problem = source.first_difference(executable.run, runs.usual)
        executable.on_fallback = lambda _: None
        problem = problem or source.first_difference(executable.run, varied)
    except EngineError as error:
        return problem_of(error)
    if keep is not None:
        _kept[:] = [((compiled, file_version(compiled), keep), executable)]
    refused = next((reason for reason in fallbacks if reason != EMPTY_TENSOR), None)
    return problem or (f"its engines refuse sample inputs ({refused})" if refused else None)


def take_open(compiled: pathlib.Path, run: RunOptions) -> Executable | None:
    """Return the compiled file that the last check has kept open with these options, which is then nobody else's."""
    taken, _kept[:] = [*_kept], []
    return next((executable for key, executable in taken if key == (compiled, file_version(compiled), run)), None)


def check_engines_alone(compiled: pathlib.Path, inputs: Sequence[TensorSpec], given: pathlib.Path | None) -> str | None:
    """Load and run a compiled file whose nodes don't all run natively, to see that its engines answer.

    Returns:
        None if they do, else a sentence.
    """
    try:
        executable = open_executable(load_model(compiled), compiled, folder=compiled.parent)
        ran = bool(find_samples(AsRunner(executable), inputs, given))
    except EngineError as error:
        return problem_of(error)
    return "; ".join(executable.facts.rejected) or (None if ran else "its engines run on no generated input")


class AsRunner:
    """An executable whose results come in order."""

    def __init__(self, executable: Executable) -> None:
        self.outputs = tuple(s.name for s in executable.outputs)
        self._executable = executable

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> list[Any]:
        """Run it."""
        return list(self._executable.run(feeds, outputs).values())
