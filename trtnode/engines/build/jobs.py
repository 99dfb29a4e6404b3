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
from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx_ir as ir

from trtnode.engines.artifact.envelope import InputAxis
from trtnode.engines.backends.progress import Progress, report
from trtnode.engines.backends.protocols import Engine
from trtnode.engines.backends.reference import ReferenceSession
from trtnode.engines.build.native_runs import (
    NativeRun,
    NativeRuns,
    SampledModel,
    is_finite,
    keep_runs,
    kept_runs,
    run_natively,
)
from trtnode.engines.build.tolerance import find_difference, find_excess
from trtnode.engines.errors import (
    BuildError,
    EngineError,
    ExecutionError,
    MemoryLimitError,
    ModelLoadError,
    OutOfMemoryError,
)
from trtnode.engines.inputs import shape_probe
from trtnode.engines.inputs.dimension_names import named, symbols_of
from trtnode.engines.inputs.samples import Feeds, Remembering, Runner, relate_sizes
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

ENGINE_S, ROOM = 60.0, 20.0
"""Seconds that an engine may take on all samples at least, and as a multiple of what native execution has taken on
them: a machine that is busy meanwhile is no fault of the engine."""

MOST_RUNS, RUNS_S = 100, 0.1
"""Further runs of an engine that is right, and the seconds that they may take, those of the comparison included."""

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


def problem_of(error: EngineError) -> str:
    """Return the sentence of an error, for a verdict on an engine.

    Raises:
        OutOfMemoryError: It tells nothing of an engine.
    """
    if isinstance(error, OutOfMemoryError | MemoryLimitError):
        raise OutOfMemoryError() from error
    return str(error)


def check_loads(model: pathlib.Path) -> None:
    """Load a model natively.

    Raises:
        ModelLoadError: ONNX Runtime refuses the model.
    """
    NativeSession(model, brief=True, packs=False, name=str(model))


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


def find_sizes(sampled: SampledModel, *, keep: bool) -> tuple[TensorSpec, ...] | None:
    """Return the inputs with names of sizes as native runs relate them; None where no generated input runs.

    Args:
        sampled: The model.
        keep: Run all its samples as well, and keep the runs: the model is loaded already.

    Raises:
        ModelLoadError: ONNX Runtime refuses the model.
        InvalidInputError: The model does not run on the given inputs.
    """
    searches = len(symbols_of(named(sampled.inputs))) > 1  # relations of sizes, which takes many runs
    session = Remembering(NativeSession(sampled.path, brief=True, packs=searches, name=str(sampled.path)))
    related = relate_sizes(session, sampled.inputs)
    if keep and related is not None:
        sampled = dataclasses.replace(sampled, inputs=related)
        keep_runs(sampled, run_natively(lambda: session, sampled, empty=True))
    return related


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EmptyInputs:
    """Empty inputs that an engine answers as native execution does.

    Attributes:
        places: Of the engine's inputs, with a size of 0.
        given: Name and axis of the model's inputs with a size of 0.
    """

    places: frozenset[InputAxis]
    given: frozenset[tuple[str, int]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The outcome of a comparison of engines, by segment name.

    Attributes:
        problems: A sentence for each engine that differs.
        empty: The empty inputs that each other engine answers right, as far as any were tried.
    """

    problems: Mapping[str, str]
    empty: Mapping[str, Sequence[EmptyInputs]] = dataclasses.field(default_factory=dict)


def check_segments(
    sampled: SampledModel,
    segments: Sequence[BuiltSegment],
    engine_s: float = ENGINE_S,
    *,
    natively: bool = True,
    empty: bool = False,
    keep: bool = False,
) -> Checked:
    """Run each engine on the values that it would get inside the model, and compare with native execution.

    Args:
        sampled: The cleaned model, with every boundary tensor as an output.
        segments: Engines to check.
        engine_s: Seconds that each engine may take at least. It may take more where native execution is slow.
        natively: False compares with onnx.reference, for a model that native execution refuses. ONNX Runtime computes
            the nodes that it has kernels for. Where the reference doesn't run the others, only segments of trusted
            operators are accepted.
        empty: Try each size of the model's inputs at 0 as well. It changes no verdict.
        keep: Keep the native runs for the check of the compiled file.

    Raises:
        ModelLoadError: ONNX Runtime refuses the model.
        InvalidInputError: The model does not run on the given inputs.
    """
    began = time.monotonic()
    model = sampled.path
    try:
        unfused = natively and any(segment.steps is not None for segment in segments)
        other = functools.partial(open_observed, model, unfused=True) if unfused else lambda: None
        session = functools.partial(open_observed if natively else _open_with_reference, model)
        kept = kept_runs(sampled) if keep else None
        runs = kept or run_natively(session, sampled, open_other=other, empty=empty)
    except BuildError as error:
        logger.info("The reference can't check engines: %s", error)
        runs = NativeRuns()
    give_back_free_pages()
    if keep:
        keep_runs(sampled, runs)
    tried = runs if empty else dataclasses.replace(runs, empty=())
    checked = _compare(segments, tried, max(engine_s, ROOM * (time.monotonic() - began)))
    accepted = {segment.name for segment in segments if segment.trusted and not natively}
    problems = checked.problems.items()
    refused = {n: problem for n, problem in problems if n not in accepted or not problem.startswith(NOT_COMPARED)}
    return dataclasses.replace(checked, problems=refused)


def _empty_axes(feeds: Feeds) -> frozenset[tuple[str, int]]:
    return frozenset((n, axis) for n, value in feeds.items() for axis, size in enumerate(value.shape) if not size)


def _agrees(segment: BuiltSegment, engine: Engine, runs: Iterable[NativeRun]) -> bool:
    try:
        return not any(_difference(segment, engine, one) for one in runs)
    except EngineError:
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


def _compare(segments: Sequence[BuiltSegment], runs: NativeRuns, limit_s: float) -> Checked:
    if not runs.usual:
        return Checked(problems={segment.name: UNCHECKED for segment in segments})
    found: list[Checked] = []
    for done, segment in enumerate(segments):
        report(Progress(CHECKING, done, len(segments), limit_s))
        found.append(_check_segment(segment, runs))
    report(Progress(CHECKING, len(segments), len(segments)))
    return Checked(
        problems={name: problem for one in found for name, problem in one.problems.items()},
        empty={name: places for one in found for name, places in one.empty.items()},
    )


def _check_segment(segment: BuiltSegment, runs: NativeRuns) -> Checked:
    try:
        engine = load_engine_file(segment.name, segment.engine, segment.envelope)
        problem = _problem_of(segment, engine, [*runs.usual, *runs.varied])
    except EngineError as error:
        problem = problem_of(error)
    if problem is not None:
        return Checked(problems={segment.name: problem})
    return Checked(problems={}, empty={segment.name: list(_answered_empty(segment, engine, runs.empty))})


def _problem_of(segment: BuiltSegment, engine: Engine, runs: Sequence[NativeRun]) -> str | None:
    empty = [next((s.name for s in engine.inputs if one.values[s.name].size == 0), None) for one in runs]
    if all(empty):
        return (
            f"{NOT_COMPARED}{empty[0]!r} is empty on every input that was tried, and engines need at least one "
            f"element. Give inputs that fill it ({GIVE_INPUTS})."
        )
    filled = list(itertools.compress(runs, [name is None for name in empty]))
    began = time.monotonic()
    for one in filled:
        if _says_nothing(segment, engine, one):
            continue
        try:
            problem = _difference(segment, engine, one)
        except ExecutionError:
            if not one.varied:
                raise
            continue
        if problem:
            return problem
    _run_often(engine, filled, until=began + RUNS_S)
    return None


def _says_nothing(segment: BuiltSegment, engine: Engine, one: NativeRun) -> bool:
    """Return whether numbers far from 1 are answered otherwise with good reason: rounded or beyond the range."""
    specs = (*engine.inputs, *engine.outputs)
    reduced = segment.quantized or any(spec.dtype == ir.DataType.FLOAT16 for spec in specs)
    return one.scaled and (reduced or not all(is_finite(one.values[spec.name]) for spec in specs))


def _answered_empty(
    segment: BuiltSegment, engine: Engine, groups: Iterable[Sequence[NativeRun]]
) -> Iterator[EmptyInputs]:
    """Yield the empty inputs that an engine answers right."""
    for runs in groups:
        places = {empty_places([one.values[s.name] for s in engine.inputs]) for one in runs}
        if len(places) == 1 and (only := places.pop()) and _agrees(segment, engine, runs):
            yield EmptyInputs(places=only, given=_empty_axes(runs[0].feeds))


def _run_often(engine: Engine, runs: Sequence[NativeRun], *, until: float) -> None:
    """Run samples in turn, so that an engine that writes outside its memory ends this process, not a server."""
    for one in itertools.islice(itertools.cycle(runs), MOST_RUNS):
        if time.monotonic() > until:
            return
        with contextlib.suppress(ExecutionError):
            engine.bind([input_buffer(one.values, s) for s in engine.inputs], None)
            engine.run()


def _difference(segment: BuiltSegment, engine: Engine, one: NativeRun) -> str | None:
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
