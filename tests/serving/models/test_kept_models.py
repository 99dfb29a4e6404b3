"""Models that were loaded before: what they became is opened, and nothing is compiled again."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from stand_in_workers import LoadingHere
from tests.workshop.lesser_processors import held_back_to
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.runtime.executor import Executable, open_executable
from trtnode.serving.config.load import load_config
from trtnode.serving.models.loader import engine_loader

MODEL = '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) { a = Relu(x) y = Neg(a) }'
X = np.array([-1, 2], np.float32)


SETTINGS = "engine: openvino, measure: false"


def write_config(folder: pathlib.Path, keys: str = SETTINGS) -> pathlib.Path:
    config = folder / "servable.yaml"
    config.write_text(f"cache: {{dir: cache}}\nmodels: [{{name: m, path: m.onnx, {keys}}}]\n")
    return config


def load(folder: pathlib.Path, keys: str = SETTINGS) -> Executable:
    """Load the model as a server does that has just started."""
    settings = load_config(write_config(folder, keys))
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


def test_a_machine_with_an_empty_cache_builds_nothing_for_a_compiled_file(folder: pathlib.Path) -> None:
    source = (folder / "m.onnx").rename(folder / "source.onnx")
    compile_model(source, CompileOptions(engine="openvino")).save(folder / "m.onnx")

    loaded = load(folder, "engine: auto")

    assert (loaded.facts.engines_built, loaded.facts.segments) == (0, 1)
    assert loaded.run({"x": X})["y"].tolist() == [0, -2]


BUILDS = """
import pathlib, sys
from trtnode.serving.config.load import load_config
from trtnode.serving.models.loader import engine_loader
settings = load_config(pathlib.Path(sys.argv[1]))
print(engine_loader(settings)(settings.models[0]).facts.engines_built)
"""


def start_builder(folder: pathlib.Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Load the model in a process of its own, which prints how many engines it has built."""
    command = [sys.executable, "-c", BUILDS, str(folder / "servable.yaml")]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


def test_a_machine_with_other_instructions_compiles_for_itself_in_the_same_cache(folder: pathlib.Path) -> None:
    load(folder)

    assert start_builder(folder, held_back_to("SSE41")).communicate(timeout=120)[0] == "1\n"


def test_two_servers_that_start_together_with_one_cache_both_answer_with_engines(folder: pathlib.Path) -> None:
    write_config(folder)
    servers = [start_builder(folder) for _ in range(2)]

    outputs = [server.communicate(timeout=120)[0] for server in servers]

    assert set(outputs) <= {"0\n", "1\n"}
    assert "1\n" in outputs
    assert load(folder).facts.engines_built == 0


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


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[pathlib.Path]:
    """The files that are opened, by this process and by those that load for it."""
    files: list[pathlib.Path] = []

    def count(model: ir.Model, native: pathlib.Path, **options: Any) -> Executable:
        files.append(native)
        return open_executable(model, native, **options)

    monkeypatch.setattr("trtnode.engines.compile.opening.open_executable", count)
    monkeypatch.setattr("trtnode.serving.models.isolation.SubprocessWorker", LoadingHere)
    return files


@pytest.mark.parametrize("engine", ["native", "openvino"])
def test_a_new_model_is_opened_once_to_be_tried_and_once_to_be_served(
    engine: str, folder: pathlib.Path, opened: list[pathlib.Path]
) -> None:
    load(folder, f"engine: {engine}, measure: false")

    assert len(opened) == 2


def test_what_finds_no_room_in_the_cache_is_made_again_and_not_tried(
    folder: pathlib.Path, opened: list[pathlib.Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trtnode.serving.models.isolation.KEPT_SHARE", 0)
    first = load(folder)
    del opened[:]

    again = load(folder)

    assert len(opened) == 1
    assert (first.facts.engines_built, again.facts.engines_built, again.facts.segments) == (1, 0, 1)


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
