"""Engines of OpenVINO answer as ONNX Runtime does over types, attributes, sizes and values, in whatever is labelled."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pytest

from sweeps import TYPES, Case, Feeds, not_zero, pairs, values, wrong_answers

COUNT = 240
RNG = np.random.default_rng(0)
ALL_KINDS = tuple(TYPES)
FLOATS = ("float", "float16")

UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Celu<alpha=0.3> Clip Cos Cosh Elu Elu<alpha=0.3> Erf Exp"
    ' Floor Gelu Gelu<approximate="tanh"> HardSigmoid HardSwish Identity LeakyRelu LeakyRelu<alpha=-0.5> Log Mish Neg'
    " Reciprocal Relu Round Selu Shrink Shrink<bias=0.2,lambd=1.5> Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish"
    " Tan Tanh ThresholdedRelu ThresholdedRelu<alpha=-0.5>"
).split()
TO_BOOL = "Equal Greater GreaterOrEqual Less LessOrEqual And Or Xor".split()
BINARY = "Add BitwiseAnd BitwiseOr BitwiseXor Div Max Mean Min Mod Mod<fmod=1> Mul PRelu Sub Sum".split()


def unary() -> Iterator[Case]:
    for kind, op in itertools.product(("float", "int8", "uint8", "int32"), UNARY):
        yield Case(f"g ({kind}[a] x) => ({kind}[a] y) {{ y = {op}(x) }}", x_of(values(kind, COUNT)), opset=24)
    for kind, op in itertools.product(ALL_KINDS, ("Not", "IsInf", "IsNaN", "IsInf<detect_negative=0>")):
        yield Case(f"g ({kind}[a] x) => (bool[a] y) {{ y = {op}(x) }}", x_of(values(kind, COUNT)), opset=24)


def binary() -> Iterator[Case]:
    for kind, op in itertools.product(("float", "int8", "uint8", "int32"), (*BINARY, *TO_BOOL)):
        whole = kind.startswith(("int", "uint")) and op.startswith(("Div", "Mod"))
        found = [(x, not_zero(z) if whole else z) for x, z in pairs(kind, COUNT)]
        result = "bool" if op in TO_BOOL else kind
        feeds = [{"x": x, "z": z} for x, z in found]
        yield Case(f"g ({kind}[a] x, {kind}[a] z) => ({result}[a] y) {{ y = {op}(x, z) }}", feeds, opset=24)
        for number in (2, 3) if whole else ():
            constant = {"c": np.array(number, TYPES[kind])}
            graph = f"g ({kind}[a] x) => ({result}[a] y) {{ y = {op}(x, c) }}"
            yield Case(graph, x_of(values(kind, COUNT)), constant, opset=24)


def casts() -> Iterator[Case]:
    numbers = {"float": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10}
    for kind, to in itertools.permutations(TYPES, 2):
        feeds = x_of(values(kind, COUNT))
        yield Case(f"g ({kind}[a] x) => ({to}[a] y) {{ y = Cast<to={numbers[to]}>(x) }}", feeds)
        bounds = {"low": np.array(0, TYPES[kind]), "high": np.array(100, TYPES[kind])}
        yield Case(
            f"g ({kind}[a] x) => ({to}[a] y) {{ c = Clip(x, low, high) y = Cast<to={numbers[to]}>(c) }}", feeds, bounds
        )


def multiples() -> Iterator[Case]:
    """Remainders of multiples, on which a rounded quotient is off by a period."""
    for kind, period in itertools.product(FLOATS, (0.1, 0.3, 0.7, 3, 1, 2, 0.25, -0.5)):
        steps = (RNG.integers(-99, 99, COUNT) * np.float32(period)).astype(TYPES[kind])
        constant = {"c": np.array(period, TYPES[kind])}
        yield Case(f"g ({kind}[a] x) => ({kind}[a] y) {{ y = Mod<fmod=1>(x, c) }}", x_of([steps]), constant)


def norms() -> Iterator[Case]:
    rows = [RNG.normal(0, scale, (2, 4, 6)).astype(np.float32) for scale in (1, 1e-3, 1e-4, 1e-6, 1e4)]
    holes = np.where(RNG.random((2, 4, 6)) < 0.5, 0, rows[0]).astype(np.float32)
    feeds = x_of([*rows, holes, np.zeros((2, 4, 6), np.float32)])
    for p, axis in itertools.product((1, 2), (-1, 0, 1)):
        yield Case(plain(f"LpNormalization<p={p},axis={axis}>(x)"), feeds)
    vectors = {name: RNG.normal(0, 1, 4).astype(np.float32) for name in "sb"}
    yield Case("g (float[a,4,c] x) => (float[a,4,c] y) { y = InstanceNormalization(x, s, b) }", feeds, vectors)
    for op, axis in itertools.product(("LayerNormalization", "RMSNormalization"), (-1, 1)):
        scale = {"s": RNG.normal(0, 1, (6,) if axis == -1 else (4, 6)).astype(np.float32)}
        yield Case(f"g (float[2,4,6] x) => (float[2,4,6] y) {{ y = {op}<axis={axis}>(x, s) }}", feeds, scale, opset=23)
    for op, axis, opset in itertools.product(("Softmax", "LogSoftmax", "Hardmax"), (0, 1, 2), (9, 11, 13)):
        yield Case(plain(f"{op}<axis={axis}>(x)"), feeds, opset=opset)
    for size in (1, 2, 3, 4):
        yield Case(
            "g (float[a,b,c,d] x) => (float[a,b,c,d] y) { y = LRN<size=#>(x) }".replace("#", str(size)),
            x_of([rows[0][None]]),
        )


def reductions() -> Iterator[Case]:
    ops = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()
    for kind, op, axes in itertools.product(("float", "int8", "int32"), ops, ([-1], [0, 2])):
        found = [np.abs(v) + v.dtype.type(1) if op == "LogSum" else v for v in values(kind, 60)]
        graph = f"g ({kind}[a,b,c] x) => ({kind}[?,?,?] y) {{ y = Reduce{op}(x, axes) }}"
        yield Case(graph, x_of(v.reshape(3, 4, 5) for v in found), {"axes": np.array(axes)}, opset=20)
    for kind, op, last in itertools.product(("float", "int8", "bool"), ("ArgMax", "ArgMin"), (0, 1)):
        ties = RNG.integers(0, 2, (3, 4, 5)).astype(TYPES[kind])
        graph = f"g ({kind}[a,b,c] x) => (int64[?,?,?] y) {{ y = {op}<axis=1,select_last_index={last}>(x) }}"
        yield Case(graph, x_of([*(v.reshape(3, 4, 5) for v in values(kind, 60)), ties]), opset=20)
    for kind, ordered, largest in itertools.product(("float", "int32", "uint8"), (0, 1), (0, 1)):
        node = f"y, i = TopK<axis=1,largest={largest},sorted={ordered}>(x, k)"
        feeds = x_of(v.reshape(3, 4, 5) for v in values(kind, 60))
        yield Case(f"g ({kind}[a,b,c] x) => ({kind}[?,?,?] y) {{ {node} }}", feeds, {"k": np.array([2])}, opset=20)
    for kind, upper in itertools.product(ALL_KINDS, (0, 1)):
        feeds = x_of(v.reshape(3, 4, 5) for v in values(kind, 60))
        yield Case(f"g ({kind}[a,b,c] x) => ({kind}[?,?,?] y) {{ y = Trilu<upper={upper}>(x) }}", feeds)


def resizes() -> Iterator[Case]:
    """The sizes whose quotients end in the middle of two elements, and others beside them."""
    sizes = (
        (14, 19),
        (18, 21),
        (22, 13),
        (14, 1),
        (20, 6),
        (23, 14),
        (7, 2),
        (13, 8),
        (14, 23),
        (5, 10),
        (8, 12),
        (9, 3),
    )
    modes = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
    nearest = [
        f'mode="nearest",nearest_mode="{m}"' for m in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    ]
    for place, mode in itertools.product(modes, (*nearest, 'mode="linear"')):
        attributes = f'coordinate_transformation_mode="{place}",{mode}'
        for before, after in sizes:
            feeds = x_of([np.arange(before, dtype=np.float32)[None, None]])
            graph = f"g (float[1,1,{before}] x) => (float[1,1,{after}] y) {{ y = Resize<{attributes}>(x, , , s) }}"
            yield Case(graph, feeds, {"s": np.array([1, 1, after])})
        for scale in (2, 4 / 3):
            feeds = x_of(np.arange(n, dtype=np.float32)[None, None] for n in (6, 7, 20))
            graph = f"g (float[1,1,a] x) => (float[1,1,b] y) {{ y = Resize<{attributes}>(x, , s) }}"
            yield Case(graph, feeds, {"s": np.array([1, 1, scale], np.float32)})


def windows() -> Iterator[Case]:
    feeds = x_of(RNG.normal(0, 1, (2, 4, h, w)).astype(np.float32) for h, w in ((5, 5), (6, 6), (7, 9), (8, 5)))
    pads = ('auto_pad="SAME_UPPER"', 'auto_pad="SAME_LOWER"', "pads=[1,0,0,1]")
    for pad, kernel, stride in itertools.product(pads, (2, 3), (1, 2)):
        node = f"<kernel_shape=[{kernel},{kernel}],strides=[{stride},{stride}],{pad}"
        for op in (f"AveragePool{node}", f"AveragePool{node},count_include_pad=1", f"MaxPool{node}", f"LpPool{node}"):
            yield Case(f"g (float[a,4,c,d] x) => (float[?,?,?,?] y) {{ y = {op}>(x) }}", feeds, opset=19)
        weights = {"w": RNG.normal(0, 1, (4, 2, kernel, kernel)).astype(np.float32)}
        for op in ("Conv", "ConvTranspose"):
            call = f"{op}<group=2,strides=[{stride},{stride}],{pad}>(x, w)"
            yield Case(f"g (float[a,4,c,d] x) => (float[?,?,?,?] y) {{ y = {call} }}", feeds, weights)


def recurrences() -> Iterator[Case]:
    for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        shapes = {"w": (1, gates * 5, 3), "r": (1, gates * 5, 5), "b": (1, 2 * gates * 5)}
        weights = {name: RNG.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}
        x = RNG.normal(0, 1, (4, 1, 3)).astype(np.float32)
        for attributes in ("", "clip=0.5,", 'direction="reverse",', "linear_before_reset=1,", "input_forget=1,"):
            call = f"{op}<{attributes}hidden_size=5>"
            yield Case(f"g (float[t,1,3] x) => (float[?,?,?,?] y) {{ y = {call}(x, w, r, b) }}", x_of([x]), weights, 14)
            graph = f"g (float[4,1,3] x, int32[1] l) => (float[?,?,?,?] y) {{ y = {call}(x, w, r, b, l) }}"
            yield Case(graph, [{"x": x, "l": np.array([2], np.int32)}], weights, 14)


def samplings() -> Iterator[Case]:
    for mode, edge, corners in itertools.product(("linear", "nearest"), ("zeros", "border", "reflection"), (0, 1)):
        ties = (RNG.integers(-12, 12, (2, 6, 7, 2)) / np.array([6, 7])).astype(np.float32)
        feeds = [{"x": RNG.normal(0, 1, (2, 3, 7, 6)).astype(np.float32), "z": ties}]
        call = f'GridSample<mode="{mode}",padding_mode="{edge}",align_corners={corners}>(x, z)'
        yield Case(f"g (float[a,b,c,d] x, float[a,e,f,2] z) => (float[?,?,?,?] y) {{ y = {call} }}", feeds, opset=20)
    regions = np.array([[0, 0, 4, 4], [-2, -3, 5, 5], [0, 0, 40, 40], [3, 3, 3, 3]], np.float32)
    for halves, ratio in itertools.product(("half_pixel", "output_half_pixel"), (0, 2)):
        call = (
            f'RoiAlign<coordinate_transformation_mode="{halves}",output_height=3,output_width=2,sampling_ratio={ratio}>'
        )
        feeds = [{"x": RNG.normal(0, 1, (2, 3, 9, 9)).astype(np.float32), "r": regions, "i": np.array([0, 1, 0, 1])}]
        yield Case(
            f"g (float[a,b,c,d] x, float[n,4] r, int64[n] i) => (float[?,?,?,?] y) {{ y = {call}(x, r, i) }}", feeds
        )


def quantizations() -> Iterator[Case]:
    """Values on both sides of each step, and beyond the range. On the middle itself an engine may be a step off."""
    for kind, step, zero in itertools.product(("int8", "uint8"), (0.5, 0.1, 3e-5), (0, 7)):
        beside = ((np.arange(-60, 60) / 2 + 0.2) * step).astype(np.float32)
        feeds = x_of(v.reshape(4, 30) for v in (beside, beside * 100))
        constants = {"s": np.float32(step), "z": np.array(zero, TYPES[kind])}
        quantized = "q = QuantizeLinear(x, s, z)"
        yield Case(f"g (float[a,30] x) => ({kind}[a,30] q) {{ {quantized} }}", feeds, constants)
        yield Case(
            f"g (float[a,30] x) => (float[a,30] y) {{ {quantized} y = DequantizeLinear(q, s, z) }}", feeds, constants
        )
        columns = {"s": (RNG.random(30) * step + 1e-6).astype(np.float32), "z": np.full(30, zero, TYPES[kind])}
        call = "y = DequantizeLinear<axis=1>(q, s, z)"
        graph = f"g (float[a,30] x) => (float[a,30] y) {{ q = QuantizeLinear<axis=1>(x, s, z) {call} }}"
        yield Case(graph, feeds, columns)
        yield Case(f"g ({kind}[a,30] q) => (float[a,30] y) {{ {call} }}", [{"q": _steps(kind)}], columns)
    for halves in (values("float", COUNT), [np.zeros(COUNT, np.float32), np.full(COUNT, -3, np.float32)]):
        graph = "g (float[a] x) => (uint8[a] y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear(x) }"
        yield Case(graph, x_of(halves))


def _steps(kind: str) -> np.ndarray:
    return np.arange(120).astype(TYPES[kind]).reshape(4, 30)


def products() -> Iterator[Case]:
    a, b = (RNG.normal(0, 1, shape).astype(np.float32) for shape in ((3, 4, 5), (3, 5, 4)))
    equations = ("bij,bjk->bik", "bij,bjk->ik", "bij,bjk->kib", "bij,bkl->bl", "bij,bji->b", "...ij,...jk->...ik")
    for equation in equations:
        graph = f'g (float[b,i,j] x, float[b,j,k] z) => (float[?,?,?] y) {{ y = Einsum<equation="{equation}">(x, z) }}'
        yield Case(graph, [{"x": a, "z": b}])
    for equation in ("bij->ij", "bij->jib", "bij->"):
        graph = f'g (float[b,i,j] x) => (float[?,?,?] y) {{ y = Einsum<equation="{equation}">(x) }}'
        yield Case(graph, x_of([a]))


def attentions() -> Iterator[Case]:
    q, k, v = (RNG.normal(0, 1, (2, 4, n, 8)).astype(np.float32) for n in (3, 6, 6))
    mask = np.where(RNG.random((3, 6)) < 0.4, -np.inf, 0).astype(np.float32)
    mask[:, 0] = 0
    heads = "float[a,4,s,8] q, float[a,4,t,8] k, float[a,4,t,8] v"
    for attributes in ("", "<scale=0.3>", "<is_causal=1>", "<softcap=2.0>"):
        yield Case(
            f"g ({heads}) => (float[?,?,?,?] y) {{ y = Attention{attributes}(q, k, v) }}", _attended(q, k, v), opset=23
        )
    graph = f"g ({heads}, float[s,t] m) => (float[?,?,?,?] y) {{ y = Attention(q, k, v, m) }}"
    yield Case(graph, [{**_attended(q, k, v)[0], "m": mask}], opset=23)


def _attended(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> list[Feeds]:
    return [{"q": q, "k": k, "v": v}]


def loops() -> Iterator[Case]:
    x = RNG.normal(0, 1, (5, 3)).astype(np.float32)
    body = "b (float[3] s, float[3] r) => (float[3] t, float[3] o) { t = Add(s, r) o = Mul(t, r) }"
    for way in ("", ", scan_input_directions=[1]", ", scan_output_directions=[1]"):
        call = f"last, y = Scan<num_scan_inputs=1{way}, body = {body}>(start, x)"
        graph = f"g (float[n,3] x) => (float[3] last, float[n,3] y) {{ {call} }}"
        yield Case(graph, x_of([x]), {"start": np.zeros(3, np.float32)})
    rounds = (
        "b (int64 i, bool c, float[3] s) => (bool d, float[3] t, float[3] o) "
        "{ d = Identity(c) t = Add(s, s) o = Neg(t) }"
    )
    graph = f"g (float[3] x) => (float[3] last, float[n,3] y) {{ last, y = Loop<body = {rounds}>(trips, go, x) }}"
    yield Case(graph, x_of([x[0]]), {"trips": np.array(3), "go": np.array(True)})


def x_of(arrays: Iterable[np.ndarray]) -> list[Feeds]:
    return [{"x": array} for array in arrays]


def plain(call: str) -> str:
    return f"g (float[a,b,c] x) => (float[a,b,c] y) {{ y = {call} }}"


SWEEPS: tuple[tuple[Callable[[], Iterator[Case]], int], ...] = (
    *((unary, 60), (binary, 50), (casts, 60), (multiples, 8), (norms, 30), (reductions, 40), (resizes, 170)),
    *(
        (windows, 60),
        (recurrences, 10),
        (samplings, 10),
        (quantizations, 1),
        (products, 1),
        (attentions, 1),
        (loops, 0),
    ),
)
"""Cases, and the number that engines take at least."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("cases", "least"), SWEEPS, ids=[cases.__name__ for cases, _ in SWEEPS])
def test_engines_answer_as_native_execution(
    cases: Callable[[], Iterator[Case]], least: int, tmp_path: pathlib.Path
) -> None:
    wrong, taken = wrong_answers(list(cases()), tmp_path)

    assert wrong == []
    assert taken >= least
