"""The proof that a model's answers don't depend on padding, by runs on generated inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from trtnode.engines.build.tolerance import find_difference
from trtnode.engines.errors import EngineError
from trtnode.serving.batching.concatenation import Feeds, split
from trtnode.serving.batching.lengths import LONGEST, Fill, Lengths, default_buckets
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
            alone = [self._run(one) for one in requests]
            self._lengths = dataclasses.replace(self._lengths, outputs=_length_axes(sizes, alone))
            return next(self._problems(sizes, requests, alone), None) or self._lengths
        except EngineError as error:
            return f"it fails on generated inputs: {error}"

    def _problems(self, sizes: Sequence[int], requests: Sequence[Feeds], alone: Sequence[Feeds]) -> Iterator[str]:
        lengths = self._lengths
        whole = lengths.bucket(sizes[-1])
        assert whole is not None, "the lengths are among those of the buckets"
        for name, fill in self._fills():
            for size, request, expected in zip(sizes, requests, alone, strict=True):
                for bucket in {lengths.bucket(size) or whole, whole}:
                    found = lengths.cut(self._run(lengths.padded(request, bucket, fill)), size)
                    yield from self._differences(f"padded from {size} to {bucket} with {name}", expected, found)
            if self._joins:
                padded = [lengths.padded(request, whole, fill) for request in requests]
                batch = {name: np.concatenate([one[name] for one in padded]) for name in padded[0]}
                rows = [len(next(iter(one.values()))) for one in padded]
                parts = split(self._run(batch), rows)
                for size, expected, part in zip(sizes, alone, parts, strict=True):
                    company = f"of length {size} beside others, padded with {name}"
                    yield from self._differences(company, expected, lengths.cut(part, size))
        last = max(1, lengths.buckets[-1] - 1)
        request = self._sample(last, 1)
        found = lengths.cut(self._run(lengths.padded(request, lengths.buckets[-1])), last)
        yield from self._differences(f"padded from {last} to {lengths.buckets[-1]}", self._run(request), found)

    def _differences(self, company: str, expected: Feeds, found: Feeds) -> Iterator[str]:
        exact = self._executable.description["precision"]["effective"] == "fp32"
        for name, array in expected.items():
            difference = _difference(array, found[name], exact=exact)
            if difference:
                yield f"output {name!r} of a request {company} isn't that of the request by itself: {difference}"

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
        facts = self._executable.description
        known = facts.get("index_sizes", {}).get(name)
        tensor = self._signature.inputs[name]
        if known is not None or facts["segments"] or tensor.datatype.numpy.kind == "b":
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


def _length_axes(sizes: Sequence[int], results: Sequence[Feeds]) -> dict[str, tuple[int, ...]]:
    """Return the axes of each output whose size is the length in every request."""
    shapes = {name: [one[name].shape for one in results] for name in results[0]}
    return {
        name: tuple(
            axis
            for axis in range(1, min(map(len, found)))
            if all(shape[axis] == size for shape, size in zip(found, sizes, strict=True))
        )
        for name, found in shapes.items()
    }


def _difference(expected: np.ndarray, found: np.ndarray, *, exact: bool) -> str | None:
    if exact or expected.dtype.kind not in "fV" or expected.shape != found.shape:
        return find_difference(expected, found)
    right, padded = expected.astype(np.float64), found.astype(np.float64)
    worst, largest = float(np.abs(padded - right).max(initial=0)), float(np.abs(right).max(initial=0))
    return None if worst <= OF_LARGEST * largest else f"it differs by up to {worst:.3g} (largest value {largest:.3g})"
