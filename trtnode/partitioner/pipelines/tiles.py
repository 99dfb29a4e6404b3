"""Tiles that cover an image: their places along an axis, and their weights in the result."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np


@dataclasses.dataclass(frozen=True, slots=True)
class TileAxis:
    """Tiles along one axis of an image.

    Attributes:
        starts: First pixel of each tile, rising. They are spread evenly, so that no two neighbours overlap much more
            than others.
        tile: Pixels of a tile.
        overlap: Pixels that neighbours share at least.
    """

    starts: tuple[int, ...]
    tile: int
    overlap: int

    @classmethod
    def cover(cls, length: int, tile: int, overlap: int, align: int = 1) -> TileAxis:
        """Cover an axis with the fewest tiles.

        Args:
            length: Pixels of the image, at least 1. They are filled up to a multiple of ``align``, and to one tile.
            tile: Pixels of a tile, a multiple of ``align``.
            overlap: Pixels that neighbours share at least: a multiple of ``align``, at most half of ``tile``.
            align: Tiles start at multiples of it.
        """
        steps = (max(tile, math.ceil(length / align) * align) - tile) // align
        count = 1 + math.ceil(steps / ((tile - overlap) // align))
        return cls(tuple(index * steps // max(1, count - 1) * align for index in range(count)), tile, overlap)

    @property
    def padded(self) -> int:
        """Pixels that all tiles cover together."""
        return self.starts[-1] + self.tile

    def weights(self, scale: Fraction, *, blend: bool) -> list[np.ndarray]:
        """Return the weights of each tile's pixels in the result; those of all tiles add up to 1 at each pixel.

        Neighbours blend in the middle half of what they share. The quarter at a tile's edge has no weight: a model
        doesn't see there what lies beyond. So a model whose pixels depend on at most ``overlap / 4`` pixels around them
        gives what it gives for the whole image.

        Args:
            scale: Pixels of the result for a pixel of the image.
            blend: False takes each pixel from one tile alone: that in which it lies deepest.

        Returns:
            float32[tile * scale] for each tile.
        """
        pixels = int(self.tile * scale)
        places = [int(start * scale) for start in self.starts]
        depth = (np.arange(pixels) + 0.5) / float(scale)
        if not blend:
            middles = [(left + right + self.tile) / 2 for left, right in itertools.pairwise(self.starts)]
            bounds = zip(self.starts, (-math.inf, *middles), (*middles, math.inf), strict=True)
            return [((start + depth >= low) & (start + depth < high)).astype(np.float32) for start, low, high in bounds]
        falling = self._ramp(self.tile - depth)
        tiles = [np.ones(pixels) if place == 0 else self._ramp(depth) for place in places]
        tiles[:-1] = [np.minimum(tile, falling) for tile in tiles[:-1]]
        total = np.zeros(int(self.padded * scale))
        for place, tile in zip(places, tiles, strict=True):
            total[place : place + pixels] += tile
        return [
            (tile / total[place : place + pixels]).astype(np.float32) for place, tile in zip(places, tiles, strict=True)
        ]

    def _ramp(self, depth: np.ndarray) -> np.ndarray:
        """Return the weight of pixels by their distance from an edge that another tile shares."""
        if self.overlap == 0:
            return np.ones_like(depth)
        return np.clip(2 * depth / self.overlap - 0.5, 0, 1)
