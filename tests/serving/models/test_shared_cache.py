"""Servers on several machines with one shared cache: one builds, the others take its files."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest

from tests.serving.conftest import Eventually
from tests.workshop.lesser_processors import held_back_to
from trtnode.engines.runtime.executor import Executable
from trtnode.serving.config.load import load_config
from trtnode.serving.errors import ConfigError
from trtnode.serving.models.loader import engine_loader

MODEL = '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) { a = Relu(x) y = Neg(a) }'
X = np.array([-1, 2], np.float32)
SETTINGS = "engine: openvino, measure: false"


def write_config(folder: pathlib.Path, machine: str, shared: str = "store", keys: str = SETTINGS) -> pathlib.Path:
    config = folder / f"{machine}.yaml"
    config.write_text(f"cache: {{dir: {machine}, shared: {shared}}}\nmodels: [{{name: m, path: m.onnx, {keys}}}]\n")
    return config


def load_on(folder: pathlib.Path, machine: str, shared: str = "store", keys: str = SETTINGS) -> Executable:
    """Load the model as a server does that has just started on a machine."""
    settings = load_config(write_config(folder, machine, shared, keys))
    return engine_loader(settings)(settings.models[0])


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    return tmp_path


def test_a_new_machine_opens_what_another_one_has_compiled(
    folder: pathlib.Path, request: pytest.FixtureRequest
) -> None:
    first = load_on(folder, "a")
    request.getfixturevalue("no_compiler")

    second = load_on(folder, "b")

    assert (first.facts.engines_built, second.facts.engines_built) == (1, 0)
    assert second.facts.segments == 1
    assert second.run({"x": X})["y"].tolist() == [0, -2]


def test_other_replicas_than_before_take_the_same_file(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    load_on(folder, "a")
    monkeypatch.setattr("trtnode.serving.models.isolation.half_of_memory_mb", lambda: 1000)
    request.getfixturevalue("no_compiler")

    assert load_on(folder, "b").facts.segments == 1


BUILDS = """
import pathlib, sys
from trtnode.serving.config.load import load_config
from trtnode.serving.models.loader import engine_loader
settings = load_config(pathlib.Path(sys.argv[1]))
print(engine_loader(settings)(settings.models[0]).facts.engines_built)
"""


def start_builder(config: pathlib.Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Load the model in a process of its own, which prints how many engines it has built."""
    return subprocess.Popen([sys.executable, "-c", BUILDS, str(config)], env=env, stdout=subprocess.PIPE, text=True)


def test_a_machine_with_other_instructions_compiles_for_itself(folder: pathlib.Path) -> None:
    load_on(folder, "a")

    lesser = start_builder(write_config(folder, "b"), held_back_to("SSE41"))

    assert lesser.communicate(timeout=120)[0] == "1\n"


def test_two_servers_that_start_together_both_answer_with_engines(folder: pathlib.Path) -> None:
    servers = [start_builder(write_config(folder, machine)) for machine in ("a", "b")]

    outputs = [server.communicate(timeout=120)[0] for server in servers]

    assert set(outputs) <= {"0\n", "1\n"}
    assert "1\n" in outputs
    assert load_on(folder, "c").facts.engines_built == 0


def test_with_a_shared_cache_a_server_answers_natively_at_once_and_tells_what_it_took(
    folder: pathlib.Path, start: Any, eventually: Eventually
) -> None:
    load_on(folder, "a")
    running = start(f"- {{name: m, path: m.onnx, {SETTINGS}}}", cache="{dir: b, shared: store}")

    def metrics() -> str:
        with urllib.request.urlopen(f"{running.http}/metrics") as answer:
            text: str = answer.read().decode()
        return text

    eventually(lambda: re.search(r'trtnode_shared_cache_total\{event="taken"\} [1-9]', metrics()) is not None)
    assert re.search(r'trtnode_engine_builds_total\{model="m",version="1"\} 0', metrics())


@pytest.mark.parametrize(
    ("cache", "startup"),
    [("{dir: a}", "wait"), ("{shared: store}", "native")],
)
def test_startup_follows_the_cache_unless_it_is_set(folder: pathlib.Path, cache: str, startup: str) -> None:
    config = folder / "servable.yaml"
    models = "models: [{name: m, path: m.onnx}]\n"

    config.write_text(f"cache: {cache}\n{models}")
    assert load_config(config).startup == startup
    config.write_text(f"cache: {cache}\nserver: {{startup: wait}}\n{models}")
    assert load_config(config).startup == "wait"


@pytest.mark.parametrize(
    ("cache", "problem"),
    [
        pytest.param("shared_key: k", "cache.shared_key: is about cache.shared, which is not set", id="key-alone"),
        pytest.param("shared: 'memory://m'", "cache.shared_key: is needed for a URL: a file of 32", id="no-key"),
        pytest.param("shared: store, shared_key: k", "cache.shared_key: there is no file", id="missing-key"),
        pytest.param("shared: ''", "cache.shared: should be a path", id="no-path"),
    ],
)
def test_what_can_not_be_shared_is_told(folder: pathlib.Path, cache: str, problem: str) -> None:
    config = folder / "servable.yaml"
    config.write_text(f"cache: {{{cache}}}\nmodels: [{{name: m, path: m.onnx}}]\n")

    with pytest.raises(ConfigError, match=re.escape(problem)):
        load_config(config)
