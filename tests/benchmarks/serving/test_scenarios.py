"""The benchmark of the server: statistics, targets, reasons of missing candidates, and the bare server."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil

import numpy as np
import onnx.reference
import pytest

from benchmarks.serving import __main__ as program
from benchmarks.serving.bare_server import make_server
from benchmarks.serving.load_generators import LoadFigures, PythonClient
from benchmarks.serving.models import IMAGE_SHAPE, MLP_SIZES, write_image_model, write_mlp
from benchmarks.serving.peers import PEERS
from benchmarks.serving.servers import BenchmarkModel, our_server
from trtnode.bench.load.client_process import connect
from trtnode.bench.server_process import free_port, inference_call
from trtnode.serving.config.load import load_config
from trtnode.serving.schema.server import ServableConfig
from trtnode.serving.threads.cpu_affinity import PortCores


def figures(*throughputs: float) -> list[LoadFigures]:
    """One entry a round; the latency is what one caller would see."""
    return [LoadFigures(throughput_per_s=number, p50_ms=1000 / number) for number in throughputs]


@pytest.fixture(autouse=True)
def no_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    for peer in PEERS:
        monkeypatch.delenv(peer.variable, raising=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--only", "small,smaller"], "there is no scenario 'smaller'", id="unknown-scenario"),
        pytest.param(["--kserve-python", "/nowhere/python"], "/nowhere/python is no program", id="no-program"),
        pytest.param(["--fast"], "unrecognized arguments: --fast", id="unknown-option"),
    ],
)
def test_wrong_arguments_exit_with_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        program.main(arguments)

    assert message in capsys.readouterr().err


def test_a_json_file_without_a_folder_is_refused_before_anything_runs(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["--json", str(tmp_path / "none" / "result.json")]) != 0
    assert "there is no such folder" in capsys.readouterr().err


def test_a_run_names_peers_that_are_missing_and_those_that_do_not_start(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "QUICK_ROUNDS", 2)
    monkeypatch.setattr(program, "QUICK_SECONDS", 0.1)
    result = tmp_path / "result.json"
    broken = shutil.which("false")
    assert broken is not None

    code = program.main(["--peers", "--quick", "--only", "peers", "--kserve-python", broken, "--json", str(result)])

    printed = capsys.readouterr()
    text = " ".join(printed.out.split())
    assert code == 0, printed
    assert "MLServer is not installed: python3.11 -m venv DIR" in text
    assert "KServe can't be measured: The server stopped with exit code 1." in text
    (scenario,) = json.loads(result.read_text())["races"]
    assert [len(rounds) for rounds in scenario["figures"].values()] == [2, 2]


def bare_server_config(folder: pathlib.Path, **grpc: int) -> ServableConfig:
    model, config = folder / "mlp.onnx", folder / "servable.yaml"
    write_mlp(model)
    content = {
        "server": {"grpc": grpc},
        "cache": {"dir": str(folder / "cache")},
        "models": [{"name": "mlp", "path": str(model), "engine": "native", "threads": 1}],
    }
    config.write_text(json.dumps(content))
    return load_config(config)


def test_the_bare_server_answers_as_the_model_does(tmp_path: pathlib.Path) -> None:
    port = free_port()
    x = np.random.default_rng(0).standard_normal((3, MLP_SIZES[0]), np.float32)
    server = make_server(bare_server_config(tmp_path, port=port), PortCores())
    server.start()

    try:
        with connect(f"127.0.0.1:{port}") as channel:
            response = inference_call(channel, "mlp", {"x": x})()
    finally:
        server.stop(None).wait()

    found = np.frombuffer(response.raw_output_contents[0], np.float32).reshape(response.outputs[0].shape)
    (expected,) = onnx.reference.ReferenceEvaluator(str(tmp_path / "mlp.onnx")).run(None, {"x": x})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_the_python_client_measures_our_server_by_shared_memory(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "image.onnx"
    write_image_model(file)
    model = BenchmarkModel(file=file, shape=(1, *IMAGE_SHAPE), settings={"engine": "native", "threads": 1})

    with (
        our_server(model, tmp_path) as endpoint,
        PythonClient().open(dataclasses.replace(endpoint, shared_memory=True)) as turn,
    ):
        assert turn(2, 0.2).throughput_per_s > 0
