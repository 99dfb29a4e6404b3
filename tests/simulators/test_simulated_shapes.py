"""Shapes that the user gives reach TensorRT as profiles of each segment, and nothing is built without them."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from model_texts import parse
from simulated_tensorrt import Plan, Simulation
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.backends.build_options import BuildOptions, TensorRtOptions
from trtnode.engines.backends.shape_range import ShapeRange
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.tensorrt.backend import TensorRtBackend
from trtnode.partitioner.cut.options import PartitionOptions

IMAGES = ShapeRange(min=(1, 3, 32, 32), opt=(4, 3, 64, 64), max=(8, 3, 64, 128))
FIXED = ShapeRange(min=(2, 3, 32, 32), opt=(2, 3, 32, 32), max=(2, 3, 32, 32))


class Recorder:
    """Works in this process, and keeps what each build resulted in."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.options: list[BuildOptions] = []

    def call(self, function: Any, timeout_s: float, /, *args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if function.__name__ == "build":
            self.plans.append(Plan.from_bytes(args[2].read_bytes()))
            self.options.append(args[3])
        return result


@pytest.fixture
def source(tmp_path: pathlib.Path) -> pathlib.Path:
    text = """g (float[N,3,H,W] x) => (float[N,8,P,Q] y)
    { c = Conv<strides = [2,2], pads = [1,1,1,1]>(x, w) a = Relu(c) b = Softsign(a) y = Neg(b) }"""
    model = parse(text, w=np.ones((8, 3, 3, 3), np.float32))
    path = tmp_path / "images.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture
def build(
    simulate: Callable[..., Simulation], source: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Any:
    simulate()
    monkeypatch.setattr(TensorRtBackend, "unavailable_reason", lambda self: None)

    def run(*shapes: Any, **options: Any) -> tuple[Recorder, Any]:
        recorder = Recorder()
        wishes = CompileOptions(
            engine="tensorrt", shapes=shapes, partition=PartitionOptions(native_ops=("Softsign",)), **options
        )
        cache = EngineCache(tmp_path / "cache", 2**30)
        return recorder, compile_model(source, wishes, cache=cache, worker=recorder)  # type: ignore[arg-type]

    return run


def test_simulated_segments_get_the_profiles_that_follow_from_the_models_inputs(build: Any) -> None:
    recorder, _ = build({"x": IMAGES}, {"x": FIXED})

    told = [[profile["shapes"] for profile in plan.profiles] for plan in recorder.plans[:2]]
    assert told == [
        [
            {"x": [[1, 3, 32, 32], [4, 3, 64, 64], [8, 3, 64, 128]]},
            {"x": [[2, 3, 32, 32]] * 3},
        ],
        [
            {"b": [[1, 8, 16, 16], [4, 8, 32, 32], [8, 8, 32, 64]]},
            {"b": [[2, 8, 16, 16]] * 3},
        ],
    ]


def test_simulated_segments_whose_shapes_are_not_given_run_natively_and_say_what_to_give(build: Any) -> None:
    recorder, compiled = build()

    assert recorder.plans == []
    reasons = {node.node: node.detail for node in compiled.report.native if node.code == "DYNAMIC_SHAPE"}
    assert len(reasons) == 3
    assert all("is not fixed. Give those of the model's inputs: --shapes" in reason for reason in reasons.values())


def test_simulated_options_and_shared_timings_reach_every_build(build: Any, tmp_path: pathlib.Path) -> None:
    options = TensorRtOptions(optimization_level=1, workspace_mb=512)

    recorder, _ = build({"x": IMAGES}, tensorrt=options)

    assert {plan.settings["level"] for plan in recorder.plans} == {1}
    (file,) = {one.timing_cache for one in recorder.options}
    assert file.parent == tmp_path / "cache"
    assert file.exists()
