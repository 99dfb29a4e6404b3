"""Whatever a rule rewrites computes the same, over attributes, padding, and odd, even and dynamic sizes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from rewriting import AFFINE, CENTRED, model_of, rewritten
from trtnode.engines.backends.names import REWRITE_NAMES

AUTOMATIC = ("SAME_UPPER", "SAME_LOWER", "VALID")
ENGINES = ("native", "openvino", "tensorrt")


def padding(draw: st.DrawFn) -> str:
    """Attributes of a window's padding: automatic, on each side alike or not, or none."""
    kind = draw(st.sampled_from(("pads", "none", *AUTOMATIC)))
    if kind == "pads":
        return f"pads = {draw(st.lists(st.integers(0, 1), min_size=4, max_size=4))},"
    return "" if kind == "none" else f'auto_pad = "{kind}",'


def pairs(draw: st.DrawFn, *choices: int) -> list[int]:
    return draw(st.lists(st.sampled_from(choices), min_size=2, max_size=2))


def branches(draw: st.DrawFn) -> str:
    """A convolution of nine places beside one of one place or a normalization, mostly with the same reach."""
    strides, spread = pairs(draw, 1, 2), draw(st.sampled_from((1, 2)))
    reach = draw(st.lists(st.integers(0, 1), min_size=4, max_size=4))
    wide = draw(st.sampled_from((f"pads = {[spread + r for r in reach]},", padding(draw))))
    small = draw(st.sampled_from((f"pads = {reach},", 'auto_pad = "VALID", pads = [1, 1, 1, 1],', padding(draw))))
    normalized = draw(st.sampled_from(("x", "b")))
    return (
        f"a = Conv<{wide} strides = {strides}, dilations = [{spread}, {spread}]>(x, w3) "
        f"b = Conv<{small} strides = {strides}>(x, w, b8) c = BatchNormalization({normalized}, s8, b8, m8, v8) "
        f"d = Add(a, b) y = {draw(st.sampled_from(('Add(a, c)', 'Add(d, c)', 'Sum(a, b)')))}"
    )


def activation(draw: st.DrawFn) -> str:
    low, high = draw(st.sampled_from((("zero", "six"), ("zero", "three"), ("one", "six"))))
    gate = f"a = Add(x, three) c = Clip(a, {low}, {high})"
    forms = (
        f"{gate} m = Mul(x, c) y = Div(m, six)",
        f"{gate} m = Mul(c, sixth) y = Mul(m, x)",
        f"{gate} y = Div(c, six)",
    )
    return draw(st.sampled_from(forms))


def norm(draw: st.DrawFn) -> str:
    kept = draw(st.sampled_from(("", "<keepdims = 1>")))
    axes = draw(st.sampled_from(("last", "channel", "both")))
    centred = CENTRED.replace("last", axes).replace("ReduceMean(", f"ReduceMean{kept}(")
    square = draw(st.sampled_from(("Mul(d, d)", "Pow(d, two)", "Mul(d, x)")))
    inverse = draw(
        st.sampled_from(("n = Div(d, s)", "r = Reciprocal(s) n = Mul(d, r)", "r = Div(one, s) n = Mul(d, r)"))
    )
    variance = f"q = {square} v = ReduceMean(q, {axes}) e = Add(v, epsilon) s = Sqrt(e) {inverse}"
    scaled = draw(st.sampled_from((AFFINE, "k = Mul(n, cs) y = Add(k, cb)", "y = Mul(n, x)")))
    return f"{centred} {variance} {scaled}"


def reshapes(draw: st.DrawFn) -> str:
    """A chain of nodes of which most move nothing."""
    rank, nodes = 4, ["v0 = Relu(x)"]
    for place in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(("Unsqueeze", "Transpose", "Flatten", "Concat", "Split")))
        attributes = f"axis = {draw(st.integers(0, rank - 1))}"
        if kind == "Unsqueeze":
            attributes, rank = f"axes = [{draw(st.integers(0, rank))}]", rank + 1
        elif kind == "Transpose":
            attributes = f"perm = {draw(st.permutations(range(rank)))}"
        rank = 2 if kind == "Flatten" else rank
        nodes.append(f"v{place + 1} = {kind}<{attributes}>(v{place})")
    return " ".join([*nodes, f"y = Neg(v{len(nodes) - 1})"])


def constant_if(draw: st.DrawFn) -> str:
    first, second = draw(st.permutations(("Relu", "Abs")))
    return (
        f"y = If(true)<then_branch = t () => (float[?,?,?,?] q) {{ p = {first}(x) q = Neg(p) }}, "
        f"else_branch = e () => (float[?,?,?,?] q) {{ q = {second}(x) }}>"
    )


def lp_normalization(draw: st.DrawFn) -> str:
    """Of order 2: with 1, onnx's reference adds up the values, not their absolute values."""
    return f"y = LpNormalization<axis = {draw(st.integers(-4, 3))}>(x)"


FAMILIES: dict[str, tuple[Callable[[st.DrawFn], str], int, set[str]]] = {
    "activation": (activation, 20, {"hard-swish", "hard-sigmoid-operator"}),
    "branches": (branches, 18, {"branches"}),
    "constant-if": (constant_if, 18, {"constant-if"}),
    "lp-normalization": (lp_normalization, 18, {"lp-normalization"}),
    "norm": (norm, 18, {"layer-norm", "layer-norm-operator", "layer-norm-unscaled"}),
    "reshapes": (reshapes, 11, {"reshapes"}),
}
"""Nodes from x to y, their opset, and the rules that may rewrite them, by name."""


def test_each_rule_has_a_family() -> None:
    assert set().union(*(rules for *_, rules in FAMILIES.values())) == set(REWRITE_NAMES)


@st.composite
def models(draw: st.DrawFn, family: str) -> tuple[onnx.ModelProto, np.ndarray]:
    """A model that declares its sizes or not, and a request for it."""
    write, opset, _ = FAMILIES[family]
    height = draw(st.integers(5, 8))
    shape = (draw(st.integers(1, 2)), 8, height, 10)
    declared = ("N", 8, "H", "W" if family == "branches" else 10) if draw(st.booleans()) else shape
    model = model_of(write(draw), opset=opset, shape=declared)
    read = {name for node in model.graph.node for name in node.input}
    if "both" in read:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2, 3]), "both"))
    size = draw(st.sampled_from((0.01, 1.0, 30.0)))
    return model, (np.random.default_rng(draw(st.integers(0, 99))).standard_normal(shape) * size).astype(np.float32)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=25, derandomize=True)
@given(data=st.data())
def test_a_rewritten_model_computes_the_same(family: str, engine: str, data: st.DataObject) -> None:
    source, x = data.draw(models(family))

    result, _ = rewritten(source, engine)

    expected = answers(source, x)
    if expected is not None:
        actual = answers(result, x)
        assert actual is not None
        assert actual.shape == expected.shape
        assert np.abs(actual - expected).max(initial=0) <= 1e-4 * np.abs(expected).max(initial=1e-3)


def answers(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray | None:
    """The result in onnx.reference; None where the nodes don't fit the shape."""
    try:
        return np.asarray(ReferenceEvaluator(model).run(None, {"x": x})[0])
    except Exception:
        return None
