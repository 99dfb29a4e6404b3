"""The view of a graph: identities of nodes, values that they read, and predecessors."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from model_texts import clean, parse, view
from trtnode.partitioner.graph.view import Graph, TensorSpec
from trtnode.partitioner.model.values import Dimension, holds_map

CHAIN = """<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y) {
    a = Relu(x)
    b = Neg(a)
    y = Abs(b)
}"""

CAPTURES = """<ir_version: 10, opset_import: ["": 17]> g (float[3] x, bool c) => (float[3] y)
<float[3] w = {1, 2, 3}> {
    a = Relu(x)
    b = Neg(x)
    y = If (c) <
        then_branch = outer_then () => (float[3] t) {
            s = Add(a, w)
            t = If (c) <
                then_branch = inner_then () => (float[3] tt) { tt = Add(s, b) },
                else_branch = inner_else () => (float[3] te) { te = Add(x, b) }
            >
        },
        else_branch = outer_else () => (float[3] e) { e = Add(a, a) }
    >
}"""


@pytest.mark.parametrize(
    ("names", "identities"),
    [
        pytest.param(["a", "b", "c"], ["a", "b", "c"], id="unique-names-are-kept"),
        pytest.param(["a", "a", "c"], ["Relu:a", "Neg:b", "c"], id="names-used-twice-are-not"),
        pytest.param(["", "b", ""], ["Relu:a", "b", "Abs:y"], id="nor-are-empty-ones"),
    ],
)
def test_a_node_is_known_by_its_name_or_by_its_first_output(names: list[str], identities: list[str]) -> None:
    model = parse(CHAIN)
    for node, name in zip(model.graph.node, names, strict=True):
        node.name = name

    graph = Graph.of(view(model))

    assert [node.name for node in graph.nodes] == identities


def test_a_node_whose_first_output_is_left_out_is_known_by_its_second() -> None:
    model = view("""<ir_version: 10, opset_import: ["": 17]> g (float[2] x) => (float[1] y) {
        , y = Split<axis = 0>(x)
    }""")

    assert [node.name for node in Graph.of(model).nodes] == ["Split:y"]


def test_predecessors_produce_what_a_node_reads() -> None:
    graph = Graph.of(view(CHAIN))

    assert list(graph.topology.predecessors) == [[], [0], [1]]


def test_values_that_subgraphs_capture_count_as_read_and_constants_do_not() -> None:
    graph = Graph.of(view(CAPTURES))

    assert [value.name for value in graph.nodes[-1].reads] == ["c", "a", "b", "x"]
    assert [graph.names[index] for index in graph.topology.predecessors[-1]] == ["Relu:a", "Neg:b"]


def test_a_value_read_twice_is_one_read() -> None:
    model = view("""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y) { y = Add(x, x) }""")

    (node,) = Graph.of(model).nodes

    assert [value.name for value in node.reads] == ["x"]


@pytest.mark.parametrize(
    ("ir_version", "reads"),
    [
        pytest.param(10, ["x", "w"], id="a-default-may-be-replaced"),
        pytest.param(3, ["x"], id="before-ir-4-it-may-not"),
    ],
)
def test_an_initializer_that_is_an_input_is_read_at_run_time(ir_version: int, reads: list[str]) -> None:
    graph = clean(f"""<ir_version: {ir_version}, opset_import: ["": 9]>
    g (float[3] x, float[3] w) => (float[3] y) <float[3] w = {{1, 2, 3}}> {{ y = Add(x, w) }}""")

    assert [value.name for value in graph.nodes[0].reads] == reads


def test_a_node_knows_the_opset_of_its_domain() -> None:
    graph = Graph.of(
        view("""<ir_version: 10, opset_import: ["": 17, "ai.onnx.ml": 3]> g (float[3] x) => (float[3] y) {
            a = Relu(x)
            y = ai.onnx.ml.Binarizer(a)
        }""")
    )

    assert [(node.domain, node.op_type, node.opset) for node in graph.nodes] == [
        ("", "Relu", 17),
        ("ai.onnx.ml", "Binarizer", 3),
    ]


@pytest.mark.parametrize(
    ("declared", "dtype", "shape", "static_shape"),
    [
        pytest.param("float[2, 3]", ir.DataType.FLOAT, (2, 3), (2, 3), id="sizes"),
        pytest.param("int8[N, 3]", ir.DataType.INT8, ("N", 3), None, id="a-symbol"),
        pytest.param("float[?, 3]", ir.DataType.FLOAT, (None, 3), None, id="nothing-known-of-one-dimension"),
        pytest.param("float[]", ir.DataType.FLOAT, None, None, id="unknown-rank"),
        pytest.param("float", ir.DataType.FLOAT, (), (), id="scalar"),
        pytest.param("seq(float[3])", None, (3,), (3,), id="a-sequence-is-no-tensor"),
    ],
)
def test_a_value_is_described_by_type_and_shape(
    declared: str, dtype: ir.DataType | None, shape: tuple[Dimension, ...] | None, static_shape: tuple[int, ...] | None
) -> None:
    model = view(f"""<ir_version: 10, opset_import: ["": 17]> g ({declared} x) => (int64 y) {{ y = NoSuchOp(x) }}""")

    spec = TensorSpec.of(model.graph.inputs[0])

    assert (spec.name, spec.dtype, spec.shape, spec.static_shape) == ("x", dtype, shape, static_shape)


@pytest.mark.parametrize(
    ("declared", "size_bytes"),
    [
        pytest.param("float[2, 3]", 24, id="fixed"),
        pytest.param("int4[3]", 2, id="half-bytes-round-up"),
        pytest.param("bool[0, 3]", 0, id="no-elements"),
        pytest.param("float[N, 3]", 0, id="symbolic"),
        pytest.param("seq(float[3])", 0, id="no-tensor"),
        pytest.param("string[3]", 0, id="strings"),
    ],
)
def test_a_tensor_of_fixed_shape_has_a_size(declared: str, size_bytes: int) -> None:
    model = view(f"""<ir_version: 10, opset_import: ["": 21]> g ({declared} x) => (int64 y) {{ y = NoSuchOp(x) }}""")

    assert TensorSpec.of(model.graph.inputs[0]).size_bytes == size_bytes


def test_an_input_with_a_default_is_optional() -> None:
    model = view("""<ir_version: 10, opset_import: ["": 17]>
    g (float[3] x, float[3] w) => (float[3] y) <float[3] w = {1, 2, 3}> { y = Add(x, w) }""")

    assert [TensorSpec.of(value).optional for value in model.graph.inputs] == [False, True]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        pytest.param("float[3]", False, id="tensor"),
        pytest.param("seq(float[3])", False, id="sequence-of-tensors"),
        pytest.param("map(int64, float)", True, id="map"),
        pytest.param("seq(map(int64, float))", True, id="sequence-of-maps"),
        pytest.param("optional(map(int64, float))", True, id="optional-map"),
    ],
)
def test_maps_are_found_inside_other_types(kind: str, expected: bool) -> None:
    model = parse(f"""g ({kind} x) => (int64 y) {{ }}""", opset=17)

    assert holds_map(model.graph.input[0].type) is expected


def test_a_random_node_and_what_it_feeds_compute_anew_for_each_request() -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}> {
        [steady] a = Exp(w)
        [noise] r = RandomNormal<shape = [3]>()
        [noisy] b = Add(a, r)
        y = Add(b, x)
    }""")

    assert dict(zip([n.name for n in graph.nodes], graph.constant, strict=True)) == {
        "steady": True,
        "noise": False,
        "noisy": False,
        "Add:y": False,
    }
