"""Layers are timed by the libraries that run them: OpenVINO for engines, ONNX Runtime for what is native."""

from __future__ import annotations

import pathlib

import numpy as np
import onnx
import pytest

from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.diagnostics.profiling import StageLayers, profile_layers
from trtnode.engines.errors import EngineError
from trtnode.partitioner.cut.options import PartitionOptions
from workshop import Workshop

IMAGE = np.random.default_rng(0).random((1, 1, 8, 8), np.float32)


def profiled(source: pathlib.Path, folder: pathlib.Path, *native_ops: str) -> list[StageLayers]:
    wishes = CompileOptions(engine="openvino", partition=PartitionOptions(native_ops=native_ops))
    compile_model(source, wishes).save(folder / "compiled.onnx")
    return profile_layers(folder / "compiled.onnx", {"image": IMAGE}, threads=1)


def test_each_stage_tells_its_layers_and_what_runs_them(digits: pathlib.Path, tmp_path: pathlib.Path) -> None:
    stages = profiled(digits, tmp_path, "MaxPool")

    assert [stage.stage for stage in stages] == ["segment_0", "native_1", "segment_1"]
    assert [stage.engine.split()[0] for stage in stages] == ["openvino", "native", "openvino"]
    layers = [layer for stage in stages for layer in stage.layers]
    assert all(layer.us >= 0 for layer in layers)
    assert sum(layer.us for layer in layers) > 0
    assert {layer.precision for layer in layers} == {"fp32"}
    assert all(layer.kernel for layer in layers)
    assert all((stage.stage_us or 0) > 0 for stage in stages)


def test_layers_are_called_by_the_nodes_that_they_compute(digits: pathlib.Path, tmp_path: pathlib.Path) -> None:
    nodes = {node.name for node in onnx.load(digits).graph.node}

    stages = profiled(digits, tmp_path, "MaxPool")

    told = {name for stage in stages for layer in stage.layers for name in layer.nodes}
    assert {"relu1", "relu3", "gemm"} <= told & nodes
    assert "Convolution" in {layer.kind for layer in stages[0].layers}
    assert "MaxPool" in {layer.kind for layer in stages[1].layers}


def test_a_source_is_one_native_stage(digits: pathlib.Path) -> None:
    (stage,) = profile_layers(digits, {"image": IMAGE}, threads=1)

    assert (stage.engine, stage.stage_us) == ("native", None)
    assert {"Conv", "Gemm", "Softmax"} <= {layer.kind for layer in stage.layers}
    assert {layer.kernel for layer in stage.layers} == {"CPU"}


def test_library_that_tells_no_times_is_named(workshop: Workshop) -> None:
    source = workshop.write("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    compiled = workshop.compile_file(source, engine="reference")

    with pytest.raises(EngineError, match=r"segment_0: reference .* tells no times of layers\. Leave out --layers\."):
        profile_layers(compiled, {"x": np.zeros(2, np.float32)}, threads=None)
