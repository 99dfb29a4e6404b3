"""Engines of OpenVINO compute integers with every digit, over their whole range."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from comparison import AssertSame, RunPlainly
from stand_in_workers import InProcessWorker
from trtnode.engines.compile.opening import open_model
from workshop import Workshop

WIDE = 2**30  # float32 holds every 64th integer here


def integers(dtype: Any) -> list[np.ndarray]:
    """Neighbours that float32 can't tell apart, and values over the whole range."""
    limits = np.iinfo(np.int32 if dtype == np.int64 else dtype)
    rng = np.random.default_rng(0)
    base = WIDE if limits.max > WIDE else 0
    near = base + rng.integers(1, 50, 24)
    far = rng.integers(limits.min, limits.max, 24, endpoint=True)
    far[:2] = limits.min, limits.max
    return [near.astype(dtype), np.where(far == 0, 1, far).astype(dtype)]


ON_INTEGERS = {
    **{op: f"y# = {op}(x, z)" for op in ("Add", "Sub", "Mul", "Div", "Max", "Min")},
    **{op: f"b# = {op}(x, z) y# = Where(b#, x, z)" for op in ("Equal", "Less", "GreaterOrEqual")},
    **{op: f"y# = {op}(x, z)" for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    **{op: f"y# = {op}(x)" for op in ("Abs", "Neg", "Relu", "Sign", "Identity", "BitwiseNot")},
    **{op: f"y# = {op}(x, axis)" for op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceL1")},
    "Clip": "y# = Clip(x, low, )",
    "CumSum": "y# = CumSum(x, first)",
    "MatMul": "y# = MatMul(x, z)",
    "Mod": "y# = Mod<fmod = 1>(x, z)",
    "TopK": "y#, i# = TopK(x, two)",
    "ScatterND": 'y# = ScatterND<reduction = "mul">(x, place, x)',
}
"""A node of each type; # stands for its number."""


@pytest.mark.parametrize("kind", ["int8", "uint8", "int32", "int64"])
def test_integers_keep_every_digit(
    kind: str, workshop: Workshop, in_process: InProcessWorker, plain: RunPlainly, same: AssertSame
) -> None:
    """All operators in one model, so that it is compiled once."""
    bodies = [
        b.replace("#", str(n)) for n, b in enumerate(ON_INTEGERS.values()) if runs_natively(workshop, kind, b, plain)
    ]
    outputs = [word for body in bodies for word in re.findall(r"\by\d+", body)]
    source = workshop.write(graph_of(kind, " ".join(bodies), outputs))

    executable = open_model(workshop.compile_file(source, worker=in_process))

    assert executable.facts.segments >= 1
    near, far = (v.reshape(4, 6) for v in integers(np.dtype(kind)))
    for x, z in ((near, near[::-1]), (far, far[::-1]), (near, far)):
        feeds = {"x": np.ascontiguousarray(x[:, :4]), "z": np.ascontiguousarray(z[:, :4])}
        same(executable.run(feeds), plain(source, feeds))


def graph_of(kind: str, body: str, outputs: list[str]) -> str:
    declared = ", ".join(f"{kind}[a,b] {name}" for name in outputs)
    return (
        f"g ({kind}[4,4] x, {kind}[4,4] z) => ({declared}) <int64[1] axis = {{1}}, int64 first = {{0}},"
        f" {kind} low = {{3}}, int64[1] two = {{2}}, int64[4,1] place = {{0,1,2,3}}> {{ {body} }}"
    )


def runs_natively(workshop: Workshop, kind: str, body: str, plain: Any) -> bool:
    ones = np.ones((4, 4), np.dtype(kind))
    try:
        plain(workshop.write(graph_of(kind, body.replace("#", ""), ["y"])), {"x": ones, "z": ones})
    except Exception:
        return False
    return True


def test_ranges_and_tiles_have_the_lengths_of_dimensions(
    workshop: Workshop, in_process: InProcessWorker, plain: RunPlainly, same: AssertSame
) -> None:
    source = workshop.write(
        """g (float[N] x, float[2,M] z) => (int64[A] up, int64[B] down, int32[C] wide, float[D] t)
        <int64 zero = {0}, int64 two = {2}, int64 minus = {-3}, int32 a = {-5}, int32 b = {2}, int64 one = {1}> {
        s = Shape(x) n = Squeeze(s) zs = Shape(z) m = Gather(zs, one)
        up = Range(m, n, two) down = Range(n, zero, minus) k = Cast<to = 6>(n) wide = Range(a, k, b)
        d = Slice(zs, last, end) t = Tile(x, d) }""".replace(
            "int64 one = {1}>", "int64 one = {1}, int64[1] last = {1}, int64[1] end = {2}>"
        )
    )

    executable = open_model(workshop.compile_file(source, worker=in_process))

    assert executable.facts.native_nodes == 0
    for n, m in ((1, 1), (2, 5), (7, 2), (300, 11)):
        feeds = {"x": np.arange(n, dtype=np.float32), "z": np.ones((2, m), np.float32)}
        same(executable.run(feeds), plain(source, feeds))
