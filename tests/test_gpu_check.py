"""``scripts/gpu_check`` on a simulated GPU: it reports what the library says, whatever that is."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import types
from collections.abc import Callable
from typing import Any

import pytest

from simulated_cuda import SimulatedGpu
from simulated_tensorrt import Simulation
from trtnode.engines.cuda.devices import Gpu

SCRIPT = pathlib.Path(__file__).parents[1] / "scripts" / "gpu_check"


@pytest.fixture
def gpu_check(simulate: Callable[..., Simulation], monkeypatch: pytest.MonkeyPatch) -> Callable[[tuple[int, int]], Any]:
    """Loads the script on a machine whose GPU has some compute capability."""

    def load(capability: tuple[int, int]) -> types.ModuleType:
        simulate(version="1.7.1.116", gpu=SimulatedGpu(compute_capability=capability))
        loader = importlib.machinery.SourceFileLoader("gpu_check", str(SCRIPT))
        spec = importlib.util.spec_from_loader("gpu_check", loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        gpu = Gpu(name="simulated GPU", compute_capability="{}.{}".format(*capability))
        monkeypatch.setattr(module, "find_gpu", lambda: gpu)
        monkeypatch.setattr(module, "has_driver", lambda: True)
        monkeypatch.setattr("sys.argv", ["gpu_check"])
        return module

    return load


def test_simulated_library_builds_loads_and_runs_for_each_target(gpu_check: Callable[..., Any]) -> None:
    script = gpu_check((8, 9))

    told = {target: script.check_rtx(target) for target in ("portable", "CURRENT", "SM89")}

    assert {report["validity"][0] for report in told.values()} == {"VALID"}
    assert [(report["kernels taken"], report["the library says"]) for report in told.values()] == [(True, [])] * 3
    assert all({"without kernels", "with kernels"} <= report.keys() for report in told.values())


def test_simulated_refusal_is_reported_in_the_librarys_words(gpu_check: Callable[..., Any]) -> None:
    script = gpu_check((9, 0))

    portable, own = script.check_rtx("portable"), script.check_rtx("SM90")

    assert portable["validity"] == ["INVALID", "2"]
    assert "UNSUPPORTED_CC" in portable["error"]
    assert own == {"known": False, "the library says": []}


def test_report_is_one_json_object_with_all_checks(
    gpu_check: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = gpu_check((9, 0))
    done = subprocess.CompletedProcess([], 0, stdout="3 passed", stderr="")
    monkeypatch.setattr(script.subprocess, "run", lambda *_, **__: done)
    monkeypatch.setattr(script, "check_hand_off", dict)  # ONNX Runtime has no CUDA provider here
    monkeypatch.setattr(script, "_find_nvinfer", list)

    code = script.main()

    report = json.loads(capsys.readouterr().out)
    assert (code, report["make test-gpu"], report["tensorrt-rtx"]) == (0, ["3 passed"], "usable")
    assert {name for name in report if name.startswith("tensorrt-rtx for ")} == {
        "tensorrt-rtx for portable",
        "tensorrt-rtx for CURRENT",
        "tensorrt-rtx for SM90",
    }
