"""Requests that a model refuses are refused behind every clean-up, fold and rewrite, and others are answered alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
import pytest

from model_texts import parse
from rewriting import rewritten
from trtnode.engines.backends.names import REWRITE_NAMES
from trtnode.partitioner.passes.clean_up import PASSES, infer_shapes, remove_dead_nodes, sort_nodes

Sizes = tuple[int, ...]
Outcome = np.ndarray | None

_TABLES = [(n, m) for n in (0, 1, 2, 3) for m in (0, 1, 3, 8)]
_IMAGES = [(1, 2, 4, 4), (1, 3, 4, 4), (0, 2, 4, 4), (1, 2, 0, 4), (1, 2, 1, 1), (2, 4, 4), (1, 1, 4, 4)]
_SHAPES = [((2, 3), (3, 2)), ((2, 3), (3, 3)), ((0, 3), (3, 0)), ((2, 3), (0, 3)), ((2, 3), (3, 0)), ((0, 3), (0, 3))]
_ADDED = [(1, 2, 4, 4), (1, 2, 1, 1), (1, 1, 4, 4), (2, 2, 4, 4)]

FREE, TABLE, ROWS, FIXED, IMAGE = "float[] x", "float[N,M] x", "float[3,M] x", "float[2,3] x", "float[N,C,H,W] x"
SHAPED, PARTED = f"{TABLE}, float[A,B] k", f"{ROWS}, float[] k"
TWO_IMAGES, ALIKE = "float[1,2,H,W] x, float[A,B,C,D] z", "float[N,2,4,4] x, float[N,2,4,4] z"

REQUESTS: Mapping[str, Sequence[tuple[Sizes, ...]]] = {
    FREE: [(sizes,) for sizes in ((), (2,), *_TABLES[:6], *_IMAGES)],
    TABLE: [(sizes,) for sizes in _TABLES],
    ROWS: [((3, 2),), ((3, 0),)],
    FIXED: [((2, 3),)],
    IMAGE: [(sizes,) for sizes in _IMAGES],
    SHAPED: _SHAPES,
    PARTED: [((3, 2), (3, 1)), ((3, 2), (2, 1)), ((3, 0), (2, 1))],
    TWO_IMAGES: [((1, 2, 4, 4), sizes) for sizes in _ADDED],
    ALIKE: [((1, 2, 4, 4), sizes) for sizes in _ADDED],
}
"""Sizes of the inputs, by their declaration."""

FLOATS = {
    **{f"k{n}": np.linspace(0.5, 1, n) for n in (1, 2, 3, 5)},
    **{f"w{n}": np.linspace(-1, 1, n * 2).reshape(n, 2, 1, 1) for n in (1, 2)},
    "wide": np.linspace(-1, 1, 36).reshape(2, 2, 3, 3), "matrix": np.ones((4, 5)), "zero": 0, "three": 3, "six": 6,
    "row_three": [3], "epsilon": 1e-5, "two": 2, "flat_zero": [[0]], "flat_six": [[6]],
    "deep_three": np.full((1,) * 5, 3), "deep_two": np.full((1,) * 5, 2), "deep_epsilon": np.full((1,) * 5, 1e-5),
}  # fmt: skip
INTEGERS = {
    "i0": [0], "i1": [1], "i2": [2], "flat": [-1], "far": [7], "twice": [0, 0], "eights": [-1, 8], "fours": [-1, 4],
    "pairs": [2, -1], "four": [4], "table": [2, 3], "copied": [0, 2, -1], "kept": [0, -1], "as_is": [0, 0],
    "three_none": [3, 0], "last": [-1],
}  # fmt: skip

SCALED = (
    "m = ReduceMean(x, last) d = Sub(x, m) q = Mul(d, d) v = ReduceMean(q, last) e = Add(v, epsilon) s = Sqrt(e)"
    " r = Reciprocal(s) n = Mul(d, r)"
)
USUAL = SCALED.replace("r = Reciprocal(s) n = Mul(d, r)", "n = Div(d, s)")
HARD_SWISH = "a = Add(x, three) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, six)"
HARD_SIGMOID = "a = Add(x, three) c = Clip(a, zero, six) y = Div(c, six)"
WIDE = "b = Conv<pads = [1, 1, 1, 1]>(x, wide) y = Add(a, b)"
EXPAND = "u = Slice(s, i0, i1) y = Expand(three, u)"
FUSED = 'y = com.microsoft.FusedConv<activation = "Relu">'

CHAINS = [
    "a = Squeeze(r, i1) q = Unsqueeze(a, i1)",
    "a = Reshape(r, eights) q = Reshape(a, fours)",
    "a = Reshape(r, pairs) q = Reshape(a, flat)",
    "a = Reshape(r, flat) b = Split(a, i2) q = Reshape(b, fours)",
    "a = Reshape(r, copied) q = Squeeze(a, i2)",
    "a = Reshape(r, kept) q = Reshape(a, flat)",
    "a = Shape(r) b = Reshape(r, a) q = Reshape(b, flat)",
    "a = Unsqueeze(r, i1) q = Reshape(a, fours)",
    "a = Flatten(r) b = Unsqueeze(a, i1) q = Squeeze(b, i1)",
    "a = Reshape(r, as_is) q = Reshape(a, flat)",
    "a = Reshape(r, three_none) q = Reshape(a, flat)",
    "a = Reshape<allowzero = 1>(r, three_none) q = Reshape(a, flat)",
    "q = Concat<axis = 9>(r)",
    "q = Split<axis = 9, num_outputs = 1>(r)",
    "q = Squeeze(r, far)",
    "a = Unsqueeze(r, far) q = Reshape(a, flat)",
    "a = Unsqueeze(r, twice) q = Reshape(a, flat)",
    "a = Flatten<axis = 9>(r) q = Reshape(a, flat)",
    "a = Transpose<perm = [0, 1, 2]>(r) q = Reshape(a, flat)",
    "a = Transpose<perm = [0, 0]>(r) q = Reshape(a, flat)",
]
"""From r to q, of any sizes; once of a known rank and once of none."""

REFUSING: Mapping[str, Sequence[tuple[str, str]]] = {
    "reshapes": [
        *((inputs, f"r = Relu(x) {chain} y = Tanh(q)") for chain in CHAINS for inputs in (TABLE, FREE)),
        (FIXED, "r = Relu(x) a = Reshape(r, four) b = Reshape(a, table) y = Tanh(b)"),
        (FIXED, "r = Relu(x) a = Reshape(r, three_none) b = Reshape(a, flat) y = Tanh(b)"),
        (ROWS, "r = Relu(x) a = Split(r, i2) y = Tanh(a)"),
        (PARTED, "r = Relu(x) t = Shape(k) s = Slice(t, i0, i1) a = Split(r, s) y = Tanh(a)"),
        (SHAPED, "r = Relu(x) s = Shape(k) a = Reshape(r, s) b = Reshape(a, kept) y = Tanh(b)"),
        (SHAPED, "r = Relu(x) s = Shape(k) a = Reshape(r, s) b = Unsqueeze(a, i0) c = Squeeze(b, i0) y = Tanh(c)"),
    ],
    "branches": [
        (IMAGE, f"a = Conv(x, w2, k2) {WIDE}"),
        (FREE, f"a = Conv(x, w2, k2) {WIDE}"),
        (IMAGE, "a = Conv(x, w2, k2) y = Add(a, x)"),
        (IMAGE, f"a = Conv(x, w2, k1) {WIDE}"),
        (IMAGE, f"a = Conv(x, w2, k5) {WIDE}"),
        (IMAGE, f"c = Conv(x, w2) a = BatchNormalization(c, k1, k1, k1, k1) {WIDE}"),
        (IMAGE, f"c = Conv(x, w2) a = BatchNormalization(c, k2, k2, k1, k2) {WIDE}"),
        (IMAGE, "a = Conv(x, w2, k2) n = BatchNormalization(x, k1, k1, k1, k1) y = Add(a, n)"),
        (IMAGE, f"a = Conv<kernel_shape = [3, 3]>(x, w2, k2) {WIDE}"),
        (IMAGE, f"a = Conv<pads = [0, 0, 0]>(x, w2, k2) {WIDE}"),
        (IMAGE, f"a = Conv<dilations = [1]>(x, w2, k2) {WIDE}"),
        (IMAGE, f'a = Conv<auto_pad = "VALID", pads = [0, 0, 0, 0]>(x, w2, k2) {WIDE}'),
    ],
    "hard-swish": [
        (TABLE, HARD_SWISH),
        (TABLE, HARD_SWISH.replace("(x, three", "(x, deep_three")),
        (FREE, HARD_SWISH.replace("(x, three", "(x, row_three")),
        (TABLE, HARD_SWISH.replace("zero, six", "flat_zero, flat_six")),
    ],
    "hard-sigmoid-operator": [(TABLE, HARD_SIGMOID), (TABLE, HARD_SIGMOID.replace("(x, three", "(x, deep_three"))],
    "layer-norm-unscaled": [
        *((f"float[N,{size}] x", f"{SCALED} y = Mul(n, x)") for size in (0, 1, 3)),
        ("float[N,3] x", f"{SCALED} y = Mul(n, x)".replace("last", "far")),
        ("float[N,3] x", f"{SCALED} y = Mul(n, x)".replace("epsilon", "deep_epsilon")),
        ("float[N,3] x", f"{SCALED} y = Mul(n, x)".replace("Mul(d, d)", "Pow(d, deep_two)")),
    ],
    "layer-norm": [(f"float[N,{size}] x", f"{SCALED} k = Mul(n, k3) y = Add(k, k3)") for size in (1, 3)],
    "layer-norm-operator": [(f"float[N,{size}] x", f"{USUAL} k = Mul(n, k3) y = Add(k, k3)") for size in (1, 3)],
    "lp-normalization": [
        *((inputs, f"y = LpNormalization<axis = {axis}>(x)") for inputs in (TABLE, FREE) for axis in (-1, 0, 1, 7)),
        *(("float[N,0] x", f"y = LpNormalization<axis = {axis}>(x)") for axis in (0, 1)),
    ],
    "constant-if": [
        (
            TABLE,
            "y = If(true)<then_branch = t () => (float[?,?] q) { q = Reshape(x, pairs) },"
            " else_branch = e () => (float[?,?] q) { q = Reshape(x, fours) }>",
        )
    ],
    "inline_functions": [(TABLE, "a = own.Halves(x) y = Tanh(a)")],
    "lift_constants": [(TABLE, "p = Constant<value_ints = [2, -1]>() y = Reshape(x, p)")],
    "remove_identities": [(TABLE, "a = Identity(x) b = Reshape(a, pairs) c = Identity(b) y = Tanh(c)")],
    "state_axes": [(FREE, "y = MeanVarianceNormalization(x)")],
    "replace_fused_convolutions": [
        (TWO_IMAGES, f"{FUSED}(x, w2, k2, z)"),
        (ALIKE, f"{FUSED}(x, w2, k2, z)"),
        (IMAGE, f"{FUSED}(x, w2, k2, x)"),
        (IMAGE, f"{FUSED}(x, w2, k1)"),
    ],
    "replace_contrib_gelu": [(FREE, "y = com.microsoft.Gelu(x)")],
    "fold_and_infer": [
        (TABLE, f"a = Reshape(x, pairs) s = Shape(a) {EXPAND}"),
        (TABLE, f"a = Reshape(x, pairs) t = Relu(a) s = Shape(t) {EXPAND}"),
        (TABLE, "a = MatMul(x, matrix) s = Shape(a) u = Slice(s, i1, i2) y = Expand(three, u)"),
        (ROWS, "s = Shape(x) a = Slice(s, i0, i1) q = Squeeze(a, far) u = Unsqueeze(q, i0) y = Expand(three, u)"),
        (ROWS, "s = Shape(x) a = Slice(s, i0, i1) u = Concat<axis = 1>(a, i2) y = Expand(three, u)"),
        (ROWS, "s = Shape(x) u = Slice(s, i0, i1, far) y = Expand(three, u)"),
        (ROWS, "s = Shape(x) u = Gather(s, far) y = Expand(three, u)"),
    ],
    "fold_as_onnxruntime_does": [
        (IMAGE, "a = Conv(x, w2, k2) y = BatchNormalization(a, k2, k2, k2, k2)"),
        (IMAGE, "a = Conv(x, w1) y = BatchNormalization(a, k5, k5, k5, k5)"),
        (IMAGE, "a = Conv(x, w2) y = BatchNormalization(a, k2, k2, k1, k2)"),
        (IMAGE, "a = Conv(x, w2, k1) y = BatchNormalization(a, k2, k2, k2, k2)"),
    ],
}
"""Inputs and nodes that refuse some requests, or all, by rule."""

HARMLESS = (infer_shapes, remove_dead_nodes, sort_nodes)
"""No node goes, or docs/limits.md tells of those that go."""


def test_each_rule_has_requests_that_it_may_not_answer() -> None:
    assert REFUSING.keys() == {*REWRITE_NAMES, *(rule.__name__ for rule in PASSES if rule not in HARMLESS)}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rule", REFUSING)
def test_requests_have_the_outcome_of_the_nodes_that_went(rule: str) -> None:
    for inputs, nodes in REFUSING[rule]:
        source = _model(inputs, nodes)
        requests = REQUESTS.get(inputs, REQUESTS[TABLE])
        expected = _outcomes(source, requests)
        results = {rewritten(source, engine)[0].SerializeToString() for engine in ("native", "openvino", "tensorrt")}
        for result in results:
            outcomes = zip(_outcomes(onnx.load_from_string(result), requests), expected, strict=True)
            assert [_differ(one, other) for one, other in outcomes] == [False] * len(requests), (inputs, nodes)


def _model(inputs: str, nodes: str) -> onnx.ModelProto:
    model = parse(
        '<ir_version: 8, opset_import: ["": 18, "com.microsoft": 1, "own": 1]>'
        f" g ({inputs}) => (float[] y) {{ {nodes} }}"
        '<domain: "own", opset_import: ["": 18]> Halves (u) => (v)'
        " { p = Constant<value_ints = [2, -1]>() v = Reshape(u, p) }"
    )
    arrays = {name: np.asarray(value, np.float32) for name, value in FLOATS.items()}
    arrays |= {name: np.array(value) for name, value in INTEGERS.items()} | {"true": np.array(True)}
    bodies = [attribute.g for node in model.graph.node for attribute in node.attribute]
    read = {name for graph in (model.graph, *bodies) for node in graph.node for name in node.input}
    kept = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items() if name in read]
    model.graph.initializer.extend(kept)
    return model


def _outcomes(model: onnx.ModelProto, requests: Sequence[tuple[Sizes, ...]]) -> list[Outcome]:
    """Each result; None for what is refused, or whose model is."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:
        return [None] * len(requests)
    return [_outcome(session, sizes) for sizes in requests]


def _outcome(session: onnxruntime.InferenceSession, sizes: tuple[Sizes, ...]) -> Outcome:
    arrays = [np.linspace(-1, 1, math.prod(one), dtype=np.float32).reshape(one) for one in sizes]
    feeds = {value.name: array for value, array in zip(session.get_inputs(), arrays, strict=False)}
    try:
        return np.asarray(session.run(None, feeds)[0])
    except Exception:
        return None


def _differ(one: Outcome, other: Outcome) -> bool:
    if one is None or other is None:
        return one is not other
    return one.shape != other.shape or not np.allclose(one, other, atol=1e-4, equal_nan=True)
