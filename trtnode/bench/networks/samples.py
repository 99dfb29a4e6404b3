"""Synthetic inputs with the statistics of real ones."""

from __future__ import annotations

import numpy as np

from trtnode.engines.inputs.samples import Feeds

PAD, CLS, SEP, FIRST_WORD = 0, 101, 102, 1000
"""Ids of BERT's uncased vocabulary; words begin about there."""

NUMBERS = 13
"""Number of numeric fields of Criteo's click logs; the others are categories."""


def images(channels: int, side: int, *, batch: int, rng: np.random.Generator) -> Feeds:
    """Draw images whose amplitudes fall with one over the frequency, each channel with mean 0 and variance 1.

    Photographs have such spectra: Field, Relations between the statistics of natural images, 1987.

    Returns:
        ``image``: float32 ``[batch, channels, side, side]``.
    """
    rows, columns = np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)
    frequency = np.hypot(rows, columns)
    frequency[0, 0] = np.inf  # no mean
    noise = np.fft.rfft2(rng.standard_normal((batch, channels, side, side)))
    image = np.fft.irfft2(noise / frequency, s=(side, side))
    return {"image": (image / image.std(axis=(2, 3), keepdims=True)).astype(np.float32)}


def token_sequences(vocabulary: int, length: int, *, batch: int, rng: np.random.Generator) -> Feeds:
    """Draw padded pairs of sentences of different lengths; frequencies of words follow Zipf's law.

    Returns:
        ``input_ids``, ``attention_mask`` and ``token_type_ids``: int64 ``[batch, length]``.
    """
    place = np.arange(length)
    used = rng.integers(length // 2, length, size=(batch, 1), endpoint=True)
    first = (used * rng.uniform(0.3, 0.7, size=(batch, 1))).astype(np.int64)
    ids = FIRST_WORD + _zipf(vocabulary - FIRST_WORD, (batch, length), rng)
    ids[:, 0] = CLS
    ids[(place == first) | (place == used - 1)] = SEP
    mask = place < used
    return {
        "input_ids": np.where(mask, ids, PAD),
        "attention_mask": mask.astype(np.int64),
        "token_type_ids": (mask & (place > first)).astype(np.int64),
    }


def clicks(vocabulary: int, fields: int, *, batch: int, rng: np.random.Generator) -> Feeds:
    """Draw rows of Criteo's click logs: 13 numbers, then categories with a range of ids per field.

    A number's field has one id and the number, scaled to 0 to 1, as its weight; a category has the weight 1.

    Returns:
        ``ids``: int32 ``[batch, fields]``; ``weights``: float32 of the same shape.
    """
    categories = fields - NUMBERS
    part = (vocabulary - NUMBERS) // categories
    numbers = np.broadcast_to(np.arange(NUMBERS), (batch, NUMBERS))
    chosen = NUMBERS + np.arange(categories) * part + _zipf(part, (batch, categories), rng)
    weights = np.ones((batch, fields), np.float32)
    weights[:, :NUMBERS] = rng.beta(1, 4, size=(batch, NUMBERS))
    return {"ids": np.concatenate([numbers, chosen], axis=1).astype(np.int32), "weights": weights}


def _zipf(count: int, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Draw integers below ``count``; the probability of n is about proportional to ``1 / (1 + n)``."""
    return (np.exp(rng.uniform(0, np.log(count + 1), shape)) - 1).astype(np.int64)
