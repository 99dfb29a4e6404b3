"""Equal rewrites: the rewritten model computes the same, from the nodes that the table of rules says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.backends.names import REWRITE_NAMES
from model_texts import clean, parse
from partitioner.passes.rewrites.apply import Wishes, rewrite_model, rewrite_segment, rewrites_of, would_rewrite
from partitioner.passes.rewrites.rules import NAMES
from plain_runtime import passes_checker, run

SHAPE = (2, 8, 6, 10)

CONSTANTS = {
    "zero": 0.0, "half": 0.5, "one": 1.0, "two": 2.0, "three": 3.0, "six": 6.0, "sixth": 1 / 6, "epsilon": 1e-5,
    "small": 0.044715, "root": 0.7978846,
}  # fmt: skip

CUBIC = "cube = Pow(x, three) sc = Mul(small, cube) sum = Add(x, sc) u = Mul(root, sum) t = Tanh(u) g = Add(t, one)"
CENTRED = "m = ReduceMean(x, last) d = Sub(x, m)"
AFFINE = "k = Mul(n, scale) y = Add(k, bias)"


def weights(name: str, *shape: int) -> onnx.TensorProto:
    rng = np.random.default_rng([len(name), *name.encode()])
    return onnx.numpy_helper.from_array((rng.random(shape) + 0.5).astype(np.float32), name)


def model_of(nodes: str, *, opset: int = 18, shape: Sequence[int | str] = SHAPE, outputs: str = "") -> onnx.ModelProto:
    """A model of nodes from x to y, with the constants that they read."""
    sizes = ",".join(map(str, shape))
    free = ",".join("?" * len(shape))
    model = parse(
        f'<ir_version: 8, opset_import: ["": {opset}]> g (float[{sizes}] x) => (float[{free}] y{outputs}) {{ {nodes} }}'
    )
    arrays = {name: np.array(number, np.float32) for name, number in CONSTANTS.items()}
    arrays |= {"last": np.array([-1]), "channel": np.array([1]), "groups": np.array([0, 2, -1])}
    arrays |= {"ones": np.ones(2, np.float32), "zeros": np.zeros(2, np.float32), "true": np.array(True)}
    tensors = {name: onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()}
    tensors |= {t.name: t for t in (weights("scale", 10), weights("bias", 10), weights("w", 8, 8, 1, 1))}
    tensors |= {t.name: t for t in (weights("cs", 8, 1, 1), weights("cb", 8, 1, 1), weights("w3", 8, 8, 3, 3))}
    tensors |= {f"{kind}{n}": weights(f"{kind}{n}", n) for kind in "sbmv" for n in (8, 16)}
    read = dict.fromkeys(name for node in model.graph.node for name in node.input)
    model.graph.initializer.extend(tensors[name] for name in read if name in tensors)
    return model


def rewritten(model: onnx.ModelProto, engine: str, **wishes: object) -> tuple[onnx.ModelProto, list[str]]:
    """The model with all that its engine would get, and the rules."""
    graph = clean(model).model
    wanted = Wishes(engine=engine, **wishes)
    done = [*rewrite_model(graph, wanted), *(rewrite_segment(graph, wanted) if engine != "native" else ())]
    return ir.to_proto(graph), [one.rule for one in done]


def op_types(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def assert_same(actual: onnx.ModelProto, expected: onnx.ModelProto, x: np.ndarray, *, bound: float = 0.0) -> None:
    for one, other in zip(run(actual, {"x": x}), run(expected, {"x": x}), strict=True):
        assert np.abs(one - other).max(initial=0) <= 1e-5 * max(np.abs(other).max(initial=0), bound)


MISH = ["Clip", "Exp", "Add", "Mul", "Add", "Div", "Mul"]
PLACES = [
    pytest.param("mish", "native", "s = Softplus(x) t = Tanh(s) y = Mul(x, t)", 18, MISH, id="mish"),
    pytest.param("mish", "native", "s = Softplus(x) t = Tanh(s) y = Mul(t, x)", 9, MISH, id="mish-by-attributes"),
    pytest.param("mish", "openvino", "y = Mish(x)", 18, MISH, id="mish-operator"),
    pytest.param(
        "hard-swish",
        "native",
        "a = Add(x, three) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, six)",
        18,
        ["HardSwish"],
        id="hard-swish-by-clip",
    ),
    pytest.param(
        "hard-swish",
        "openvino",
        "a = Add(three, x) c = Clip(a, zero, six) m = Mul(c, sixth) y = Mul(m, x)",
        13,
        ["HardSigmoid", "Mul"],
        id="hard-swish-before-its-operator",
    ),
    pytest.param(
        "hard-sigmoid",
        "openvino",
        "h = HardSigmoid <alpha = 0.16666667, beta = 0.5> (x) y = Mul(x, h)",
        18,
        ["HardSwish"],
        id="hard-swish-by-hard-sigmoid",
    ),
    pytest.param(
        "gelu-tanh",
        "openvino",
        f"{CUBIC} h = Mul(half, x) y = Mul(h, g)",
        18,
        ["Pow", "Mul", "Add", "Mul", "Mul", "Sigmoid", "Mul"],
        id="gelu-tanh",
    ),
    pytest.param(
        "gelu-tanh",
        "openvino",
        'y = Gelu <approximate = "tanh"> (x)',
        20,
        ["Mul", "Mul", "Add", "Mul", "Mul", "Sigmoid", "Mul"],
        id="gelu-operator",
    ),
    pytest.param("tanh", "openvino", "y = Tanh(x)", 18, ["Mul", "Sigmoid", "Mul", "Sub"], id="tanh"),
    pytest.param(
        "layer-norm",
        "native",
        f"{CENTRED} q = Mul(d, d) v = ReduceMean(q, last) e = Add(v, epsilon) s = Sqrt(e) r = Reciprocal(s) "
        f"n = Mul(d, r) {AFFINE}",
        18,
        ["LayerNormalization"],
        id="layer-norm-by-reciprocal",
    ),
    pytest.param(
        "layer-norm-operator",
        "tensorrt",
        f"{CENTRED} q = Pow(d, two) v = ReduceMean(q, last) e = Add(v, epsilon) s = Sqrt(e) n = Div(d, s) {AFFINE}",
        18,
        ["LayerNormalization"],
        id="layer-norm-for-float16",
    ),
    pytest.param(
        "channel-layer-norm",
        "native",
        "m = ReduceMean(x, channel) d = Sub(x, m) q = Pow(d, two) v = ReduceMean(q, channel) e = Add(v, epsilon) "
        "s = Sqrt(e) n = Div(d, s) k = Mul(n, cs) y = Add(k, cb)",
        18,
        ["Transpose", "LayerNormalization", "Transpose"],
        id="layer-norm-of-channels",
    ),
    pytest.param(
        "rms-norm",
        "native",
        "q = Pow(x, two) v = ReduceMean(q, last) e = Add(v, epsilon) s = Sqrt(e) r = Reciprocal(s) n = Mul(x, r) "
        "y = Mul(scale, n)",
        18,
        ["Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul"],
        id="rms-norm-by-reciprocal",
    ),
    pytest.param(
        "group-norm",
        "openvino",
        "r = Reshape(x, groups) i = InstanceNormalization(r, ones, zeros) s = Shape(x) b = Reshape(i, s) "
        "k = Mul(b, cs) y = Add(k, cb)",
        21,
        ["GroupNormalization"],
        id="group-norm-by-instances",
    ),
    pytest.param(
        "constant-if",
        "openvino",
        "y = If (true) <then_branch = t () => (float[2,8,6,10] q) { p = Relu(x) q = Neg(p) }, "
        "else_branch = e () => (float[2,8,6,10] q) { q = Abs(x) }>",
        18,
        ["Relu", "Neg", "Identity"],
        id="branch-of-a-constant-if",
    ),
    pytest.param(
        "common-subexpressions",
        "tensorrt",
        "a = Relu(x) b = Relu(x) c = Neg(a) d = Neg(b) y = Add(c, d)",
        18,
        ["Relu", "Neg", "Add"],
        id="equal-nodes",
    ),
    pytest.param(
        "batch-norm",
        "native",
        "c = Conv(x, w) a = AveragePool <kernel_shape = [2, 2]> (c) y = BatchNormalization(a, s8, b8, m8, v8)",
        18,
        ["Conv", "AveragePool"],
        id="batch-norm-behind-pooling",
    ),
    pytest.param(
        "batch-norm",
        "native",
        "c = Conv(x, w) d = Conv(x, w, b8) e = Concat <axis = 1> (c, d) y = BatchNormalization(e, s16, b16, m16, v16)",
        18,
        ["Conv", "Conv", "Concat"],
        id="batch-norm-behind-concat",
    ),
    pytest.param(
        "batch-norm",
        "openvino",
        "c = BatchNormalization(x, s8, b8, m8, v8) y = Conv(c, w)",
        18,
        ["Conv"],
        id="batch-norm-before-a-convolution",
    ),
]


@pytest.mark.parametrize(("rule", "engine", "nodes", "opset", "expected"), PLACES)
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**16), size=st.sampled_from([0.01, 1.0, 30.0]))
def test_a_place_is_rewritten_and_computes_the_same(
    rule: str, engine: str, nodes: str, opset: int, expected: list[str], seed: int, size: float
) -> None:
    source = model_of(nodes, opset=opset)
    x = (np.random.default_rng(seed).standard_normal(SHAPE) * size).astype(np.float32)

    result, rules = rewritten(source, engine)

    assert rules == [rule]
    assert op_types(result) == expected
    assert passes_checker(result)
    assert_same(result, source, x, bound=1.0 if rule == "tanh" else 0.0)


@pytest.mark.parametrize(("rule", "engine", "nodes", "opset", "expected"), PLACES)
def test_a_rule_that_is_left_out_changes_nothing(
    rule: str, engine: str, nodes: str, opset: int, expected: list[str]
) -> None:
    source = model_of(nodes, opset=opset)

    result, rules = rewritten(source, engine, without=NAMES)

    assert rules == []
    assert op_types(result) == [node.op_type for node in clean(source).nodes]


@st.composite
def blocks(draw: st.DrawFn) -> tuple[str, dict[str, np.ndarray], int]:
    """Parallel convolutions of equal strides and groups, normalized or not, and perhaps the value itself."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    groups, dilation = draw(st.sampled_from([1, 2, 8])), draw(st.sampled_from([1, 2]))
    stride = draw(st.sampled_from([1, 2]))
    sides = draw(st.lists(st.sampled_from([1, 3, 5]), min_size=1, max_size=4))
    arrays: dict[str, np.ndarray] = {}
    nodes, added = [], []

    def normalize(value: str) -> str:
        if draw(st.booleans()):
            return value
        names = [f"{value}_{kind}" for kind in "sbmv"]
        arrays.update({name: (rng.random(8) + 0.5).astype(np.float32) for name in names})
        nodes.append(f"{value}_n = BatchNormalization({value}, {', '.join(names)})")
        return f"{value}_n"

    for place, side in enumerate(sides):
        arrays[f"kernel{place}"] = rng.standard_normal((8, 8 // groups, side, side)).astype(np.float32)
        bias = draw(st.booleans())
        arrays |= {f"offset{place}": rng.standard_normal(8).astype(np.float32)} if bias else {}
        pad = side // 2 * dilation
        inputs = f"x, kernel{place}" + (f", offset{place}" if bias else "")
        nodes.append(
            f"c{place} = Conv <pads = [{pad}, {pad}, {pad}, {pad}], strides = [{stride}, {stride}], group = {groups}, "
            f"dilations = [{dilation}, {dilation}]> ({inputs})"
        )
        added.append(normalize(f"c{place}"))
    if stride == 1 and (len(sides) == 1 or draw(st.booleans())):
        added.append(normalize("x"))
    if len(added) == 1:
        added.append("c0")
    if draw(st.booleans()):
        nodes.append(f"sum = Sum({', '.join(added)})")
    else:
        nodes += [f"a{n} = Add({f'a{n - 1}' if n > 1 else added[0]}, {added[n]})" for n in range(1, len(added))]
        nodes.append(f"sum = Identity(a{len(added) - 1})")
    return " ".join([*nodes, "y = Relu(sum)"]), arrays, len(set(added))


@settings(max_examples=40, deadline=None)
@given(block=blocks())
def test_branches_become_one_convolution_of_the_same_result(
    block: tuple[str, dict[str, np.ndarray], int],
) -> None:
    nodes, arrays, _ = block
    source = model_of(nodes)
    source.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)

    result, _ = rewritten(source, "native")

    if op_types(result) != ["Conv", "Relu"]:  # one convolution is added to itself, or the value to its normalization
        assert nodes.count("Conv") == 1
    assert passes_checker(result)
    assert_same(result, source, x)


KEPT = [
    pytest.param(
        "a = Conv(x, w) b = Conv(x, w3) p = Flatten(a) q = Flatten(b) y = Concat <axis = 1> (p, q)",
        "native",
        id="siblings",
    ),
    pytest.param("s = Sigmoid(x) y = Mul(x, s)", "openvino", id="silu"),
    pytest.param(
        "r = Reshape(x, groups) i = InstanceNormalization(r, ones, zeros) s = Shape(x) b = Reshape(i, s) "
        "k = Mul(b, cs) y = Add(k, cb)",
        "native",
        id="group-norm-in-onnxruntime",
    ),
    pytest.param(f"{CUBIC} h = Mul(half, x) y = Mul(h, g)", "native", id="gelu-tanh-in-onnxruntime"),
    pytest.param("y = Tanh(x)", "native", id="tanh-in-onnxruntime"),
    pytest.param(
        "m = ReduceMean(x, channel) d = Sub(x, m) q = Pow(d, two) v = ReduceMean(q, channel) e = Add(v, epsilon) "
        "s = Sqrt(e) n = Div(d, s) k = Mul(n, cs) y = Add(k, cb)",
        "openvino",
        id="layer-norm-of-channels-in-openvino",
    ),
    pytest.param(
        f"{CENTRED} q = Pow(d, two) v = ReduceMean(q, last) e = Add(v, epsilon) s = Sqrt(e) n = Div(d, s) {AFFINE}",
        "openvino",
        id="layer-norm-that-engines-know",
    ),
    pytest.param("c = Conv(x, w) y = BatchNormalization(c, s8, b8, m8, v8)", "openvino", id="batch-norm-engines-fold"),
    pytest.param(
        "c = BatchNormalization(x, s8, b8, m8, v8) y = Conv <pads = [1, 1, 1, 1]> (c, w3)",
        "native",
        id="batch-norm-before-padding",
    ),
    pytest.param("s = Softplus(x) t = Tanh(s) y = Mul(x, t)", "tensorrt", id="mish-in-tensorrt"),
    pytest.param("s = Softplus(x) t = Tanh(s) z = Mul(x, t) y = Add(z, s)", "native", id="inner-result-read-elsewhere"),
    pytest.param("a = Relu(x) b = Conv(x, w) c = Conv(a, w) y = Add(b, c)", "native", id="branches-of-two-values"),
    pytest.param(
        "b = Conv <strides = [2, 2]> (x, w) c = Conv <strides = [2, 2]> (x, w3) y = Relu(b)", "native", id="no-sum"
    ),
    pytest.param(
        "a = RandomNormalLike(x) b = RandomNormalLike(x) y = Add(a, b)", "tensorrt", id="random-numbers-are-not-equal"
    ),
]


@pytest.mark.parametrize(("nodes", "engine"), KEPT)
def test_what_loses_or_differs_stays(nodes: str, engine: str) -> None:
    source = model_of(nodes, opset=21 if "InstanceNormalization" in nodes else 18)

    result, rules = rewritten(source, engine)

    assert rules == []
    assert op_types(result) == [node.op_type for node in clean(source).nodes]


def test_an_inner_result_that_leaves_the_graph_keeps_its_nodes() -> None:
    source = model_of("s = Softplus(x) t = Tanh(s) y = Mul(x, t)", outputs=", float[?,?,?,?] t")

    _, rules = rewritten(source, "native")

    assert rules == []


@pytest.mark.parametrize("engine", ["native", "openvino"])
def test_what_leaves_the_range_of_float16_stays_where_anything_computes_in_it(engine: str) -> None:
    source = model_of("s = Softplus(x) t = Tanh(s) z = Mul(x, t) y = Tanh(z)")

    _, rules = rewritten(source, engine, exact=False)

    assert rules == []


def test_other_types_than_float32_stay() -> None:
    source = parse("""<ir_version: 8, opset_import: ["": 18]> g (float16[4] x) => (float16[4] y) {
        s = Softplus(x) t = Tanh(s) y = Mul(x, t)
    }""")

    _, rules = rewritten(source, "native")

    assert rules == []


def test_results_nodes_and_shared_weights_keep_their_names() -> None:
    source = model_of("a = Conv(x, w) q = Add(a, x) z = Conv(q, w) y = Relu(z)")
    source.graph.node[1].name = "block"

    result, _ = rewritten(source, "native")

    assert (result.graph.node[0].name, *result.graph.node[0].output) == ("block", "q")
    assert "w" in {tensor.name for tensor in result.graph.initializer}
    assert result.graph.node[1].input[1] == "w"


def test_dimensions_that_vary_stay_so() -> None:
    source = model_of(
        "a = Conv(x, w) q = Add(a, x) s = Softplus(q) t = Tanh(s) y = Mul(q, t)", shape=("N", 8, "H", "W")
    )

    result, rules = rewritten(source, "native")

    assert rules == ["branches", "mish"]
    for sizes in (SHAPE, (1, 8, 3, 4)):
        assert_same(result, source, np.random.default_rng(1).standard_normal(sizes).astype(np.float32))


def test_a_rewritten_graph_says_where() -> None:
    graph = clean(model_of("s = Softplus(x) t = Tanh(s) y = Mul(x, t)")).model

    rewrite_model(graph, Wishes(engine="native"))

    (one,) = rewrites_of(graph.graph)
    assert (one.rule, len(one.nodes), one.inside) == ("mish", 1, False)
    assert one.gain.alone > 1
    assert not would_rewrite(graph.graph, Wishes(engine="native"))


def test_the_rules_have_the_names_that_users_choose_from() -> None:
    assert NAMES == REWRITE_NAMES
