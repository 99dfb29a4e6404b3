"""Checks a compiled file as a whole, in the worker process: it is loaded, run, and compared with its source."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trtnode.engines.backends.progress import Progress, report
from trtnode.engines.build.jobs import CHECKING, ENGINE_S, NOTHING_KNOWN, ROOM, generated, is_finite
from trtnode.engines.build.tolerance import accumulates_quantized, find_difference
from trtnode.engines.errors import EMPTY_TENSOR, EngineError
from trtnode.engines.inputs.input_uses import InputUses
from trtnode.engines.inputs.samples import Feeds, Remembering, find_samples
from trtnode.engines.inputs.varied_samples import varied_samples
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.engines.process_memory import give_back_free_pages
from trtnode.engines.runtime.executor import Executable, open_executable
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.partitioner.model.loading import load_model


def check_compiled(
    compiled: pathlib.Path,
    source: pathlib.Path,
    inputs: Sequence[TensorSpec],
    given: pathlib.Path | None,
    uses: InputUses = NOTHING_KNOWN,
    *,
    engines: bool = True,
) -> str | None:
    """Load a compiled file in plain ONNX Runtime, and with its engines if it is to, run, and compare with its source.

    Returns:
        None if all agree, else a sentence.
    """
    began = time.monotonic()
    native = _Source(source)
    usual, varied = native.answer(inputs, given, uses, vary=engines)
    give_back_free_pages()
    report(Progress(CHECKING, 0, 1, max(ENGINE_S, ROOM * (time.monotonic() - began))))
    problem = _problem_of_plain(compiled, native, usual)  # the same library runs the same nodes, so usual ones tell
    give_back_free_pages()
    problem = problem or (_problem_of_engines(compiled, native, usual, varied) if engines else None)
    report(Progress(CHECKING, 1, 1))
    return problem


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """A sample, and the native outputs."""

    feeds: Feeds
    outputs: Mapping[str, Any]


class _Source:
    """The model that a compiled file is compared with. It is loaded only while it runs, for the sake of memory."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._quantized = accumulates_quantized(op.op_type for op in load_model(path).graph)

    def answer(
        self, inputs: Sequence[TensorSpec], given: pathlib.Path | None, uses: InputUses, *, vary: bool
    ) -> tuple[list[_Answer], list[_Answer]]:
        """Return answers to the usual samples, up to one without NaN and infinity, and to varied ones."""
        session = self._open()
        runner = Remembering(session)
        samples, usual = find_samples(runner, inputs, given), list[_Answer]()
        for feeds in samples:
            outputs = dict(zip(runner.outputs, runner.run(feeds), strict=True))
            usual.append(_Answer(feeds=feeds, outputs=outputs))
            if all(map(is_finite, outputs.values())):
                break  # each engine was compared on the others
        base = generated(session, inputs, given, samples) if vary else None
        found = varied_samples(session, inputs, base, uses, scales=False)
        return usual, [
            _Answer(feeds=one.feeds, outputs={name: one.values[name] for name in session.outputs}) for one in found
        ]

    def first_difference(self, run: Callable[[Feeds], Mapping[str, Any]], answers: Sequence[_Answer]) -> str | None:
        """Return how results differ from the native ones; those that differ from run to run are not compared."""
        for answer in answers:
            actual = run(answer.feeds)
            for name, expected in answer.outputs.items():
                problem = find_difference(expected, actual[name], quantized=self._quantized)
                if problem and self._repeats(answer, name):
                    return f"output {name!r}: {problem}"
        return None

    def _repeats(self, answer: _Answer, name: str) -> bool:
        return find_difference(answer.outputs[name], self._open().run(answer.feeds, [name])[0]) is None

    def _open(self) -> NativeSession:
        return NativeSession(self._path, name=str(self._path))


def _problem_of_plain(compiled: pathlib.Path, source: _Source, answers: Sequence[_Answer]) -> str | None:
    try:
        plain = NativeSession(compiled, name="the compiled model")
        return source.first_difference(lambda feeds: dict(zip(plain.outputs, plain.run(feeds), strict=True)), answers)
    except EngineError as error:
        return str(error)


def _problem_of_engines(
    compiled: pathlib.Path, source: _Source, usual: Sequence[_Answer], varied: Sequence[_Answer]
) -> str | None:
    fallbacks: list[str] = []
    try:
        executable = open_executable(load_model(compiled), compiled, folder=compiled.parent)
        if not executable.facts.segments:
            return "; ".join(executable.facts.rejected)
        executable.on_fallback = fallbacks.append
        problem = source.first_difference(executable.run, usual)
        executable.on_fallback = lambda _: None
        problem = problem or source.first_difference(executable.run, varied)
    except EngineError as error:
        return str(error)
    refused = next((reason for reason in fallbacks if reason != EMPTY_TENSOR), None)
    return problem or (f"its engines refuse sample inputs ({refused})" if refused else None)


def check_engines_alone(compiled: pathlib.Path, inputs: Sequence[TensorSpec], given: pathlib.Path | None) -> str | None:
    """Load and run a compiled file whose nodes don't all run natively, to see that its engines answer.

    Returns:
        None if they do, else a sentence.
    """
    try:
        executable = open_executable(load_model(compiled), compiled, folder=compiled.parent)
        ran = bool(find_samples(AsRunner(executable), inputs, given))
    except EngineError as error:
        return str(error)
    return "; ".join(executable.facts.rejected) or (None if ran else "its engines run on no generated input")


class AsRunner:
    """An executable whose results come in order."""

    def __init__(self, executable: Executable) -> None:
        self.outputs = tuple(s.name for s in executable.outputs)
        self._executable = executable

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> list[Any]:
        """Run it."""
        return list(self._executable.run(feeds, outputs).values())
