"""What the worker process does: everything that runs a library on something it has not run yet.

Each job is a function of plain values, so that it can be sent to another process.
"""

from __future__ import annotations

import dataclasses
import logging
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engines.buffers import input_buffer
from engines.compare import accumulates_quantized, find_difference
from engines.engine_files import load_engine_file
from engines.errors import BuildError, EngineError, ModelLoadError
from engines.executor import Executable, open_executable
from engines.onnxruntime_backend import NativeSession
from engines.options import BuildOptions
from engines.reference_backend import ReferenceSession
from engines.registry import get_backend
from engines.samples import Feeds, Runner, find_samples
from partitioner import TensorSpec, Verdict, load_model

logger = logging.getLogger(__name__)

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
    trusted: bool = False


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


def refusal(backend: str, model: pathlib.Path) -> Verdict:
    """Ask a library whether it takes every node of the model in a file."""
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
    return _compare(open_observed(model), inputs, segments, given)


def check_by_reference(
    model: pathlib.Path, inputs: Sequence[TensorSpec], segments: Sequence[BuiltSegment], given: pathlib.Path | None
) -> dict[str, str]:
    """As ``check_segments``, with onnx.reference, for a model that native execution refuses.

    Where the reference runs it on nothing either, only segments of trusted operators are accepted.
    """
    try:
        problems = _compare(ReferenceSession(model), inputs, segments, given)
    except BuildError as error:
        logger.info("The reference can't check engines: %s", error)
        problems = {segment.name: UNCHECKED for segment in segments}
    trusted = {segment.name for segment in segments if segment.trusted}
    return {name: problem for name, problem in problems.items() if problem != UNCHECKED or name not in trusted}


def check_engines_alone(compiled: pathlib.Path, inputs: Sequence[TensorSpec], given: pathlib.Path | None) -> str | None:
    """Load and run a compiled file whose nodes don't all run natively, and see whether its engines answer.

    Returns:
        None if they do, else a sentence.
    """
    try:
        executable = open_executable(load_model(compiled), compiled, folder=compiled.parent)
        ran = bool(find_samples(_AsRunner(executable), inputs, given))
    except EngineError as error:
        return str(error)
    return "; ".join(executable.description["rejected"]) or (None if ran else "its engines run on no generated input")


class _AsRunner:
    def __init__(self, executable: Executable) -> None:
        self.outputs = tuple(s.name for s in executable.outputs)
        self._executable = executable

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> list[Any]:
        return list(self._executable.run(feeds, outputs).values())


def _compare(
    session: Runner, inputs: Sequence[TensorSpec], segments: Sequence[BuiltSegment], given: pathlib.Path | None
) -> dict[str, str]:
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


def open_observed(model: pathlib.Path) -> NativeSession:
    """Load a model with many outputs; some fusions of ONNX Runtime forget that what they remove is an output."""
    try:
        return NativeSession(model, name="the cleaned model")
    except ModelLoadError:
        return NativeSession(model, name="the cleaned model", optimize=False)


def _check_segment(segment: BuiltSegment, values: Sequence[Mapping[str, np.ndarray]]) -> str | None:
    try:
        engine = load_engine_file(segment.name, segment.engine, segment.envelope)
        for sample in values:
            engine.bind([input_buffer(sample, s) for s in engine.inputs], None)
            for spec, actual in zip(engine.outputs, engine.run(), strict=True):
                problem = find_difference(sample[spec.name], actual, quantized=segment.quantized)
                if problem:
                    return f"{spec.name!r} is not what native execution gives: {problem}."
    except EngineError as error:
        return str(error)
    return None


__all__ = [
    "BuiltSegment",
    "Feeds",
    "build",
    "check_by_reference",
    "check_compiled",
    "check_engines_alone",
    "check_segments",
    "output_types",
]
