"""The example that cleans scans: its network learns what it should, its model cleans, and its client says so."""

from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys
import types

import numpy as np
import onnxruntime
import pytest
from PIL import Image

import trtnode

SCANS = pathlib.Path(__file__).parents[2] / "examples" / "scans"


@pytest.fixture(autouse=True)
def cache(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def network() -> types.ModuleType:
    """The module of the example's layers."""
    spec = importlib.util.spec_from_file_location("scans_network", SCANS / "network.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_exported_model_computes_what_the_layers_do(network: types.ModuleType) -> None:
    rng = np.random.default_rng(0)
    untrained = network.Network(rng)
    scans = rng.random((2, 1, network.HEIGHT, network.WIDTH), np.float32)

    model = network.export_model(untrained.layers)

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"scan": scans})[0], untrained.forward(scans), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["fine", "middle", "coarse", "middle_up", "fine_up", "clean"])
def test_a_step_along_a_gradient_changes_the_error_as_it_says(name: str, network: types.ModuleType) -> None:
    rng = np.random.default_rng(1)
    trained = network.Network(rng)
    scans = rng.random((2, 1, 8, 12), np.float32)
    layer, wanted = trained.layers[name], rng.random(scans.shape, np.float32)
    trained.backward(trained.forward(scans) - wanted)
    gradient = layer.gradients[0] / np.linalg.norm(layer.gradients[0])
    expected, step = float((layer.gradients[0] * gradient).sum()), 1e-3

    errors = []
    for sign in (1, -1):
        layer.weight += sign * step * gradient
        errors.append(float(((trained.forward(scans) - wanted).astype(float) ** 2).sum() / 2))
        layer.weight -= sign * step * gradient

    assert (errors[0] - errors[1]) / (2 * step) == pytest.approx(expected, rel=0.02)


def test_the_model_cleans_scans_and_loses_nothing_in_int8(tmp_path: pathlib.Path) -> None:
    test = np.load(SCANS / "test.npz")

    compiled = trtnode.compile(
        SCANS / "scans.onnx",
        tmp_path / "int8.onnx",
        engine="openvino",
        precision="int8",
        calibration=str(SCANS / "calibration.npz"),
    )

    noisy, natively, quantized = (
        -10 * np.log10(((np.clip(pictures, 0, 1) - test["clean"]) ** 2).mean())
        for pictures in (
            test["scan"],
            trtnode.load(SCANS / "scans.onnx").run({"scan": test["scan"]})["clean"],
            trtnode.load(tmp_path / "int8.onnx").run({"scan": test["scan"]})["clean"],
        )
    )
    assert compiled.precision_effective == "int8"
    assert natively > noisy + 7
    assert quantized == pytest.approx(natively, abs=0.3)


def test_the_client_tells_how_clean_each_scan_came_back_and_draws_some(tmp_path: pathlib.Path) -> None:
    with trtnode.serve(SCANS / "scans.onnx", engine="native", port=0, http_port=0) as server:
        command = [sys.executable, SCANS / "predict.py", "--url", server.address, "--show"]
        command += ["--picture", tmp_path / "scans.png"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(" dB, cleaned ") == 10
    assert done.stdout.splitlines()[-1].startswith("10 of 10 cleaner, median latency ")
    with Image.open(tmp_path / "scans.png") as picture:
        assert picture.size == (2 * 3 * 160, 2 * 2 * 64)
