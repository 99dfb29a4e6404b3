"""An option of compilations is declared once: its key, its flags and its argument in Python are made of that."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import pathlib
import typing
from typing import Any

import pytest

import trtnode
from trtnode.engines.backends.build_options import TensorRtOptions
from trtnode.engines.backends.shape_range import ShapeRange
from trtnode.engines.build.options import EVERY_ENGINE, ChoiceOptions, CompileOptions, EngineOptions
from trtnode.engines.precision.options import AccuracyBudget, Calibration, PrecisionOptions, PrecisionRule
from trtnode.engines.tensorrt.builder import properties
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.options import Declared, choices_of, declared, each_option, made_of, without_none
from trtnode.serving.cli.arguments import COMPILE, EXPLAIN
from trtnode.serving.cli.command import Command
from trtnode.serving.cli.compile_flags import options_from
from trtnode.serving.cli.serve import SERVE
from trtnode.serving.models.isolation import key_of_loaded
from trtnode.serving.models.overrides import read_override
from trtnode.serving.schema.json_schema import config_schema
from trtnode.serving.schema.model import ModelConfig
from trtnode.serving.schema.server import LimitsConfig

DIGITS = pathlib.Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
OPTIONS = {".".join(map(str, path)): one for path, one in each_option(CompileOptions)}
GROUPS = [
    *(TensorRtOptions, PartitionOptions, Calibration, AccuracyBudget, PrecisionRule, ShapeRange),
    *(ChoiceOptions, EngineOptions, PrecisionOptions),
]
NEEDED = {COMPILE: ["m.onnx", "-o", "out.onnx"], EXPLAIN: ["m.onnx"], SERVE: ["m.onnx"]}


def parsed(command: Command, *flags: str) -> CompileOptions:
    parser = argparse.ArgumentParser()
    command.configure(parser)
    return options_from(parser.parse_args([*NEEDED[command], *flags]))


def served(**keys: Any) -> ModelConfig:
    return ModelConfig.model_validate({"name": "m", "path": str(DIGITS), **keys})


def other_value(one: Declared) -> tuple[Any, list[str]]:
    """Another value than the default, and its flags."""
    kind, flag = without_none(one.hint), f"--{one.name.replace('_', '-')}"
    element = typing.get_args(kind)[0] if typing.get_origin(kind) is tuple else kind
    if kind is bool:
        return (False, [f"--no-{flag[2:]}"]) if one.default else (True, [flag])
    if one.name == "shapes":
        return ({"x": ShapeRange(min=(1,), opt=(2,), max=(3,))},), [flag, "x:1,2,3"]
    if one.name == "precision_rules":
        return (PrecisionRule(op="Relu", precision="fp16"),), [flag, "op=Relu:fp16"]
    if one.name == "engine":
        return "openvino", [flag, "openvino"]
    if choices := one.option.choices or choices_of(element):
        text = next(choice for choice in choices if choice != one.default)
        return (text if kind is element else (text,)), [flag, text]
    value = {int: 4, float: 0.5 if one.option.most == 1 else 77.5, pathlib.Path: pathlib.Path("a.npz")}.get(
        element, "A"
    )
    return (value if kind is element else (value,)), [flag, str(value)]


def reached(options: object, path: str) -> Any:
    for step in path.split("."):
        options = getattr(options, step)
    return options


@pytest.mark.parametrize("path", OPTIONS)
def test_an_option_has_one_name_and_one_default_everywhere(path: str) -> None:
    one = OPTIONS[path]
    value, flags = other_value(one)
    *section, key = path.split(".")
    in_yaml: Any = [{"x": {"min": [1], "opt": [2], "max": [3]}}] if one.name == "shapes" else value
    in_yaml = [{"op": "Relu", "precision": "fp16"}] if one.name == "precision_rules" else in_yaml
    keys = {section[0]: {key: in_yaml}} if section else {key: in_yaml}

    in_python = made_of(CompileOptions, {one.name: value})

    assert reached(in_python, path) == value != one.default
    assert all(parsed(command, *flags) == in_python for command in NEEDED)
    assert served(**keys).options == in_python
    assert all(parsed(command) == CompileOptions() for command in NEEDED)
    assert served().options == CompileOptions()
    for function in (trtnode.compile, trtnode.explain):
        assert inspect.signature(function).parameters[one.name].default == one.default


@pytest.mark.parametrize("name", CompileOptions.gone)
def test_an_option_that_is_gone_is_taken_everywhere_and_logged(name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert made_of(CompileOptions, {name: True}) == CompileOptions()
    assert all(parsed(command, f"--{name}") == CompileOptions() for command in NEEDED)
    assert read_override(served(), f'{{"{name}": true}}', {}).config.options == CompileOptions()

    told = [record.message for record in caplog.records]
    assert [text.partition(" has no effect")[0] for text in told] == [name, *[f"--{name}"] * 3, f"config: {name}"]


@pytest.mark.parametrize("path", OPTIONS)
def test_a_server_compiles_anew_for_another_option(path: str) -> None:
    options = made_of(CompileOptions, {OPTIONS[path].name: other_value(OPTIONS[path])[0]})

    keys = {key_of_loaded(served(options=one), LimitsConfig(), None) for one in (options, CompileOptions())}

    assert len(keys) == 2


def test_a_server_compiles_anew_for_the_variable_that_keeps_all_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EVERY_ENGINE, "1")
    kept = key_of_loaded(served(), LimitsConfig(), None)
    monkeypatch.delenv(EVERY_ENGINE)

    assert key_of_loaded(served(), LimitsConfig(), None) != kept
    assert key_of_loaded(served(all_engines=True), LimitsConfig(), None) == kept


# Targets are in the key as the device.
@pytest.mark.parametrize(
    "one", [one for one in declared(TensorRtOptions) if one.name != "targets"], ids=lambda one: one.name
)
def test_an_engine_of_tensorrt_is_built_anew_for_another_option(one: Declared) -> None:
    changed = dataclasses.replace(TensorRtOptions(), **{one.field.name: other_value(one)[0]})

    assert properties(changed) != properties(TensorRtOptions())


@pytest.mark.parametrize("group", GROUPS, ids=lambda one: one.__name__)
def test_a_group_has_at_most_eight_options_each_with_help_and_bounds(group: type) -> None:
    options = declared(group)

    assert 1 <= len(options) <= 8
    for one in options:
        assert one.option.help.endswith(".")
        if without_none(one.hint) in (int, float):
            assert None not in (one.option.least, one.option.most)


def numbers_in(schema: Any, path: str = "") -> typing.Iterator[tuple[str, Any]]:
    if isinstance(schema, dict):
        if schema.get("type") in ("integer", "number") and "enum" not in schema and "const" not in schema:
            yield path, schema
        for key, value in schema.items():
            yield from numbers_in(value, f"{path}/{key}")
    elif isinstance(schema, list):
        for index, value in enumerate(schema):
            yield from numbers_in(value, f"{path}/{index}")


def test_every_number_of_servable_yaml_has_a_maximum() -> None:
    numbers = dict(numbers_in(config_schema()))

    assert len(numbers) > 50
    assert [path for path, schema in numbers.items() if "maximum" not in schema] == []


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"engine": "tensort"}, "engine: should be one of auto, openvino, "),
        ({"precision": "fp12"}, "precision: should be one of fp32, "),
        ({"native_ops": "Relu"}, "native_ops: should be a list, not 'Relu'."),
        ({"max_segments": 0}, "max_segments: should be a whole number from 1 up to 1000000000, not 0."),
        ({"build_timeout_s": float("nan")}, "build_timeout_s: should be a number from 0.1 up to 604800, not nan."),
        ({"targets": ["sm90"]}, "targets: should be one of sm75, "),
        ({"no_optimize": ["mishh"]}, "no_optimize: is no rewrite; there are constant-if, "),
        ({"precision_rules": (PrecisionRule(precision="fp32"),)}, "precision_rules: should have a key 'node' or 'op'"),
        ({"engine": "sparse", "sparse_weights": "off"}, "sparse_weights: off leaves out the engine that is asked for."),
    ],
)
def test_arguments_in_python_that_can_not_be_are_one_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(trtnode.PartitionError) as refusal:
        trtnode.compile(DIGITS, **given)

    assert str(refusal.value).startswith(sentence)


def test_an_argument_in_python_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(TypeError, match="there is no option 'precison'; there are engine, measure,"):
        trtnode.explain(DIGITS, precison="fp16")
