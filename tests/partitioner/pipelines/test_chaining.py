"""Stages and a model become one model: pairs of outputs and inputs, names, and misfits."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from plain_runtime import passes_checker, run
from trtnode.partitioner.compiled.trtnode import embed_engines as write
from trtnode.partitioner.errors import ModelFileError, PipelineError
from trtnode.partitioner.graph.view import Graph, TensorSpec, describe
from trtnode.partitioner.pipelines.blocks import Block, Cast, ChangeLayout, Normalize, Softmax, TopK
from trtnode.partitioner.pipelines.chaining import DEFAULT_SOURCE, Source, Stage, chain_stages
from trtnode.partitioner.pipelines.stage_models import KeyPath

HEAD = '<ir_version: 10, opset_import: ["": 18]>'
DOUBLE = "g (float[N, 3] x) => (float[N, 3] y) <float two = {2}> { y = Mul(x, two) }"
ADD = "g (float[N, 3] a, float[N, 3] b) => (float[N, 3] sum) { sum = Add(a, b) }"
X = np.array([[1, 2, 3]], np.float32)

WriteFile = Callable[..., pathlib.Path]
Step = Block | Source | pathlib.Path | tuple[Block | Source, str]
"""The step of a stage, alone or with its tensor."""


@pytest.fixture
def file(tmp_path: pathlib.Path) -> WriteFile:
    """Write a model from its text."""

    def write_file(text: str, head: str = HEAD) -> pathlib.Path:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.onnx"
        onnx.save(onnx.parser.parse_model(head + text), path)
        return path

    return write_file


def stages(key: str, *steps: Step) -> list[Stage]:
    pairs = [step if isinstance(step, tuple) else (step, None) for step in steps]
    return [Stage(place=(key, n), step=step, tensor=tensor) for n, (step, tensor) in enumerate(pairs)]


def interface(model: ir.Model) -> tuple[dict[str, str], dict[str, str]]:
    ports = (model.graph.inputs, model.graph.outputs)
    inputs, outputs = ({v.name or "": describe(TensorSpec.of(v)) for v in values} for values in ports)
    return inputs, outputs


def proto(model: ir.Model) -> onnx.ModelProto:
    return write(Graph.of(model), (), {})


def test_files_meet_by_position_and_run_in_order(file: WriteFile) -> None:
    plus = file("g (float[M, 3] in) => (float[M, 3] out) <float one = {1}> { out = Add(in, one) }")

    model = chain_stages(file(DOUBLE), stages("preprocess", plus), stages("postprocess", plus))

    assert interface(model) == ({"in": "float32[N, 3]"}, {"out": "float32[N, 3]"})
    assert passes_checker(proto(model))
    np.testing.assert_array_equal(run(proto(model), {"in": X})[0], (X + 1) * 2 + 1)


def test_files_meet_by_name_and_pass_on_what_they_do_not_take(file: WriteFile) -> None:
    split = file("g (float[M, 3] raw) => (float[M, 3] kept, float[M, 3] b) { kept = Neg(raw) b = Abs(raw) }")
    join = file("g (float[M, 3] sum, float[M, 3] kept) => (float[M, 3] out) { out = Mul(sum, kept) }")

    model = chain_stages(file(ADD), stages("preprocess", split), stages("postprocess", join))

    assert interface(model) == ({"raw": "float32[N, 3]", "a": "float32[N, 3]"}, {"out": "float32[N, 3]"})
    np.testing.assert_array_equal(run(proto(model), {"raw": -X, "a": X})[0], 2 * X * X)


def test_a_block_keeps_the_name_of_its_tensor_and_the_model_keeps_its_own(file: WriteFile) -> None:
    model = chain_stages(
        file(DOUBLE), stages("preprocess", Source(ir.DataType.INT32, (None, 3)), Cast(ir.DataType.FLOAT)), []
    )

    assert interface(model) == ({"x": "int32[N, 3]"}, {"y": "float32[N, 3]"})
    assert {"two"} <= set(model.graph.initializers)
    np.testing.assert_array_equal(run(proto(model), {"x": X.astype(np.int32)})[0], X * 2)


def test_sizes_that_only_the_model_knows_are_those_of_the_whole(file: WriteFile) -> None:
    source = file("g (float[1, 3, 8, W] image) => (float[1, 3, 8, W] y) { y = Relu(image) }")

    model = chain_stages(source, stages("preprocess", Normalize(1.0, (0.0,), (1.0,)), ChangeLayout("nchw")), [])

    assert interface(model)[0] == {"image": "uint8[1, 8, W, 3]"}


def test_sizes_that_only_a_stage_knows_are_those_of_the_model(file: WriteFile) -> None:
    source = file("g (uint8[N, H, W, 3] image) => (uint8[N, H, W, 3] y) { y = Identity(image) }")

    model = chain_stages(source, stages("preprocess", Source(ir.DataType.UINT8, (None, 8, 6, 3))), [])

    assert interface(model) == ({"image": "uint8[N, 8, 6, 3]"}, {"y": "uint8[N, 8, 6, 3]"})


def test_each_input_of_a_model_may_have_stages(file: WriteFile) -> None:
    ints = Source(ir.DataType.INT32, (None, 3))
    before = stages("preprocess", (ints, "b"), (Cast(ir.DataType.FLOAT), "b"))

    model = chain_stages(file(ADD), before, [])

    assert interface(model)[0] == {"b": "int32[N, 3]", "a": "float32[N, 3]"}
    np.testing.assert_array_equal(run(proto(model), {"a": X, "b": X.astype(np.int32)})[0], 2 * X)


def test_outputs_that_no_stage_takes_stay_outputs(file: WriteFile) -> None:
    two = file("g (float[N, 3] x) => (float[N, 3] logits, float[N, 3] extra) { logits = Neg(x) extra = Abs(x) }")

    model = chain_stages(two, [], stages("postprocess", (Softmax(), "logits"), (TopK(1), "probabilities")))

    extra, _, labels = run(proto(model), {"x": X})
    assert list(interface(model)[1]) == ["extra", "scores", "labels"]
    assert (extra.tolist(), labels.tolist()) == (X.tolist(), [[0]])


def test_names_inside_make_way_for_those_of_outputs(file: WriteFile) -> None:
    source = file("g (float[N, 3] x) => (float[N, 3] y) { scores = Neg(x) y = Neg(scores) }")

    model = chain_stages(source, [], stages("postprocess", TopK(1)))

    assert [v.tolist() for v in run(proto(model), {"x": X})] == [[[3]], [[2]]]


def test_values_of_subgraphs_follow_when_stages_are_renamed(file: WriteFile) -> None:
    text = """g (float[N, 3] x, bool up) => (float[N, 3] y) <float one = {1}> {
        y = If (up) <then_branch = t () => (float[N, 3] r) { r = Add(x, one) },
                     else_branch = e () => (float[N, 3] s) { s = Sub(x, one) }>
    }"""

    model = chain_stages(file(DOUBLE), stages("preprocess", file(text)), stages("postprocess", file(DOUBLE)))

    np.testing.assert_array_equal(run(proto(model), {"x": X, "up": np.array(True)})[0], (X + 1) * 4)


def test_a_stage_may_hand_on_its_input_or_a_constant(file: WriteFile) -> None:
    stage = file("g (float[N, 3] p) => (float[N, 3] p, float[3] w) <float[3] w = {1, 2, 3}> { }")

    model = chain_stages(file(DOUBLE), [], stages("postprocess", stage))

    np.testing.assert_array_equal(run(proto(model), {"x": X})[0], X * 2)


def test_functions_of_stages_are_inlined(file: WriteFile) -> None:
    text = """<ir_version: 10, opset_import: ["": 18, "mine": 1]> g (float[N, 3] p) => (float[N, 3] q) { q = mine.f(p) }
    <domain: "mine", opset_import: ["": 18]> f (a) => (b) { b = Neg(a) }"""

    model = chain_stages(file(text, head=""), stages("preprocess", file(text, head="")), [])

    np.testing.assert_array_equal(run(proto(model), {"p": X})[0], X)


def test_external_data_of_each_stage_is_found(file: WriteFile, tmp_path: pathlib.Path) -> None:
    for name in ("main", "stage"):
        (tmp_path / name).mkdir()
        text = "g (float[N, 3] x) => (float[N, 3] y) <float[3] w = {1, 2, 3}> { y = Add(x, w) }"
        source = onnx.parser.parse_model(HEAD + text)
        source.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(X[0], "w"))
        onnx.save(source, tmp_path / name / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)

    model = chain_stages(tmp_path / "main" / "m.onnx", stages("preprocess", tmp_path / "stage" / "m.onnx"), [])

    np.testing.assert_array_equal(run(proto(model), {"x": X})[0], 3 * X)


@pytest.mark.parametrize(("main", "stage"), [(11, 18), (18, 11), (17, 17)])
def test_all_comes_to_the_newest_opset(file: WriteFile, main: int, stage: int) -> None:
    text = "g (float[N, 3] x) => (float[N, 3] y) { y = Softmax<axis = 1>(x) }"  # another default before opset 13
    head = '<ir_version: 7, opset_import: ["": {}]>'
    files = [file(text, head.replace("{}", str(opset))) for opset in (main, stage)]

    model = chain_stages(files[0], stages("preprocess", files[1]), [])

    once = np.exp(X) / np.exp(X).sum()
    assert model.opset_imports[""] == max(main, stage)
    np.testing.assert_allclose(run(proto(model), {"x": X})[0], np.exp(once) / np.exp(once).sum(), rtol=1e-6)


def test_before_ir_version_4_initializers_listed_as_inputs_are_constants(file: WriteFile) -> None:
    old = file("g (float[N, 3] x, float[3] w) => (float[N, 3] y) <float[3] w = {1, 2, 3}> { y = Add(x, w) }",
               '<ir_version: 3, opset_import: ["": 11]>')  # fmt: skip

    model = chain_stages(old, [], stages("postprocess", Softmax()))

    assert interface(model)[0] == {"x": "float32[N, 3]"}


def refused(main: pathlib.Path, before: list[Stage], after: list[Stage]) -> tuple[tuple[str | int, ...], str]:
    with pytest.raises(PipelineError) as caught:
        chain_stages(main, before, after)
    return caught.value.place, caught.value.problem


def test_types_that_do_not_fit_are_refused(file: WriteFile) -> None:
    place, problem = refused(file(DOUBLE), stages("preprocess", Source(ir.DataType.INT32, (None, 3))), [])

    assert place == ("preprocess", 0)
    assert problem == "gives int32[x.axis0, 3], but 'x' takes float32[N, 3]; add {cast: float32}"


def test_shapes_that_do_not_fit_are_refused(file: WriteFile) -> None:
    main = file("g (float[N, 3, 8, 8] x) => (float[N, 3, 8, 8] y) { y = Relu(x) }")
    before = stages("preprocess", Source(ir.DataType.UINT8, (None, 8, 8, 3)), Normalize(1.0, (0.0,), (1.0,)))

    place, problem = refused(main, before, [])

    assert place == ("preprocess", 1)
    assert problem == "gives float32[x.batch, 8, 8, 3], but 'x' takes float32[N, 3, 8, 8]; add {layout: nchw}"


def test_a_file_that_does_not_fit_is_the_one_at_fault(file: WriteFile) -> None:
    wide = file("g (float[M, 4] p) => (float[M, 4] q) { q = Relu(p) }")

    place, problem = refused(file(DOUBLE), [], stages("postprocess", Cast(ir.DataType.FLOAT), wide))

    assert place == ("postprocess", 1)
    assert problem == "gives float32[N, 3], but 'p' takes float32[postprocess.1/M, 4]"


def test_tensors_that_can_not_be_told_apart_are_refused(file: WriteFile) -> None:
    place, problem = refused(file(ADD), stages("preprocess", file(DOUBLE)), [])
    assert (place, problem) == (
        ("preprocess", 0),
        "gives 'y', but what follows takes 'a', 'b'; give them the same names",
    )


@pytest.mark.parametrize(
    ("before", "after", "place", "problem"),
    [
        ([Cast(ir.DataType.FLOAT)], [], ("preprocess", 0), "which of 'a', 'b' is it for? Add the key tensor"),
        ([(Cast(ir.DataType.FLOAT), "c")], [], ("preprocess", 0), "there is no tensor 'c' here, only 'a', 'b'"),
        ([], [(Softmax(), "c")], ("postprocess", 0), "there is no tensor 'c' here, only 'sum'"),
        (
            [(Source(ir.DataType.FLOAT, (None, 3)), "a"), (Source(ir.DataType.FLOAT, (None, 3)), "a")],
            [],
            ("preprocess", 1),
            "must stand before all other stages of 'a'",
        ),
        (
            [(Source(ir.DataType.FLOAT, (None, 3)), "a"), (Cast(ir.DataType.FLOAT), "b"), (DEFAULT_SOURCE, "b")],
            [],
            ("preprocess", 2),
            "must stand before all other stages of 'b'",
        ),
    ],
)
def test_a_stage_must_be_for_one_tensor(
    file: WriteFile, before: list[Step], after: list[Step], place: KeyPath, problem: str
) -> None:
    found = refused(file(ADD), stages("preprocess", *before), stages("postprocess", *after))

    assert found[0] == place
    assert found[1].startswith(problem)


def test_two_versions_of_one_domain_are_refused(file: WriteFile) -> None:
    head = '<ir_version: 10, opset_import: ["": 18, "mine": {}]>'
    files = [file(DOUBLE, head.replace("{}", version)) for version in "12"]

    place, problem = refused(files[0], [], stages("postprocess", files[1]))

    assert place == ("postprocess", 0)
    assert problem.startswith("needs version 2 of the operators of 'mine', another stage or the model version 1")


def test_functions_of_one_name_are_refused(file: WriteFile) -> None:
    text = """<ir_version: 10, opset_import: ["": 18, "mine": 1]> g (float[N, 3] p) => (float[N, 3] q) { q = mine.f(p) }
    <domain: "mine", opset_import: ["": 17]> f (a) => (b) { b = Neg(a) }"""

    place, problem = refused(file(text, head=""), [], stages("postprocess", file(text, head="")))

    assert (place, problem) == (("postprocess", 0), "its function 'f' has the name of another one; rename it")


def test_an_input_and_an_output_of_one_name_are_refused(file: WriteFile) -> None:
    stage = file("g (float[N, 3] y) => (float[N, 3] z) { z = Neg(y) }")

    _, problem = refused(file(DOUBLE), stages("preprocess", stage), [])

    assert problem == "the pipeline has an input and an output 'y'; rename one in its file"


def test_a_stage_that_is_no_model_is_refused(file: WriteFile, tmp_path: pathlib.Path) -> None:
    (tmp_path / "text.onnx").write_text("hello")

    place, problem = refused(file(DOUBLE), stages("preprocess", tmp_path / "text.onnx"), [])
    missing = refused(file(DOUBLE), [], stages("postprocess", tmp_path / "gone.onnx"))

    assert (place, "not an ONNX file" in problem) == (("preprocess", 0), True)
    assert (missing[0], "can't be read" in missing[1]) == (("postprocess", 0), True)


def test_a_model_that_can_not_be_read_is_not_the_pipelines_fault(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ModelFileError):
        chain_stages(tmp_path / "gone.onnx", [], stages("postprocess", Softmax()))


def test_compiled_models_are_refused(file: WriteFile) -> None:
    compiled = file(
        """<ir_version: 10, opset_import: ["": 18, "ai.trtnode": 1]>
        g (float[N, 3] x) => (float[N, 3] y) { y = ai.trtnode.TrtNode(x) }
        <domain: "ai.trtnode", opset_import: ["": 18]> TrtNode (a) => (b) { b = Neg(a) }""",
        head="",
    )

    place, problem = refused(compiled, [], stages("postprocess", Softmax()))

    assert (place, "is compiled already" in problem) == (("path",), True)


def test_a_model_that_can_not_be_raised_is_told_how_to_be_exported(file: WriteFile) -> None:
    text = "g (float[N, 3] x) => (float[N, 5] y) { y = Pad<paddings = [0, 1, 0, 1]>(x) }"
    old = file(text, '<ir_version: 3, opset_import: ["": 1]>')

    place, problem = refused(old, [], stages("postprocess", Softmax()))

    assert place == ("path",)
    assert problem.startswith("can't be raised from opset 1 to the pipeline's, 11 (")
    assert problem.endswith("; export it for opset 11")
