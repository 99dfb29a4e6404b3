"""Jobs of the worker process about precision: calibrate, and measure the accuracy that a precision costs."""

from __future__ import annotations

import dataclasses
import itertools
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx

from trtnode.engines.errors import ExecutionError
from trtnode.engines.inputs.samples import Feeds, find_samples
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.engines.precision.accuracy_budget import FEW_SAMPLES, Comparison, Figures
from trtnode.engines.precision.bfloat16 import with_float32_kernels
from trtnode.engines.precision.metrics import load_metric
from trtnode.engines.precision.options import AccuracyBudget, Calibration
from trtnode.engines.quantization.calibrator import calibrate
from trtnode.engines.quantization.dataset import CalibrationDataset
from trtnode.engines.runtime.executor import open_executable
from trtnode.engines.runtime.options import SHARED
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.partitioner.model.loading import load_model

HELD_OUT_EVERY = 5
"""One sample of so many is kept from the calibration, to evaluate on. A budget that is met on the samples of the
calibration says little. Data are often sorted, so the last part alone would be another population."""

MOST_HELD_OUT = 200

NOISE_SAMPLES = 2
"""Number of samples to measure the noise of single nodes on."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationData:
    """The model and the samples that accuracy is measured on.

    Attributes:
        source: The model in its own precision.
        inputs: The model's inputs.
        data: Calibration data, if there is any.
        given: The user's own inputs, if any. They, or generated ones, serve where there is no calibration data.
    """

    source: pathlib.Path
    inputs: Sequence[TensorSpec]
    data: str | None
    given: pathlib.Path | None

    def samples(self, session: NativeSession) -> Iterator[Feeds]:
        """Yield samples that the calibration has not seen; all samples where there are fewer than ``FEW_SAMPLES``.

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
    """The samples that are not held out.

    Attributes:
        read: Number of samples that were read, held out or not.
    """

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.read = 0

    def feeds(self, inputs: Sequence[TensorSpec], *, limit: int | None = None) -> Iterator[Feeds]:
        """Yield the samples of all data, without each last of ``HELD_OUT_EVERY``."""
        return itertools.islice(self._kept(super().feeds(inputs)), limit)

    def _kept(self, samples: Iterator[Feeds]) -> Iterator[Feeds]:
        for self.read, sample in enumerate(samples, 1):
            if self.read % HELD_OUT_EVERY:
                yield sample

    def count(self, inputs: Sequence[TensorSpec]) -> int | None:
        """Return the number of these samples; None where only calling a function tells."""
        total = super().count(inputs)
        return None if total is None else total - total // HELD_OUT_EVERY


def calibrate_to(model: pathlib.Path, calibration: Calibration, table: pathlib.Path) -> int:
    """Learn ranges from the samples that are not held out, and write them.

    Returns:
        The number of samples that were read, held out or not.

    Raises:
        EngineError: As ``calibrate``.
    """
    assert calibration.sampled is not None
    share = CalibrationShare(calibration.sampled)
    found = calibrate(
        model,
        share,
        method=calibration.method,
        percentile=calibration.percentile,
        samples=calibration.samples,
    )
    found.save(table)
    return share.read


def check_metric(name: str) -> None:
    """Import a user's own metric.

    Raises:
        MetricError: It can't be imported.
    """
    load_metric(name)


def measure_accuracy(compiled: pathlib.Path, evaluation: EvaluationData, budget: AccuracyBudget) -> Figures:
    """Measure how far the answers of a compiled model differ from those of its source.

    Raises:
        ExecutionError: Its engines can't be loaded, don't run, or there is no sample that the source runs on.
        MetricError: The user's own metric failed.
    """
    native = NativeSession(evaluation.source, name=str(evaluation.source))
    executable = open_executable(load_model(compiled), compiled, folder=compiled.parent, run=SHARED)
    if executable.facts.rejected:
        raise ExecutionError("; ".join(executable.facts.rejected))
    fallbacks: list[str] = []
    executable.on_fallback = fallbacks.append
    comparison = Comparison(budget)
    for feeds in evaluation.samples(native):
        comparison.add(dict(zip(native.outputs, native.run(feeds), strict=True)), executable.run(feeds))
    figures = comparison.figures()
    if fallbacks or not figures.samples:
        raise ExecutionError(f"its engines refuse samples ({fallbacks[0]})." if fallbacks else "there are no samples.")
    return figures


def measure_noise(observed: pathlib.Path, evaluation: EvaluationData, nodes: Mapping[str, bytes]) -> dict[str, float]:
    """Measure the signal-to-noise ratio of single nodes in a reduced precision, each on its float32 inputs.

    Args:
        observed: The model in float32, with every tensor that a node reads or makes as an output.
        evaluation: Source of the samples.
        nodes: A model of one node in the reduced precision, by the node's identity. Its first output counts.

    Returns:
        Decibels by node; infinite where there is no noise.

    Raises:
        ModelLoadError: ONNX Runtime can't compute in this precision.
    """
    models = {name: with_float32_kernels(onnx.ModelProto.FromString(model)) for name, model in nodes.items()}
    reduced = {name: NativeSession(model, name=name, optimize=False) for name, model in models.items()}
    noise = _Noise()
    for values in _observe(observed, evaluation):
        for node, session in reduced.items():
            results = session.run({name: values[name] for name in session.inputs})
            noise.add(node, values[session.outputs[0]], results[0])
    return noise.decibels()


def _observe(observed: pathlib.Path, evaluation: EvaluationData) -> Iterator[dict[str, np.ndarray]]:
    """Yield all values of a model with many outputs, for a few samples."""
    session = NativeSession(observed, name="the model with its tensors as outputs")
    for feeds in itertools.islice(evaluation.samples(session), NOISE_SAMPLES):
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
