"""Jobs of the worker process: they run models natively, and compare engines with that.

Each job is a function of plain values, so that it can be sent to another process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import logging
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from trtnode.engines.artifact.envelope import InputAxis
from trtnode.engines.backends.progress import Progress, report
from trtnode.engines.backends.protocols import Engine
from trtnode.engines.backends.reference import ReferenceSession
from trtnode.engines.build.tolerance import find_difference, find_excess
from trtnode.engines.errors import BuildError, EngineError, ExecutionError, ModelLoadError
from trtnode.engines.inputs import shape_probe
from trtnode.engines.inputs.input_uses import InputUses
from trtnode.engines.inputs.samples import Feeds, Remembering, Runner, empty_samples, find_samples, relate_sizes
from trtnode.engines.inputs.varied_samples import varied_samples
from trtnode.engines.onnxruntime.session import NativeSession, open_observed
from trtnode.engines.onnxruntime.type_inference import inferred_types
from trtnode.engines.process_memory import give_back_free_pages
from trtnode.engines.runtime.buffers import input_buffer
from trtnode.engines.runtime.contexts import empty_places
from trtnode.engines.runtime.engine_loading import load_engine_file
from trtnode.engines.runtime.reference_nodes import evaluate_here, find_reference_nodes
from trtnode.engines.runtime.whole_model import open_refused
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

MOST_RUNS, RUNS_S = 100, 0.1
"""Further runs of an engine that is right, and the seconds that they may take."""

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


def check_segments(
    model: pathlib.Path,
    inputs: Sequence[TensorSpec],
    segments: Sequence[BuiltSegment],
    given: pathlib.Path | None,
    uses: InputUses = NOTHING_KNOWN,
    engine_s: float = ENGINE_S,
    *,
    natively: bool = True,
) -> dict[str, str]:
    """Run each engine on the values that it would get inside the model, and compare with native execution.

    Args:
        model: The cleaned model, with every boundary tensor as an output.
        inputs: The model's inputs.
        segments: Engines to check.
        given: The user's own inputs, if any. They come first.
        uses: What the model does with its inputs.
        engine_s: Seconds that each engine may take at least. It may take more where native execution is slow.
        natively: False compares with onnx.reference, for a model that native execution refuses. ONNX Runtime computes
            the nodes that it has kernels for. Where the reference doesn't run the others, only segments of trusted
            operators are accepted.

    Returns:
        A sentence for each segment that differs, by segment name.

    Raises:
        ModelLoadError: ONNX Runtime refuses the model.
        InvalidInputError: The model does not run on the given inputs.
    """
    began = time.monotonic()
    try:
        unfused = natively and any(segment.steps is not None for segment in segments)
        other = functools.partial(open_observed, model, unfused=True) if unfused else lambda: None
        session = functools.partial(open_observed if natively else _open_with_reference, model)
        compared = _run_all(session, other, inputs, given, uses)
    except BuildError as error:
        logger.info("The reference can't check engines: %s", error)
        compared = []
    give_back_free_pages()
    problems = _compare(segments, compared, max(engine_s, ROOM * (time.monotonic() - began)))
    accepted = {segment.name for segment in segments if segment.trusted and not natively}
    return {n: problem for n, problem in problems.items() if n not in accepted or not problem.startswith(NOT_COMPARED)}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EmptyInputs:
    """Empty inputs that an engine answers as native execution does.

    Attributes:
        places: Of the engine's inputs, with a size of 0.
        given: Name and axis of the model's inputs with a size of 0.
    """

    places: frozenset[InputAxis]
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


def _run_all(
    open_session: Callable[[], Runner],
    open_other: Callable[[], NativeSession | None],
    inputs: Sequence[TensorSpec],
    given: pathlib.Path | None,
    uses: InputUses,
) -> list[_Compared]:
    """Run all samples, so that no session takes memory any more when the first engine is loaded."""
    other, session = open_other(), Remembering(open_session())
    samples = find_samples(session, inputs, given)
    compared = []
    for feeds in samples:
        compared.append(one := _Compared.of(session, feeds, other))
        if all(map(is_finite, one.values.values())):
            break
    if not samples:
        return compared
    for varied in varied_samples(session, inputs, generated(session, inputs, given, samples), uses):
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


def generated(
    session: Runner, inputs: Sequence[TensorSpec], given: pathlib.Path | None, samples: Sequence[Feeds]
) -> Feeds | None:
    """Return generated inputs that the model runs on, if there are any."""
    found = find_samples(session, inputs, None) if given is not None else samples
    return found[0] if found else None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """All boundary tensors on one sample.

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
        return self.scaled and (reduced or not all(is_finite(self.values[spec.name]) for spec in specs))


def is_finite(value: Any) -> bool:
    """Return whether a value holds neither NaN nor infinity, as far as it is an array of floats."""
    return not isinstance(value, np.ndarray) or value.dtype.kind != "f" or bool(np.isfinite(value).all())


def _values(session: Runner, feeds: Feeds) -> dict[str, Any]:
    return {**feeds, **dict(zip(session.outputs, session.run(feeds), strict=True))}


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
        _run_often(engine, list(itertools.compress(compared, filled)))
    except EngineError as error:
        return str(error)
    return None


def _run_often(engine: Engine, compared: Sequence[_Compared]) -> None:
    """Run samples in turn, so that an engine that writes outside its memory ends this process, not a server."""
    began = time.monotonic()
    for one in itertools.islice(itertools.cycle(compared), MOST_RUNS):
        with contextlib.suppress(ExecutionError):
            engine.bind([input_buffer(one.values, s) for s in engine.inputs], None)
            engine.run()
        if time.monotonic() - began > RUNS_S:
            return


def _difference(segment: BuiltSegment, engine: Engine, one: _Compared) -> str | None:
    sample = one.values
    engine.bind([input_buffer(sample, s) for s in engine.inputs], None)
    for spec, actual in zip(engine.outputs, engine.run(), strict=True):
        expected = sample[spec.name]
        problem = find_difference(expected, actual, quantized=segment.quantized)
        if problem is None and segment.steps is not None:
            problem = find_excess(expected, one.others[spec.name], actual, step=segment.steps.get(spec.name))
        if problem:
            return f"{spec.name!r} is not what native execution gives: {problem}."
    return None
