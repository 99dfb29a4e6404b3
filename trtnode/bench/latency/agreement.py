"""Compares answers with the native ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

SampleAnswers = Sequence[Sequence[Any]]
"""Outputs in the model's order, of each sample."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Measures of agreement with the native answers, over all samples; None if no output allows them.

    Attributes:
        cosine: The smallest cosine between an output and its native counterpart, each as one vector. An output of one
            number per sample is one vector over all samples, because the cosine of two numbers is only their sign.
        max_abs: The largest difference of an element.
        top1_agreement: Share of the vectors along the last axis of the first output whose largest element has the same
            position. None if that axis has one element.
    """

    cosine: float | None
    max_abs: float | None
    top1_agreement: float | None


def compare_answers(native: SampleAnswers, answers: SampleAnswers) -> Agreement:
    """Compare answers to the same samples, leaving out outputs that are no arrays of numbers."""
    pairs = list(_pairs(native, answers))
    first = list(_pairs([outputs[:1] for outputs in native], [outputs[:1] for outputs in answers]))
    agreeing = [np.argmax(a, -1) == np.argmax(b, -1) for a, b in first if a.size and a.ndim and a.shape[-1] > 1]
    return Agreement(
        cosine=min(_cosines(native, answers), default=None),
        max_abs=max((float(np.abs(a - b).max(initial=0.0)) for a, b in pairs), default=None),
        top1_agreement=float(np.mean(np.concatenate([same.ravel() for same in agreeing]))) if agreeing else None,
    )


def _pairs(native: SampleAnswers, answers: SampleAnswers) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for expected, actual in zip(native, answers, strict=True):
        for a, b in zip(expected, actual, strict=True):
            if isinstance(a, np.ndarray) and a.dtype.kind in "fiub":
                yield a.astype(np.float64), b.astype(np.float64)


def _cosines(native: SampleAnswers, answers: SampleAnswers) -> Iterator[float]:
    for expected, actual in zip(zip(*native, strict=True), zip(*answers, strict=True), strict=True):
        pairs = [(a.ravel(), b.ravel()) for a, b in _pairs([expected], [actual])]
        if pairs and all(a.size == 1 for a, _ in pairs):
            numbers, theirs = map(np.concatenate, zip(*pairs, strict=True))
            yield _cosine(numbers, theirs)
        else:
            yield from (_cosine(a, b) for a, b in pairs)


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    if np.array_equal(a, b):
        return 1.0
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / lengths if lengths else 0.0
