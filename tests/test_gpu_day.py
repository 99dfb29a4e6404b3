"""``scripts/gpu_day`` on simulators, with the adapter for TensorRT 8.6. Nothing here ran on TensorRT or on a GPU."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import simulated_machine
from scripts.gpu_day import __main__ as gpu_day
from scripts.gpu_day import engines
from scripts.gpu_day.__main__ import ROOT, Step
from simulated_tensorrt import Simulation
from stand_in_workers import InProcessWorker
from tensorrt_8 import adapter
from tensorrt_8.stand_in import RELEASE, make_bindings
from trtnode.engines.compile.compiler import compile_model

STAND_IN = ROOT / "tests" / "workshop" / "tensorrt_8" / "stand_in_library"
FAKE_STEP = """#!/bin/sh
case $4 in
    first) echo "words"; echo '{"times": [0.123456, 2]}';;
    late) sleep 60;;
    wrong) echo "no GPU | is here" >&2; exit 3;;
    last) test -s $3/gpu_day.md && grep -q exit $3/gpu_day.json && echo '{"engines": 1}';;
esac
"""


@pytest.fixture
def tensorrt_8(simulate: Callable[..., Simulation], monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts TensorRT 8.6 behind its adapter into this process, which builds and checks engines as well."""
    module = adapter.adapt(make_bindings(simulate(version=RELEASE)))
    monkeypatch.setitem(sys.modules, "tensorrt", module)
    here: Any = InProcessWorker()
    monkeypatch.setattr(engines, "compile_model", functools.partial(compile_model, worker=here))


def test_each_step_has_a_limit_and_is_written_before_the_next(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "python"
    fake.write_text(FAKE_STEP)
    fake.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(fake))
    steps = (Step("first", 60), Step("late", 0.5), Step("wrong", 60), Step("never", 60), Step("last", 60))
    monkeypatch.setattr(gpu_day, "STEPS", steps)

    code = gpu_day.main(["--out", str(tmp_path), *(f"--only={s.name}" for s in steps if s.name != "never")])

    found = json.loads((tmp_path / "gpu_day.json").read_text())["steps"]
    assert code == 1
    assert {name: step.get("result") or step["error"] for name, step in found.items()} == {
        "first": {"times": [0.123456, 2]},
        "late": "ended after 0.5 s",
        "wrong": "exit code 3: no GPU | is here",
        "last": {"engines": 1},
    }
    table = (tmp_path / "gpu_day.md").read_text()
    assert "| times 0.1235, 2 |" in table
    assert "| exit code 3: no GPU \\| is here |" in table


def test_steps_that_do_not_fit_the_budget_are_left_out(tmp_path: pathlib.Path) -> None:
    code = gpu_day.main(["--out", str(tmp_path), "--budget", "0", "--only", "serve", "--only", "memory"])

    found = json.loads((tmp_path / "gpu_day.json").read_text())["steps"]
    assert (code, {*found}) == (1, {"serve", "memory"})
    assert all(step["error"] == "left out: no time was left" for step in found.values())


@pytest.mark.parametrize(
    ("option", "words"),
    [
        pytest.param("--wheels={}/none", "/none is no folder", id="no-folder"),
        pytest.param("--tensorrt-8={}", "has no package tensorrt; name the folder that holds it", id="no-bindings"),
        pytest.param("--only=everything", "invalid choice: 'everything'", id="no-step"),
    ],
)
def test_wrong_arguments_are_refused_by_name(
    option: str, words: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        gpu_day.main([option.format(tmp_path)])

    assert ended.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.slow
def test_step_in_its_process_finds_gpu_and_adapter(
    simulate: Callable[..., Simulation], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    simulated_machine.install_in_children(monkeypatch, Simulation(version=RELEASE), tmp_path)
    simulators = ROOT / "tests" / "simulators"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, [simulators / "libraries", simulators])))

    command = [sys.executable, "-m", "scripts.gpu_day", "--out", tmp_path / "out", "--tensorrt-8", STAND_IN]
    done = subprocess.run([*command, "--only", "machine"], cwd=ROOT, capture_output=True, text=True, check=False)

    found = json.loads((tmp_path / "out" / "gpu_day.json").read_text())["steps"]
    assert done.returncode == 0, done.stdout
    told = found["machine"]["result"]
    assert (told["gpu"], told["tensorrt"]) == ("simulated GPU (9.0)", "10.3.0+8.6.0")


@pytest.mark.usefixtures("tensorrt_8")
def test_engines_take_each_kind_of_request(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "REQUESTS", 32)
    steps = (engines.native_nodes_between, engines.two_profiles, engines.unknown_size)

    found = [step(tmp_path) for step in steps]

    assert [(step["engines"], step["native nodes"], step["fallbacks"]) for step in found] == [
        (3, 2, 0),
        (1, 0, 1),
        (1, 0, 0),
    ]
    assert all(step["difference"] < 1e-5 for step in found)


@pytest.mark.usefixtures("tensorrt_8")
def test_signed_file_is_loaded_and_an_unsigned_one_refused(tmp_path: pathlib.Path) -> None:
    signed, loaded = engines.sign(tmp_path), engines.load_signed(tmp_path)

    assert (signed["engines signed"], loaded["engines"]) == (1, 1)
    assert "it has no signature" in signed["unsigned"]


@pytest.mark.usefixtures("tensorrt_8")
def test_memory_of_models_that_are_closed_comes_back(tmp_path: pathlib.Path) -> None:
    used = engines.memory(tmp_path)["KiB in use after each load"]

    assert used[0] == used[-1] > 0
