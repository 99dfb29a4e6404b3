"""Shapes that ONNX's inference does not know are completed from other sources, and never against it."""

from __future__ import annotations

import random

import onnx_ir as ir
import pytest

from model_texts import view
from trtnode.partitioner.compiled.trtnode import embed_engines
from trtnode.partitioner.graph.extraction import extract_model
from trtnode.partitioner.graph.view import Graph, TensorSpec
from trtnode.partitioner.model.values import Dimension, dimensions
from trtnode.partitioner.passes.clean_up import clean_up
from trtnode.partitioner.passes.shape_sources import complete_shapes, incomplete_values, lacks_types

GIVEN_UP = """<ir_version: 10, opset_import: ["": 21]> g (float[N, 4] x) => (float[A, B] y)
<int64 zero = {0}, int64 one = {1}> {
    sizes = Shape(x)
    rank = Size(sizes)
    places = Range(zero, rank, one)
    target = Gather(sizes, places)
    bent = Reshape(x, target)
    y = Tanh(bent)
}"""
STATIC = """<ir_version: 10, opset_import: ["": 21]> g (float[6, 4] x) => (float[A, B] y) <float power = {1.0}> {
    sizes = Shape(x)
    wide = Cast<to = 1>(sizes)
    raised = Pow(wide, power)
    target = Cast<to = 7>(raised)
    bent = Reshape(x, target)
    y = Tanh(bent)
}"""
FOREIGN = """<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]> g (float[N, 4] x) => (float[A, B] y) {
    odd = com.microsoft.FastGelu(x)
    turned = Transpose(odd)
    y = Tanh(turned)
}"""


def graph_of(text: str) -> Graph:
    return clean_up(view(text))


def shapes(graph: Graph) -> dict[str | None, tuple[Dimension, ...] | None]:
    return {value.name: dimensions(value) for node in graph.nodes for value in node.op.outputs}


def says(*specs: TensorSpec) -> dict[str, TensorSpec]:
    return {spec.name: spec for spec in specs}


def spec(name: str, *shape: int | None, dtype: ir.DataType | None = None) -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=shape)


def test_rank_that_inference_gives_up_on_comes_from_the_source() -> None:
    graph = graph_of(GIVEN_UP)
    assert (lacks_types(graph), shapes(graph)["bent"]) == (True, None)

    completed = complete_shapes(graph, lambda _: says(spec("bent", None, 4)))

    assert shapes(completed)["bent"] == (None, 4)
    assert not lacks_types(completed)


def test_what_follows_from_a_completed_type_is_inferred() -> None:
    completed = complete_shapes(graph_of(FOREIGN), lambda _: says(spec("odd", 6, 4, dtype=ir.DataType.FLOAT)))

    assert shapes(completed)["turned"] == (4, 6)
    assert [value.dtype for node in completed.nodes for value in node.op.outputs] == [ir.DataType.FLOAT] * 3


def test_source_is_not_asked_where_nothing_is_unknown() -> None:
    graph = graph_of(GIVEN_UP.replace("target = Gather(sizes, places)", "target = Identity(sizes)"))

    assert complete_shapes(graph, lambda _: pytest.fail("it was asked")) is graph


def test_source_that_knows_nothing_changes_nothing() -> None:
    graph = graph_of(GIVEN_UP)

    assert complete_shapes(graph, lambda _: {}) is graph


def test_sizes_that_vary_with_the_request_stay_unknown() -> None:
    graph = graph_of(GIVEN_UP)

    assert [value.name for value in incomplete_values(graph)] == ["bent"]


def test_unknown_size_of_a_model_with_fixed_inputs_comes_from_the_source_but_outputs_stay_as_declared() -> None:
    graph = graph_of(STATIC)
    assert shapes(graph)["bent"] != (6, 4)

    completed = complete_shapes(graph, lambda _: says(spec("bent", 6, 4), spec("y", 6, 4)))

    assert shapes(completed)["bent"] == (6, 4)
    assert [dimensions(value) for value in completed.outputs] == [("A", "B")]


def test_source_that_contradicts_the_rules_of_onnx_is_left_out() -> None:
    wrong = says(spec("odd", 6, 4, dtype=ir.DataType.FLOAT), spec("turned", 9, 9, 9, dtype=ir.DataType.INT32))

    completed = complete_shapes(graph_of(FOREIGN), lambda _: wrong)

    assert shapes(completed)["turned"] == (4, 6)
    assert completed.nodes[1].op.outputs[0].dtype == ir.DataType.FLOAT


@pytest.mark.parametrize(
    ("text", "shape", "native", "written"),
    [
        pytest.param(GIVEN_UP, (None, 4), False, None, id="rank-of-a-library"),
        pytest.param(GIVEN_UP, (None, 4), True, [0, 4], id="rank-of-native-execution"),
        pytest.param(STATIC, (6, 4), False, [0, 0], id="sizes-of-a-library"),
        pytest.param(STATIC, (6, 4), True, [6, 4], id="sizes-of-native-execution"),
    ],
)
def test_shape_of_a_library_is_not_written_into_models_that_run_natively(
    text: str, shape: tuple[int | None, ...], native: bool, written: list[int] | None
) -> None:
    graph = complete_shapes(graph_of(text), lambda _: says(spec("bent", *shape)), native=native)

    for model in (
        embed_engines(graph, [], {}),
        extract_model(graph, graph.nodes, inputs=graph.inputs, outputs=graph.outputs),
    ):
        (kind,) = [value.type.tensor_type for value in model.graph.value_info if value.name == "bent"]
        assert ([dim.dim_value for dim in kind.shape.dim] if kind.HasField("shape") else None) == written


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("text", [GIVEN_UP, STATIC, FOREIGN], ids=["rank", "sizes", "types"])
def test_no_source_changes_what_inference_knows(text: str, seed: int) -> None:
    rng = random.Random(seed)
    graph = graph_of(text)
    known = {v.name: (v.dtype, dimensions(v)) for node in graph.nodes for v in node.op.outputs}
    told = says(*(spec(name or "", *rng.choices([None, 1, 4, 6, 9], k=rng.randrange(4))) for name in known))

    completed = complete_shapes(graph, lambda _: told)

    for value in (v for node in completed.nodes for v in node.op.outputs):
        dtype, shape = known[value.name]
        now = dimensions(value)
        assert dtype in (None, value.dtype)
        assert shape is None or (now is not None and len(now) == len(shape))
        assert shape is None or all(a == b for a, b in zip(shape, now or (), strict=True) if isinstance(a, int))


@pytest.mark.parametrize("opset", [18, 19, 20])
def test_a_deprecated_operator_has_an_unknown_shape(opset: int) -> None:
    graph = clean_up(
        view(
            f"""<ir_version: 8, opset_import: ["": {opset}]> g (float[1, 4, 3, 3] x) => (float[?,?,?,?] y)
            <float[2] s = {{1, 1}}, float[2] b = {{0, 0}}> {{
                a = GroupNormalization<num_groups = 2>(x, s, b)
                y = Tanh(a)
            }}"""
        )
    )
    spec = TensorSpec(name="a", dtype=ir.DataType.FLOAT, shape=(1, 4, 3, 3))

    completed = complete_shapes(graph, lambda _: {"a": spec}, native=True)

    assert dimensions(completed.nodes[0].op.outputs[0]) == (1, 4, 3, 3)
