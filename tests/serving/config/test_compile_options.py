"""The keys of a model that say how it is compiled."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable

import pytest

from trtnode.engines.backends.shape_range import ShapeRange
from trtnode.engines.precision.accuracy_budget import AccuracyBudget
from trtnode.engines.precision.options import Calibration, PrecisionOptions
from trtnode.engines.precision.rules import PrecisionRule
from trtnode.serving.config.load import load_config
from trtnode.serving.errors import ConfigError
from trtnode.serving.models.loader import compile_options

MODEL = "models:\n- name: a\n  path: m.onnx\n"


def test_rewrites_are_left_out_by_name(write: Callable[[str | bytes], pathlib.Path]) -> None:
    path = write(MODEL + "  optimize: {mish: false, tanh: true}\n")

    assert compile_options(load_config(path, {}).models[0]).without_rewrites == ("mish",)


def test_an_unknown_rewrite_is_refused_with_those_that_there_are(write: Callable[[str | bytes], pathlib.Path]) -> None:
    path = write(MODEL + "  optimize: {mishh: false}\n")

    with pytest.raises(ConfigError, match=r"optimize\.mishh: is no rewrite; there are constant-if, .*, tanh"):
        load_config(path, {})


def test_precision_keys_become_options(write: Callable[[str | bytes], pathlib.Path], tmp_path: pathlib.Path) -> None:
    path = write(
        MODEL
        + """  precision: int8
  precision_rules: [{node: "/head/*", precision: fp32}, {op: Softmax, precision: bf16}]
  calibration: {data: calibration.npz, method: minmax, samples: 50, allow_few_samples: true}
  budget: {min_top1_agreement: 0.9, metric: "evaluation:margin"}
"""
    )

    options = compile_options(load_config(path, {}).models[0]).precision

    assert options == PrecisionOptions(
        asked="int8",
        rules=(PrecisionRule(node="/head/*", precision="fp32"), PrecisionRule(op="Softmax", precision="bf16")),
        calibration=Calibration(data=str(tmp_path / "calibration.npz"), method="minmax", samples=50, allow_few=True),
        budget=AccuracyBudget(min_cosine=None, min_top1_agreement=0.9, metric="evaluation:margin"),
    )


def test_without_limits_the_budget_is_the_default_one(write: Callable[[str | bytes], pathlib.Path]) -> None:
    options = compile_options(load_config(write(MODEL + "  precision: fp16\n  budget: {}"), {}).models[0])

    assert options.precision.budget == AccuracyBudget.of()


def test_calibration_data_may_come_from_a_function(write: Callable[[str | bytes], pathlib.Path]) -> None:
    model = load_config(write(MODEL + "  calibration: {data: 'samples.images:load'}"), {}).models[0]

    assert compile_options(model).precision.calibration.data == "samples.images:load"


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        ("  precision_rules: [{precision: fp32}]", "should have a key 'node' or 'op'"),
        ("  precision_rules: [{op: Add, precision: auto}]", "precision"),
        ("  budget: {min_cosine: 2}", "min_cosine"),
        ("  calibration: {methd: minmax}", "did you mean 'method'"),
    ],
)
def test_precision_keys_with_other_values_are_refused(
    write: Callable[[str | bytes], pathlib.Path], extra: str, text: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        load_config(write(MODEL + extra), {})


def test_tuning_can_be_asked_for(write: Callable[[str | bytes], pathlib.Path]) -> None:
    models = load_config(write(MODEL + "  tune: true\n"), {}).models

    assert compile_options(models[0]).tune


def test_initializers_become_constants_where_the_file_says_so(write: Callable[[str], pathlib.Path]) -> None:
    plain, frozen = write(MODEL), "  partition: {freeze_initializers: true}\n"
    without = compile_options(load_config(plain, {}).models[0])

    given = compile_options(load_config(write(MODEL + frozen), {}).models[0])

    assert (without.partition.freeze_initializers, given.partition.freeze_initializers) == (False, True)


def test_values_of_inputs_that_hold_sizes_stand_among_the_shapes(write: Callable[[str], pathlib.Path]) -> None:
    path = write(MODEL + "  shapes: [{starts: {values: true, min: [-8], opt: [-1], max: [0]}}]\n")

    (profile,) = compile_options(load_config(path, {}).models[0]).shapes

    assert profile["starts"] == ShapeRange(low=(-8,), best=(-1,), high=(0,), values=True)
