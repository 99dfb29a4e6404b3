"""Inputs that forms of a model are timed on: the user's own, of each size that they have, or generated ones."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import time
from collections.abc import Iterable, Iterator, Sequence

from trtnode.engines.inputs.samples import Feeds, Remembering, Runner, find_generated, find_samples, one_step
from trtnode.engines.quantization.dataset import CalibrationDataset
from trtnode.partitioner.graph.view import TensorSpec

LIKELY_SIZES = (224, 64, 32, 16, 4, 2, 1)
"""Tried in turn for dimensions without a size. Large inputs are likelier than small ones where time matters."""

Samples = tuple[pathlib.Path | None, str | None]
"""The user's own inputs, and calibration samples, if there are any."""

MOST_SIZES, MOST_READ, PASS_S = 64, 500, 0.6
"""Of samples: the most sizes, the most that are read to find them, and the seconds that all sizes may take once."""


def timing_inputs(
    runner: Runner, inputs: Sequence[TensorSpec], given: pathlib.Path | None, data: str | None
) -> list[Feeds]:
    """Find inputs to time a model on.

    Where calibration samples are of unlike sizes, requests will be. An engine prepares itself for each size, and
    forgets sizes of long ago, which one size alone would hide.

    Args:
        runner: The model.
        inputs: Its inputs.
        given: The user's own inputs, which come first.
        data: Calibration samples, as of ``CalibrationDataset``.

    Returns:
        Inputs of one size or several; empty if the model runs on nothing that is generated. Generated ones have likely
        sizes: one row, of a decoder one step, and large where nothing is known.

    Raises:
        EngineError: The model doesn't run on the user's inputs, or its samples can't be read.
    """
    session = Remembering(runner)
    if given is not None:
        return find_samples(session, inputs, given)
    if data is not None:
        unlike = _of_unlike_sizes(CalibrationDataset(data).feeds(inputs, limit=MOST_READ))
        return list(_within_time(runner, itertools.islice(unlike, MOST_SIZES)))
    for wanted in (with_one_row(inputs), inputs):
        related, samples = find_generated(session, wanted, LIKELY_SIZES)
        if samples:
            return [one_step(session, related, samples[0])]
    return []


def _of_unlike_sizes(samples: Iterable[Feeds]) -> Iterator[Feeds]:
    seen = set()
    for sample in samples:
        size = tuple(array.shape for array in sample.values())
        if size not in seen:
            seen.add(size)
            yield sample


def _within_time(runner: Runner, samples: Iterable[Feeds]) -> Iterator[Feeds]:
    """Yield samples until they take some time together, but one at least."""
    left_s = PASS_S
    for sample in samples:
        if left_s <= 0:
            return
        began = time.monotonic()
        runner.run(sample)
        left_s -= time.monotonic() - began
        yield sample


def with_one_row(inputs: Sequence[TensorSpec]) -> list[TensorSpec]:
    """Return inputs whose first of several dimensions is 1 where it was unknown, and so is each other of that name."""
    shapes = [spec.shape for spec in inputs if spec.shape is not None and len(spec.shape) > 1]
    rows = {shape[0] for shape in shapes if not isinstance(shape[0], int)}

    def fixed(spec: TensorSpec) -> TensorSpec:
        sizes = enumerate(spec.shape or ())
        shape = tuple(1 if size in rows and (size is not None or axis == 0) else size for axis, size in sizes)
        return spec if spec.shape is None else dataclasses.replace(spec, shape=shape)

    return [fixed(spec) for spec in inputs]
