"""What the worker process does: everything that runs a library on something it has not run yet.

Each job is a function of plain values, so that it can be sent to another process.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from engines.base import Engine
from engines.compare import accumulates_quantized, find_difference
from engines.envelope import Envelope
from engines.errors import EngineError, ModelLoadError
from engines.executor import Executable, interface_constants, load_engine, open_engine, open_executable
from engines.measuring import time_in_turn
from engines.onnxruntime_backend import NativeSession
from engines.options import BuildOptions
from engines.plan import native_stage_model, plan_stages
from engines.registry import get_backend
from engines.samples import Feeds, find_samples
from partitioner import Graph, TensorSpec, load_model

UNCHECKED = (
    "It could not be compared with native execution: the model runs on no generated input. "
    "Give inputs that it runs on (compile --inputs IN.npz)."
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BuiltSegment:
    """An engine on disk, waiting for its check."""

    name: str
    engine: pathlib.Path
    envelope: str
    quantized: bool


def output_types(model: pathlib.Path) -> dict[str, tuple[str, Sequence[int | str | None]]]:
    """Load a model natively and give the type and shape of its outputs.

    Raises:
        ModelLoadError: ONNX Runtime refuses the model.
    """
    return NativeSession(model, name=str(model)).value_types()


def build(backend: str, model: pathlib.Path, engine: pathlib.Path, options: BuildOptions) -> None:
    """Build the model in one file into the engine bytes of another.

    Raises:
        BuildError: The library refuses the model.
    """
    engine.write_bytes(get_backend(backend).build(model, options))


def refusal(backend: str, model: pathlib.Path) -> str | None:
    """Ask a library whether it takes every node of the model in a file; None if so, else what it says."""
    return get_backend(backend).refusal(model)


def check_segments(
    model: pathlib.Path, inputs: Sequence[TensorSpec], segments: Sequence[BuiltSegment], given: pathlib.Path | None
) -> dict[str, str]:
    """Run each engine once on what it would get inside the model, and compare with native execution.

    Args:
        model: The cleaned model, with every boundary tensor as an output.
        inputs: Of the model.
        segments: What to check.
        given: The user's own inputs, if any.

    Returns:
        A sentence for each segment that differs, by segment name.

    Raises:
        ModelLoadError: ONNX Runtime refuses the model.
        InvalidInputError: The model does not run on the given inputs.
    """
    session = _open_observed(model)
    samples = find_samples(session, inputs, given)
    if not samples:
        return {segment.name: UNCHECKED for segment in segments}
    values = [{**feeds, **dict(zip(session.outputs, session.run(feeds), strict=True))} for feeds in samples]
    problems = {segment.name: _check_segment(segment, values) for segment in segments}
    return {name: problem for name, problem in problems.items() if problem}


def check_compiled(
    compiled: pathlib.Path, source: pathlib.Path, inputs: Sequence[TensorSpec], given: pathlib.Path | None
) -> str | None:
    """Load a compiled file in plain ONNX Runtime and with its engines, run both, and compare with its source.

    Returns:
        None if all agree, else a sentence.
    """
    native = NativeSession(source, name=str(source))
    samples = find_samples(native, inputs, given)
    quantized = accumulates_quantized(op.op_type for op in load_model(source).graph)
    try:
        plain = NativeSession(compiled, name="the compiled model")
        executable = open_executable(load_model(compiled), compiled, folder=compiled.parent)
        if not executable.description["segments"]:
            return "; ".join(executable.description["rejected"])
        fallbacks: list[str] = []
        executable.on_fallback = fallbacks.append
        for feeds in samples:
            expected = dict(zip(native.outputs, native.run(feeds), strict=True))
            repeated = dict(zip(native.outputs, native.run(feeds), strict=True))
            steady = [n for n in expected if find_difference(expected[n], repeated[n]) is None]
            for actual in (dict(zip(plain.outputs, plain.run(feeds), strict=True)), executable.run(feeds)):
                for name in steady:
                    problem = find_difference(expected[name], actual[name], quantized=quantized)
                    if problem:
                        return f"output {name!r}: {problem}"
    except EngineError as error:
        return str(error)
    return f"its engines refuse sample inputs ({fallbacks[0]})" if fallbacks else None


def _open_observed(model: pathlib.Path) -> NativeSession:
    """Load a model with many outputs; some fusions of ONNX Runtime forget that what they remove is an output."""
    try:
        return NativeSession(model, name="the cleaned model")
    except ModelLoadError:
        return NativeSession(model, name="the cleaned model", optimize=False)


def _check_segment(segment: BuiltSegment, values: Sequence[Mapping[str, np.ndarray]]) -> str | None:
    envelope = Envelope.from_json(segment.envelope, segment.name)
    try:
        engine = load_engine(segment.name, envelope, segment.engine.read_bytes(), None)
        for sample in values:
            engine.bind([_input_buffer(sample, s) for s in engine.inputs], None)
            for spec, actual in zip(engine.outputs, engine.run(), strict=True):
                problem = find_difference(sample[spec.name], actual, quantized=segment.quantized)
                if problem:
                    return f"{spec.name!r} is not what native execution gives: {problem}."
    except EngineError as error:
        return str(error)
    return None


def _input_buffer(sample: Mapping[str, np.ndarray], spec: TensorSpec) -> np.ndarray:
    assert spec.dtype is not None
    array = sample[spec.name]
    buffer = np.empty(array.shape, spec.dtype.numpy())
    np.copyto(buffer, array)
    return buffer


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model to measure.

    Attributes:
        compiled: With the engines of all segments.
        source: What it was compiled from.
        inputs: Of the model.
        given: The user's own inputs, if any.
        threads: Of each engine and session.
    """

    compiled: pathlib.Path
    source: pathlib.Path
    inputs: Sequence[TensorSpec]
    given: pathlib.Path | None
    threads: int | None


def measure_segments(subject: Subject, seconds: float) -> dict[str, dict[str, list[float]]] | None:
    """Time each segment's engine against the same nodes natively, on what they get inside the model.

    Args:
        subject: The model.
        seconds: About how long all of it takes.

    Returns:
        Medians of turns in ms under ``engine`` and ``native``, by segment; None if no inputs are found.

    Raises:
        EngineError: Something fails on these inputs.
    """
    feeds = _first_sample(subject)
    if feeds is None:
        return None
    graph = Graph.of(load_model(subject.compiled))
    stages = plan_stages(graph, {node.name: True for node in graph.nodes})
    share = seconds / sum(stage.is_engine for stage in stages)
    values = {**interface_constants(graph), **feeds}
    times: dict[str, dict[str, list[float]]] = {}
    for stage in stages:
        session = NativeSession(native_stage_model(graph, stage), threads=subject.threads, name=stage.name)
        given = {name: values[name] for name in session.inputs if name in values}
        values.update(zip(session.outputs, session.run(given), strict=True))
        if stage.is_engine:
            _, engine = open_engine(stage.nodes[0], subject.compiled.parent, subject.threads)
            calls = {"engine": _engine_call(engine, values), "native": _native_call(session, values)}
            times[stage.name] = time_in_turn(calls, seconds=share)
    return times


def measure_candidates(
    subject: Subject, kept: Mapping[str, Sequence[str]], seconds: float
) -> dict[str, list[float]] | None:
    """Time a model with some of its engines against the model with others.

    Args:
        subject: The model.
        kept: Segments that run in their engines, by name of the candidate; none runs the source natively.
        seconds: About how long all of it takes.

    Returns:
        Medians of turns in ms, by name of the candidate; None if no inputs are found.

    Raises:
        EngineError: Something fails on these inputs.
    """
    feeds = _first_sample(subject)
    if feeds is None:
        return None
    executables = {name: _open_candidate(subject, segments) for name, segments in kept.items()}
    calls = {name: functools.partial(executable.run, feeds) for name, executable in executables.items()}
    return time_in_turn(calls, seconds=seconds)


def _open_candidate(subject: Subject, segments: Sequence[str]) -> Executable:
    path = subject.compiled if segments else subject.source
    return open_executable(
        load_model(path), path, folder=path.parent, threads=subject.threads, shares_cores=True, only=segments
    )


def _first_sample(subject: Subject) -> Feeds | None:
    samples = find_samples(NativeSession(subject.source, name=str(subject.source)), subject.inputs, subject.given)
    return samples[0] if samples else None


def _engine_call(engine: Engine, values: Mapping[str, np.ndarray]) -> Callable[[], object]:
    fixed = all(spec.static_shape is not None for spec in (*engine.inputs, *engine.outputs))
    outputs = [_input_buffer(values, spec) for spec in engine.outputs] if fixed else None
    engine.bind([_input_buffer(values, spec) for spec in engine.inputs], outputs)
    return engine.run


def _native_call(session: NativeSession, values: Mapping[str, np.ndarray]) -> Callable[[], object]:
    names = (*session.inputs, *session.outputs)
    buffers = {name: values[name].copy() for name in names}
    if all(array.dtype.kind in "biuf" for array in buffers.values()):
        return session.bind(buffers).run
    return functools.partial(session.run_tensors, {name: buffers[name] for name in session.inputs})


__all__ = [
    "BuiltSegment",
    "Feeds",
    "Subject",
    "build",
    "check_compiled",
    "check_segments",
    "measure_candidates",
    "measure_segments",
    "output_types",
    "refusal",
]
