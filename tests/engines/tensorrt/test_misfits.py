"""Installations, machines, files and builds that don't fit: what the user is told, and what answers instead.

TensorRT and the GPU are simulated.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import onnx
import onnxruntime
import pytest

from arrays import floats
from model_texts import parse
from simulated_cuda import SimulatedGpu
from simulated_tensorrt import Faults, Simulation
from streams import ANYONE, Loaded, Machine
from trtnode.engines.artifact.keys import generate_key
from trtnode.engines.artifact.signing import sign_model
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.opening import open_model
from trtnode.engines.runtime.options import RunOptions
from trtnode.engines.tensorrt import backend
from trtnode.engines.tensorrt.library import TENSORRT
from trtnode.serving.cli.program import main

CHAIN = "g (float[2, 4] x) => (float[2, 4] y) { a = Relu(x) b = Softsign(a) y = Exp(b) }"


def compile_by_command(model: pathlib.Path) -> int:
    output = model.with_name("compiled.onnx")
    code = main(["compile", str(model), "-o", str(output), "--engine", "tensorrt", "--no-cache"])
    assert not output.exists()
    return code


def test_library_that_can_not_be_loaded_is_told_in_one_sentence(model: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "tensorrt.py").write_text("raise ImportError('libnvinfer.so.11: cannot open shared object file')")
    command = [sys.executable, "-m", "trtnode", "compile", str(model), "-o", str(tmp_path / "out.onnx")]
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])

    ended = subprocess.run(
        [*command, "--engine", "tensorrt"], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )

    assert ended.returncode == 1
    assert ended.stderr.startswith("trtnode: TensorRT is installed, but can't be loaded (libnvinfer.so.11: cannot open")
    assert ended.stderr.count("\n") == 1


def test_machine_without_a_gpu_is_told_in_one_sentence(
    model: pathlib.Path,
    simulate: Callable[..., Simulation],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    simulate()
    monkeypatch.setattr(backend, "find_gpu", lambda: None)

    assert compile_by_command(model) == 1

    assert capsys.readouterr().err == f"trtnode: {TENSORRT.no_gpu}\n"


def test_driver_that_is_too_old_is_told_in_one_sentence(
    model: pathlib.Path,
    simulate: Callable[..., Simulation],
    simulated_worker: Callable[[Simulation], SubprocessWorker],
    capsys: pytest.CaptureFixture[str],
) -> None:
    simulated_worker(simulate(faults=Faults(builder_missing=True)))

    assert compile_by_command(model) == 1

    said = capsys.readouterr().err
    assert "TensorRT 11.4.0.106+simulated does not start: CUDA initialization failure with error: 35." in said
    assert "a driver that is new enough" in said
    assert said.count("\n") == 1


def test_auto_takes_the_next_engine_where_the_driver_is_too_old(
    model: pathlib.Path,
    simulate: Callable[..., Simulation],
    simulated_worker: Callable[[Simulation], SubprocessWorker],
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    simulated_worker(simulate(faults=Faults(builder_missing=True)))
    output = model.with_name("compiled.onnx")

    assert main(["compile", str(model), "-o", str(output), "--no-cache", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["engine"] == "openvino"
    assert main(["explain", str(model), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["engine"] == "openvino"

    (said, again) = (text for text in caplog.messages if "does not start" in text)
    assert said == again
    assert said.endswith("Until then, openvino is used.")


@pytest.mark.parametrize(
    ("there", "said"),
    [
        pytest.param({"version": "10.13.3.9"}, "tensorrt version '10.13.3.9+simulated'", id="another-major"),
        pytest.param({"gpu": SimulatedGpu(compute_capability=(8, 9))}, "processor '8.9'; here it is '9.0'", id="gpu"),
    ],
)
def test_plan_for_another_machine_is_answered_natively(
    there: dict[str, Any], said: str, simulate: Callable[..., Simulation], tmp_path: pathlib.Path
) -> None:
    _, compiled = Machine(simulate(**there), tmp_path).compile(CHAIN)
    simulate()

    executable = open_model(compiled, run=RunOptions(trust=ANYONE))

    assert said in executable.facts.rejected[0]
    assert executable.run({"x": floats(2, 4)})["y"].shape == (2, 4)


def cut_short(tensor: onnx.TensorProto) -> None:
    tensor.raw_data = tensor.raw_data[:-1]
    tensor.dims[:] = [len(tensor.raw_data)]


def flip_a_bit(tensor: onnx.TensorProto) -> None:
    tensor.raw_data = tensor.raw_data[:-1] + bytes([tensor.raw_data[-1] ^ 1])


@pytest.mark.parametrize(
    ("damage", "signer", "said"),
    [
        pytest.param(flip_a_bit, "trusted", "its bytes are damaged (sha256 differs)", id="corrupted"),
        pytest.param(cut_short, "trusted", "its bytes are damaged (sha256 differs)", id="truncated"),
        pytest.param(None, None, "it has no signature, and engines of tensorrt need one", id="unsigned"),
        pytest.param(None, "stranger", "its signature is not of a trusted key", id="wrongly-signed"),
    ],
)
def test_plan_that_nobody_vouches_for_is_answered_natively(
    damage: Callable[[bytes], bytes], signer: str | None, said: str, machine: Machine, tmp_path: pathlib.Path
) -> None:
    _, compiled = machine.compile(CHAIN)
    for name in ("trusted", "stranger"):
        generate_key(tmp_path / name)
    if signer:
        sign_model(compiled, compiled, tmp_path / signer)
    proto = onnx.load(compiled)
    if damage:
        (engine,) = (a.t for n in proto.graph.node for a in n.attribute if a.name == "engine")
        damage(engine)
        onnx.save(proto, compiled)

    machine.simulation.enqueues = 0

    executable = open_model(compiled, run=RunOptions(trust=Trust.of([tmp_path / "trusted.pub"], None)))

    assert said in executable.facts.rejected[0]
    assert executable.run({"x": floats(2, 4)})["y"].shape == (2, 4)
    assert machine.simulation.enqueues == 0


def test_model_whose_build_runs_out_of_memory_answers_without_that_engine(machine: Machine) -> None:
    machine.simulation.faults = Faults(build_fails="Requested amount of GPU memory could not be allocated")
    said = "TensorRT found no engine: Requested amount of GPU memory could not be allocated."

    source, compiled = machine.compile(CHAIN)

    assert {(node["code"], said in node["detail"]) for node in native_nodes(compiled)} == {("BUILD_FAILED", True)}
    Loaded(open_model(compiled, run=RunOptions(trust=ANYONE)), onnxruntime.InferenceSession(source)).check(
        x=floats(2, 4)
    )


def test_model_whose_shapes_are_not_given_says_what_to_give(machine: Machine) -> None:
    _, compiled = machine.compile("g (float[N, 4] x) => (float[N, 4] y) { a = Relu(x) y = Exp(a) }")

    nodes = native_nodes(compiled)
    assert {node["code"] for node in nodes} == {"DYNAMIC_SHAPE"}
    assert all("is not fixed. Give those of the model's inputs: --shapes" in node["detail"] for node in nodes)


def native_nodes(compiled: pathlib.Path) -> list[dict]:
    properties = {p.key: p.value for p in onnx.load(compiled).metadata_props}
    nodes: list[dict] = json.loads(properties["trtnode.report"])["native"]
    return nodes


def test_model_whose_build_takes_too_long_is_compiled_without_engines(
    simulate: Callable[..., Simulation],
    simulated_worker: Callable[[Simulation], SubprocessWorker],
    tmp_path: pathlib.Path,
) -> None:
    worker = simulated_worker(simulate(faults=Faults(build_step_s=100)))
    source = tmp_path / "model.onnx"
    onnx.save(parse("g (float[2] x) => (float[2] y) { y = Exp(x) }"), source)

    compiled = compile_model(source, CompileOptions(engine="tensorrt", build_timeout_s=1), worker=worker)

    (node,) = compiled.report.native
    assert (node.code, node.detail) == ("BUILD_FAILED", "build took longer than 1 s and was stopped.")
