"""Synthetic inputs with the statistics of real ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

Feeds = Mapping[str, np.ndarray]


def images(channels: int, side: int, *, batch: int, rng: np.random.Generator) -> Feeds:
    """Images whose amplitude spectrum falls with one over the frequency, each channel with mean 0 and variance 1.

    That is how photographs are: Field, Relations between the statistics of natural images, 1987.

    Returns:
        ``image``: float32 ``[batch, channels, side, side]``.
    """
    rows, columns = np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)
    frequency = np.hypot(rows, columns)
    frequency[0, 0] = np.inf  # no mean
    noise = np.fft.rfft2(rng.standard_normal((batch, channels, side, side)))
    image = np.fft.irfft2(noise / frequency, s=(side, side))
    return {"image": (image / image.std(axis=(2, 3), keepdims=True)).astype(np.float32)}
