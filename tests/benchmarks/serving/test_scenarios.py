"""The benchmark of the server: statistics, targets, reasons of missing candidates, and the bare server."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
import stat
import time

import numpy as np
import onnx.reference
import pytest

from benchmarks.serving import __main__ as program
from benchmarks.serving.bare_server import make_server
from benchmarks.serving.interleaving import medians, ratio, take_turns
from benchmarks.serving.load_generators import LoadFigures, PythonClient, find_perf_analyzer, read_figures
from benchmarks.serving.models import IMAGE_SHAPE, MLP_SIZES, write_image_model, write_mlp
from benchmarks.serving.peers import PEERS
from benchmarks.serving.scenarios import in_process
from benchmarks.serving.servers import BenchmarkModel, our_server
from benchmarks.serving.targets import SpeedTarget, check_targets
from trtnode.bench.load.client_process import connect
from trtnode.bench.server_process import free_port, inference_call
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.serving.config.load import load_config
from trtnode.serving.schema.server import ServableConfig
from trtnode.serving.threads.cpu_affinity import PortCores

AT_LEAST = SpeedTarget(what="throughput", candidate="ours", baseline="theirs", limit=0.85)
AT_MOST = SpeedTarget(what="latency", candidate="ours", baseline="theirs", limit=1.15, measure="p50_ms")
SHOWN = SpeedTarget(what="throughput", candidate="ours", baseline="theirs", limit=None)


def figures(*throughputs: float) -> list[LoadFigures]:
    """One entry a round; the latency is what one caller would see."""
    return [LoadFigures(throughput_per_s=number, p50_ms=1000 / number) for number in throughputs]


@pytest.fixture(autouse=True)
def no_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    for peer in PEERS:
        monkeypatch.delenv(peer.variable, raising=False)


def test_candidates_take_turns_and_each_starts_a_round() -> None:
    order: list[str] = []

    def candidate(name: str) -> LoadFigures:
        order.append(name)
        return LoadFigures(throughput_per_s=1.0, p50_ms=1.0)

    take_turns({name: lambda name=name: candidate(name) for name in "abc"}, 3)

    assert "".join(order) == "abcbcacab"


def test_a_ratio_does_not_follow_the_speed_of_the_machine() -> None:
    fast_then_slow = figures(1000, 1000, 100, 10)

    found = ratio(figures(900, 900, 90, 9), fast_then_slow, "throughput_per_s")

    assert (found.median, found.low, found.high) == pytest.approx((0.9, 0.9, 0.9))


def test_one_disturbed_round_does_not_decide() -> None:
    assert ratio(figures(900, 100, 900), figures(1000, 1000, 1000), "throughput_per_s").median == pytest.approx(0.9)
    assert medians(figures(900, 100, 900)).throughput_per_s == 900


@pytest.mark.parametrize(
    ("target", "ours", "holds"),
    [
        pytest.param(AT_LEAST, 900, True, id="enough-throughput"),
        pytest.param(AT_LEAST, 800, False, id="too-little-throughput"),
        pytest.param(AT_MOST, 900, True, id="low-latency"),
        pytest.param(AT_MOST, 800, False, id="high-latency"),
        pytest.param(SHOWN, 10, None, id="only-shown"),
    ],
)
def test_throughput_has_a_least_and_latency_a_most(target: SpeedTarget, ours: float, holds: bool | None) -> None:
    (row,) = check_targets([target], {"ours": figures(ours), "theirs": figures(1000)}, {})

    assert row.holds is holds


def test_a_target_without_its_candidate_says_why() -> None:
    (row,) = check_targets([AT_LEAST], {"ours": figures(1000)}, {"theirs": "theirs is not installed"})

    assert (row.ratio, row.holds, row.missing) == (None, None, "theirs is not installed")


def test_figures_of_perf_analyzer_are_read(tmp_path: pathlib.Path) -> None:
    table = tmp_path / "figures.csv"
    table.write_text("Concurrency,Inferences/Second,Client Send,p50 latency,p90 latency\n8,1585.34,3,4901,5350\n")

    assert read_figures(table) == LoadFigures(throughput_per_s=1585.34, p50_ms=4.901)


def test_a_perf_analyzer_that_is_not_there_is_named(tmp_path: pathlib.Path) -> None:
    assert f"{tmp_path}/none: No such file" in str(find_perf_analyzer(tmp_path / "none"))


def test_a_perf_analyzer_that_lacks_a_library_says_so(tmp_path: pathlib.Path) -> None:
    broken = tmp_path / "perf_analyzer"
    broken.write_text("#!/bin/sh\necho 'libb64.so.0d: cannot open shared object file' >&2\nexit 127\n")
    broken.chmod(broken.stat().st_mode | stat.S_IXUSR)

    assert "libb64.so.0d: cannot open" in str(find_perf_analyzer(broken))


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


def test_bare_servers_of_several_processes_share_a_port(tmp_path: pathlib.Path) -> None:
    config = bare_server_config(tmp_path, port=free_port(), workers=2)

    servers = [make_server(config, PortCores(1, place)) for place in range(2)]  # raises if a port is taken

    for server in servers:
        server.stop(None).wait()


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


def test_throughput_in_process_counts_rows() -> None:
    class Slow:
        """Takes 10 ms, whatever it gets."""

        inputs = (TensorSpec(name="x", dtype=None, shape=None),)

        def run(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            time.sleep(0.01)
            return {}

    found = in_process(Slow(), (8, 4))(1, 0.05)

    assert found.throughput_per_s <= 800
    assert found.p50_ms >= 10
