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
    answers = _steady_answers(source, inputs, given, uses)
    give_back_free_pages()
    report(Progress(CHECKING, 0, 1, max(ENGINE_S, ROOM * (time.monotonic() - began))))
    problem = _problem_of_plain(compiled, answers)
    give_back_free_pages()
    problem = problem or (_problem_of_engines(compiled, answers) if engines else None)
    report(Progress(CHECKING, 1, 1))
    return problem


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """A sample, and the native outputs that are the same each time; ``quantized`` as in ``find_difference``."""

    feeds: Feeds
    outputs: Mapping[str, Any]
    quantized: bool
    varied: bool = False


def _steady_answers(
    source: pathlib.Path, inputs: Sequence[TensorSpec], given: pathlib.Path | None, uses: InputUses
) -> Sequence[_Answer]:
    session = NativeSession(source, name=str(source))
    native = Remembering(session)
    quantized = accumulates_quantized(op.op_type for op in load_model(source).graph)
    answers, samples = [], find_samples(native, inputs, given)
    for feeds in samples:
        expected = dict(zip(native.outputs, native.run(feeds), strict=True))
        repeated = dict(zip(native.outputs, session.run(feeds), strict=True))
        steady = {n: v for n, v in expected.items() if find_difference(v, repeated[n]) is None}
        answers.append(_Answer(feeds=feeds, outputs=steady, quantized=quantized))
        if all(map(is_finite, expected.values())):
            break  # each engine was compared on the others
    names = set(native.outputs).intersection(*(answer.outputs for answer in answers))
    base = generated(session, inputs, given, samples)
    for one in varied_samples(session, inputs, base, uses, scales=False):
        outputs = {name: one.values[name] for name in names}
        answers.append(_Answer(feeds=one.feeds, outputs=outputs, quantized=quantized, varied=True))
    return answers


def _problem_of_plain(compiled: pathlib.Path, answers: Sequence[_Answer]) -> str | None:
    try:
        plain = NativeSession(compiled, name="the compiled model")
        usual = [answer for answer in answers if not answer.varied]  # the same library runs the same nodes
        return _first_difference(lambda feeds: dict(zip(plain.outputs, plain.run(feeds), strict=True)), usual)
    except EngineError as error:
        return str(error)


def _problem_of_engines(compiled: pathlib.Path, answers: Sequence[_Answer]) -> str | None:
    fallbacks: list[str] = []
    try:
        executable = open_executable(load_model(compiled), compiled, folder=compiled.parent)
        if not executable.description["segments"]:
            return "; ".join(executable.description["rejected"])
        executable.on_fallback = fallbacks.append
        problem = _first_difference(executable.run, [answer for answer in answers if not answer.varied])
        executable.on_fallback = lambda _: None
        problem = problem or _first_difference(executable.run, [answer for answer in answers if answer.varied])
    except EngineError as error:
        return str(error)
    refused = next((reason for reason in fallbacks if reason != EMPTY_TENSOR), None)
    return problem or (f"its engines refuse sample inputs ({refused})" if refused else None)


def _first_difference(run: Callable[[Feeds], Mapping[str, Any]], answers: Sequence[_Answer]) -> str | None:
    for answer in answers:
        actual = run(answer.feeds)
        for name, expected in answer.outputs.items():
            problem = find_difference(expected, actual[name], quantized=answer.quantized)
            if problem:
                return f"output {name!r}: {problem}"
    return None


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
    return "; ".join(executable.description["rejected"]) or (None if ran else "its engines run on no generated input")


class AsRunner:
    """An executable whose results come in order."""

    def __init__(self, executable: Executable) -> None:
        self.outputs = tuple(s.name for s in executable.outputs)
        self._executable = executable

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> list[Any]:
        """Run it."""
        return list(self._executable.run(feeds, outputs).values())
