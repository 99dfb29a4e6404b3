"""The compiled model: its schema, and that it computes what its source does in a runtime that knows no TrtNode."""

from __future__ import annotations

import hashlib

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edited_models import attribute
from model_cases import Case
from model_texts import clean, described, parse
from plain_runtime import assert_equal, passes_checker, run
from random_models import RANDOM_FEEDS, random_models
from stub_engine import embed, partition
from trtnode.partitioner.compiled.trtnode import (
    EmbeddedEngine,
    embed_engines,
    embedded_engine,
    is_trtnode,
    segment_hash,
)
from trtnode.partitioner.errors import CompiledModelError
from trtnode.partitioner.graph.view import Graph

MODEL = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> net (float[N, 3] x, float[N, 3] unused) =>
(float[N, 3] y, float[N, 3] c) <float[3] w = {1, 2, 3}, float[3] v = {4, 5, 6}, float[N, 3] n> {
    a = Add(x, w)
    b = Mul(a, v)
    c = Add(b, w)
    n = com.microsoft.FastGelu(a)
    y = Add(n, v)
}"""

ENGINE = EmbeddedEngine(envelope='{"a": 1}', engine=b"\x00\xffengine")


@pytest.fixture
def compiled() -> onnx.ModelProto:
    graph = clean(MODEL)
    segments = partition(graph).segments
    sidecar = EmbeddedEngine(envelope="{}", engine_file="engines/1.bin")
    return embed_engines(graph, segments, {"segment_0": ENGINE, "segment_1": sidecar})


def test_a_segment_is_one_node_of_our_domain(compiled: onnx.ModelProto) -> None:
    first, gelu, second = compiled.graph.node

    assert [(n.domain, n.op_type, n.overload, n.name) for n in (first, second)] == [
        ("ai.trtnode", "TrtNode", "segment_0", "segment_0"),
        ("ai.trtnode", "TrtNode", "segment_1", "segment_1"),
    ]
    assert gelu.op_type == "FastGelu"
    assert {o.domain: o.version for o in compiled.opset_import} == {"": 17, "com.microsoft": 1, "ai.trtnode": 1}


def test_the_inputs_of_a_trtnode_are_the_data_and_then_the_initializers(compiled: onnx.ModelProto) -> None:
    first, _, second = compiled.graph.node

    assert list(first.input) == ["x", "w", "v"]
    assert list(first.output) == ["a", "c"]
    assert list(second.input) == ["n", "v"]
    assert list(second.output) == ["y"]


def test_the_engine_is_a_tensor_of_bytes(compiled: onnx.ModelProto) -> None:
    engine = attribute(compiled.graph.node[0], "engine")

    assert engine.type == onnx.AttributeProto.TENSOR
    assert engine.t.data_type == onnx.TensorProto.UINT8
    assert list(engine.t.dims) == [8]
    assert engine.t.raw_data == ENGINE.engine


def test_a_trtnode_may_hold_the_path_of_a_sidecar(compiled: onnx.ModelProto) -> None:
    node = compiled.graph.node[2]

    assert {a.name for a in node.attribute} == {"engine_file", "envelope"}
    assert attribute(node, "engine_file").type == onnx.AttributeProto.STRING
    assert attribute(node, "engine_file").s == b"engines/1.bin"


def test_the_envelope_is_a_string(compiled: onnx.ModelProto) -> None:
    envelope = attribute(compiled.graph.node[0], "envelope")

    assert envelope.type == onnx.AttributeProto.STRING
    assert envelope.s == b'{"a": 1}'


def test_a_function_of_the_same_name_holds_the_nodes(compiled: onnx.ModelProto) -> None:
    first, second = compiled.functions

    assert [(f.domain, f.name, f.overload) for f in compiled.functions] == [
        ("ai.trtnode", "TrtNode", "segment_0"),
        ("ai.trtnode", "TrtNode", "segment_1"),
    ]
    assert [n.op_type for n in first.node] == ["Add", "Mul", "Add"]
    assert list(first.input) == list(compiled.graph.node[0].input)
    assert list(first.output) == list(compiled.graph.node[0].output)
    assert [n.op_type for n in second.node] == ["Add"]


def test_a_function_imports_the_domains_that_it_uses_and_no_other(compiled: onnx.ModelProto) -> None:
    assert [[(o.domain, o.version) for o in f.opset_import] for f in compiled.functions] == [[("", 17)], [("", 17)]]


@pytest.mark.parametrize("domain", [pytest.param("", id="short"), pytest.param("ai.onnx", id="long")])
def test_both_names_of_the_onnx_domain_are_imported_as_one(domain: str) -> None:
    source = f"""<ir_version: 10, opset_import: ["{domain}": 17]> g (float[3] x) => (float[3] y) {{
        y = {domain}{"." if domain else ""}Relu(x)
    }}"""

    compiled = embed(clean(source))

    assert [(o.domain, o.version) for o in compiled.functions[0].opset_import] == [("", 17)]
    assert_equal(run(compiled, {"x": np.float32([-1, 0, 1])}), [np.float32([0, 0, 1])])


def test_boundary_tensors_have_types(compiled: onnx.ModelProto) -> None:
    assert described(compiled.graph.value_info) == ["%n[FLOAT, Nx3]", "%a[FLOAT, Nx3]"]


def test_types_of_native_results_are_kept() -> None:
    compiled = embed(
        clean("""<ir_version: 8, opset_import: ["": 17]> g (float[3] x) => (float[3] y) {
            a = Neg(x)
            b = Neg(a)
            y = Relu(b)
        }"""),
        "Neg",
    )

    assert [v.name for v in compiled.graph.value_info] == ["a", "b"]


@pytest.mark.parametrize(("before", "after"), [(3, 10), (8, 10), (10, 10), (11, 11)])
def test_the_ir_version_is_raised_to_the_first_with_overloads(before: int, after: int) -> None:
    source = f"""<ir_version: {before}, opset_import: ["": 9]> g (float[3] x) => (float[3] y) {{ y = Relu(x) }}"""

    assert embed(clean(source)).ir_version == after


def test_inputs_outputs_and_initializers_stay(compiled: onnx.ModelProto) -> None:
    assert described(compiled.graph.input) == ["%x[FLOAT, Nx3]", "%unused[FLOAT, Nx3]"]
    assert described(compiled.graph.output) == ["%y[FLOAT, Nx3]", "%c[FLOAT, Nx3]"]
    assert [t.name for t in compiled.graph.initializer] == ["w", "v"]


def test_names_documentation_and_metadata_stay() -> None:
    source = parse(MODEL)
    source.graph.doc_string = "Adds."
    source.metadata_props.add(key="author", value="somebody")

    compiled = embed(clean(source))

    assert (compiled.graph.name, compiled.graph.doc_string) == ("net", "Adds.")
    assert {p.key: p.value for p in compiled.metadata_props} == {"author": "somebody"}


def test_a_compiled_model_can_be_read_again(compiled: onnx.ModelProto) -> None:
    model = ir.from_proto(compiled)

    first, _, second = model.graph
    assert [is_trtnode(op) for op in model.graph] == [True, False, True]
    assert embedded_engine(first) == ENGINE
    assert embedded_engine(second) == EmbeddedEngine(envelope="{}", engine_file="engines/1.bin")
    assert onnx.printer.to_text(compiled)


@pytest.mark.parametrize(
    ("attributes", "problem"),
    [
        pytest.param({"engine_file": "e"}, "it has no envelope", id="no-envelope"),
        pytest.param({"envelope": "{}"}, "it has neither an engine nor the path of a sidecar", id="no-engine"),
        pytest.param({"envelope": 1, "engine_file": "e"}, "an attribute has the wrong type", id="envelope-is-a-number"),
        pytest.param({"envelope": "{}", "engine": b"x"}, "an attribute has the wrong type", id="engine-is-a-string"),
        pytest.param({"envelope": "{}", "engine": 1}, "an attribute has the wrong type", id="engine-is-a-number"),
        pytest.param({"envelope": "{}", "engine_file": 2.0}, "an attribute has the wrong type", id="path-is-a-number"),
    ],
)
def test_a_trtnode_that_can_not_be_read_is_an_error(attributes: dict[str, str | bytes | float], problem: str) -> None:
    node = onnx.helper.make_node("TrtNode", ["x"], ["y"], domain="ai.trtnode", overload="segment_7", **attributes)
    op = ir.serde.deserialize_node(node)

    with pytest.raises(CompiledModelError, match=f"TrtNode 'segment_7': {problem}.*Compile the model again"):
        embedded_engine(op)


@pytest.mark.parametrize(
    ("domain", "op_type", "expected"),
    [("ai.trtnode", "TrtNode", True), ("", "TrtNode", False), ("ai.trtnode", "Relu", False)],
)
def test_a_trtnode_is_known_by_domain_and_type(domain: str, op_type: str, expected: bool) -> None:
    assert is_trtnode(ir.Node(domain, op_type, [])) is expected


def test_nodes_that_segments_read_from_stand_before_them(case: Case) -> None:
    compiled = embed(clean(case.model), *case.native)

    known = {"", *(v.name for v in compiled.graph.input), *(t.name for t in compiled.graph.initializer)}
    for node in compiled.graph.node:
        assert known.issuperset(node.input)
        known.update(node.output)


def test_answers_are_those_of_the_source(case: Case) -> None:
    source = parse(case.model)

    compiled = embed(clean(source), *case.native)

    assert_equal(run(compiled, case.feeds), run(source, case.feeds))
    assert passes_checker(compiled) or not passes_checker(source)


@settings(max_examples=60, derandomize=True)
@given(data=st.data())
def test_answers_of_random_models_are_those_of_the_source(data: st.DataObject) -> None:
    source = parse(data.draw(random_models(12)))

    compiled = embed(clean(source), "Neg", "If")

    assert_equal(run(compiled, RANDOM_FEEDS), run(source, RANDOM_FEEDS))
    assert passes_checker(compiled)


def test_a_model_without_segments_is_the_clean_source() -> None:
    compiled = embed_engines(clean(MODEL), [], {})

    assert [n.op_type for n in compiled.graph.node] == ["Add", "Mul", "Add", "FastGelu", "Add"]
    assert not compiled.functions


def hashes(graph: Graph) -> list[str]:
    return [segment_hash(graph, segment) for segment in partition(graph).segments]


def test_a_segment_hash_is_that_of_its_function_and_weights(compiled: onnx.ModelProto) -> None:
    graph = clean(MODEL)
    function = compiled.functions[0].SerializeToString(deterministic=True)
    weights = b"FLOAT[3]" + np.float32([1, 2, 3]).tobytes() + b"FLOAT[3]" + np.float32([4, 5, 6]).tobytes()

    assert hashes(graph)[0] == hashlib.sha256(function + weights).hexdigest()


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        pytest.param("", "", [False, False], id="nothing"),
        pytest.param("w = {1,", "w = {7,", [True, False], id="weights-of-the-first"),
        pytest.param("v = {4,", "v = {7,", [True, True], id="weights-of-both"),
        pytest.param("Mul(a, v)", "Div(a, v)", [True, False], id="operator"),
        pytest.param('"": 17', '"": 16', [True, True], id="opset"),
        pytest.param("net (", "other (", [False, False], id="name-of-the-graph"),
    ],
)
def test_a_segment_hash_changes_with_what_the_segment_computes(old: str, new: str, changed: list[bool]) -> None:
    before = hashes(clean(MODEL))

    after = hashes(clean(MODEL.replace(old, new)))

    assert [one != other for one, other in zip(before, after, strict=True)] == changed
