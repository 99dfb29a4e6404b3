"""Initializers that are also graph inputs, made constants where the user asks for it."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import onnx
import pytest

from comparison import AssertSame, RunPlainly
from stand_in_workers import InProcessWorker
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import InvalidInputError
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.serving.cli.program import main
from workshop import Workshop, prepare_and_open

GRAPH = """g (float[2,4] x, float[4] w, float[4] v) => (float[2,4] y)
    <float[4] w = {1, 2, 3, 4}, float[4] v = {2, 2, 2, 2}> {
    a = Relu(x)
    b = Add(a, w)
    c = Exp(b)
    d = Mul(c, v)
    y = Neg(d)
}"""
FEEDS = {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)}
FROZEN = PartitionOptions(freeze_initializers=True)
ENGINES = ["openvino", "reference", "tensorrt-rtx"]


@pytest.fixture
def source(workshop: Workshop) -> pathlib.Path:
    return workshop.write(GRAPH)


def compiled(source: pathlib.Path, engine: str, worker: Any, **nodes: Any) -> pathlib.Path:
    path = source.with_name(f"{engine}.onnx")
    options = CompileOptions(engine=engine, partition=PartitionOptions(**nodes))
    compile_model(source, options, worker=worker).save(path)
    return path


@pytest.mark.parametrize("engine", [*ENGINES, "native"])
def test_constants_are_no_inputs_of_the_compiled_model(
    engine: str, source: pathlib.Path, workshop: Workshop, plain: RunPlainly, same: AssertSame
) -> None:
    path = compiled(source, engine, workshop.worker, freeze_initializers=True)

    assert [value.name for value in onnx.load(path).graph.input] == ["x"]
    executable = open_model(path)
    same(executable.run(FEEDS), plain(source, FEEDS))
    with pytest.raises(InvalidInputError, match=r"There is no input 'w'\. The model takes x float32\[2, 4\]"):
        executable.run({**FEEDS, "w": np.zeros(4, np.float32)})


def test_a_model_without_any_segment_loses_these_inputs_too(source: pathlib.Path, workshop: Workshop) -> None:
    path = compiled(source, "openvino", workshop.worker, freeze_initializers=True, engine_ops=())

    assert [value.name for value in onnx.load(path).graph.input] == ["x"]


@pytest.mark.parametrize("engine", ["openvino", "native"])
def test_a_served_model_refuses_a_replacement(
    engine: str, source: pathlib.Path, plain: RunPlainly, same: AssertSame
) -> None:
    executable = prepare_and_open(source, CompileOptions(engine=engine, partition=FROZEN))

    assert [spec.name for spec in executable.inputs] == ["x"]
    same(executable.run(FEEDS), plain(source, FEEDS))
    with pytest.raises(InvalidInputError, match="There is no input 'v'"):
        executable.run({**FEEDS, "v": np.zeros(4, np.float32)})


def test_an_engine_that_holds_a_default_is_the_engine_of_the_same_constant(
    source: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    cache, worker = EngineCache(tmp_path / "cache", 10**9), InProcessWorker()

    def build(*, frozen: bool) -> tuple[int, int]:
        options = CompileOptions(engine="reference", partition=PartitionOptions(freeze_initializers=frozen))
        model = compile_model(source, options, cache=cache, worker=worker)  # type: ignore[arg-type]
        return model.engines_built, model.engines_cached

    assert [build(frozen=frozen) for frozen in (False, True)] == [(1, 0), (0, 1)]


def test_a_shape_for_a_constant_is_refused(source: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["explain", str(source), "--freeze-initializers", "--shapes", "w:4", "--no-cache"])

    assert code != 0
    assert "the model has no such input; it has x" in capsys.readouterr().err


def test_old_models_list_their_initializers_as_inputs_and_stay_as_they_are(workshop: Workshop) -> None:
    source = workshop.write(GRAPH, opset=8, ir=3)

    path = compiled(source, "native", workshop.worker, freeze_initializers=True)

    assert [value.name for value in onnx.load(path).graph.input] == ["x", "w", "v"]
    assert open_model(path).run(FEEDS)["y"].shape == (2, 4)
