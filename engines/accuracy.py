"""What the worker process does about precision: calibrate, and measure what a precision costs in accuracy."""

from __future__ import annotations

import dataclasses
import itertools
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx

from engines.budget import FEW_SAMPLES, AccuracyBudget, Comparison, Figures, load_metric
from engines.buffers import input_buffer
from engines.calibration import calibrate
from engines.calibration_data import CalibrationDataset
from engines.engine_files import load_engine_file
from engines.errors import ExecutionError
from engines.executor import open_executable
from engines.onnxruntime_backend import NativeSession
from engines.options import Calibration
from engines.samples import Feeds, find_samples
from partitioner import TensorSpec, load_model

HELD_OUT_EVERY = 5
"""One sample of so many is not calibrated with but kept to judge on, wherever in the data the samples are sorted."""

MOST_HELD_OUT = 200

NOISE_SAMPLES = 2
"""Samples to measure the noise of single nodes on."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What accuracy is measured on.

    Attributes:
        source: The model in its own precision.
        inputs: Of the model.
        data: Calibration data, if there is any.
        given: The user's own inputs, if any; they and generated ones are for models without calibration data.
    """

    source: pathlib.Path
    inputs: Sequence[TensorSpec]
    data: str | None
    given: pathlib.Path | None

    def samples(self, session: NativeSession) -> Iterator[Feeds]:
        """Samples that the calibration has not seen; of few samples (``FEW_SAMPLES``) all.

        Raises:
            CalibrationDataError: The data can't be read, or doesn't fit the model.
            InvalidInputError: The model does not run on the given inputs.
        """
        if self.data is None:
            yield from find_samples(session, self.inputs, self.given)
            return
        dataset = CalibrationDataset(self.data)
        first = list(itertools.islice(dataset.feeds(self.inputs), FEW_SAMPLES))
        if len(first) < FEW_SAMPLES:
            yield from first
            return
        yield from itertools.islice(
            dataset.feeds(self.inputs), HELD_OUT_EVERY - 1, MOST_HELD_OUT * HELD_OUT_EVERY, HELD_OUT_EVERY
        )


class CalibrationShare(CalibrationDataset):
    """The samples that are not held out."""

    def feeds(self, inputs: Sequence[TensorSpec], *, limit: int | None = None) -> Iterator[Feeds]:
        """As of all data, without each last of ``HELD_OUT_EVERY``."""
        kept = (f for i, f in enumerate(super().feeds(inputs)) if (i + 1) % HELD_OUT_EVERY)
        return itertools.islice(kept, limit)

    def count(self, inputs: Sequence[TensorSpec]) -> int | None:
        """How many these are."""
        total = super().count(inputs)
        return None if total is None else total - total // HELD_OUT_EVERY


def calibrate_to(model: pathlib.Path, wishes: Calibration, table: pathlib.Path) -> None:
    """Learn ranges from the samples that are not held out, and write them.

    Raises:
        EngineError: As ``calibrate``.
    """
    assert wishes.data is not None
    share = CalibrationShare(wishes.data)
    found = calibrate(model, share, method=wishes.method, percentile=wishes.percentile, samples=wishes.samples)
    found.save(table)


def check_metric(name: str) -> None:
    """See whether a user's own measure is there.

    Raises:
        MetricError: It isn't.
    """
    load_metric(name)


def measure_accuracy(compiled: pathlib.Path, judged: Judged, budget: AccuracyBudget) -> Figures:
    """Compare the answers of a compiled model with those of its source.

    Raises:
        ExecutionError: Its engines can't be loaded, don't run, or there is no sample that the source runs on.
        MetricError: The user's own measure failed.
    """
    native = NativeSession(judged.source, name=str(judged.source))
    executable = open_executable(load_model(compiled), compiled, folder=compiled.parent, shares_cores=True)
    if executable.description["rejected"]:
        raise ExecutionError("; ".join(executable.description["rejected"]))
    fallbacks: list[str] = []
    executable.on_fallback = fallbacks.append
    comparison = Comparison(budget)
    for feeds in judged.samples(native):
        comparison.add(dict(zip(native.outputs, native.run(feeds), strict=True)), executable.run(feeds))
    figures = comparison.figures()
    if fallbacks or not figures.samples:
        raise ExecutionError(f"its engines refuse samples ({fallbacks[0]})." if fallbacks else "there are no samples.")
    return figures


def measure_noise(observed: pathlib.Path, judged: Judged, nodes: Mapping[str, bytes]) -> dict[str, float]:
    """Signal-to-noise ratio of single nodes in a reduced precision, each on what it gets in float32.

    Args:
        observed: The model in float32, with every tensor that a node reads or makes as an output.
        judged: Says where samples come from.
        nodes: A model of one node in the reduced precision, by the node's identity. Its first output counts.

    Returns:
        Decibels by node; infinite where there is no noise.

    Raises:
        ModelLoadError: ONNX Runtime can't compute in this precision.
    """
    reduced = {n: NativeSession(onnx.ModelProto.FromString(m), name=n, optimize=False) for n, m in nodes.items()}
    noise = _Noise()
    for values in _observe(observed, judged):
        for node, session in reduced.items():
            results = session.run({name: values[name] for name in session.inputs})
            noise.add(node, values[session.outputs[0]], results[0])
    return noise.decibels()


def measure_engine_noise(
    observed: pathlib.Path, judged: Judged, engines: Mapping[str, tuple[pathlib.Path, str]]
) -> dict[str, float]:
    """Signal-to-noise ratio of engines, each on what it gets inside the model in float32.

    Args:
        observed: The model in float32, with every boundary tensor as an output.
        judged: Says where samples come from.
        engines: File and envelope of each, by segment.

    Returns:
        Decibels by segment.

    Raises:
        EngineError: An engine can't be loaded or run.
    """
    loaded = {name: load_engine_file(name, path, envelope) for name, (path, envelope) in engines.items()}
    noise = _Noise()
    for values in _observe(observed, judged):
        for name, engine in loaded.items():
            engine.bind([input_buffer(values, spec) for spec in engine.inputs], None)
            for spec, result in zip(engine.outputs, engine.run(), strict=True):
                noise.add(name, values[spec.name], result)
    return noise.decibels()


def _observe(observed: pathlib.Path, judged: Judged) -> Iterator[dict[str, np.ndarray]]:
    """All values of a model with many outputs, on a few samples."""
    session = NativeSession(observed, name="the model with its tensors as outputs")
    for feeds in itertools.islice(judged.samples(session), NOISE_SAMPLES):
        yield {**feeds, **dict(zip(session.outputs, session.run(feeds), strict=True))}


class _Noise:
    """Energy of signals and of their noise, by name."""

    def __init__(self) -> None:
        self._sums: dict[str, npt.NDArray[np.float64]] = {}

    def add(self, name: str, expected: np.ndarray, actual: np.ndarray) -> None:
        signal = expected.astype(np.float64)
        energies = (np.sum(signal**2), np.sum((signal - actual.astype(np.float64)) ** 2))
        self._sums[name] = self._sums.get(name, np.zeros(2)) + energies

    def decibels(self) -> dict[str, float]:
        return {name: _decibels(*sums) for name, sums in self._sums.items()}


def _decibels(signal: float, noise: float) -> float:
    if not (math.isfinite(signal) and math.isfinite(noise)):
        return -math.inf
    return math.inf if noise == 0 else 10 * math.log10(signal / noise) if signal else -math.inf
