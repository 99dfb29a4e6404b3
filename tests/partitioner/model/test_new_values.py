"""Values that are written into a graph get names that nothing in it has."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from model_texts import parse
from trtnode.partitioner.model.new_values import NewNames, add_constant, new_names
from trtnode.partitioner.passes.rewrites.apply import RewriteOptions, rewrite_model


def test_a_name_that_is_free_is_taken_as_it_is_wanted() -> None:
    names = NewNames(["a", None, "a_2"])

    assert [names("b"), names("b"), names("a")] == ["b", "b_2", "a_3"]


def test_names_inside_of_branches_are_taken_too() -> None:
    model = parse(
        '<ir_version: 8, opset_import: ["": 18]> g (bool c, float[2] x) => (float[2] y) { y = If(c)'
        " <then_branch = t () => (float[2] inner) { inner = Relu(x) },"
        " else_branch = e () => (float[2] other) { other = Neg(x) }> }"
    )
    graph = ir.from_proto(model).graph

    names = [add_constant(graph, wanted, np.zeros(2)).name for wanted in ("inner", "x", "new", "new")]

    assert names == ["inner_2", "x_2", "new", "new_2"]
    assert new_names(graph)("new") == "new_3"


def test_a_model_that_has_the_names_of_a_rewrite_is_rewritten_all_the_same() -> None:
    """As one that this program wrote before."""
    model = parse(
        '<ir_version: 8, opset_import: ["": 20]> g (float[1,1,2,2] x, float[2] z) => (float[1,1,2,2] y)'
        " <float[1,1,1,1] w = {2}> { a = Conv(x, w) y = Add(a, x) }"
    )
    model.graph.input[1].name = "y/merged_constant"
    work = ir.from_proto(model)

    assert [one.rule for one in rewrite_model(work, RewriteOptions(engine="native"))] == ["branches"]
    assert "y/merged_constant_2" in work.graph.initializers
