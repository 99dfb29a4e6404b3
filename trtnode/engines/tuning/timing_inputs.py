"""Inputs that forms of a model are timed on: the user's own, of each size that they have, or generated ones."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import time
from collections.abc import Iterable, Iterator, Sequence

from trtnode.engines.backends.shape_range import Profile
from trtnode.engines.inputs.samples import Feeds, Remembering, Runner, find_generated, find_samples, one_step
from trtnode.engines.inputs.shape_profiles import holds_sizes
from trtnode.engines.quantization.dataset import CalibrationDataset
from trtnode.engines.runtime.options import RunOptions
from trtnode.partitioner.graph.view import TensorSpec

LIKELY_SIZES = (224, 64, 32, 16, 4, 2, 1)
"""Tried in turn for dimensions without a size. Large inputs are likelier than small ones where time matters."""

SMALL = (8, 16, 32, 64)
"""Sizes of a small request, tried in turn; it has one row."""

MOST_WEIGHT_BYTES = 48 * 2**20
"""Of a model that may have both forms. A process with a small one has 185 MB: with weights in int8 in an engine
and in float32 natively as well, it has less than 1.3 times the memory that it has with the engine alone."""

Samples = tuple[pathlib.Path | None, str | None]
"""The user's own inputs, and calibration samples, if there are any."""

MOST_SIZES, MOST_READ, PASS_S = 64, 500, 0.6
"""Of samples: the most sizes, the most that are read to find them, and the seconds that all sizes may take once."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model to measure.

    Attributes:
        compiled: The model with the engines of all segments.
        source: The model that it was compiled from.
        native: The file that runs without engines.
        inputs: The model's inputs.
        small: The same of a small request, which may run natively where others don't; None where none may.
        given: The user's own inputs, if any.
        data: Calibration samples of the sizes that requests will have, if any.
        run: Options of the model as it will be served.
    """

    compiled: pathlib.Path
    source: pathlib.Path
    native: pathlib.Path
    inputs: Sequence[TensorSpec]
    small: Sequence[TensorSpec] | None = None
    given: pathlib.Path | None
    data: str | None = None
    run: RunOptions

    def samples(self, runner: Runner) -> list[Feeds]:
        """Find inputs to time it on, as ``timing_inputs``."""
        return timing_inputs(runner, self.inputs, self.given, self.data)


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
    return generated_inputs(session, inputs, LIKELY_SIZES)


def generated_inputs(runner: Runner, inputs: Sequence[TensorSpec], sizes: Sequence[int]) -> list[Feeds]:
    """Generate the inputs of one request, of one row if it can be; empty if the model runs on nothing.

    Args:
        runner: The model.
        inputs: Its inputs.
        sizes: Tried in turn for dimensions without a size.
    """
    for wanted in (with_one_row(inputs), inputs):
        related, samples = find_generated(runner, wanted, sizes)
        if samples:
            return [one_step(runner, related, samples[0])]
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


def small_inputs(inputs: Sequence[TensorSpec], profiles: Sequence[Profile]) -> tuple[TensorSpec, ...]:
    """Return the inputs of a small request inside the first profile: one row, else ``SMALL[0]``, where sizes are free.

    Without a profile, inputs are returned as they are. So is one whose elements are sizes.
    """
    if not profiles:
        return tuple(inputs)

    def smaller(spec: TensorSpec) -> TensorSpec:
        one = profiles[0].get(spec.name)
        if one is None or holds_sizes(spec):
            return spec
        wanted = [1 if axis == 0 and len(one.opt) > 1 else SMALL[0] for axis in range(len(one.opt))]
        return dataclasses.replace(spec, shape=tuple(map(max, one.min, map(min, one.opt, wanted))))

    return tuple(map(smaller, inputs))


def elements_of(feeds: Feeds) -> int:
    """Return the number of elements of the inputs of a request."""
    return sum(array.size for array in feeds.values())
