"""Models that were loaded before: what they became is opened, and nothing is compiled again."""

from __future__ import annotations

import dataclasses
import pathlib

import numpy as np
import onnx
import pytest

from trtnode.engines.runtime.executor import Executable
from trtnode.serving.config.load import load_config
from trtnode.serving.models.loader import engine_loader

MODEL = '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) { a = Relu(x) y = Neg(a) }'
X = np.array([-1, 2], np.float32)


def load(folder: pathlib.Path, keys: str = "engine: openvino, measure: false") -> Executable:
    """Load the model as a server does that has just started."""
    config = folder / "servable.yaml"
    config.write_text(f"cache: {{dir: cache}}\nmodels: [{{name: m, path: m.onnx, {keys}}}]\n")
    settings = load_config(config)
    return engine_loader(settings)(settings.models[0])


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    return tmp_path


def kept(folder: pathlib.Path) -> pathlib.Path:
    """The compiled file in the cache: it holds nodes, and an engine alone doesn't."""
    (file,) = (file for file in (folder / "cache").glob("*.engine") if b"TrtNode" in file.read_bytes())
    return file


def test_a_model_is_opened_as_it_was_compiled_before(folder: pathlib.Path, request: pytest.FixtureRequest) -> None:
    first = load(folder)
    request.getfixturevalue("no_compiler")

    again = load(folder)

    assert again.run({"x": X})["y"].tolist() == first.run({"x": X})["y"].tolist() == [0, -2]
    assert again.facts == dataclasses.replace(first.facts, engines_built=0, variants=again.facts.variants)
    assert again.facts.segments == 1


def test_nodes_that_engines_replaced_are_read_from_the_file_of_the_model(folder: pathlib.Path) -> None:
    load(folder)

    again = load(folder)

    assert {function.domain for function in onnx.load(kept(folder)).functions} == {
        "ai.trtnode.sizes"
    }  # for sizes alone
    np.testing.assert_array_equal(again.run({"x": np.array([np.nan, 2], np.float32)})["y"], [np.nan, -2])


def test_a_model_that_engines_run_whole_falls_back_when_it_is_first_needed(folder: pathlib.Path) -> None:
    load(folder)
    kept_now = load(folder)

    assert kept_now.run({"x": X})["y"].tolist() == [0, -2]
    assert np.isnan(kept_now.run({"x": np.array([np.nan, 2], np.float32)})["y"][0])


def test_a_native_model_is_opened_as_before(folder: pathlib.Path, request: pytest.FixtureRequest) -> None:
    load(folder, "engine: native")
    request.getfixturevalue("no_compiler")

    assert load(folder, "engine: native").run({"x": X})["y"].tolist() == [0, -2]


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_kept_file_that_is_damaged_is_made_again(damage: str, folder: pathlib.Path) -> None:
    load(folder)
    file = kept(folder)
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-20])

    again = load(folder)

    assert again.run({"x": X})["y"].tolist() == [0, -2]
    assert again.facts.segments == 1


def test_another_setting_is_another_model(folder: pathlib.Path) -> None:
    load(folder)

    settings = "engine: openvino, measure: false, partition: {native_ops: [Neg]}"
    assert load(folder, settings).facts.native_nodes == 1
