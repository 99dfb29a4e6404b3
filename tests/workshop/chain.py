"""A chain of three nodes, the middle one of which tests run natively."""

from __future__ import annotations

import numpy as np

GRAPH = "g (float[N,4] x) => (float[N,4] y) { e = Exp(x) r = Relu(e) y = Neg(r) }"
FEEDS = {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}
