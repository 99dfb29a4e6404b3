"""The keys of a model that say how it is compiled."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable

import pytest

import offered_engines
from trtnode.engines.backends.shape_range import ShapeRange
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.precision.options import AccuracyBudget, Calibration, PrecisionRule
from trtnode.serving.config.load import load_config
from trtnode.serving.errors import ConfigError

MODEL = "models:\n- name: a\n  path: m.onnx\n"


def test_rewrites_are_left_out_by_name(write: Callable[[str | bytes], pathlib.Path]) -> None:
    path = write(MODEL + "  no_optimize: [branches]\n")

    assert load_config(path, {}).models[0].options.no_optimize == ("branches",)


def test_an_unknown_rewrite_is_refused_with_those_that_there_are(write: Callable[[str | bytes], pathlib.Path]) -> None:
    path = write(MODEL + "  no_optimize: [mishh]\n")

    with pytest.raises(ConfigError, match=r"no_optimize\[0\]: is no rewrite; there are constant-if, .*, reshapes"):
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

    options = load_config(path, {}).models[0].options

    assert options == CompileOptions(
        precision="int8",
        precision_rules=(
            PrecisionRule(node="/head/*", precision="fp32"),
            PrecisionRule(op="Softmax", precision="bf16"),
        ),
        calibration=Calibration(
            data=str(tmp_path / "calibration.npz"), method="minmax", samples=50, allow_few_samples=True
        ),
        budget=AccuracyBudget(min_top1_agreement=0.9, metric="evaluation:margin"),
    )


def test_without_limits_the_budget_is_the_default_one(write: Callable[[str | bytes], pathlib.Path]) -> None:
    options = load_config(write(MODEL + "  precision: fp16\n  budget: {}"), {}).models[0].options

    assert options.budget == AccuracyBudget()


def test_calibration_data_may_come_from_a_function(write: Callable[[str | bytes], pathlib.Path]) -> None:
    model = load_config(write(MODEL + "  calibration: {data: 'samples.images:load'}"), {}).models[0]

    assert model.options.calibration.data == "samples.images:load"


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


def test_initializers_become_constants_where_the_file_says_so(write: Callable[[str], pathlib.Path]) -> None:
    plain, frozen = write(MODEL), "  partition: {freeze_initializers: true}\n"
    without = load_config(plain, {}).models[0].options

    given = load_config(write(MODEL + frozen), {}).models[0].options

    assert (without.partition.freeze_initializers, given.partition.freeze_initializers) == (False, True)


def test_values_of_inputs_that_hold_sizes_stand_among_the_shapes(write: Callable[[str], pathlib.Path]) -> None:
    path = write(MODEL + "  shapes: [{starts: {values: true, min: [-8], opt: [-1], max: [0]}}]\n")

    (profile,) = load_config(path, {}).models[0].options.shapes

    assert profile["starts"] == ShapeRange(min=(-8,), opt=(-1,), max=(0,), values=True)


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        ("  no_optimise: []", "servable.yaml:4: models[0].no_optimise: unknown key; did you mean 'no_optimize'?"),
        ("  options: {measure: true}", "models[0]: has no key 'options'; write its keys in the model itself"),
        ("  warmup: 1000000000", "models[0].warmup: should be less than or equal to 10000"),
        ("  batching: {max_batch_size: 4000000}", "max_batch_size: should be less than or equal to 65536"),
        ("  build_timeout_s: .inf", "models[0].build_timeout_s: should be a finite number, not Infinity"),
        (f"  threads: {'9' * 5000}", "models[0].threads: a number of 5000 digits is too large; write a smaller one"),
    ],
)
def test_values_beyond_any_use_are_one_sentence(
    write: Callable[[str | bytes], pathlib.Path], extra: str, sentence: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        load_config(write(MODEL + extra), {})

    assert sentence in str(refusal.value)
    assert len(str(refusal.value)) < 500


def test_an_engine_of_another_package_is_named_like_any_other_and_never_allowed_unsigned(
    write: Callable[[str | bytes], pathlib.Path], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = offered_engines.install(monkeypatch, tmp_path, "slow_engine", "slow")

    model = load_config(write(MODEL + "  engine: slow\n"), {}).models[0]
    with pytest.raises(ConfigError, match="allow_unsigned"):
        load_config(write(MODEL + "trust: {allow_unsigned: [slow]}\n"), {})
    offered_engines.forget_engines()

    assert model.options.engine == "slow"
    assert not imported.exists()
