"""Casts to float16, through what moves values and on to other types, as cases of a sweep."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from sweeps import TYPES, Case

MOVES = (
    "b = Identity(a)",
    "b = Transpose<perm = [1, 0]>(a)",
    "b = Reshape(a, flat)",
    "b = Slice(a, zero, two)",
    "b = Concat<axis = 0>(a, a)",
    "b = Gather(a, zero)",
    "b = Unsqueeze(a, zero)",
)

CONSTANTS = {"flat": np.array([-1]), "zero": np.array([0]), "two": np.array([2])}

BETWEEN = [70001, 2049, 2050, 2051, 65519, 65520, 65535, -65536, 1e5, 0, -2049, 2e9, -2e9, 16777217]
FRACTIONS = [1e-8, -1e-8, 2.98e-8, 2.99e-8, 5.9e-8, 6.1e-5, 1 / 3, -2049.5, -1e30, 1e38]


def numbers(kind: str) -> np.ndarray:
    """Numbers beyond the range of float16 and between its steps, and each middle of two steps of one power of two."""
    middles = np.arange(4096, 8192, 2) + 0.0
    found = [*BETWEEN, *(FRACTIONS if kind == "float" else []), *middles, *np.arange(60000, 66000, 7)]
    return np.array(found[: len(found) // 4 * 4]).astype(TYPES[kind]).reshape(-1, 4)


def roundings(sources: tuple[str, ...], results: tuple[str, ...]) -> Iterator[Case]:
    types = {"float": 1, "int32": 6, "int64": 7, "bool": 9}
    for kind, move in itertools.product(sources, MOVES):
        feeds = [{"x": numbers(kind)}, {"x": numbers(kind)[:2]}]
        yield Case(f"g ({kind}[N,4] x) => (float16[] b) {{ a = Cast<to = 10>(x) {move} }}", feeds, CONSTANTS)
        for to in results:
            nodes = f"a = Cast<to = 10>(x) {move} y = Cast<to = {types[to]}>(b)"
            yield Case(f"g ({kind}[N,4] x) => ({to}[] y) {{ {nodes} }}", feeds, CONSTANTS)
