"""Models and helpers for the tests of the partitioner. Models are written in ONNX's own textual form."""

from __future__ import annotations

import dataclasses
import pathlib
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import strategies as st

from partitioner import (
    SUPPORTED,
    EmbeddedEngine,
    Graph,
    Partition,
    PartitionOptions,
    Predicate,
    ReasonCode,
    Verdict,
    clean_up,
    embed_engines,
    partition_graph,
)
from partitioner.loading import view_model

ONES = np.array([1, -2, 3], np.float32)
TRUE, FALSE = np.array(True), np.array(False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A model whose answers must survive the clean-up and the embedding.

    Attributes:
        model: In ONNX's textual form.
        feeds: One request.
        native: Operators that the engine refuses.
    """

    model: str
    feeds: dict[str, Any] = dataclasses.field(default_factory=lambda: {"x": ONES})
    native: tuple[str, ...] = ("Neg",)


CASES = {
    "identity-chain": Case(
        model="""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y, float[3] z) {
            a = Identity(x)
            b = Identity(a)
            y = Identity(b)
            c = Relu(b)
            d = Identity(c)
            z = Identity(d)
        }"""
    ),
    "output-is-an-input": Case(
        model="""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] x, float[3] y) { y = Relu(x) }"""
    ),
    "output-is-an-initializer": Case(
        model="""<ir_version: 10, opset_import: ["": 17]>
        g (float[3] x) => (float[3] w, float[3] y) <float[3] w = {1, 2, 3}> { y = Add(x, w) }"""
    ),
    "output-is-a-constant-node": Case(
        model="""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] w, float[3] y) {
            w = Constant<value = float[3] {1, 2, 3}>()
            y = Add(x, w)
        }"""
    ),
    "output-is-folded-arithmetic": Case(
        model="""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (int64[1] s, float[3] y) {
            s = Shape(x)
            y = Relu(x)
        }"""
    ),
    "one-tensor-is-two-outputs": Case(
        model="""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y, float[3] z) {
            y = Relu(x)
            z = Identity(y)
        }"""
    ),
    "one-name-is-two-outputs": Case(
        model="""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y, float[3] y) { y = Relu(x) }"""
    ),
    "no-nodes": Case(model="""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] x) { }"""),
    "no-inputs": Case(
        model="""<ir_version: 10, opset_import: ["": 17]>
        g () => (float[3] y) <float[3] w = {1, 2, 3}> { y = Relu(w) }""",
        feeds={},
    ),
    "shape-arithmetic-with-symbolic-batch": Case(
        model="""<ir_version: 8, opset_import: ["": 13]> g (float[N, 3, 4] x) => (float[N, 12] y)
        <int64 first = {0}, int64[1] rest = {-1}, int64[1] axes = {0}> {
            shape = Shape(x)
            batch = Gather<axis = 0>(shape, first)
            vector = Unsqueeze(batch, axes)
            target = Concat<axis = 0>(vector, rest)
            flat = Reshape(x, target)
            y = Relu(flat)
        }""",
        feeds={"x": np.arange(60, dtype=np.float32).reshape(5, 3, 4)},
    ),
    "constants-of-every-kind": Case(
        model="""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) =>
        (float[3] a, float[3] b, int64[3] c, int64[2] d, string[1] e, string[2] f) {
            x64 = Cast<to = 7>(x)
            one = Constant<value_float = 1.5>()
            many = Constant<value_floats = [1.0, 2.0, 3.0]>()
            whole = Constant<value_int = 3>()
            wholes = Constant<value_ints = [1, 2]>()
            word = Constant<value_strings = ["a"]>()
            words = Constant<value_strings = ["b", "c"]>()
            a = Add(x, one)
            b = Add(x, many)
            c = Add(x64, whole)
            d = Add(wholes, whole)
            e = Identity(word)
            f = Identity(words)
        }"""
    ),
    "dead-nodes": Case(
        model="""<ir_version: 10, opset_import: ["": 17]> g (float[3] x, float[3] unused) => (float[3] y)
        <float[3] w = {1, 2, 3}> {
            a = Add(x, w)
            b = Neg(a)
            y = Relu(x)
        }""",
        feeds={"x": ONES, "unused": ONES},
    ),
    "nodes-out-of-order": Case(
        model="""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y) {
            y = Abs(b)
            b = Neg(a)
            a = Relu(x)
        }"""
    ),
    "ir-3-initializers-are-inputs": Case(
        model="""<ir_version: 3, opset_import: ["": 8]> g (float[3] x, float[3] w) => (float[3] y)
        <float[3] w = {1, 2, 3}> { y = Add(x, w) }"""
    ),
    "ir-4-default-is-used": Case(
        model="""<ir_version: 4, opset_import: ["": 8]> g (float[3] x, float[3] w) => (float[3] y)
        <float[3] w = {1, 2, 3}> {
            v = Identity(w)
            a = Add(x, v)
            y = Relu(a)
        }"""
    ),
    "ir-4-default-is-replaced": Case(
        model="""<ir_version: 4, opset_import: ["": 8]> g (float[3] x, float[3] w) => (float[3] y)
        <float[3] w = {1, 2, 3}> {
            a = Add(x, w)
            y = Relu(a)
        }""",
        feeds={"x": ONES, "w": ONES},
    ),
    "bodies-capture-values-and-constants": Case(
        model="""<ir_version: 10, opset_import: ["": 17]> g (float[3] x, bool c) => (float[3] y)
        <float[3] w = {1, 2, 3}> {
            a = Relu(x)
            b = Neg(a)
            hidden = Identity(b)
            y = If (c) <
                then_branch = outer_then () => (float[3] t) {
                    t = If (c) <
                        then_branch = inner_then () => (float[3] tt) { tt = Add(hidden, a) },
                        else_branch = inner_else () => (float[3] te) { te = Add(hidden, w) }
                    >
                },
                else_branch = outer_else () => (float[3] e) {
                    k = Constant<value = float[3] {4, 5, 6}>()
                    e = Add(x, k)
                }
            >
        }""",
        feeds={"x": ONES, "c": TRUE},
    ),
    "loop-captures-an-engine-result": Case(
        model="""<ir_version: 10, opset_import: ["": 17]> g (float[3] x, int64 n) => (float[3] y)
        <bool forever = {1}> {
            a = Relu(x)
            z = Loop (n, forever, x) <body = step (int64 i, bool go, float[3] state) => (bool on, float[3] next) {
                on = Identity(go)
                t = Neg(a)
                next = Add(state, t)
            }>
            y = Abs(z)
        }""",
        feeds={"x": ONES, "n": np.array(3)},
    ),
    "scan": Case(
        model="""<ir_version: 10, opset_import: ["": 17]>
        g (float[3] x, float[4, 3] rows) => (float[3] y, float[4, 3] s) {
            a = Relu(x)
            z, sums = Scan<num_scan_inputs = 1, body = step (float[3] state, float[3] row) => (float[3] n, float[3] o) {
                n = Add(state, row)
                o = Add(n, a)
            }>(a, rows)
            y = Abs(z)
            s = Abs(sums)
        }""",
        feeds={"x": ONES, "rows": np.arange(12, dtype=np.float32).reshape(4, 3)},
    ),
    "model-local-functions": Case(
        model="""<ir_version: 10, opset_import: ["": 17, "f": 1]> g (float[3] x, bool c) => (float[3] y) {
            a = f.twice(x)
            b = f.twice(a)
            y = If (c) <
                then_branch = then () => (float[3] t) { t = f.twice(b) },
                else_branch = else () => (float[3] e) { e = f.plus<by = 2.0>(b) }
            >
        }
        <domain: "f", opset_import: ["": 17, "f": 1]> twice (v) => (w) {
            t = Relu(v)
            w = f.plus(t)
        }
        <domain: "f", opset_import: ["": 17]> plus<by: float = 1.0>(v) => (w) {
            k = Constant<value_float: float = @by>()
            w = Add(v, k)
        }""",
        feeds={"x": ONES, "c": FALSE},
    ),
    "functions-with-bodies": Case(
        model="""<ir_version: 10, opset_import: ["": 17, "f": 1]> g (float[3] x, int64 n, bool c) => (float[3] y) {
            a = f.count(x, n)
            b = f.count(a, n)
            y = If (c) <
                then_branch = then () => (float[3] t) { t = Neg(b) },
                else_branch = else () => (float[3] e) { e = f.count(b, n) }
            >
        }
        <domain: "f", opset_import: ["": 17]> count (v, m) => (w) {
            t = Relu(v)
            go = Constant<value = bool {1}>()
            w = Loop (m, go, t) <body = step (int64 i, bool c, float[3] x) => (bool on, float[3] next) {
                on = Identity(c)
                next = Add(x, t)
            }>
        }""",
        feeds={"x": ONES, "n": np.array(2), "c": FALSE},
    ),
    "functions-of-another-opset": Case(
        # Softmax of opset 11 runs over all axes from the last but one on; in opset 17 over one.
        model="""<ir_version: 10, opset_import: ["": 17, "f": 1]> g (float[2, 3, 4] x) => (float[2, 3, 4] y) {
            a = Relu(x)
            b = f.old(a)
            c = f.new(b)
            y = Abs(c)
        }
        <domain: "f", opset_import: ["": 11, "f": 1]> old (v) => (w) {
            t = Softmax(v)
            w = f.old_too(t)
        }
        <domain: "f", opset_import: ["": 11]> old_too (v) => (w) { w = Softmax(v) }
        <domain: "f", opset_import: ["": 17]> new (v) => (w) { w = Softmax(v) }""",
        feeds={"x": np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)},
    ),
    "several-outputs": Case(
        model="""<ir_version: 10, opset_import: ["": 17]> g (float[2, 3] x) =>
        (float[2, 3] y, float[1, 3] z, float[1, 3] d, float[1, 3] top) <int64[1] k = {3}> {
            y = Relu(x)
            z, rest = Split<axis = 0>(y)
            d, mask = Dropout(rest)
            n = Neg(rest)
            top, index = TopK(n, k)
        }""",
        feeds={"x": np.arange(6, dtype=np.float32).reshape(2, 3)},
    ),
    "optional-input-left-empty": Case(
        model="""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y) <float most = {0.5}> {
            a = Clip(x, , most)
            y = Relu(a)
        }"""
    ),
    "opset-7": Case(
        model="""<ir_version: 3, opset_import: ["": 7]> g (float[2, 3] x) => (float[3, 2] y) {
            a = Relu(x)
            b = Transpose<perm = [1, 0]>(a)
            n = Neg(b)
            y = Softmax(n)
        }""",
        feeds={"x": np.arange(6, dtype=np.float32).reshape(2, 3)},
    ),
    "sequences": Case(
        model="""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[6] y, seq(float[3]) s) {
            a = Relu(x)
            s = SequenceConstruct(a, x)
            z = ConcatFromSequence<axis = 0>(s)
            y = Abs(z)
        }"""
    ),
    "optionals": Case(
        model="""<ir_version: 10, opset_import: ["": 18]> g (float[3] x) => (float[3] y, bool has) {
            o = Optional(x)
            has = OptionalHasElement(o)
            z = OptionalGetElement(o)
            y = Relu(z)
        }"""
    ),
    "maps": Case(
        model="""<ir_version: 10, opset_import: ["": 17, "ai.onnx.ml": 3]>
        g (float[1, 3] x) => (seq(map(int64, float)) y, float[1, 3] a) {
            a = Relu(x)
            y = ai.onnx.ml.ZipMap<classlabels_int64s = [7, 8, 9]>(a)
        }""",
        feeds={"x": ONES.reshape(1, 3)},
    ),
    "strings": Case(
        model="""<ir_version: 10, opset_import: ["": 20]> g (string[2] x) => (string[2] y)
        <string[2] tail = {"a", "b"}> { y = StringConcat(x, tail) }""",
        feeds={"x": np.array(["q", "r"])},
    ),
    "no-elements": Case(
        model="""<ir_version: 10, opset_import: ["": 17]> g (float[N, 3] x) => (float[N, 3] y) <float[0, 3] none = {}> {
            a = Relu(x)
            y = Concat<axis = 0>(a, none)
        }""",
        feeds={"x": np.zeros((0, 3), np.float32)},
    ),
    "contrib-operators": Case(
        model="""<ir_version: 10, opset_import: ["": 17, "com.microsoft": 1]> g (float[3] x) => (float[3] y) {
            a = Relu(x)
            b = com.microsoft.Gelu(a)
            y = Abs(b)
        }"""
    ),
    "operator-without-a-schema": Case(
        # ONNX has no LayerNormalization before opset 17; ONNX Runtime runs it all the same.
        model="""<ir_version: 8, opset_import: ["": 14]> g (float[2, 3] x) => (float[2, 3] y)
        <float[3] scale = {1, 2, 3}> {
            a = Relu(x)
            b = LayerNormalization(a, scale)
            y = Abs(b)
        }""",
        feeds={"x": np.arange(6, dtype=np.float32).reshape(2, 3)},
    ),
    "node-is-named-like-a-segment": Case(
        model="""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y) {
            a = Relu(x)
            [segment_0] y = Neg(a)
        }"""
    ),
}


@pytest.fixture(params=[pytest.param(case, id=name) for name, case in CASES.items()])
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(scope="session")
def parse() -> Callable[[str], onnx.ModelProto]:
    return onnx.parser.parse_model


@pytest.fixture(scope="session")
def view() -> Callable[[str | onnx.ModelProto], ir.Model]:
    """A model as it comes out of loading, before any clean-up."""
    return _view


@pytest.fixture(scope="session")
def clean() -> Callable[[str | onnx.ModelProto], Graph]:
    return _clean


@pytest.fixture(scope="session")
def refusing() -> Callable[..., Predicate]:
    """An engine that takes everything but the operators named."""
    return _refusing


@pytest.fixture(scope="session")
def partition() -> Callable[..., Partition]:
    """Partition a graph for an engine that refuses the operators named."""
    return _partition


@pytest.fixture(scope="session")
def embed() -> Callable[..., onnx.ModelProto]:
    """Compile a graph for an engine that refuses the operators named, with engines of one byte."""

    def embed(graph: Graph, *native: str) -> onnx.ModelProto:
        result = _partition(graph, *native)
        engines = {s.name: EmbeddedEngine(envelope="{}", engine=b"x") for s in result.segments}
        return embed_engines(result.graph, result.segments, engines)

    return embed


@pytest.fixture(scope="session")
def run() -> Callable[[onnx.ModelProto, dict[str, Any]], list[Any]]:
    """Run a model in plain ONNX Runtime."""

    def run(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return session.run(None, feeds)

    return run


@pytest.fixture(scope="session")
def assert_equal() -> Callable[[Sequence[Any], Sequence[Any]], None]:
    """Compare outputs bit by bit, those that are no tensors included."""

    def assert_equal(actual: Sequence[Any], expected: Sequence[Any]) -> None:
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            if isinstance(other, list):
                assert_equal(one, other)
            elif isinstance(other, np.ndarray):
                assert one.dtype == other.dtype
                np.testing.assert_array_equal(one, other)
            else:
                assert one == other

    return assert_equal


@pytest.fixture(scope="session")
def passes_checker() -> Callable[[onnx.ModelProto], bool]:
    def passes_checker(model: onnx.ModelProto) -> bool:
        try:
            onnx.checker.check_model(model, full_check=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
            return False
        return True

    return passes_checker


@pytest.fixture(scope="session")
def random_models() -> Callable[[int], st.SearchStrategy[str]]:
    """Models of at most so many nodes: Add, Relu, Split, Identity, Neg, and If with bodies that capture values."""
    return lambda most: _random_model(most)


@pytest.fixture(scope="session")
def random_feeds() -> dict[str, np.ndarray]:
    """A request that every random model answers."""
    rows = np.array([[1, -2, 3, -4], [-5, 6, -7, 8]], np.float32)
    return {"x": rows, "y": rows[::-1].copy(), "c": TRUE}


@st.composite
def _random_model(draw: st.DrawFn, most: int) -> str:
    count, choose = draw(st.integers(min(4, most), most)), random.Random(draw(st.integers(0, 2**32)))
    rows, lines, read = {"x": 2, "y": 2, "w": 2}, [], set()
    for index in range(count):
        # Near ones are read more often, as in real models, so that paths get long.
        first, second = (choose.choice(list(rows)[-near:]) for near in (2, 5))
        op = choose.choice(["Add", "Add", "Relu", "Relu", "Split", "Identity", "Neg", "Neg", "Neg", "If"])
        result, more = f"v{index}", max(rows[first], rows[second])
        read |= {first, second} if op in ("Add", "If") else {first}
        if op == "Add":
            lines.append(f"{result} = Add({first}, {second})")
            rows[result] = more
        elif op == "If":
            branches = (
                f"{branch}_branch = {branch}{index} () => (float[{more}, 4] {branch[0]}{index}) "
                f"{{ {branch[0]}{index} = {inner}({first}, {second}) }}"
                for branch, inner in (("then", "Add"), ("else", "Sub"))
            )
            lines.append(f"{result} = If (c) <{', '.join(branches)}>")
            rows[result] = more
        elif op == "Split" and rows[first] == 2:
            lines.append(f"{result}, {result}b = Split<axis = 0>({first})")
            rows |= {result: 1, f"{result}b": 1}
        else:
            lines.append(f"{result} = {'Relu' if op == 'Split' else op}({first})")
            rows[result] = rows[first]
    wanted = [name for name in rows if name not in ("x", "y", "w") and (name not in read or choose.random() < 0.1)]
    if choose.random() < 0.2:
        wanted = wanted[-1:]  # what only the others need is dead
    outputs = ", ".join(f"float[{rows[name]}, 4] {name}" for name in wanted)
    body = "\n    ".join(lines)
    return f"""<ir_version: 10, opset_import: ["": 17]> random (float[2, 4] x, float[2, 4] y, bool c) => ({outputs})
<float[2, 4] w = {{1, 2, 3, 4, 5, 6, 7, 8}}> {{
    {body}
}}"""


def _view(model: str | onnx.ModelProto) -> ir.Model:
    proto = onnx.ModelProto()
    proto.CopyFrom(onnx.parser.parse_model(model) if isinstance(model, str) else model)
    return view_model(proto, pathlib.Path("model.onnx"))


def _clean(model: str | onnx.ModelProto) -> Graph:
    return clean_up(_view(model))


def _refusing(*native: str) -> Predicate:
    refused = Verdict(ReasonCode.UNSUPPORTED_OP, "The engine of this test has no such operator.")
    return lambda node: refused if node.op_type in native else SUPPORTED


def _partition(graph: Graph, *native: str) -> Partition:
    return partition_graph(graph, _refusing(*native), PartitionOptions())
