"""Every kind of model gives the answers of plain ONNX Runtime, whichever part of it runs in engines."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from arrays import floats, texts
from comparison import AssertSame, RunPlainly
from trtnode.engines.compile.opening import open_model
from workshop import Workshop


def whole(*shape: int, low: int = -100, high: int = 100, dtype: Any = np.int64) -> np.ndarray:
    return np.random.default_rng(0).integers(low, high, shape).astype(dtype)


Feeds = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A model, requests to it, and how many engines it should get."""

    graph: str
    requests: tuple[Feeds, ...]
    segments: int = 1
    native_ops: tuple[str, ...] = ()
    opset: int = 21
    ir: int = 10
    domains: str = ""


CASES = {
    "whole-graph-in-one-engine": Case(
        graph="g (float[2,4] x) => (float[2,4] y) <float[4] w = {1,2,3,4}> { e = Exp(x) m = Mul(e, w) y = Tanh(m) }",
        requests=({"x": floats(2, 4)}, {"x": floats(2, 4, seed=1)}),
    ),
    "native-node-between-two-engines": Case(
        graph="g (float[2,4] x) => (float[2,4] y) { e = Exp(x) r = Relu(e) y = Neg(r) }",
        requests=({"x": floats(2, 4)}, {"x": floats(2, 4, seed=1)}),
        native_ops=("Relu",),
        segments=2,
    ),
    "dilated-convolution": Case(
        graph="g (float[1,2,9,9] x) => (float[1,3,5,5] y) <float[3,2,3,3] w = {"
        + ",".join(str(i / 10 - 2.5) for i in range(54))
        + "}> { c = Conv<dilations = [2, 2]>(x, w) y = Relu(c) }",
        requests=({"x": floats(1, 2, 9, 9)},),
    ),
    "cast-to-float16-and-back": Case(
        graph="g (float[2,4] x) => (float[2,4] y) { h = Cast<to = 10>(x) n = Neg(h) y = Cast<to = 1>(n) }",
        # ONNX Runtime has no such Neg, computes in float32 and leaves the rounding out; engines round.
        requests=tuple({"x": (size * floats(2, 4)).astype(np.float16).astype(np.float32)} for size in (1, 1e4)),
    ),
    "dynamic-batch-and-length": Case(
        graph="g (float[N,T,4] x) => (float[N,T,4] y) { e = Exp(x) r = Relu(e) y = Softmax(r) }",
        requests=tuple({"x": floats(n, t, 4)} for n, t in ((1, 3), (4, 3), (1, 3), (2, 9), (5, 1), (1, 3))),
        native_ops=("Relu",),
        segments=2,
    ),
    "native-nodes-at-both-ends": Case(
        graph="g (float[N,4] x) => (float[N,4] y) { r = Relu(x) e = Exp(r) y = Relu(e) }",
        requests=tuple({"x": floats(n, 4)} for n in (1, 3, 2)),
        native_ops=("Relu",),
    ),
    "all-native": Case(
        graph="g (double[N,4] x) => (double[N,4] y) { e = Exp(x) y = Neg(e) }",
        requests=({"x": floats(2, 4).astype(np.float64)}, {"x": floats(5, 4).astype(np.float64)}),
        segments=0,
    ),
    "if-captures-values": Case(
        graph="""g (bool c, float[N,4] x) => (float[N,4] y) {
            e = Exp(x)
            i = If (c) <then_branch = g1 () => (float[N,4] a) { a = Neg(e) },
                        else_branch = g2 () => (float[N,4] b) { b = Mul(e, x) }>
            y = Sigmoid(i) }""",
        requests=tuple({"c": np.array(c), "x": floats(n, 4)} for c, n in ((True, 2), (False, 2), (False, 3))),
    ),
    "loop-captures-values": Case(
        graph="""g (int64 n, float[4] x) => (float[4] y, float[T,4] all) <bool go = {1}> {
            e = Exp(x)
            y, all = Loop (n, go, e) <body = b (int64 i, bool c, float[4] v) => (bool c2, float[4] v2, float[4] o) {
                c2 = Identity(c) v2 = Add(v, x) o = Mul(v2, e) }> }""",
        requests=tuple({"n": np.array(n), "x": floats(4)} for n in (3, 1)),
    ),
    "scan-captures-values": Case(
        graph="""g (float[T,4] x, float[4] w) => (float[T,4] y) <float[4] zero = {0,0,0,0}> {
            e = Exp(x)
            last, s = Scan (zero, e) <body = b (float[4] a, float[4] v) => (float[4] a2, float[4] o) {
                a2 = Add(a, v) o = Mul(a2, w) }, num_scan_inputs = 1>
            y = Tanh(s) }""",
        requests=tuple({"x": floats(t, 4), "w": floats(4)} for t in (3, 5, 1)),
        segments=2,
    ),
    "several-outputs-from-every-stage": Case(
        graph="g (float[2,4] x) => (float[2,4] z, float[2,4] e, float[2,4] r) { e = Exp(x) r = Relu(e) z = Neg(r) }",
        requests=({"x": floats(2, 4)},),
        native_ops=("Relu",),
        segments=2,
    ),
    "optional-inputs-of-nodes-left-out": Case(
        graph="g (float[N,4] x) => (float[N,4] y) <float top = {0.5}> { e = Exp(x) y = Clip(e, , top) }",
        requests=({"x": floats(2, 4)},),
    ),
    "output-is-an-input": Case(
        graph="g (float[N,4] x) => (float[N,4] x, float[N,4] y) { y = Exp(x) }",
        requests=({"x": floats(2, 4)},),
    ),
    "output-is-an-input-of-fixed-shape": Case(
        graph="g (float[2,4] x) => (float[2,4] y, float[2,4] x) { y = Exp(x) }",
        requests=({"x": floats(2, 4)},),
    ),
    "output-is-a-constant": Case(
        graph="g (float[N,4] x) => (float[2] k, float[N,4] y) <float[2] k = {1,2}> { y = Exp(x) }",
        requests=({"x": floats(2, 4)},),
    ),
    "output-is-a-constant-beside-fixed-shapes": Case(
        graph="g (float[2,4] x) => (float[2] k, float[2,4] y) <float[2] k = {1,2}> { y = Exp(x) }",
        requests=({"x": floats(2, 4)},),
    ),
    "output-computed-from-constants": Case(
        graph="g (float[2] x) => (float[2] y, float[2] z) <float[2] k = {1,2}> { y = Exp(k) z = Mul(y, x) }",
        requests=({"x": floats(2)},),
    ),
    "no-inputs-at-all": Case(
        graph="g () => (float[2] y) <float[2] k = {1,2}> { y = Exp(k) }", requests=({},), segments=0
    ),
    "same-tensor-twice": Case(
        graph="g (float[N,4] x) => (float[N,4] y, float[N,8] z) { e = Exp(x) y = Mul(e, e) z = Concat<axis=1>(e, e) }",
        requests=({"x": floats(2, 4)},),
    ),
    "same-output-listed-twice": Case(
        graph="g (float[2,4] x) => (float[2,4] y, float[2,4] y) { y = Exp(x) }", requests=({"x": floats(2, 4)},)
    ),
    "one-value-is-two-outputs": Case(
        graph="g (float[N,4] x) => (float[N,4] y, float[N,4] z) { y = Exp(x) z = Identity(y) }",
        requests=({"x": floats(2, 4)},),
    ),
    "unused-input": Case(
        graph="g (float[N,4] u, float[N,4] x) => (float[N,4] y) { y = Exp(x) }",
        requests=({"x": floats(2, 4), "u": floats(2, 4)},),
    ),
    "no-elements-by-declaration": Case(
        graph="g (float[0,4] x) => (float[0,4] y) { y = Exp(x) }", requests=({"x": floats(0, 4)},), segments=0
    ),
    "no-elements-inside-an-engine": Case(
        graph="""g (float[N] x) => (float[M] y) <int64[1] s = {3}, int64[1] t = {100}> {
            e = Exp(x) c = Slice(e, s, t) y = Relu(c) }""",
        requests=tuple({"x": floats(n)} for n in (5, 2, 8)),
        native_ops=("Relu",),
    ),
    "strings-beside-an-engine": Case(
        graph='g (string[N] s, float[N] x) => (string[N] t, float[N] y, bool[N] b) <string[1] k = {"a"}> {'
        " y = Exp(x) t = Identity(s) b = Equal(s, k) }",
        requests=(
            {"s": texts("a", "bb"), "x": floats(2)},
            {"s": np.array(["ü", "", "a"]), "x": floats(3)},
        ),
    ),
    "string-constant-as-output": Case(
        graph='g (float[2] x) => (string[2] t, float[2] y) <string[2] k = {"a", "b"}> { y = Exp(x) t = Identity(k) }',
        requests=({"x": floats(2)},),
    ),
    "sequence-between-engines": Case(
        graph="""g (float[N,4] x) => (float[M,4] y) {
            e = Exp(x) n = Neg(x) s = SequenceConstruct(e, n) c = ConcatFromSequence<axis = 0>(s) y = Tanh(c) }""",
        requests=({"x": floats(2, 4)}, {"x": floats(3, 4)}),
        segments=2,
    ),
    "sequence-as-output": Case(
        graph="g (float[4] x) => (seq(float[4]) s, float[4] y) { y = Exp(x) s = SequenceConstruct(y, x) }",
        requests=({"x": floats(4)},),
    ),
    "sequence-as-input": Case(
        graph="g (seq(float[N]) s) => (float[M] z) { z = ConcatFromSequence<axis = 0>(s) }",
        requests=({"s": [floats(3), floats(2)]},),
        segments=0,
    ),
    "bool-and-small-types": Case(
        graph="""g (bool[N,4] b, float16[N,4] h, uint8[N,4] u, int8[N,4] i) =>
            (bool[N,4] nb, float16[N,4] eh, uint8[N,4] mu, int8[N,4] mi, float[N,4] f) <int8 low = {-5}> {
            nb = Not(b) eh = Exp(h) mu = Max(u, u) mi = Clip(i, low, ) f = Cast<to = 1>(u) }""",
        requests=tuple(
            {
                "b": floats(n, 4) > 0,
                "h": floats(n, 4).astype(np.float16),
                "u": whole(n, 4, low=0, high=255, dtype=np.uint8),
                "i": whole(n, 4, dtype=np.int8),
            }
            for n in (2, 5, 1)
        ),
    ),
    "bool-and-small-types-of-fixed-shape": Case(
        graph="""g (bool[3,4] b, float16[3,4] h, uint8[3,4] u) => (bool[3,4] nb, float16[3,4] eh, uint8[3,4] mu) {
            nb = Not(b) eh = Exp(h) mu = Max(u, u) }""",
        requests=(
            {"b": floats(3, 4) > 0, "h": floats(3, 4).astype(np.float16), "u": whole(3, 4, low=0, dtype=np.uint8)},
        ),
    ),
    "float64-beside-an-engine": Case(
        graph="g (double[N] d, float[N] x) => (double[N] e, float[N] y) { e = Exp(d) y = Exp(x) }",
        requests=({"d": floats(3).astype(np.float64), "x": floats(3)},),
    ),
    "bfloat16-in-and-out": Case(
        graph="""g (bfloat16[N,4] h, float[N,4] x) => (bfloat16[N,4] y, float[N,4] e) {
            e = Exp(x) f = Cast<to = 1>(h) m = Mul(f, e) y = Cast<to = 16>(m) }""",
        requests=tuple({"h": floats(n, 4).astype(ml_dtypes.bfloat16), "x": floats(n, 4)} for n in (2, 3)),
    ),
    "bfloat16-between-native-stages": Case(
        graph="""g (float[N,4] x) => (float[N,4] y) {
            e = Exp(x) h = Cast<to = 16>(e) f = Cast<to = 1>(h) n = Neg(f) g = Cast<to = 1>(h) y = Add(n, g) }""",
        requests=tuple({"x": floats(n, 4)} for n in (2, 3)),
        segments=2,
    ),
    "int64-indices": Case(
        graph="g (int64[N] i) => (float[N,2] y) <float[3,2] w = {1,2,3,4,5,6}> { e = Gather(w, i) y = Exp(e) }",
        requests=tuple({"i": np.array(i)} for i in ([0, 2], [1], [2, 2, 0])),
    ),
    "scalar": Case(graph="g (float x) => (float y) { y = Exp(x) }", requests=({"x": np.array(2, np.float32)},)),
    "model-local-function": Case(
        graph="g (float[N,4] x) => (float[N,4] y) { e = my.twice(x) y = Exp(e) } "
        '<domain: "my", opset_import: ["": 21]> twice (a) => (b) { b = Add(a, a) }',
        requests=({"x": floats(2, 4)},),
        domains=', "my": 1',
    ),
    "contrib-operator-between-engines": Case(
        graph="g (float[N,4] x) => (float[N,4] y) { e = Exp(x) f = com.microsoft.FastGelu(e) y = Neg(f) }",
        requests=({"x": floats(2, 4)}, {"x": floats(3, 4)}),
        domains=', "com.microsoft": 1',
        segments=2,
    ),
}


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES.items()])
def test_model_gives_the_answers_of_plain_onnxruntime(
    case: Case, workshop: Workshop, plain: RunPlainly, same: AssertSame
) -> None:
    source = workshop.write(case.graph, opset=case.opset, ir=case.ir, domains=case.domains)

    compiled = workshop.compile_file(source, native_ops=case.native_ops)
    executable = open_model(compiled)

    assert executable.facts.segments == case.segments
    for feeds in case.requests:
        expected = plain(source, feeds)
        same(executable.run(feeds), expected)
        same(plain(compiled, feeds), expected)
