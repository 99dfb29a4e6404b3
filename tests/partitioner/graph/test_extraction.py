"""Parts of a graph as standalone models."""

from __future__ import annotations

import pathlib

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_texts import clean, described, parse
from plain_runtime import assert_equal, passes_checker, run
from random_models import RANDOM_FEEDS, random_models
from stub_engine import embed
from trtnode.partitioner.cut.levels import earliest_levels
from trtnode.partitioner.cut.segments import values_leaving, values_read
from trtnode.partitioner.graph.extraction import extract_model, single_node_model
from trtnode.partitioner.graph.view import Graph, Node
from trtnode.partitioner.model.loading import load_model
from trtnode.partitioner.passes.clean_up import clean_up

MODEL = """<ir_version: 9, opset_import: ["": 17, "com.microsoft": 1]> net (float[N, 3] x, float[N, 3] z) =>
(float[N, 3] y) <float[3] w = {1, 2, 3}, float[3] v = {4, 5, 6}, float[N, 3] n> {
    a = Add(x, w)
    b = Mul(a, z)
    c = Add(b, w)
    n = com.microsoft.FastGelu(c)
    y = Add(n, v)
}"""


def part(graph: Graph, *names: str, keep_defaults: bool = False) -> onnx.ModelProto:
    """The nodes with these first outputs, with whatever goes in and out."""
    nodes = [node for node in graph.nodes if node.op.outputs[0].name in names]
    return extract_model(
        graph, nodes, inputs=values_read(nodes), outputs=values_leaving(graph, nodes), keep_defaults=keep_defaults
    )


def stages(graph: Graph, refused: tuple[str, ...]) -> list[list[Node]]:
    """Nodes in the order in which engines and native stages take turns."""
    inside = {node.name: node.op_type not in refused for node in graph.nodes}
    names = [node.name for node in graph.nodes]
    levels = dict(zip(names, earliest_levels(graph.topology, [inside[name] for name in names]), strict=True))
    turns = sorted({(levels[node.name], not inside[node.name]) for node in graph.nodes})
    return [[n for n in graph.nodes if (levels[n.name], not inside[n.name]) == turn] for turn in turns]


def test_a_part_has_the_names_types_and_opsets_of_its_source() -> None:
    model = part(clean(MODEL), "a", "b", "c")

    onnx.checker.check_model(model, full_check=True)
    assert model.graph.name == "net"
    assert model.ir_version == 9
    assert {o.domain: o.version for o in model.opset_import} == {"": 17, "com.microsoft": 1}
    assert [node.op_type for node in model.graph.node] == ["Add", "Mul", "Add"]
    assert described(model.graph.input) == ["%x[FLOAT, Nx3]", "%z[FLOAT, Nx3]"]
    assert described(model.graph.output) == ["%c[FLOAT, Nx3]"]
    assert described(model.graph.value_info) == ["%a[FLOAT, Nx3]", "%b[FLOAT, Nx3]"]


def test_inputs_and_outputs_are_in_the_order_asked_for() -> None:
    graph = clean(MODEL)
    values = {v.name: v for node in graph.nodes for v in (*node.reads, *node.op.outputs)}

    model = extract_model(graph, graph.nodes[:3], inputs=[values["z"], values["x"]], outputs=[values["c"], values["a"]])

    assert [v.name for v in model.graph.input] == ["z", "x"]
    assert [v.name for v in model.graph.output] == ["c", "a"]


@pytest.mark.parametrize(
    ("keep_defaults", "initializers"), [pytest.param(True, ["w"], id="kept"), pytest.param(False, [], id="dropped")]
)
def test_inputs_keep_their_defaults_only_where_asked(keep_defaults: bool, initializers: list[str]) -> None:
    graph = clean("""<ir_version: 8, opset_import: ["": 17]> g (float[3] x, float[3] w) => (float[3] y)
    <float[3] w = {1, 2, 3}> { y = Add(x, w) }""")

    model = part(graph, "y", keep_defaults=keep_defaults)

    assert [v.name for v in model.graph.input] == ["x", "w"]
    assert [t.name for t in model.graph.initializer] == initializers


def test_values_that_subgraphs_capture_come_along() -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17]> g (float[3] x, bool c) => (float[3] y)
    <float[3] w = {1, 2, 3}> {
        a = Relu(x)
        y = If (c) <
            then_branch = then () => (float[3] t) { t = Add(a, w) },
            else_branch = else () => (float[3] e) { e = Neg(a) }
        >
    }""")

    model = part(graph, "y")

    assert [v.name for v in model.graph.input] == ["c", "a"]
    assert [t.name for t in model.graph.initializer] == ["w"]
    assert_equal(run(model, {"c": np.array(True), "a": np.ones(3, np.float32)}), [np.float32([2, 3, 4])])


def test_functions_that_nodes_and_their_subgraphs_call_come_along() -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17, "f": 1]> g (float[3] x, bool c) => (float[3] y) {
        a = Relu(x)
        b = f.unneeded(a)
        y = If (c) <
            then_branch = then () => (float[3] t) { t = f.outer(b) },
            else_branch = else () => (float[3] e) { e = Neg(b) }
        >
    }
    <domain: "f", opset_import: ["": 11]> unneeded (v) => (w) { w = Neg(v) }
    <domain: "f", opset_import: ["": 11, "f": 1]> outer (v) => (w) { w = f.inner(v) }
    <domain: "f", opset_import: ["": 11]> inner (v) => (w) { w = Abs(v) }""")

    assert {f.name for f in part(graph, "y").functions} == {"outer", "inner"}
    assert {f.name for f in part(graph, "b").functions} == {"unneeded"}
    assert not part(graph, "a").functions


def test_functions_of_trtnodes_stay_out() -> None:
    compiled = clean(embed(clean(MODEL)))

    model = extract_model(compiled, compiled.nodes, inputs=compiled.inputs, outputs=compiled.outputs)

    assert [node.op_type for node in model.graph.node] == ["TrtNode", "FastGelu", "TrtNode"]
    assert not model.functions


def test_external_data_comes_inside(tmp_path: pathlib.Path) -> None:
    proto = parse(MODEL.replace("com.microsoft.FastGelu", "Relu"))
    for tensor in proto.graph.initializer:
        tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor), tensor.name))
    onnx.save_model(proto, tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    graph = clean_up(load_model(tmp_path / "m.onnx"))

    model = part(graph, "a", "b", "c")

    assert all(t.data_location == onnx.TensorProto.DEFAULT for t in model.graph.initializer)
    ones = np.ones((1, 3), np.float32)
    assert_equal(run(model, {"x": ones, "z": ones}), [np.float32([[3, 5, 7]])])


def test_one_node_becomes_a_model_whose_inputs_are_all_given() -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y)
    <float most = {2}> { y = Clip(x, , most) }""")

    model = single_node_model(graph.nodes[0].op)

    onnx.checker.check_model(model, full_check=True)
    assert [v.name for v in model.graph.input] == ["x", "most"]
    assert_equal(run(model, {"x": np.float32([1, 2, 3]), "most": np.array(2, np.float32)}), [np.float32([1, 2, 2])])


@settings(max_examples=30, derandomize=True)
@given(data=st.data())
def test_stages_of_random_models_compute_what_the_whole_model_does(data: st.DataObject) -> None:
    source = parse(data.draw(random_models(12)))
    graph = clean(source)
    known = {**RANDOM_FEEDS, **{name: v.const_value.numpy() for name, v in graph.model.graph.initializers.items()}}

    for nodes in stages(graph, ("Neg", "If")):
        model = extract_model(graph, nodes, inputs=values_read(nodes), outputs=values_leaving(graph, nodes))
        assert passes_checker(model)
        results = run(model, {v.name: known[v.name] for v in model.graph.input})
        known |= zip((v.name for v in model.graph.output), results, strict=True)

    assert_equal([known[v.name] for v in graph.outputs], run(source, RANDOM_FEEDS))
