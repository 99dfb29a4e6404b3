"""Lowering the versions that a model states."""

from __future__ import annotations

import pathlib

import onnx
import onnx_ir as ir
import pytest

from model_texts import parse
from trtnode.partitioner.model.loading import view_model
from trtnode.partitioner.model.opset_versions import VersionLimits, extends_operator, is_too_new, lower_versions
from trtnode.partitioner.passes.clean_up import clean_up

LIMITS = VersionLimits(opset=26, ir_version=13)


def model(text: str, *, opset: int = 28, ir_version: int = 14) -> ir.Model:
    proto = parse(text, opset=opset, ir_version=ir_version)
    return clean_up(view_model(proto, pathlib.Path("model.onnx"))).model


def test_a_model_of_operators_that_did_not_change_is_lowered() -> None:
    new = model("g (float[N] x) => (float[N] y) { y = Relu (x) }")

    assert is_too_new(new, LIMITS)
    assert lower_versions(new, LIMITS)

    assert (new.opset_imports[""], new.ir_version) == (26, 13)
    assert not is_too_new(new, LIMITS)


def test_a_model_within_the_limits_is_left_alone() -> None:
    old = model("g (float[N] x) => (float[N] y) { y = Relu (x) }", opset=18, ir_version=9)

    assert lower_versions(old, LIMITS)

    assert (old.opset_imports[""], old.ir_version) == (18, 9)


@pytest.mark.parametrize(
    ("text", "lowered"),
    [
        pytest.param("(float[N] x) => (int8[N] y) { y = Cast <to=3> (x) }", True, id="types-of-the-older-version"),
        pytest.param(
            "(bfloat16[2,2] x) => (bfloat16[2,2] y) { y = Einsum <equation='ij->ji'> (x) }", False, id="new-type"
        ),
        pytest.param("(float[N] x, float[N] y) => (float[N] z) { z = Mod <fmod=1> (x, y) }", True, id="reviewed"),
        pytest.param("(int32[N] x, int32[N] y) => (int32[N] z) { z = Mod (x, y) }", True, id="reviewed-by-type"),
        pytest.param("(float[N] x, float[N] y) => (float[N] z) { z = Mod (x, y) }", False, id="new-meaning"),
        pytest.param(
            "(uint8[N] x, uint8[N] y) => (uint8[N] z) { z = BitShift <direction='LEFT'> (x, y) }",
            False,
            id="other-text",
        ),
        pytest.param("(float[N] x, float[N] y) => (float[N] z) { z = SwiGLU (x, y) }", False, id="new-operator"),
    ],
)
def test_an_operator_is_lowered_only_where_it_means_the_same(text: str, lowered: bool) -> None:
    new = model(f"g {text}".replace("'", '"'))

    assert lower_versions(new, LIMITS) is lowered

    assert new.opset_imports[""] == (26 if lowered else 28)


def test_an_operator_in_a_subgraph_counts() -> None:
    new = model(
        """g (bool c, float x, float y) => (float z) {
            z = If (c) <then_branch = t () => (float a) { a = Mod (x, y) },
                        else_branch = e () => (float b) { b = Relu (x) }>
        }"""
    )

    assert not lower_versions(new, LIMITS)


def test_functions_are_lowered_with_the_model() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 14, opset_import: ["": 28, "own": 1]>
        g (float[N] x) => (float[N] y) { y = own.Twice (x) }
        <domain: "own", opset_import: ["": 27]> Twice (a) => (b) { b = Add (a, a) }"""
    )
    new = view_model(proto, pathlib.Path("model.onnx"))

    assert lower_versions(new, LIMITS)

    assert [f.opset_imports[""] for f in new.functions.values()] == [26]


@pytest.mark.parametrize(
    ("op_type", "newer", "older", "extends"),
    [
        pytest.param("MaxPool", 9, 7, True, id="an-output-more-that-may-be-left-out"),
        pytest.param("Pad", 24, 13, True, id="an-input-more-that-may-be-left-out"),
        pytest.param("PRelu", 9, 7, True, id="types-alone"),
        pytest.param("PRelu", 9, 6, False, id="other-slopes-behind-the-same-interface"),
        pytest.param("Squeeze", 13, 11, False, id="an-attribute-became-an-input"),
    ],
)
def test_a_newer_version_extends_an_older_one(op_type: str, newer: int, older: int, extends: bool) -> None:
    assert extends_operator(op_type, newer, older) == extends
