"""Labels of nodes, and the reasons that the user reads."""

from __future__ import annotations

import onnx
import pytest

from model_cases import Case
from model_texts import clean
from stub_engine import refusing
from trtnode.partitioner.cut.labels import SUPPORTED, ReasonCode, Verdict, label_nodes, without_constant_islands
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.errors import UnknownOptionError
from trtnode.partitioner.graph.view import Node

CHAIN = """<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y) {
    [body_relu] a = Relu(x)
    [body_neg] b = Neg(a)
    [head_relu] y = Relu(b)
}"""


def codes(labels: dict[str, Verdict]) -> dict[str, str | None]:
    return {name: verdict.code for name, verdict in labels.items()}


def take_all(_: Node) -> Verdict:
    return SUPPORTED


@pytest.mark.parametrize(
    ("options", "native", "detail"),
    [
        pytest.param({"native_ops": ("Neg",)}, ["body_neg"], "native_ops lists Neg.", id="native-ops"),
        pytest.param({"engine_ops": ("Relu",)}, ["body_neg"], "engine_ops does not list Neg.", id="engine-ops"),
        pytest.param(
            {"native_nodes": ("body_*",)},
            ["body_relu", "body_neg"],
            "native_nodes has 'body_*', which matches it.",
            id="native-nodes",
        ),
        pytest.param({"native_nodes": ("nowhere_*",)}, [], "", id="a-glob-may-match-nothing"),
        pytest.param({"native_nodes": ("BODY_*",)}, [], "", id="globs-know-upper-case"),
        pytest.param({"engine_ops": ()}, [], "", id="an-empty-list-takes-all"),
        pytest.param(
            {"native_ops": ("Neg",), "engine_ops": ("Neg", "Relu")}, ["body_neg"], "native_ops", id="native-wins"
        ),
    ],
)
def test_the_user_decides_first(options: dict[str, tuple[str, ...]], native: list[str], detail: str) -> None:
    labels = label_nodes(clean(CHAIN), take_all, PartitionOptions(**options))

    assert [name for name, verdict in labels.items() if not verdict.supported] == native
    assert all(labels[name].code == ReasonCode.USER_EXCLUDED for name in native)
    assert all(detail in labels[name].detail for name in native)


@pytest.mark.parametrize("option", ["native_ops", "engine_ops"])
def test_an_operator_that_nobody_knows_is_an_error(option: str) -> None:
    options = PartitionOptions(**{option: ("Reul",)})

    with pytest.raises(UnknownOptionError, match=f"{option}: 'Reul' matches nothing .* the operators Neg, Relu"):
        label_nodes(clean(CHAIN), take_all, options)


@pytest.mark.parametrize("option", ["native_ops", "engine_ops"])
def test_an_operator_that_only_onnx_or_only_the_model_has_is_none(option: str) -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17, "mine": 1]> g (float[3] x) => (float[3] y) {
        y = mine.Special(x)
    }""")

    label_nodes(graph, take_all, PartitionOptions(**{option: ("Special", "Conv")}))


def test_the_backend_has_the_last_word() -> None:
    labels = label_nodes(clean(CHAIN), refusing("Neg"), PartitionOptions())

    assert codes(labels) == {"body_relu": None, "body_neg": ReasonCode.UNSUPPORTED_OP, "head_relu": None}


def test_the_backend_is_not_asked_about_what_no_engine_takes() -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17, "mine": 1]> g (float[3] x) => (float[3] y) {
        a = mine.Special(x)
        y = Relu(a)
    }""")
    asked = []

    label_nodes(graph, lambda node: asked.append(node.op_type) or SUPPORTED, PartitionOptions())

    assert asked == []


NO_ENGINE = {
    "foreign-domain": (
        "float[3] y",
        "y = com.microsoft.FastGelu(x)",
        "FOREIGN_DOMAIN",
        "FastGelu belongs to domain 'com.microsoft', not to ONNX.",
    ),
    "control-flow": (
        "float[3] y",
        """y = If (c) <
            then_branch = then () => (float[3] t) { t = Relu(x) },
            else_branch = else () => (float[3] e) { e = com.microsoft.FastGelu(x) }
        >""",
        "CONTROL_FLOW",
        "In a subgraph, 'If:y/FastGelu:e' runs natively: FastGelu belongs to domain 'com.microsoft', not to ONNX.",
    ),
    "replaceable-default": (
        "float[3] y",
        "y = Add(x, w)",
        "UNSUPPORTED_INPUT",
        "A request may replace 'w', which is an initializer and a graph input. Make it a constant with",
    ),
    "sequence-out": ("seq(float[3]) y", "y = SequenceConstruct(x, x)", "UNSUPPORTED_DTYPE", "'y' is a sequence, not a"),
    "sequence-in": (
        "float[6] y",
        "s = mine.Sequence(x)\ny = ConcatFromSequence<axis = 0>(s)",
        "UNSUPPORTED_DTYPE",
        "'s' is a sequence, not a tensor.",
    ),
    "optional": ("bool y", "o = mine.Optional(x)\ny = OptionalHasElement(o)", "UNSUPPORTED_DTYPE", "'o' is a optional"),
    "unknown-type": ("float[3] y", "a = mine.Special(x)\ny = Relu(a)", "UNKNOWN_SHAPE", "The type of 'a' can't be"),
    "unknown-rank": ("float[3] y", "r = mine.Ranked(x)\ny = Relu(r)", "UNKNOWN_SHAPE", "The rank of 'r' can't be"),
    "no-such-operator": ("float[3] y", "y = Gelu(x)", "UNSUPPORTED_OP", "ONNX opset 17 has no operator Gelu."),
}


@pytest.mark.parametrize(
    ("output", "body", "code", "detail"), [pytest.param(*case, id=name) for name, case in NO_ENGINE.items()]
)
def test_a_node_that_no_engine_takes_is_native_for_a_reason(output: str, body: str, code: str, detail: str) -> None:
    graph = clean(f"""<ir_version: 10, opset_import: ["": 17, "com.microsoft": 1, "mine": 1]>
    g (float[3] x, float[3] w, bool c) => ({output})
    <float[3] w = {{1, 2, 3}}, seq(float[3]) s, optional(float[3]) o, float[] r> {{ {body} }}""")

    labels = label_nodes(graph, take_all, PartitionOptions())

    verdict = labels[graph.nodes[-1].name]
    assert verdict.code == code
    assert verdict.detail.startswith(detail)


def test_an_operator_newer_than_the_opset_has_no_schema_there() -> None:
    model = """<ir_version: 8, opset_import: ["": 16]> g (float[2, 3] x) => (float[2, 3] y)
    <float[3] scale = {1, 2, 3}> { y = LayerNormalization(x, scale) }"""

    labels = label_nodes(clean(model), take_all, PartitionOptions())

    assert list(codes(labels).values()) == [ReasonCode.UNSUPPORTED_OP]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("y = Clip(x, , most)", id="an-input-left-empty"),
        pytest.param("y, mask = Dropout(x)", id="an-output-nobody-reads"),
        pytest.param("y = Add(x, w)", id="an-initializer"),
    ],
)
def test_values_left_out_or_constant_are_no_obstacle(body: str) -> None:
    graph = clean(f"""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y)
    <float most = {{1}}, float[3] w = {{1, 2, 3}}> {{ {body} }}""")

    labels = label_nodes(graph, take_all, PartitionOptions())

    assert list(codes(labels).values()) == [None]


def test_symbolic_dimensions_are_no_obstacle() -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17]> g (float[N, ?] x) => (float[N, M] y) { y = Relu(x) }""")

    labels = label_nodes(graph, take_all, PartitionOptions())

    assert list(codes(labels).values()) == [None]


@pytest.mark.parametrize(
    ("body", "native"),
    [
        pytest.param("a = Exp(w)\ny = Neg(a)", ["Exp:a", "Neg:y"], id="nothing-depends-on-a-request"),
        pytest.param("a = Exp(w)\nb = Neg(a)\ny = Add(b, x)", [], id="an-engine-node-reads-it"),
        pytest.param("a = Exp(w)\nb = Exp(a)\ny = Div(b, x)", ["Exp:a", "Exp:b", "Div:y"], id="a-native-one-reads-it"),
        pytest.param("a = Exp(w)\nb = Div(a, x)\ny = Add(a, b)", ["Div:b"], id="both-do"),
        pytest.param("a = Exp(w)\nb = Exp(a)\nc = Div(b, x)\ny = Add(a, c)", ["Exp:b", "Div:c"], id="a-part-of-it"),
    ],
)
def test_nodes_of_constants_alone_run_once_natively_unless_an_engine_reads_them(body: str, native: list[str]) -> None:
    graph = clean(f"""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y)
    <float[3] w = {{1, 2, 3}}> {{ {body} }}""")
    labels = label_nodes(graph, refusing("Div"), PartitionOptions())

    labels = without_constant_islands(graph, labels)

    assert [name for name, verdict in labels.items() if not verdict.supported] == native
    islands = [labels[name] for name in native if "Div" not in name]
    assert all(verdict.code == ReasonCode.UNSUPPORTED_INPUT for verdict in islands)
    assert all("runs once, when the model is loaded" in verdict.detail for verdict in islands)


def test_a_label_says_whether_the_engine_takes_the_node() -> None:
    assert SUPPORTED.supported
    assert not Verdict(ReasonCode.TOO_SMALL, "It is.").supported


def test_every_refusal_in_the_collection_of_models_is_a_sentence(case: Case) -> None:
    labels = label_nodes(clean(case.model), take_all, PartitionOptions(native_ops=case.native))

    refusals = [verdict for verdict in labels.values() if not verdict.supported]
    assert all(verdict.detail.endswith(".") for verdict in refusals)


def test_every_operator_name_that_options_accept_is_checked_against_onnx() -> None:
    newest = max(onnx.defs.get_all_schemas(), key=lambda schema: schema.since_version).name

    label_nodes(clean(CHAIN), take_all, PartitionOptions(native_ops=(newest,)))


BODIES = """<ir_version: 10, opset_import: ["": 17]> g (float[3] x, bool c, int64 n) => (float[3] y) {
    a = Relu(x)
    [choice] y = If (c) <
        then_branch = then () => (float[3] t) {
            k = Constant<value = float[3] {1, 2, 3}>()
            u = Add(a, k)
            t = If (c) <
                then_branch = inner () => (float[3] i) { i = Abs(u) },
                else_branch = other () => (float[3] o) { [deep] o = Exp(u) }
            >
        },
        else_branch = else () => (float[3] e) { e = Abs(x) }
    >
}"""


def test_a_node_is_taken_with_its_subgraphs_where_every_node_in_them_is() -> None:
    labels = label_nodes(clean(BODIES), take_all, PartitionOptions())

    assert labels["choice"].supported


def test_one_native_node_deep_inside_keeps_the_node_with_the_subgraph_out() -> None:
    labels = label_nodes(clean(BODIES), refusing("Exp"), PartitionOptions())

    assert labels["choice"].code == "CONTROL_FLOW"
    assert labels["choice"].detail.startswith("In a subgraph, 'choice/If:t/deep' runs natively: ")


def test_nodes_of_subgraphs_are_excluded_by_their_whole_identity() -> None:
    labels = label_nodes(clean(BODIES), take_all, PartitionOptions(native_nodes=("choice/*/deep",)))

    assert labels["choice"].code == "CONTROL_FLOW"


def test_a_backend_that_takes_no_control_flow_is_believed() -> None:
    labels = label_nodes(clean(BODIES), refusing("If"), PartitionOptions())

    assert labels["choice"].code == "UNSUPPORTED_OP"
