"""Native runs of a model on samples, with which engines and compiled files are compared.

A process keeps the last runs that it was asked to keep: the engine of a whole model and the compiled file are compared
with the same ones.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trtnode.engines.inputs.input_uses import InputUses
from trtnode.engines.inputs.samples import Feeds, Remembering, Runner, empty_samples, find_samples
from trtnode.engines.inputs.varied_samples import VariedSample, varied_samples
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.partitioner.model.regular_files import file_version

NOTHING_KNOWN = InputUses()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SampledModel:
    """A model, and what its samples follow from.

    Attributes:
        path: Its file.
        inputs: Its inputs.
        given: The user's own inputs, if any. They come first.
        uses: What it does with its inputs.
    """

    path: pathlib.Path
    inputs: Sequence[TensorSpec]
    given: pathlib.Path | None = None
    uses: InputUses = NOTHING_KNOWN

    @property
    def identity(self) -> object:
        """Equals that of another one whose runs are the same."""
        files = [path and (path, file_version(path)) for path in (self.path, self.given)]
        return files, tuple(self.inputs), self.uses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NativeRun:
    """A sample, and what the model makes of it.

    Attributes:
        feeds: The inputs.
        values: Inputs and outputs, by name.
        others: The same in another native form.
        varied: True for sizes and numbers that an engine may refuse, since native execution answers then.
        scaled: True for numbers far from 1.
    """

    feeds: Feeds
    values: Mapping[str, Any]
    others: Mapping[str, Any]
    varied: bool = False
    scaled: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NativeRuns:
    """The runs of a model on its samples.

    Attributes:
        usual: Up to the first without NaN and infinity; none where the model runs on no sample.
        varied: In other sizes, and of other numbers.
        empty: With a size of 0, in groups of the same place; none where they were not tried.
    """

    usual: Sequence[NativeRun] = ()
    varied: Sequence[NativeRun] = ()
    empty: Sequence[Sequence[NativeRun]] = ()


def run_natively(
    open_session: Callable[[], Runner],
    sampled: SampledModel,
    *,
    open_other: Callable[[], NativeSession | None] = lambda: None,
    vary: bool = True,
    scales: bool = True,
    empty: bool = False,
) -> NativeRuns:
    """Run all samples, so that no session takes memory any more when the first engine is loaded.

    Args:
        open_session: Loads the model.
        sampled: What the samples follow from.
        open_other: Loads another native form of it.
        vary: Run varied samples, too.
        scales: Vary the scale of numbers as well.
        empty: Try sizes of 0.

    Raises:
        InvalidInputError: The model does not run on the given inputs.
    """
    inputs, given = sampled.inputs, sampled.given
    other, session = open_other(), Remembering(open_session())

    def noted(one: VariedSample, *, varied: bool = True) -> NativeRun:
        others = _values(other, one.feeds, other.run(one.feeds)) if other else one.values
        return NativeRun(feeds=one.feeds, values=one.values, others=others, varied=varied, scaled=one.scaled)

    samples, usual = find_samples(session, inputs, given), list[NativeRun]()
    for feeds in samples:
        values = _values(session, feeds, session.run(feeds))
        usual.append(noted(VariedSample(values=values, feeds=feeds), varied=False))
        if all(map(is_finite, values.values())):
            break
    if not samples or not vary:
        return NativeRuns(usual=usual)
    generated = samples if given is None else find_samples(session, inputs, None)
    base = generated[0] if generated else None
    varied = list(map(noted, varied_samples(session, inputs, base, sampled.uses, scales=scales)))
    groups = [
        [(feeds, _values(session, feeds, results)) for feeds, results in group]
        for group in (empty_samples(session, inputs, base) if empty and base else ())
    ]
    without = [[NativeRun(feeds=feeds, values=values, others=values) for feeds, values in one] for one in groups]
    return NativeRuns(usual=usual, varied=varied, empty=without)


def _values(session: Runner, feeds: Feeds, results: Sequence[Any]) -> dict[str, Any]:
    return {**feeds, **dict(zip(session.outputs, results, strict=True))}


def is_finite(value: Any) -> bool:
    """Return whether a value holds neither NaN nor infinity, as far as it is an array of floats."""
    return not isinstance(value, np.ndarray) or value.dtype.kind != "f" or bool(np.isfinite(value).all())


_kept: list[tuple[object, NativeRuns]] = []


def keep_runs(sampled: SampledModel, runs: NativeRuns) -> None:
    """Keep the runs of a model in place of those that were kept."""
    _kept[:] = [(sampled.identity, runs)]


def kept_runs(sampled: SampledModel) -> NativeRuns | None:
    """Return the runs of a model, if they were kept."""
    return next((runs for identity, runs in _kept if identity == sampled.identity), None)


def forget_runs() -> None:
    """Free the memory of the runs that were kept."""
    _kept.clear()
