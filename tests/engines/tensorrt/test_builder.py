"""Builds on a simulated TensorRT: the calls of the library, and its failures."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from model_texts import parse
from simulated_tensorrt import Plan, Simulation, make_tensorrt
from trtnode.engines.backends.build_options import BuildOptions, TensorRtOptions
from trtnode.engines.backends.shape_range import ShapeRange
from trtnode.engines.tensorrt import builder
from trtnode.engines.tensorrt.builder import build_engine, build_plan, properties

BATCHES = ShapeRange(min=(1, 3), opt=(4, 3), max=(8, 3))


@pytest.fixture
def dynamic(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "dynamic.onnx"
    text = "g (float[N,3] x, float[3] z) => (float[N,3] y) { y = Add(x, z) }"
    onnx.save(parse(text), path)
    return path


@pytest.mark.parametrize("version", ["10.3.0", "11.4.0.106"])
def test_simulated_build_is_told_the_settings(version: str, tensorrt: Callable[..., Any], model: pathlib.Path) -> None:
    options = TensorRtOptions(
        workspace_mb=1, optimization_level=5, hardware_compatible=True, version_compatible=True, sparse=True
    )

    plan = Plan.from_bytes(build_plan(tensorrt(version=version), model, BuildOptions(tensorrt=options))[0])

    assert (plan.settings["level"], plan.settings["limits"]) == (5, {"WORKSPACE": 2**20})
    assert plan.settings["strongly_typed"]
    assert plan.settings["hardware_compatibility_level"] == "AMPERE_PLUS"
    assert {"VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME", "SPARSE_WEIGHTS"} <= set(plan.flags)
    assert plan.profiles == []


def test_settings_that_change_an_engine_have_names_for_its_key_and_envelope() -> None:
    assert properties(TensorRtOptions(cuda_graphs=False)) == {"STRONGLY_TYPED": "1", "OPTIMIZATION_LEVEL": "3"}
    assert properties(TensorRtOptions(workspace_mb=2, hardware_compatible=True, version_compatible=True)) == {
        "STRONGLY_TYPED": "1",
        "OPTIMIZATION_LEVEL": "3",
        "WORKSPACE": "2097152",
        "HARDWARE_COMPATIBILITY_LEVEL": "AMPERE_PLUS",
        "VERSION_COMPATIBLE": "1",
        "EXCLUDE_LEAN_RUNTIME": "1",
        "CUDA_GRAPHS": "1",
    }


def test_simulated_build_gives_only_inputs_of_varying_shape_a_profile(
    tensorrt: Callable[..., Any], dynamic: pathlib.Path
) -> None:
    shapes = {"x": BATCHES, "z": ShapeRange(min=(3,), opt=(3,), max=(3,))}

    plan, _ = build_plan(tensorrt(), dynamic, BuildOptions(profiles=(shapes, shapes)))

    shapes_told = [profile["shapes"] for profile in Plan.from_bytes(plan).profiles]
    assert shapes_told == [{"x": [[1, 3], [4, 3], [8, 3]]}] * 2


@pytest.mark.parametrize("version", ["10.3.0", "11.4.0.106"])
def test_simulated_parser_is_handed_large_weights_where_it_takes_them(
    version: str, tensorrt: Callable[..., Any], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "HANDED_OVER_BYTES", 16)
    text = "g (float[4] x) => (float[4] y) { a = Add(x, w) y = Mul(a, b) }"
    weights = {"w": np.arange(4, dtype=np.float32), "b": np.float32([2])}
    model = parse(text, **weights)
    onnx.save(model, tmp_path / "weights.onnx")

    plan = Plan.from_bytes(build_plan(tensorrt(version=version), tmp_path / "weights.onnx", BuildOptions())[0])

    built = onnx.ModelProto.FromString(plan.model)
    assert {t.name: onnx.numpy_helper.to_array(t).tolist() for t in built.graph.initializer} == {
        name: array.tolist() for name, array in weights.items()
    }


def test_simulated_builds_share_a_file_of_what_they_measured(model: pathlib.Path, tmp_path: pathlib.Path) -> None:
    simulation = Simulation()
    trt = make_tensorrt(simulation)
    options = BuildOptions(timing_cache=tmp_path / "cache" / "measured.timing")

    for _ in range(2):
        build_engine(trt, model, options)

    assert simulation.timed_layers == 3
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["measured.timing"]


@pytest.mark.parametrize("content", [b"", b"nonsense"])
def test_simulated_build_measures_anew_where_the_file_is_spoiled(
    content: bytes, model: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    simulation = Simulation()
    file = tmp_path / "measured.timing"
    file.write_bytes(content)

    build_engine(make_tensorrt(simulation), model, BuildOptions(timing_cache=file))

    assert simulation.timed_layers == 3
    assert file.read_bytes().startswith(b"simulated timing cache")


def test_file_of_measurements_that_can_not_be_written_is_a_warning(
    tensorrt: Callable[..., Any], model: pathlib.Path, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()

    build_engine(tensorrt(), model, BuildOptions(timing_cache=tmp_path / "file" / "measured.timing"))

    assert "TensorRT's timing cache can't be written" in caplog.text


def test_simulated_builds_hand_on_what_they_measured(model: pathlib.Path) -> None:
    simulation = Simulation()
    trt = make_tensorrt(simulation)

    first = build_plan(trt, model, BuildOptions())
    again = build_plan(trt, model, BuildOptions(), first[1])

    assert simulation.timed_layers == 3
    assert again[1] == first[1]
