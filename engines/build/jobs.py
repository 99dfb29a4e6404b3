"""Jobs of the worker process: they run a library on a model that it has not run yet.

Each job is a function of plain values, so that it can be sent to another process.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from trtnode.engines.artifact.envelope import Device, Place
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.progress import Progress, report
from trtnode.engines.backends.protocols import Engine, ModelReading
from trtnode.engines.backends.reference import ReferenceSession
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.build.tolerance import accumulates_quantized, find_difference, find_excess
from trtnode.engines.errors import EMPTY_TENSOR, BuildError, EngineError, ExecutionError, ModelLoadError
from trtnode.engines.inputs import shape_probe
from trtnode.engines.inputs.input_uses import InputUses
from trtnode.engines.inputs.samples import Feeds, Remembering, Runner, empty_samples, find_samples, relate_sizes
from trtnode.engines.inputs.varied_samples import varied_samples
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.engines.onnxruntime.type_inference import inferred_types
from trtnode.engines.process_memory import give_back_free_pages
from trtnode.engines.runtime.buffers import input_buffer
from trtnode.engines.runtime.contexts import empty_places
from trtnode.engines.runtime.engine_loading import load_engine_file
from trtnode.engines.runtime.executor import Executable, open_executable
from trtnode.engines.runtime.reference_nodes import evaluate_here, find_reference_nodes
from trtnode.engines.runtime.whole_model import open_refused
from trtnode.partitioner.cut.labels import Verdict
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.partitioner.model.loading import load_model
from trtnode.partitioner.passes.clean_up import clean_up

logger = logging.getLogger(__name__)

NOT_COMPARED = "It could not be compared with native execution: "
"""Begins the sentence about an engine that no input could check."""

NOTHING_KNOWN = InputUses()

ENGINE_S, ROOM = 60.0, 20.0
"""Seconds that an engine may take on all samples at least, and as a multiple of what native execution has taken on
them: a machine that is busy meanwhile is no fault of the engine."""

CHECKING = "Comparing with native execution"

GIVE_INPUTS = "--check-inputs IN.npz, or check_inputs in servable.yaml"
"""The option that takes inputs where generated ones are none that a model runs on."""

UNCHECKED = f"{NOT_COMPARED}the model runs on no generated input. Give inputs that it runs on ({GIVE_INPUTS})."


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BuiltSegment:
    """An engine on disk that is to be checked.

    Attributes:
        name: Name of the segment.
        engine: File of the engine bytes.
        envelope: Their envelope, as JSON.
        quantized: True if results are compared as those of quantized sums (``tolerance.accumulates_quantized``).
        trusted: True if the engine is used even where nothing can check it.
        steps: The difference between neighbours among the values of quantized outputs, by name; None if the error is
            not limited by it (``tolerance.find_excess``).
    """

    name: str
    engine: pathlib.Path
    envelope: str
    quantized: bool
    trusted: bool = False
    steps: Mapping[str, float] | None = None


def check_loads(model: pathlib.Path) -> None:
    """Load a model natively.

    Raises:
        ModelLoadError: ONNX Runtime refuses the model.
    """
    NativeSession(model, name=str(model))


def infer_types(model: pathlib.Path) -> dict[str, TensorSpec]:
    """Return the types and shapes of the outputs of a model, inner values among them, as ONNX Runtime infers them.

    Raises:
        ModelLoadError: ONNX Runtime refuses the model.
    """
    return inferred_types(open_observed(model))


def observe_shapes(
    model: pathlib.Path, inputs: Sequence[TensorSpec], given: Sequence[Sequence[TensorSpec]]
) -> dict[str, TensorSpec]:
    """Return the types and shapes of the outputs of a model, inner values among them, as native runs show them.

    Args:
        model: The model.
        inputs: Its inputs.
        given: The inputs in each shape that the user gives.

    Raises:
        ModelLoadError: ONNX Runtime refuses the model.
    """
    return shape_probe.observe_shapes(open_observed(model), inputs, given)


def find_sizes(model: pathlib.Path, inputs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...] | None:
    """Return the inputs with names of sizes as native runs relate them; None where no generated input runs.

    Raises:
        ModelLoadError: ONNX Runtime refuses the model.
    """
    return relate_sizes(NativeSession(model, name=str(model)), inputs)


def build(backend: str, model: pathlib.Path, engine: pathlib.Path, options: BuildOptions) -> None:
    """Build the model in one file into the engine bytes of another.

    Raises:
        BuildError: The library refuses the model.
    """
    engine.write_bytes(get_backend(backend).build(model, options))


def identify(backend: str, options: BuildOptions) -> tuple[str, Device]:
    """Return a library's release, and the device that it builds for."""
    library = get_backend(backend)
    return library.version(), library.target_device(options)


def check_support(backend: str, model: pathlib.Path) -> Verdict:
    """Return the verdict of a library on the nodes of the model in a file."""
    return get_backend(backend).check_support(model)


def read_model(backend: str, model: pathlib.Path) -> ModelReading:
    """Return what a library reads in the model in a file.

    Raises:
        BuildError: The library can't read models of many nodes.
    """
    return get_backend(backend).read_model(model)


def check_segments(
    model: pathlib.Path,
    inputs: Sequence[TensorSpec],
    segments: Sequence[BuiltSegment],
    given: pathlib.Path | None,
    uses: InputUses = NOTHING_KNOWN,
    engine_s: float = ENGINE_S,
) -> dict[str, str]:
    """Run each engine on the values that it would get inside the model, and compare with native execution.

    Args:
        model: The cleaned model, with every boundary tensor as an output.
        inputs: The model's inputs.
        segments: Engines to check.
        given: The user's own inputs, if any. They come first.
        uses: What the model does with its inputs.
        engine_s: Seconds that each engine may take at least. It may take more where native execution is slow.

    Returns:
        A sentence for each segment that differs, by segment name.

    Raises:
        ModelLoadError: ONNX Runtime refuses the model.
        InvalidInputError: The model does not run on the given inputs.
    """
    unfused = any(segment.steps is not None for segment in segments)
    began = time.monotonic()
    other = open_observed(model, unfused=True) if unfused else None
    compared = _natively(open_observed(model), inputs, given, uses, other)
    del other
    give_back_free_pages()
    return _compare(segments, compared, max(engine_s, ROOM * (time.monotonic() - began)))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EmptyInputs:
    """Empty inputs that an engine answers as native execution does.

    Attributes:
        places: Of the engine's inputs, with a size of 0.
        given: Name and axis of the model's inputs with a size of 0.
    """

    places: frozenset[Place]
    given: frozenset[tuple[str, int]]


def find_empty(
    model: pathlib.Path, inputs: Sequence[TensorSpec], segments: Sequence[BuiltSegment]
) -> dict[str, list[EmptyInputs]]:
    """Run engines with each size of the model's inputs at 0, and compare them as ``check_segments`` does.

    Args:
        model: As of ``check_segments``.
        inputs: The model's inputs.
        segments: Engines that are right on other inputs.

    Returns:
        The empty inputs that each engine answers right, by segment name.
    """
    session = open_observed(model)
    samples = [
        (_empty_axes(one[0]), [_Compared.of(session, feeds, None) for feeds in one])
        for one in empty_samples(session, inputs)
    ]
    del session
    give_back_free_pages()
    found: dict[str, list[EmptyInputs]] = {}
    for segment in segments:
        engine = load_engine_file(segment.name, segment.engine, segment.envelope)
        right = found[segment.name] = []
        for given, compared in samples:
            places = {empty_places([one.values[s.name] for s in engine.inputs]) for one in compared}
            if len(places) == 1 and (only := places.pop()) and _agrees(segment, engine, compared):
                right.append(EmptyInputs(places=only, given=given))
    return found


def _empty_axes(feeds: Feeds) -> frozenset[tuple[str, int]]:
    return frozenset((n, axis) for n, value in feeds.items() for axis, size in enumerate(value.shape) if not size)


def _agrees(segment: BuiltSegment, engine: Engine, compared: Sequence[_Compared]) -> bool:
    try:
        return not any(_difference(segment, engine, one) for one in compared)
    except ExecutionError:
        return False


def check_by_reference(
    model: pathlib.Path,
    inputs: Sequence[TensorSpec],
    segments: Sequence[BuiltSegment],
    given: pathlib.Path | None,
    uses: InputUses = NOTHING_KNOWN,
    engine_s: float = ENGINE_S,
) -> dict[str, str]:
    """Check as ``check_segments`` does, with onnx.reference, for a model that native execution refuses.

    ONNX Runtime computes the nodes that it has kernels for. Where the reference doesn't run the others, only segments
    of trusted operators are accepted.
    """
    began = time.monotonic()
    try:
        compared = _natively(_open_with_reference(model), inputs, given, uses)
        problems = _compare(segments, compared, max(engine_s, ROOM * (time.monotonic() - began)))
    except BuildError as error:
        logger.info("The reference can't check engines: %s", error)
        problems = {segment.name: UNCHECKED for segment in segments}
    trusted = {segment.name for segment in segments if segment.trusted}
    return {
        name: problem
        for name, problem in problems.items()
        if not (problem.startswith(NOT_COMPARED) and name in trusted)
    }


def _open_with_reference(model: pathlib.Path) -> Runner:
    """Open a model with as few nodes in onnx.reference as possible, else as a whole there.

    Raises:
        BuildError: onnx.reference refuses it.
    """
    try:
        return open_refused(model, ModelLoadError(str(model), "some of its nodes are refused"), evaluate_here)
    except ModelLoadError:
        return ReferenceSession(model)


def reference_nodes(model: pathlib.Path) -> dict[str, str]:
    """Return the nodes of a model that run in onnx.reference, as ``find_reference_nodes`` does."""
    graph = clean_up(load_model(model))
    return find_reference_nodes(graph, graph.nodes)


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


def _natively(
    session: Runner,
    inputs: Sequence[TensorSpec],
    given: pathlib.Path | None,
    uses: InputUses,
    other: NativeSession | None = None,
) -> list[_Compared]:
    """Run all samples, so that no session takes memory any more when the first engine is loaded."""
    session = Remembering(session)
    samples = find_samples(session, inputs, given)
    compared = [_Compared.of(session, feeds, other) for feeds in samples]
    if not samples:
        return compared
    for varied in varied_samples(session, inputs, _generated(session, inputs, given, samples), uses):
        others = _values(other, varied.feeds) if other else varied.values
        compared.append(_Compared(values=varied.values, others=others, varied=True, scaled=varied.scaled))
    return compared


def _compare(segments: Sequence[BuiltSegment], compared: Sequence[_Compared], limit_s: float) -> dict[str, str]:
    if not compared:
        return {segment.name: UNCHECKED for segment in segments}
    problems = {}
    for done, segment in enumerate(segments):
        report(Progress(CHECKING, done, len(segments), limit_s))
        problems[segment.name] = _check_segment(segment, compared)
    report(Progress(CHECKING, len(segments), len(segments)))
    return {name: problem for name, problem in problems.items() if problem}


def _generated(
    session: Runner, inputs: Sequence[TensorSpec], given: pathlib.Path | None, samples: Sequence[Feeds]
) -> Feeds | None:
    """Return generated inputs that the model runs on, if there are any."""
    found = find_samples(session, inputs, None) if given is not None else samples
    return found[0] if found else None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """What all boundary tensors are on one sample.

    Attributes:
        values: Natively.
        others: In another native form.
        varied: True for sizes and numbers that an engine may refuse, since native execution answers then.
        scaled: True for numbers far from 1.
    """

    values: Mapping[str, Any]
    others: Mapping[str, Any]
    varied: bool = False
    scaled: bool = False

    @classmethod
    def of(cls, session: Runner, feeds: Feeds, other: NativeSession | None) -> _Compared:
        values = _values(session, feeds)
        return cls(values=values, others=_values(other, feeds) if other else values)

    def says_nothing(self, segment: BuiltSegment, engine: Engine) -> bool:
        """Return whether numbers far from 1 are answered otherwise with good reason: rounded or beyond the range."""
        specs = (*engine.inputs, *engine.outputs)
        reduced = segment.quantized or any(spec.dtype == ir.DataType.FLOAT16 for spec in specs)
        return self.scaled and (reduced or not all(_is_finite(self.values[spec.name]) for spec in specs))


def _is_finite(value: Any) -> bool:
    return not isinstance(value, np.ndarray) or value.dtype.kind != "f" or bool(np.isfinite(value).all())


def _values(session: Runner, feeds: Feeds) -> dict[str, Any]:
    return {**feeds, **dict(zip(session.outputs, session.run(feeds), strict=True))}


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
        if all(map(_is_finite, expected.values())):
            break  # each engine was compared on the others
    names = set(native.outputs).intersection(*(answer.outputs for answer in answers))
    base = _generated(session, inputs, given, samples)
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


def open_observed(model: pathlib.Path, *, unfused: bool = False, exact: bool = True) -> NativeSession:
    """Load a model with many outputs, without fusions if need be: some of ONNX Runtime's remove an output.

    Args:
        model: A file.
        unfused: As of ``NativeSession``.
        exact: As of ``NativeSession``.

    Raises:
        ModelLoadError: ONNX Runtime refuses the model.
    """
    try:
        return NativeSession(model, name="the cleaned model", unfused=unfused, exact=exact)
    except ModelLoadError:
        return NativeSession(model, name="the cleaned model", optimize=False)


def _check_segment(segment: BuiltSegment, compared: Sequence[_Compared]) -> str | None:
    try:
        engine = load_engine_file(segment.name, segment.engine, segment.envelope)
        empty = [next((s.name for s in engine.inputs if one.values[s.name].size == 0), None) for one in compared]
        if all(empty):
            return (
                f"{NOT_COMPARED}{empty[0]!r} is empty on every input that was tried, and engines need at least one "
                f"element. Give inputs that fill it ({GIVE_INPUTS})."
            )
        filled = [name is None for name in empty]
        for one in itertools.compress(compared, filled):
            if one.says_nothing(segment, engine):
                continue
            try:
                problem = _difference(segment, engine, one)
            except ExecutionError:
                if not one.varied:
                    raise
                continue
            if problem:
                return problem
    except EngineError as error:
        return str(error)
    return None


def _difference(segment: BuiltSegment, engine: Engine, one: _Compared) -> str | None:
    sample = one.values
    engine.bind([input_buffer(sample, s) for s in engine.inputs], None)
    for spec, actual in zip(engine.outputs, engine.run(), strict=True):
        expected = input_buffer(sample, spec) if spec.dtype == ir.DataType.FLOAT16 else sample[spec.name]
        problem = find_difference(expected, actual, quantized=segment.quantized)
        if problem is None and segment.steps is not None:
            problem = find_excess(expected, one.others[spec.name], actual, step=segment.steps.get(spec.name))
        if problem:
            return f"{spec.name!r} is not what native execution gives: {problem}."
    return None
