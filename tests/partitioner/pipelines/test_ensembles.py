"""Steps of an ensemble become one graph: order, shared weights, opsets, and misfits."""

from __future__ import annotations

import pathlib
import random
from collections.abc import Callable, Mapping

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from plain_runtime import passes_checker, run
from trtnode.partitioner.compiled.trtnode import embed_engines
from trtnode.partitioner.errors import PipelineError
from trtnode.partitioner.graph.view import STEPS, Graph, TensorSpec, describe
from trtnode.partitioner.pipelines.ensembles import Step, merge_steps
from trtnode.partitioner.pipelines.stage_models import load_stage

NEW = '<ir_version: 10, opset_import: ["": 18]>'
OLD = '<ir_version: 8, opset_import: ["": 11]>'
DOUBLE = "g (float[N, 3] x) => (float[N, 3] y) <float two = {2}> { y = Mul(x, two) }"
ADD = "g (float[N, 3] a, float[N, 3] b) => (float[N, 3] sum) { sum = Add(a, b) }"
SPLIT = """g (float[N, 3] x) => (float[N, 3] less, float[N, 3] more) <float one = {1}> {
    less = Sub(x, one)
    more = Add(x, one)
}"""
X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)

Make = Callable[..., Step]


@pytest.fixture
def step(tmp_path: pathlib.Path) -> Make:
    """Make a step of a model's text. Equal texts are one file."""
    texts: list[str] = []
    places: list[int] = []

    def make(
        text: str, inputs: Mapping[str, str], outputs: Mapping[str, str], name: str = "m", head: str = NEW
    ) -> Step:
        if head + text not in texts:
            texts.append(head + text)
            onnx.save(onnx.parser.parse_model(head + text), tmp_path / f"{len(texts) - 1}.onnx")
        file = tmp_path / f"{texts.index(head + text)}.onnx"
        place = ("ensemble", len(places))
        places.append(len(places))
        return Step(place=place, name=name, model=load_stage(file, place), file=file, inputs=inputs, outputs=outputs)

    return make


def proto(model: ir.Model) -> onnx.ModelProto:
    written = embed_engines(Graph.of(model), (), {})
    assert passes_checker(written)
    return written


def ports(model: ir.Model) -> tuple[dict[str, str], dict[str, str]]:
    sides = (model.graph.inputs, model.graph.outputs)
    inputs, outputs = ({v.name or "": describe(TensorSpec.of(v)) for v in values} for values in sides)
    return inputs, outputs


def test_steps_are_ordered_by_their_tensors(step: Make) -> None:
    last = step(ADD, {"a": "left", "b": "right"}, {"sum": "out"}, "join")
    first = step(SPLIT, {"x": "in"}, {"less": "left", "more": "middle"}, "split")
    between = step(DOUBLE, {"x": "middle"}, {"y": "right"}, "double")

    model = merge_steps([last, first, between])

    assert ports(model) == ({"in": "float32[split/N, 3]"}, {"out": "float32[split/N, 3]"})
    assert model.metadata_props[STEPS] == "split,double,join"
    np.testing.assert_array_equal(run(proto(model), {"in": X})[0], (X - 1) + (X + 1) * 2)


def test_a_model_that_is_used_twice_has_its_weights_once(step: Make) -> None:
    weights = "{" + ",".join("1" for _ in range(9)) + "}"
    text = f"g (float[N, 3] x) => (float[N, 3] y) <float[3, 3] w = {weights}> {{ y = MatMul(x, w) }}"

    model = merge_steps([step(text, {"x": "a"}, {"y": "b"}), step(text, {"x": "b"}, {"y": "c"})])

    assert [value.name for value in model.graph.initializers.values()] == ["m/w"]
    assert [node.name for node in model.graph] == ["m/MatMul:y", "m_2/MatMul:y"]
    np.testing.assert_array_equal(run(proto(model), {"a": X})[0], X @ np.ones((3, 3)) @ np.ones((3, 3)))


def test_outputs_that_nobody_asks_for_go_with_their_nodes_and_weights(step: Make) -> None:

    model = merge_steps(
        [step(SPLIT, {"x": "x"}, {"less": "y", "more": "z"}), step(DOUBLE, {"x": "z"}, {"y": "w"})], (), ["y"]
    )

    assert [node.op_type for node in model.graph] == ["Sub"]
    assert list(model.graph.initializers) == ["m/one"]


def test_models_of_old_opsets_are_raised_to_the_newest(step: Make) -> None:
    squeeze = "g (float[1, N, 3] x) => (float[N, 3] y) { y = Squeeze<axes = [0]>(x) }"

    model = merge_steps([step(squeeze, {"x": "x"}, {"y": "y"}, head=OLD), step(DOUBLE, {"x": "y"}, {"y": "z"})])

    assert model.opset_imports[""] == 18
    np.testing.assert_array_equal(run(proto(model), {"x": X[None]})[0], 2 * X)


def test_a_tensor_may_go_to_several_steps_and_be_an_output_of_one_that_hands_its_input_on(step: Make) -> None:
    passing = "g (float[N, 3] p) => (float[N, 3] p, float[3] w) <float[3] w = {1, 2, 3}> { }"
    steps = [
        step(passing, {"p": "x"}, {"p": "same", "w": "w"}),
        step(ADD, {"a": "x", "b": "same"}, {"sum": "sum"}),
    ]

    model = merge_steps(steps, (), ["same", "w", "sum"])

    same, weights, total = run(proto(model), {"x": X})
    np.testing.assert_array_equal(same, X)
    np.testing.assert_array_equal(weights, [1, 2, 3])
    np.testing.assert_array_equal(total, 2 * X)


def test_only_nodes_of_ensembles_have_steps(step: Make) -> None:
    slashed = load_stage(step(DOUBLE, {}, {}).file, ("path",))
    slashed.graph[0].name = "/model/Mul"

    model = merge_steps([step(DOUBLE, {"x": "x"}, {"y": "y"})])

    assert Graph.of(slashed).steps == {}
    assert Graph.of(model).steps == {"m/Mul:y": "m"}


def test_one_value_may_be_two_outputs(step: Make) -> None:
    passing = "g (float[N, 3] p) => (float[N, 3] p) { }"
    steps = [step(DOUBLE, {"x": "x"}, {"y": "y"}), step(passing, {"p": "y"}, {"p": "z"})]

    model = merge_steps(steps, (), ["y", "z"])

    assert [value.tolist() for value in run(proto(model), {"x": X})] == [(2 * X).tolist()] * 2


@pytest.mark.parametrize("seed", range(12))
def test_random_ensembles_answer_as_their_steps(step: Make, seed: int) -> None:
    draw = random.Random(seed)
    tensors, steps = {"in": X, "in2": X + 1}, []
    for number in range(draw.randint(2, 9)):
        a, b = draw.choice(list(tensors)), draw.choice(list(tensors))
        less, more = f"less{number}", f"more{number}"
        match draw.choice("ads"):
            case "a":
                steps.append(step(ADD, {"a": a, "b": b}, {"sum": less}))
                tensors[less] = tensors[a] + tensors[b]
            case "d":
                steps.append(step(DOUBLE, {"x": a}, {"y": less}, head=draw.choice([OLD, NEW])))
                tensors[less] = tensors[a] * 2
            case "s":
                steps.append(step(SPLIT, {"x": a}, {"less": less, "more": more}))
                tensors |= {less: tensors[a] - 1, more: tensors[a] + 1}
    wanted = draw.sample([name for name in tensors if not name.startswith("in")], 2)
    draw.shuffle(steps)

    model = merge_steps(steps, ["in", "in2"], wanted)

    feeds = {value.name or "": tensors[value.name or ""] for value in model.graph.inputs}
    for name, answer in zip(wanted, run(proto(model), feeds), strict=True):
        np.testing.assert_array_equal(answer, tensors[name])


def test_a_default_is_replaced_where_a_tensor_is_named_for_it(step: Make) -> None:
    text = "g (float[N, 3] x, float[1] k = {5}) => (float[N, 3] y) { y = Add(x, k) }"

    model = merge_steps([step(text, {"x": "x", "k": "k"}, {"y": "y"}), step(text, {"x": "y"}, {"y": "z"})])

    assert list(ports(model)[0]) == ["x", "k"]
    np.testing.assert_array_equal(run(proto(model), {"x": X, "k": np.array([1], np.float32)})[0], X + 6)


REFUSED = [
    pytest.param(
        [(DOUBLE, {"x": "b"}, {"y": "a"}), (DOUBLE, {"x": "a"}, {"y": "b"})],
        (),
        "ensemble[0]: steps wait for each other (m > m > m); take",
        id="circle",
    ),
    pytest.param([(DOUBLE, {"x": "a"}, {"y": "a"})], (), "ensemble[0]: steps wait for each other (m > m)", id="itself"),
    pytest.param(
        [(DOUBLE, {"x": "a"}, {"y": "b"}), (DOUBLE, {"x": "a"}, {"y": "b"})],
        (),
        "ensemble[1].outputs.y: 'b' is a tensor that 'm' gives, too; give it another name",
        id="given-twice",
    ),
    pytest.param(
        [(DOUBLE, {"x": "a"}, {"y": "b"})],
        ("a", "b"),
        "ensemble[0].outputs.y: 'b' is a tensor that requests bring, too",
        id="given-by-requests",
    ),
    pytest.param(
        [(DOUBLE, {"x": "a"}, {"y": "b"})],
        ("c",),
        "ensemble[0].inputs.x: there is no tensor 'a': no step gives it, and requests bring 'c'",
        id="given-by-nobody",
    ),
    pytest.param(
        [
            (DOUBLE, {"x": "a"}, {"y": "b"}),
            ("g (float[N, 4] x) => (float[N, 4] y) { y = Neg(x) }", {"x": "b"}, {"y": "c"}),
        ],
        (),
        "ensemble[1].inputs.x: takes float32[m_2/N, 4], and 'b' is float32[m/N, 3]",
        id="shape",
    ),
    pytest.param(
        [(DOUBLE, {"z": "a"}, {"y": "b"})], (), "ensemble[0].inputs.z: 'm' has no input 'z'; it has 'x'", id="no-input"
    ),
    pytest.param(
        [(DOUBLE, {"x": "a"}, {"z": "b"})],
        (),
        "ensemble[0].outputs.z: 'm' has no output 'z'; it has 'y'",
        id="no-output",
    ),
    pytest.param(
        [(ADD, {"a": "a"}, {"sum": "b"})],
        (),
        "ensemble[0].inputs: no tensor is named for the input 'b' of 'm'; add it",
        id="nothing-for-an-input",
    ),
]


@pytest.mark.parametrize(("steps", "inputs", "sentence"), REFUSED)
def test_what_does_not_fit_is_refused_with_its_place(
    step: Make, steps: list[tuple[str, dict[str, str], dict[str, str]]], inputs: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(PipelineError) as refused:
        merge_steps([step(*one) for one in steps], inputs)

    assert sentence in str(refused.value)


def test_an_output_is_a_tensor_of_a_step(step: Make) -> None:
    with pytest.raises(PipelineError, match=r"interface\.outputs\.z: no step gives it; there are 'a', 'b'"):
        merge_steps([step(DOUBLE, {"x": "a"}, {"y": "b"})], (), ["z"])


def test_an_operator_that_no_converter_raises_is_refused(step: Make) -> None:
    pad = "g (float[N, 3] x) => (float[N, 5] y) { y = Pad<paddings = [0, 1, 0, 1]>(x) }"
    old = step(pad, {"x": "x"}, {"y": "y"}, head='<ir_version: 3, opset_import: ["": 1]>')

    with pytest.raises(PipelineError, match="can't be raised from opset 1 to the pipeline's, 18"):
        merge_steps([old, step(DOUBLE, {"x": "in"}, {"y": "out"})])
