"""Runs a model of fixed size on images of any size: in tiles, which are joined to one result."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from trtnode.engines.backends.stage_times import StageTime
from trtnode.engines.errors import EngineError, InvalidInputError
from trtnode.partitioner.errors import PipelineError
from trtnode.partitioner.graph.view import TensorSpec, describe
from trtnode.partitioner.pipelines.node_writer import Layout
from trtnode.partitioner.pipelines.stage_models import KeyPath
from trtnode.partitioner.pipelines.tiles import TileAxis
from trtnode.serving.executables.interface import ServedExecutable
from trtnode.serving.schema.pipeline import TilesConfig


@dataclasses.dataclass(frozen=True, slots=True)
class _Output:
    """An output of the model: how it lies, and its pixels for a pixel of the image, along height and width."""

    spec: TensorSpec
    layout: Layout
    scales: tuple[Fraction, Fraction]


@dataclasses.dataclass(frozen=True, slots=True)
class _Tile:
    """One tile: its image in the request, and its place among those of the image, down and across."""

    image: int
    row: int
    column: int


class TiledExecutable:
    """Runs an executable on tiles of images, see ``ServedExecutable``. Thread-safe.

    Each tile is a part of the image with its overlap, so a model sees beyond the part of a tile that counts. Results of
    real numbers are blended, others are taken from one tile. An image that isn't larger than a tile, and the end of
    one that doesn't end at a multiple of ``align``, are filled up with the pixels of the edge; the result is cut again.

    Memory beside the result is that of the request, once more where it is filled up, and of one batch of tiles.

    Attributes:
        model: Runs the tiles.
    """

    def __init__(self, executable: ServedExecutable, config: TilesConfig, layout: Layout, place: KeyPath) -> None:
        """Learn the form of the results by a run on zeros.

        Args:
            executable: Takes ``config.batch`` tiles at a time.
            config: Of the tiles.
            layout: Of the images in requests.
            place: Of the stage in the configuration, for messages.

        Raises:
            PipelineError: The model isn't one from images to images, or the settings don't fit it.
        """
        self.facts = executable.facts
        self.model = executable
        self._config = config
        self._layout = layout
        self._place = place
        if len(executable.inputs) != 1:
            listed = ", ".join(repr(spec.name) for spec in executable.inputs)
            raise PipelineError(place, f"takes models with one input, but this one has {listed or 'none'}")
        (spec,) = executable.inputs
        self._name = spec.name
        assert spec.static_shape is not None, "the pipeline has given the input its size"
        self._channels = _planes(np.empty(spec.static_shape, bool), layout).shape[1]
        self._outputs = self._learn_outputs(spec)
        self.inputs = (dataclasses.replace(spec, shape=_any_size(layout, self._channels)),)
        self.outputs = tuple(one.spec for one in self._outputs)

    def run(
        self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None, times: list[StageTime] | None = None
    ) -> dict[str, Any]:
        """Answer one request.

        Raises:
            InvalidInputError: The images have no pixel, more than they may, or the model refuses them.
            ExecutionError: A run of the model failed.
        """
        images = np.asarray(feeds.get(self._name))
        if images.ndim != 4 or _planes(images, self._layout).shape[1] != self._channels:
            raise InvalidInputError(f"Input {self._name!r} must be {describe(self.inputs[0])}.")
        return self.run_checked(feeds, outputs, times)

    def run_checked(
        self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None, times: list[StageTime] | None = None
    ) -> dict[str, Any]:
        """Answer one request whose inputs are known to fit; else as ``run``."""
        images = _planes(feeds[self._name], self._layout)
        self._check_pixels(images)
        axes = [
            TileAxis.cover(length, tile, self._config.overlap, self._config.align)
            for length, tile in zip(images.shape[2:], self._config.size, strict=True)
        ]
        padding = [(0, axis.padded - length) for axis, length in zip(axes, images.shape[2:], strict=True)]
        padded = np.pad(images, ((0, 0), (0, 0), *padding), "edge") if any(map(any, padding)) else images
        wanted = [one for one in self._outputs if outputs is None or one.spec.name in outputs]
        canvases = {one.spec.name: _Canvas(one, axes, images.shape) for one in wanted}
        for tiles in _batches(len(padded), axes, self._config.batch):
            results = self.model.run({self._name: self._batch(padded, axes, tiles)}, list(canvases), times)
            for name, canvas in canvases.items():
                for tile, result in zip(tiles, canvas.planes(results[name]), strict=False):
                    canvas.add(tile, result)
        return {name: canvas.finished() for name, canvas in canvases.items()}

    def close(self) -> None:
        """Free the model."""
        self.model.close()

    def needs_native(self, feeds: Mapping[str, Any]) -> bool:  # noqa: ARG002  (the protocol has it)
        """Each batch of tiles decides by itself."""
        return False

    def _check_pixels(self, images: np.ndarray) -> None:
        pixels, most = images.shape[0] * math.prod(images.shape[2:]), self._config.max_pixels
        if not pixels:
            raise InvalidInputError(f"Input {self._name!r} has no pixel.")
        if pixels > most:
            raise InvalidInputError(f"Input {self._name!r} has {pixels} pixels, but {most} are the most (max_pixels).")

    def _batch(self, images: np.ndarray, axes: Sequence[TileAxis], tiles: Sequence[_Tile]) -> np.ndarray:
        (spec,) = self.model.inputs
        batch = np.zeros(spec.static_shape or (), images.dtype)
        planes = _planes(batch, self._layout)
        for index, tile in enumerate(tiles):
            planes[index] = _cut(images, axes, tile)
        return batch

    def _learn_outputs(self, spec: TensorSpec) -> list[_Output]:
        assert spec.dtype is not None
        try:
            results = self.model.run({spec.name: np.zeros(spec.static_shape or (), spec.dtype.numpy())})
        except EngineError as error:
            raise PipelineError(self._place, f"the model doesn't run on tiles: {error}") from error
        return [self._learn(one, results[one.name]) for one in self.model.outputs]

    def _learn(self, spec: TensorSpec, result: np.ndarray) -> _Output:
        config, layout = self._config, self._config.layout
        if result.ndim not in (3, 4) or len(result) != config.batch:
            shape = list(result.shape)
            raise PipelineError(self._place, f"takes models that give images, but output {spec.name!r} has {shape}")
        planes = _planes(result, layout)
        scales = tuple(Fraction(size, tile) for size, tile in zip(planes.shape[2:], config.size, strict=True))
        if not all(scales) or any((config.align * scale).denominator != 1 for scale in scales):
            needed = math.lcm(*(scale.denominator for scale in scales))
            text = f"output {spec.name!r} has {' x '.join(map(str, scales))} pixels for one of the image"
            raise PipelineError((*self._place, "align"), f"{text}; a multiple of {needed} makes them whole")
        sizes = _any_size(layout, planes.shape[1]) if result.ndim == 4 else ("batch", "height", "width")
        return _Output(dataclasses.replace(spec, shape=sizes), layout, (scales[0], scales[1]))


class _Canvas:
    """One output under construction."""

    def __init__(self, output: _Output, axes: Sequence[TileAxis], shape: Sequence[int]) -> None:
        """Begin.

        Args:
            output: Its form.
            axes: Of the tiles.
            shape: Of the images: [batch, channels, height, width].
        """
        assert output.spec.dtype is not None
        self._dtype = output.spec.dtype.numpy()
        self._blends = self._dtype.kind in "fV"  # V: bfloat16
        self._output = output
        self._shape = shape
        self._axes = axes
        self._weights = [
            axis.weights(scale, blend=self._blends) for axis, scale in zip(axes, output.scales, strict=True)
        ]
        self._tile_sizes = [int(axis.tile * scale) for axis, scale in zip(axes, output.scales, strict=True)]
        self._sums: np.ndarray | None = None

    def planes(self, results: np.ndarray) -> np.ndarray:
        """Return a batch of results as [batch, channels, height, width]."""
        return _planes(results, self._output.layout)

    def add(self, tile: _Tile, result: np.ndarray) -> None:
        """Add the result of a tile: [channels, height, width]."""
        if self._sums is None:
            self._sums = self._empty(len(result))
        starts = (axis.starts[index] for axis, index in zip(self._axes, (tile.row, tile.column), strict=True))
        corner = [int(start * scale) for start, scale in zip(starts, self._output.scales, strict=True)]
        down, across = (slice(at, at + size) for at, size in zip(corner, self._tile_sizes, strict=True))
        target = self.planes(self._sums)[tile.image, :, down, across]
        weight = np.outer(self._weights[0][tile.row], self._weights[1][tile.column])
        if self._blends:
            target += result.astype(self._sums.dtype, copy=False) * weight
        else:
            np.copyto(target, result, where=weight > 0, casting="unsafe")

    def finished(self) -> np.ndarray:
        """Return the output, as large as the images ask for."""
        assert self._sums is not None, "every image has a tile"
        sizes = [math.ceil(size * scale) for size, scale in zip(self._shape[2:], self._output.scales, strict=True)]
        height = 1 if self._is_channels_last else self._sums.ndim - 2
        crop = [slice(None)] * self._sums.ndim
        crop[height : height + 2] = [slice(size) for size in sizes]
        return np.ascontiguousarray(self._sums[tuple(crop)], self._dtype)

    @property
    def _is_channels_last(self) -> bool:
        return self._output.layout == "nhwc" and len(self._output.spec.shape or ()) == 4

    def _empty(self, channels: int) -> np.ndarray:
        sizes = [int(axis.padded * scale) for axis, scale in zip(self._axes, self._output.scales, strict=True)]
        rank = len(self._output.spec.shape or ())
        shape = [*sizes, channels] if self._is_channels_last else [channels, *sizes] if rank == 4 else sizes
        wide = np.dtype(np.float64) if self._dtype == np.float64 else np.dtype(np.float32)
        return np.zeros((self._shape[0], *shape), wide if self._blends else self._dtype)


def _planes(images: np.ndarray, layout: Layout) -> np.ndarray:
    """Return a view as [batch, channels, height, width]."""
    if images.ndim == 3:
        return images[:, None]
    return images if layout == "nchw" else np.moveaxis(images, 3, 1)


def _any_size(layout: Layout, channels: int) -> tuple[int | str, ...]:
    return ("batch", channels, "height", "width") if layout == "nchw" else ("batch", "height", "width", channels)


def _cut(images: np.ndarray, axes: Sequence[TileAxis], tile: _Tile) -> np.ndarray:
    """Return the pixels of a tile, as a view: [channels, height, width]."""
    down, across = axes[0].starts[tile.row], axes[1].starts[tile.column]
    return images[tile.image, :, down : down + axes[0].tile, across : across + axes[1].tile]


def _batches(images: int, axes: Sequence[TileAxis], size: int) -> Iterator[list[_Tile]]:
    """Yield so many tiles at a time, of all images."""
    tiles = itertools.starmap(_Tile, itertools.product(range(images), *(range(len(axis.starts)) for axis in axes)))
    while batch := list(itertools.islice(tiles, size)):
        yield batch
