"""How TensorRT builds, on a simulated TensorRT: what is asked of it, and what becomes of its failures."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from engines.errors import BuildError
from engines.tensorrt_build import BuildSettings, ShapeRange, build_plan
from simulated_tensorrt import Plan, Simulation, make_tensorrt

BATCHES = ShapeRange(low=(1, 3), best=(4, 3), high=(8, 3))


@pytest.fixture
def dynamic(tmp_path) -> Any:
    path = tmp_path / "dynamic.onnx"
    text = "g (float[N,3] x, float[3] z) => (float[N,3] y) { y = Add(x, z) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}'), path)
    return path


@pytest.mark.parametrize("version", ["10.3.0", "11.4.0.106"])
def test_simulated_build_is_told_the_settings(version, tensorrt, model) -> None:
    settings = BuildSettings(workspace_bytes=2**20, optimization_level=5)

    plan = Plan.from_bytes(build_plan(tensorrt(version=version), model, settings).engine)

    assert (plan.settings["level"], plan.settings["limits"]) == (5, {"WORKSPACE": 2**20})
    assert plan.settings["strongly_typed"]
    assert plan.profiles == []


def test_simulated_build_gives_only_inputs_of_varying_shape_a_profile(tensorrt, dynamic) -> None:
    shapes = {"x": BATCHES, "z": ShapeRange(low=(3,), best=(3,), high=(3,))}

    plan = build_plan(tensorrt(), dynamic, BuildSettings(profiles=[shapes, shapes]))

    shapes_told = [profile["shapes"] for profile in Plan.from_bytes(plan.engine).profiles]
    assert shapes_told == [{"x": [[1, 3], [4, 3], [8, 3]]}] * 2


def test_simulated_builds_hand_on_what_they_measured(model) -> None:
    simulation = Simulation()
    trt = make_tensorrt(simulation)

    first = build_plan(trt, model, BuildSettings())
    again = build_plan(trt, model, BuildSettings(timing_cache=first.timing_cache))

    assert simulation.timed_layers == 3
    assert again.timing_cache == first.timing_cache


def test_simulated_build_measures_anew_what_another_gpu_has_measured(model) -> None:
    elsewhere = build_plan(make_tensorrt(Simulation(version="11.3.0.1")), model, BuildSettings())
    simulation = Simulation()

    build_plan(make_tensorrt(simulation), model, BuildSettings(timing_cache=elsewhere.timing_cache))

    assert simulation.timed_layers == 3


@pytest.mark.parametrize(
    ("profiles", "said"),
    [
        pytest.param([], "The shape of input 'x' is not fixed", id="none"),
        pytest.param([{"z": BATCHES}], "Profile 0 has no shapes for input 'x'", id="of-another-input"),
        pytest.param(
            [{"x": BATCHES}, {"x": ShapeRange(low=(9, 3), best=(4, 3), high=(8, 3))}],
            "Profile 1, input 'x': the shapes .* are not in order",
            id="least-above-most",
        ),
        pytest.param([{"x": ShapeRange(low=(-1, 3), best=(1, 3), high=(8, 3))}], "refuses profile 0", id="refused"),
    ],
)
def test_simulated_profile_that_does_not_fit_is_told(profiles, said, tensorrt, dynamic) -> None:
    with pytest.raises(BuildError, match=said):
        build_plan(tensorrt(), dynamic, BuildSettings(profiles=profiles))


def test_simulated_parser_error_is_the_reason_of_a_failed_build(tensorrt, model) -> None:
    module = tensorrt(refuses={"Softsign": ("UNSUPPORTED_NODE", "no such node")})

    with pytest.raises(BuildError, match=r"TensorRT's parser .*: no such node"):
        build_plan(module, model, BuildSettings())


def test_simulated_build_that_gives_none_fails_with_the_librarys_last_words(tensorrt, model) -> None:
    with pytest.raises(BuildError, match="TensorRT found no engine: out of memory"):
        build_plan(tensorrt(build_fails="out of memory"), model, BuildSettings())
