"""Lengths of a model: the axes that differ between requests, the sizes that they are padded to, and the way back."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from trtnode.partitioner.graph.view import TensorSpec
from trtnode.serving.batching.concatenation import Feeds
from trtnode.serving.schema.model import LengthsConfig

SHORTEST, STEPS = 8, 4
"""The first of the buckets that are chosen here, and their number up to each double of it. Lengths that are all equally
likely make 8 % of what is computed padding."""

LONGEST = 512
"""The last of them, where the model runs on that."""

Fill = Callable[[str, np.ndarray], Any]
"""Returns what an input is padded with, by its name and an array of the padded shape."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Axes of inputs that have one size in a request, its length.

    Attributes:
        axes: The axis of each input that has one, by name.
        mask: The input that is 1 where there is something, and 0 where there is padding; None without one.
        buckets: The lengths that requests are padded to, in ascending order.
        pad: What each input is padded with, by name; 0 if it isn't named.
        outputs: The axes of each output that have the length, by name.
    """

    axes: Mapping[str, int]
    mask: str | None
    buckets: tuple[int, ...]
    pad: Mapping[str, float] = dataclasses.field(default_factory=dict)
    outputs: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)

    def of(self, feeds: Feeds) -> int | None:
        """Return the length of a request; None if its inputs have several, which the model itself is to refuse."""
        sizes = {feeds[name].shape[axis] if name in feeds else -1 for name, axis in self.axes.items()}
        length = sizes.pop()
        return None if sizes or length < 0 else length

    def of_rows(self, feeds: Feeds, names: Sequence[str] | None) -> np.ndarray | None:
        """Return the length of each row, up to the last place that isn't masked.

        None if rows have to stay as long as their request: it has no mask, or an output that shows their length.

        Args:
            feeds: A request.
            names: The outputs that it asks for; None for all.
        """
        mask = feeds.get(self.mask) if self.mask is not None else None
        if mask is None or mask.ndim != 2 or any(map(self.outputs.get, self.outputs if names is None else names)):
            return None
        lengths: np.ndarray = mask.shape[1] - (mask[:, ::-1] != 0).argmax(axis=1)
        return lengths

    def of_part(self, feeds: Feeds, rows: np.ndarray, size: int) -> dict[str, np.ndarray]:
        """Return some rows of a request, without what is beyond a length."""
        axes = {name: (axis,) for name, axis in self.axes.items()}
        return {name: _cut(array, axes.get(name, ()), size)[rows] for name, array in feeds.items()}

    def bucket(self, length: int | None) -> int | None:
        """Return the size that a request is padded to; None if it runs as it is."""
        if not length:
            return None
        return next((bucket for bucket in self.buckets if bucket >= length), None)

    def up_to(self, longest: int) -> Lengths:
        """Return the lengths of requests of which none is longer."""
        last = min(longest, self.buckets[-1])
        return dataclasses.replace(self, buckets=(*(size for size in self.buckets if size < last), last))

    def padded(self, feeds: Feeds, size: int, fill: Fill | None = None) -> dict[str, np.ndarray]:
        """Return the inputs of a request at a larger length, padded as configured or by ``fill``."""
        fill = fill or self._declared
        return {
            name: _grown(array, self.axes[name], size, functools.partial(fill, name)) if name in self.axes else array
            for name, array in feeds.items()
        }

    def _declared(self, name: str, _like: np.ndarray) -> float:
        return self.pad.get(name, 0)

    def elements(self, feeds: Feeds) -> int:
        """Return how many elements the inputs with the length have."""
        return sum(feeds[name].size for name in self.axes)

    def shortened(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """Return the inputs of a request at length 0."""
        return {name: _cut(array, (self.axes[name],) if name in self.axes else (), 0) for name, array in feeds.items()}

    def cut(self, results: Feeds, length: int) -> dict[str, np.ndarray]:
        """Return results without padding, as views."""
        return {name: _cut(array, self.outputs.get(name, ()), length) for name, array in results.items()}


def _grown(array: np.ndarray, axis: int, size: int, fill: Callable[[np.ndarray], Any]) -> np.ndarray:
    grown = np.empty((*array.shape[:axis], size, *array.shape[axis + 1 :]), array.dtype)
    grown[...] = "" if array.dtype == np.object_ else fill(grown)
    grown[(slice(None),) * axis + (slice(array.shape[axis]),)] = array
    return grown


def _cut(array: np.ndarray, axes: Sequence[int], length: int) -> np.ndarray:
    for axis in axes:
        array = array[(slice(None),) * axis + (slice(length),)]
    return array


def default_buckets(longest: int) -> tuple[int, ...]:
    """Return four lengths for each double of one, up to the longest."""
    doubles = (SHORTEST << power for power in itertools.count())
    steps = (start + start * step // STEPS for start in doubles for step in range(STEPS))
    rounded = dict.fromkeys(-(-size // 4) * 4 for size in itertools.takewhile(lambda size: size < longest, steps))
    return (*(size for size in rounded if size < longest), longest)


def lengths_of(config: LengthsConfig | None, inputs: Sequence[TensorSpec]) -> Lengths | str:
    """Return the lengths of a model, or why there are none.

    Args:
        config: As configured; None finds axes by the name that most inputs share, and a mask by its name.
        inputs: Of the model.
    """
    if config is not None:
        if problem := next(_misfits(config, inputs), None):
            return problem
        return Lengths(axes=config.axes, mask=config.mask, buckets=config.buckets, pad=config.pad)
    axes: dict[str, dict[str, int]] = {}
    for spec in inputs:
        names = [size for size in spec.shape or () if isinstance(size, str)]
        for axis, size in enumerate(spec.shape or ()):
            if axis and isinstance(size, str) and names.count(size) == 1:
                axes.setdefault(size, {})[spec.name] = axis
    if not axes:
        return "no input has an axis with a name, behind its first one"
    found = max(axes.values(), key=len)
    masks = [name for name in found if "mask" in name.lower()]
    return Lengths(axes=found, mask=masks[0] if masks else None, buckets=())


def _misfits(config: LengthsConfig, inputs: Sequence[TensorSpec]) -> Iterator[str]:
    shapes = {spec.name: spec.shape for spec in inputs}
    for name, axis in config.axes.items():
        shape = shapes.get(name, ())
        if name not in shapes:
            yield f"there is no input {name!r}; there are {', '.join(shapes)}"
        elif shape is None or axis >= len(shape) or isinstance(shape[axis], int):
            yield f"axis {axis} of input {name!r} is none of any size"
