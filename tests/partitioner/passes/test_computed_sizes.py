"""Constants that are measured without being computed."""

from __future__ import annotations

import pathlib

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from benchmarks.attacks import bombs
from model_texts import parse
from trtnode.partitioner.errors import ModelFileError
from trtnode.partitioner.model.loading import load_model, view_model
from trtnode.partitioner.passes.clean_up import clean_up
from trtnode.partitioner.passes.computed_sizes import check_computed_sizes
from trtnode.partitioner.passes.shape_inference import propagates_little

MODEL = pathlib.Path("model.onnx")
COMPUTED = ("texts", "concats", "constant-of-shape", "expand", "tile", "range", "pad", "products", "random")


def check(model: onnx.ModelProto) -> None:
    check_computed_sizes(view_model(model, MODEL), MODEL)


@pytest.mark.parametrize("bomb", COMPUTED)
def test_a_model_that_computes_a_huge_constant_is_refused(bomb: str) -> None:
    with pytest.raises(ModelFileError, match=r"computes a constant of shape .* may take 1073741824 bytes"):
        check(bombs.BOMBS[bomb]())


@pytest.mark.parametrize("name", ["s", "f"], ids=["in-a-subgraph", "in-a-function"])
def test_a_huge_constant_is_found_wherever_it_is(name: str) -> None:
    fill = "n = Constant<value = int64[1] {1099511627776}>() w = ConstantOfShape(n)"
    texts = {
        "s": f"""g (bool c, float[1] x) => (float[M] y) {{ y = If(c) <then_branch = t () => (float[M] w) {{ {fill} }},
            else_branch = e () => (float[M] b) {{ b = Identity(x) }}> }}""",
        "f": f"""g (float[1] x) => (float[M] y) {{ y = f.fill(x) }}
            <domain: "f", opset_import: ["": 18]> fill (x) => (y) {{ {fill} y = Add(x, w) }}""",
    }
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18, "f": 1]> {texts[name]}')

    with pytest.raises(ModelFileError, match=r"ConstantOfShape.* computes a constant"):
        check(model)


def test_constants_are_counted_together() -> None:
    fills = "".join(f"w{i} = ConstantOfShape(n) y{i} = Add(x, w{i})" for i in range(5))
    shape = "n = Constant<value = int64[2] {8192, 8192}>()"
    outputs = ", ".join(f"float[M, N] y{i}" for i in range(5))

    with pytest.raises(ModelFileError, match=r"shape \[8192, 8192\]"):
        check(parse(f"{bombs.HEADER} g (float[1] x) => ({outputs}) {{ {shape} {fills} }}"))


def test_constants_in_proportion_are_accepted_and_the_model_stays_as_it_was() -> None:
    fill = "n = Constant<value = int64[1] {1000}>() w = ConstantOfShape(n)"
    model = view_model(parse(f"{bombs.HEADER} g (float[1] x) => (float[M] y) {{ {fill} y = Add(x, w) }}"), MODEL)

    check_computed_sizes(model, MODEL)

    assert [op.op_type for op in model.graph] == ["Constant", "ConstantOfShape", "Add"]


def test_sizes_that_follow_from_inputs_are_none_of_constants() -> None:
    check(parse(f"{bombs.HEADER} g (float[1] x, int64[1] s) => (float[M] y) {{ y = Expand(x, s) }}"))


@pytest.mark.parametrize("bomb", ["concats", "shape"])
def test_shapes_that_grow_without_measure_are_left_unknown_and_the_rest_is_inferred(bomb: str) -> None:
    proto = bombs.BOMBS["concats"]() if bomb == "concats" else bombs.doubling_concats_of_a_shape()
    model = view_model(proto, MODEL)

    graph = clean_up(model)

    assert not propagates_little(model)
    assert graph.nodes[0].op.outputs[0].dtype == ir.DataType.INT64


def test_a_chain_of_concats_of_features_is_no_growth_of_shapes(tmp_path: pathlib.Path) -> None:
    blocks = "".join(f"b{i} = Conv(a{i}, w{i}) a{i + 1} = Concat<axis = 1>(a{i}, b{i})" for i in range(40))
    model = parse(f"{bombs.HEADER} g (float[N, 1, 8, 8] a0) => (float[N, C, 8, 8] a40) {{ {blocks} }}")
    for index in range(40):
        weight = np.zeros((1, index + 1, 1, 1), np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, f"w{index}"))
    path = tmp_path / "model.onnx"
    onnx.save(model, path)

    graph = clean_up(load_model(path))

    shape = graph.nodes[-1].op.outputs[0].shape
    assert shape is not None
    assert list(shape)[1:] == [41, 8, 8]
