"""Arrays that tests run models on."""

from __future__ import annotations

import numpy as np


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    """Normally distributed values, float32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def texts(*values: str) -> np.ndarray:
    return np.array(values, dtype=object)
