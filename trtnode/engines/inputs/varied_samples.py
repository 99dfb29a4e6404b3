"""Samples beside the usual ones, which show what values and sizes can: odd and large sizes, ties, zeros, other scales.

They vary inputs on which the model runs. A variation on which it doesn't is left out, so nothing is asked of a model
that it was not made for.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from trtnode.engines.errors import ExecutionError
from trtnode.engines.inputs.dimension_names import free_sizes, named, symbols_of, with_sizes
from trtnode.engines.inputs.input_uses import InputUses
from trtnode.engines.inputs.samples import MAX_ELEMENTS, SEED, Feeds, Runner, SampledSizes, large_rows
from trtnode.partitioner.graph.view import TensorSpec

SCALES = (1e-4, 1.0, 1e4)
"""Of the rows of a tensor, in turn."""

Fill = Callable[[tuple[int, ...]], Any]
"""Makes the numbers of a tensor of a shape."""

MULTIPLES = 12
"""Largest multiple of a tie, on both sides of zero."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class VariedSample:
    """Inputs, and what the model makes of them.

    Attributes:
        values: Inputs and outputs, by name.
        feeds: The inputs.
        scaled: True if numbers are far from 1: float16 and quantized sums answer them otherwise.
    """

    values: Mapping[str, Any]
    feeds: Feeds
    scaled: bool = False


def varied_samples(
    session: Runner, inputs: Sequence[TensorSpec], base: Feeds | None, uses: InputUses, *, scales: bool = True
) -> Iterator[VariedSample]:
    """Yield further samples of a model: of an odd size, of ties and zeros in a large size, and of several scales.

    Args:
        session: The model.
        inputs: Its inputs.
        base: Generated inputs that it runs on; None yields nothing.
        uses: What it does with its inputs.
        scales: Vary the scale, too.
    """
    if base is None:
        return
    varying = _Varying(named([spec for spec in inputs if spec.name in base]), base, uses)
    small, large = varying.size, 2 * uses.reach + 1
    odd = small + 1 if small > 1 else 3
    if varying.symbols > 1:
        yield from _first(session, (varying.normal(odd, apart=True), varying.normal(odd), varying.normal(3 * small)))
    yield from _first(session, (varying.ties(size) for size in (max(large, odd), odd, 3 * small, 2 * small, small)))
    for sample in _first(session, [varying.scaled(small)] if scales else []):
        yield dataclasses.replace(sample, scaled=True)


def _first(session: Runner, candidates: Iterable[Feeds | None]) -> Iterator[VariedSample]:
    """Yield the first inputs on which the model runs, if there are any."""
    for feeds in candidates:
        if feeds is None:
            continue
        try:
            results = session.run(feeds)
        except ExecutionError:
            continue
        yield VariedSample(values={**feeds, **dict(zip(session.outputs, results, strict=True))}, feeds=feeds)
        return


class _Varying:
    """Inputs of a model in other sizes and with other numbers."""

    def __init__(self, specs: Sequence[TensorSpec], base: Feeds, uses: InputUses) -> None:
        self._specs = specs
        self._base = base
        self._uses = uses
        self._rng = np.random.default_rng(SEED)
        self._symbols = symbols_of(specs)
        self.symbols = len(self._symbols)
        sizes = free_sizes(specs, {name: array.shape for name, array in base.items()})
        self.size = max(sizes.values(), default=1)
        self._most = dict.fromkeys(_rows_alone(specs) & sizes.keys(), 3 * self.size)
        self._most |= {name: max(2, sizes[name]) for name in large_rows(specs) & sizes.keys()}

    def normal(self, size: int, *, apart: bool = False) -> Feeds | None:
        """Return normal numbers; in sizes that differ from each other, if they are to be apart."""
        return self._feeds(size, self._rng.standard_normal, apart=apart)

    def ties(self, size: int) -> Feeds | None:
        """Return multiples of numbers at which results jump, in rows of which every third is zero."""
        units = np.array((0.5, *self._uses.ties), np.float32)
        multiples = np.outer(np.arange(-MULTIPLES, MULTIPLES + 1, dtype=np.float32), units).ravel()
        numbers = np.append(multiples, np.float32(-0.0))

        def fill(shape: tuple[int, ...]) -> np.ndarray:
            return np.where(_rows(shape) % 3 != 1, self._rng.choice(numbers, shape), np.float32(0))

        return self._feeds(size, fill)

    def scaled(self, size: int) -> Feeds | None:
        """Return normal numbers in rows of several scales."""
        return self._feeds(
            size, lambda shape: self._rng.standard_normal(shape) * np.take(SCALES, _rows(shape) % len(SCALES))
        )

    def _feeds(self, size: int, fill: Fill, *, apart: bool = False) -> Feeds | None:
        sizes = {name: size + place * apart for place, name in enumerate(self._symbols)}
        sizes = {name: min(size, self._most.get(name, size)) for name, size in sizes.items()}
        fixed = with_sizes(self._specs, sizes)
        shapes = [spec.static_shape or () for spec in fixed or ()]
        if fixed is None or (self.symbols and max(map(math.prod, shapes)) > MAX_ELEMENTS):
            return None
        return {spec.name: self._tensor(spec, shape, fill) for spec, shape in zip(self._specs, shapes, strict=True)}

    def _tensor(self, spec: TensorSpec, shape: tuple[int, ...], fill: Fill) -> np.ndarray:
        base = self._base[spec.name]
        if isinstance(spec, SampledSizes) or spec.dtype is None:
            return base
        if spec.dtype == ir.DataType.STRING:
            return np.full(shape, "a", dtype=object)
        if spec.dtype.is_floating_point():
            return np.asarray(fill(shape)).astype(base.dtype)
        low, high = self._uses.bounds.get(spec.name, (int(base.min(initial=0)), int(base.max(initial=0))))
        return self._rng.integers(low, high, shape, endpoint=True).astype(base.dtype)


def _rows_alone(specs: Sequence[TensorSpec]) -> set[str]:
    """Return the symbols that number rows, and nothing that a window moves along."""
    shapes = [spec.shape for spec in specs if spec.shape]
    rows = {str(shape[0]) for shape in shapes if len(shape) > 1}
    return rows - {str(size) for shape in shapes for size in (shape if len(shape) == 1 else shape[1:])}


def _rows(shape: tuple[int, ...]) -> np.ndarray:
    """Return the number of the row of each element, to be spread over the rows' elements."""
    rows = shape[:-1] or shape
    numbers = np.arange(math.prod(rows)).reshape(rows)
    return numbers[..., None] if len(shape) > 1 else numbers
