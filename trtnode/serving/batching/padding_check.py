"""The proof that a model's answers don't depend on padding, by runs on generated inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from trtnode.engines.build.tolerance import find_difference
from trtnode.engines.errors import EngineError
from trtnode.serving.batching.concatenation import Feeds, split
from trtnode.serving.batching.lengths import LONGEST, Fill, Lengths, default_buckets
from trtnode.serving.errors import InvalidOutputError
from trtnode.serving.executables.interface import ServedExecutable
from trtnode.serving.protocol.wire_signature import BYTES, WireSignature, WireTensor

SEED = 20240229
TRIED = (1, 3, 7, 19, 45)
"""Lengths that are compared with padded ones, and with each other in one batch."""

OF_LARGEST = 0.05
"""Allowed difference in lower precisions, as a part of the largest element: shapes have kernels of their own."""

MOST_INDICES = 1 << 20
FLOATS = 100.0
"""Extreme padding of real numbers. Larger ones would leave the range that masks of -10,000 were made for."""


class _Asked(NamedTuple):
    """A request, and its results by itself."""

    length: int
    feeds: Feeds
    results: Feeds


class PaddingCheck:
    """Runs a model on requests by themselves, padded, and together."""

    def __init__(
        self, executable: ServedExecutable, signature: WireSignature, lengths: Lengths, *, joins: bool
    ) -> None:
        """Generate requests.

        Args:
            executable: The model.
            signature: Its inputs and outputs.
            lengths: As configured or found; without buckets, they are chosen.
            joins: True if requests may share an execution.
        """
        self._executable = executable
        self._signature = signature
        self._lengths = lengths
        self._joins = joins
        self._rng = np.random.default_rng(SEED)
        self._names = [tensor.name for tensor in signature.outputs]
        self._highest: Mapping[str, int] = {}

    def run(self) -> Lengths | str:
        """Return the lengths with buckets and outputs, or a sentence about what depends on padding."""
        try:
            self._highest = {name: self._find_highest(name) for name in self._integers()}
            if not self._lengths.buckets:
                self._lengths = dataclasses.replace(self._lengths, buckets=default_buckets(self._find_longest()))
            sizes = [size for size in TRIED if size <= self._lengths.buckets[-1]]
            rows = (1, 2) if self._joins else (1, 1)
            requests = [self._sample(size, rows[place % 2]) for place, size in enumerate(sizes)]
            asked = [_Asked(size, one, self._run(one)) for size, one in zip(sizes, requests, strict=True)]
            self._lengths = dataclasses.replace(self._lengths, outputs=_length_axes(asked))
            return next(self._problems(asked), None) or self._lengths
        except (EngineError, InvalidOutputError) as error:
            return f"it fails on generated inputs: {error}"

    def _problems(self, asked: Sequence[_Asked]) -> Iterator[str]:
        """Yield a sentence about each output that depends on padding."""
        buckets = self._lengths.buckets
        last = max(1, buckets[-1] - 1)
        request = self._sample(last, 1)
        for one in (*asked, _Asked(last, request, self._run(request))):
            yield from self._differences([one], "what is declared", None)
        for name, fill in self._fills():
            for group in [asked] if self._joins else [[one] for one in asked]:
                yield from self._differences(group, name, fill, beside=asked[-1].length)

    def _differences(
        self, group: Sequence[_Asked], name: str, fill: Fill | None, *, beside: int | None = None
    ) -> Iterator[str]:
        """Compare the answers to requests, padded and joined, with those to each by itself."""
        bucket = self._lengths.bucket(beside or group[0].length) or 0
        padded = [self._lengths.padded(one.feeds, bucket, fill) for one in group]
        rows = [len(next(iter(one.values()))) for one in padded]
        results = self._run({key: np.concatenate([one[key] for one in padded]) for key in padded[0]})
        exact = self._executable.facts.precision == "fp32"
        for one, part in zip(group, split(results, rows) if len(group) > 1 else [results], strict=True):
            for output, found in self._lengths.cut(part, one.length).items():
                if difference := _difference(one.results[output], found, exact=exact):
                    others = "" if len(group) == 1 else " beside others"
                    padding = f"is padded from length {one.length} to {bucket} with {name}{others}"
                    yield f"output {output!r} of a request changes when it {padding}: {difference}"

    def _fills(self) -> Iterator[tuple[str, Fill | None]]:
        """Yield the paddings to try: what is declared, extremes, and random elements. A mask stays 0."""
        yield "what is declared", None
        yield "its lowest values", self._beside_the_mask(lambda _, like: -FLOATS if like.dtype.kind in "fV" else 0)
        yield "its highest values", self._beside_the_mask(lambda name, _: self._highest.get(name, FLOATS))
        for _ in range(2):
            yield "random values", self._beside_the_mask(self._random)

    def _beside_the_mask(self, fill: Fill) -> Fill:
        return lambda name, like: 0 if name == self._lengths.mask else fill(name, like)

    def _random(self, name: str, like: np.ndarray) -> Any:
        if name in self._highest:
            return self._rng.integers(0, self._highest[name] + 1, like.shape)
        return self._rng.standard_normal(like.shape)

    def _sample(self, length: int, rows: int) -> dict[str, np.ndarray]:
        inputs = self._signature.inputs
        return {name: self._tensor(inputs[name], length, rows) for name in sorted(self._signature.required)}

    def _tensor(self, tensor: WireTensor, length: int, rows: int) -> np.ndarray:
        shape = [1 if size == -1 else size for size in tensor.shape or ()]
        if shape and (tensor.shape or ())[0] == -1:
            shape[0] = rows
        if tensor.name in self._lengths.axes:
            shape[self._lengths.axes[tensor.name]] = length
        if tensor.datatype is BYTES:
            return np.full(shape, "", object)
        like = np.ones(shape, tensor.datatype.numpy)
        if tensor.name != self._lengths.mask:
            like[...] = self._random(tensor.name, like)
        return like

    def _integers(self) -> list[str]:
        inputs = [self._signature.inputs[name] for name in sorted(self._signature.required)]
        return [i.name for i in inputs if i.datatype.numpy.kind in "iub" and i.name != self._lengths.mask]

    def _find_highest(self, name: str) -> int:
        """Return the highest integer that an input takes: what its engine knows of indices, else by runs.

        Engines without such knowledge aren't asked for more than 1: what they can't answer would run natively, which
        takes the memory of the whole model once more.
        """
        facts = self._executable.facts
        known = facts.index_sizes.get(name)
        tensor = self._signature.inputs[name]
        if known is not None or facts.segments or tensor.datatype.numpy.kind == "b":
            return 1 if known is None else known - 1
        limit = min(MOST_INDICES, int(np.iinfo(tensor.datatype.numpy).max))

        def runs(value: int) -> bool:
            request = self._sample(TRIED[1], 1)
            request[name][...] = value
            return self._runs(request)

        return _largest(1, limit, runs)

    def _find_longest(self) -> int:
        return _largest(TRIED[0], LONGEST, lambda length: self._runs(self._sample(length, 1)))

    def _runs(self, request: Feeds) -> bool:
        try:
            self._run(request)
        except EngineError:
            return False
        return True

    def _run(self, request: Feeds) -> Feeds:
        return self._executable.run(request, self._names)


def _largest(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number that fits, by bisection; the lowest is taken to fit."""
    if fits(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _length_axes(asked: Sequence[_Asked]) -> dict[str, tuple[int, ...]]:
    """Return the axes of each output whose size is the length in every request."""
    shapes = {name: [(one.length, one.results[name].shape) for one in asked] for name in asked[0].results}
    return {
        name: tuple(
            axis
            for axis in range(1, min(len(shape) for _, shape in found))
            if all(shape[axis] == length for length, shape in found)
        )
        for name, found in shapes.items()
    }


def _difference(expected: np.ndarray, found: np.ndarray, *, exact: bool) -> str | None:
    if exact or expected.dtype.kind not in "fV" or expected.shape != found.shape:
        return find_difference(expected, found)
    right, padded = expected.astype(np.float64), found.astype(np.float64)
    worst, largest = float(np.abs(padded - right).max(initial=0)), float(np.abs(right).max(initial=0))
    return None if worst <= OF_LARGEST * largest else f"it differs by up to {worst:.3g} (largest value {largest:.3g})"
