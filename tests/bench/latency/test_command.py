"""``trtnode bench networks`` and ``bench model``, as a user types them."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import numpy as np
import onnx
import pytest

from operator_libraries import DOMAIN, SCALE, compile_library
from trtnode.bench.latency.recipes import PRECISIONS
from trtnode.bench.latency_report.results import LatencyResult, LatencyRow, read_result
from trtnode.engines.backends.names import ASKED_PRECISIONS
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.serving.cli.program import main

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("brief_tuning")]

DIGITS = pathlib.Path(__file__).parents[3] / "examples" / "digits"
MODEL, TEST_SET = DIGITS / "digits.onnx", DIGITS / "test.npz"
BUDGET_S = 100


@pytest.fixture
def tiny(tmp_path: pathlib.Path) -> pathlib.Path:
    """A model with an open batch dimension, which runs in microseconds."""
    path = tmp_path / "tiny.onnx"
    text = '<ir_version: 10, opset_import: ["": 18]> tiny (float[N, 3] x) => (float[N, 3] y) { y = Relu(x) }'
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def test_every_precision_that_can_be_asked_for_has_options() -> None:
    assert set(PRECISIONS) == set(ASKED_PRECISIONS)


def bench(model: pathlib.Path, *options: str) -> int:
    return main(["bench", "model", str(model), "--engine", "native", "--rounds", "2", *options])


@pytest.fixture
def without_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure beside no other system: each takes a process."""
    monkeypatch.setattr("trtnode.bench.latency.command.PEERS", {})


@dataclasses.dataclass(frozen=True)
class Run:
    """A measurement and its page."""

    result: LatencyResult
    page: str


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One measurement of the example, in process and over gRPC."""
    folder = tmp_path_factory.mktemp("run")
    reports = ["--json", str(folder / "run.json"), "--html", str(folder / "run.html")]
    asked = ["--inputs", str(TEST_SET), "--via", "process,grpc", "--rounds", "2", "--threads", "1"]
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["bench", "model", str(MODEL), *asked, *reports]) == 0
    return Run(read_result(folder / "run.json"), (folder / "run.html").read_text())


def rows_by_kind(result: LatencyResult) -> dict[tuple[str, str], LatencyRow]:
    return {(row.via, row.setting): row for row in result.rows}


def test_a_model_is_measured_in_every_setting_and_way(run: Run) -> None:
    rows = rows_by_kind(run.result)

    assert rows.keys() == {
        ("process", "native"), ("process", "fp32"), ("process", "openvino"), ("grpc", "native"), ("grpc", "fp32"),
    }  # fmt: skip
    assert all(0 < row.p50_ms <= row.p95_ms <= row.p99_ms for row in rows.values())
    assert all(row.mean10_ms > 0 and row.load_s > 0 for row in rows.values())
    assert all(row.ratio_low <= row.ratio <= row.ratio_high for row in rows.values())
    assert (rows["process", "native"].ratio, rows["grpc", "native"].ratio) == (1.0, 1.0)
    assert {(row.network, row.batch, row.threads) for row in rows.values()} == {("digits", 1, 1)}
    assert run.result.complete


def test_answers_are_compared_with_native_ones(run: Run) -> None:
    rows = rows_by_kind(run.result)

    assert (rows["process", "native"].max_abs, rows["process", "native"].cosine) == (0.0, 1.0)
    assert 0 < (rows["process", "openvino"].max_abs or 0) < 1e-4
    assert all(row.top1_agreement == 1.0 for row in rows.values())


def test_memory_is_that_of_a_process_of_its_own(run: Run) -> None:
    rows = rows_by_kind(run.result)

    assert 20 < rows["process", "native"].peak_rss_mb < rows["process", "openvino"].peak_rss_mb


def test_grpc_rows_tell_what_the_way_adds(run: Run) -> None:
    rows = rows_by_kind(run.result)

    assert all((rows["grpc", setting].over_process_ms or 0) > 0 for setting in ("native", "fp32"))
    assert rows["process", "native"].over_process_ms is None
    assert rows["grpc", "native"].over_native_ms is None
    middle, low, high = rows["grpc", "fp32"].over_native_ms or (0.0, 1.0, -1.0)
    assert low <= middle <= high


def test_the_page_is_written_beside_the_figures(run: Run) -> None:
    assert run.page.count("<tr class=") == 2 * len(run.result.rows)  # a bar and the figures


@pytest.mark.usefixtures("without_peers")
def test_each_batch_size_is_measured_and_compared_with_an_earlier_run(
    tiny: pathlib.Path,
    run: Run,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    measured = rows_by_kind(run.result)["process", "fp32"]
    was_faster = dataclasses.replace(
        measured, network="tiny", batch=3, threads=None, ratio=1e3, ratio_low=1e3, ratio_high=1e3
    )
    (tmp_path / "old.json").write_bytes(LatencyResult(environment={}, rows=[was_faster], complete=True).as_json())

    code = bench(tiny, "--batch", "1,3", "--json", str(tmp_path / "run.json"), "--compare", str(tmp_path / "old.json"))

    rows = read_result(tmp_path / "run.json").rows
    printed = capsys.readouterr()
    assert code == 1
    assert [(row.batch, row.setting) for row in rows] == [
        (batch, setting) for batch in (1, 3) for setting in ("native", "fp32")
    ]
    assert "Geometric mean of ratios, fp32, process, batch 3" in printed.out
    assert "1 of 1 rows are slower beyond chance" in printed.out
    lines = printed.err.splitlines()
    assert lines[0] == "[1/10] tiny, batch 1: compiling for fp32"
    assert len(lines) == 10


def test_a_system_that_refuses_a_model_is_left_out_with_a_reason(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "strings.onnx"
    text = """<ir_version: 10, opset_import: ["": 20]> strings (string[1] x) => (string[1] y) {
        y = StringConcat(x, x)
    }"""
    onnx.save(onnx.parser.parse_model(text), path)

    code = bench(path, "--json", str(tmp_path / "run.json"))

    result = read_result(tmp_path / "run.json")
    assert code == 0
    assert [row.setting for row in result.rows] == ["native", "fp32"]
    assert [one.setting for one in result.left_out] == ["openvino"]
    assert result.left_out[0].reason.startswith("OpenVINO")


@pytest.mark.usefixtures("without_peers")
def test_a_model_is_measured_with_operators_of_a_library(tmp_path: pathlib.Path) -> None:
    path, library = tmp_path / "scaled.onnx", compile_library(tmp_path / "scale.so", SCALE)
    text = f"""<ir_version: 10, opset_import: ["": 21{DOMAIN}]> scaled (float[4] x) => (float[4] y) {{
        y = test.operators.Scale(x)
    }}"""
    onnx.save(onnx.parser.parse_model(text), path)

    code = bench(path, "--custom-op-library", str(library), "--json", str(tmp_path / "run.json"))

    assert code == 0
    assert [row.setting for row in read_result(tmp_path / "run.json").rows] == ["native", "fp32"]


@pytest.mark.usefixtures("without_peers")
def test_a_network_is_built_and_measured(tmp_path: pathlib.Path) -> None:
    options = ["--only", "lenet5", "--engine", "native", "--rounds", "1", "--cache", str(tmp_path)]

    code = main(["bench", "networks", *options, "--json", str(tmp_path / "run.json")])

    result = read_result(tmp_path / "run.json")
    rows = result.rows
    assert code == 0
    assert {row.network for row in rows} == {"lenet5"}
    assert all(row.cosine == pytest.approx(1.0) for row in rows)


@contextlib.contextmanager
def benching(tiny: pathlib.Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "trtnode", "bench", "model", str(tiny), "--engine", "native", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        guard = threading.Timer(BUDGET_S, process.kill)
        guard.start()
        yield process
        guard.cancel()


def interrupt(process: subprocess.Popen[str]) -> None:
    """Press Ctrl-C: a terminal tells every process of the program."""
    os.killpg(process.pid, signal.SIGINT)


@pytest.mark.parametrize("end", [interrupt, subprocess.Popen.terminate], ids=["ctrl-c", "sigterm"])
def test_interruption_prints_and_writes_what_was_measured(
    end: Callable[[subprocess.Popen[str]], None], tiny: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "run.json"
    options = ["--rounds", "100000", "--json", str(path), "--html", str(tmp_path / "run.html")]
    with benching(tiny, *options) as process:
        assert process.stderr is not None
        rounds = (line for line in process.stderr if "measuring" in line)
        next(rounds), next(rounds)
        end(process)
        out, err = process.communicate()

    result = read_result(path)
    assert process.returncode == 130
    assert "Not complete" in out
    assert "Traceback" not in err
    assert not result.complete
    assert [row.setting for row in result.rows] == ["native", "fp32", "openvino"]
    assert "Not complete" in (tmp_path / "run.html").read_text()


def test_figures_of_a_model_are_written_before_the_next_is_measured(tiny: pathlib.Path, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.json"
    with benching(tiny, "--batch", "1,3", "--rounds", "2", "--json", str(path)) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if "batch 3: compiling" in line)
        result = read_result(path)
        process.kill()

    assert not result.complete
    assert {row.batch for row in result.rows} == {1}


def saved(path: pathlib.Path, **arrays: np.ndarray) -> str:
    np.savez(path, **arrays)
    return str(path)


def test_inputs_that_do_not_fit_are_one_sentence(
    tiny: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right, wrong = np.ones((1, 3), np.float32), np.ones((1, 4), np.float32)
    cases = {
        "Input 'x' is missing": saved(tmp_path / "name.npz", y=right),
        "Input 'x' must be float32[N, 3], but is float32[1, 4]": saved(tmp_path / "shape.npz", x=wrong),
        "Input 'x' must be float32[N, 3], but is float64[1, 3]": saved(tmp_path / "type.npz", x=right.astype(float)),
        "'x' has no rows": saved(tmp_path / "empty.npz", x=right[:0]),
    }
    for message, path in cases.items():
        assert bench(tiny, "--inputs", path) == 2
        assert_one_sentence(capsys, message, pathlib.Path(path).name)


def test_a_fixed_batch_can_not_be_changed(capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "fixed.onnx"
    text = '<ir_version: 10, opset_import: ["": 18]> fixed (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }'
    onnx.save(onnx.parser.parse_model(text), path)

    assert bench(path, "--batch", "8") == 2

    assert_one_sentence(capsys, "its batch size is fixed", "fixed.onnx")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param(["networks", "--only", "lenet6"], 2, "There is no network 'lenet6'", id="unknown-network"),
        pytest.param(["networks", "--only", ","], 2, "it names nothing", id="no-network"),
        pytest.param(["networks", "--rounds", "0"], 2, "0 is no whole number from 1", id="no-rounds"),
        pytest.param(["networks", "--batch", "1,0"], 2, "0 is no whole number from 1", id="no-batch"),
        pytest.param(["networks", "--threads", "two"], 2, "two is no whole number from 1", id="no-threads"),
        pytest.param(["networks", "--precision", "fp31"], 2, "'fp31' is none of fp32", id="unknown-precision"),
        pytest.param(["networks", "--via", "http"], 2, "'http' is none of process, grpc", id="unknown-way"),
        pytest.param(["model", "absent.onnx"], 1, "absent.onnx: can't be read", id="no-model"),
        pytest.param(["model", str(MODEL), "--inputs", "no.npz"], 1, "no.npz", id="no-inputs"),
        pytest.param(["model", str(MODEL), "--compare", "no.json"], 2, "no.json: can't be read", id="no-earlier-run"),
        pytest.param(["model", str(MODEL), "--compare", str(MODEL)], 2, "is no result of a", id="no-result"),
        pytest.param(["model", str(MODEL), "--json", "absent/r.json"], 1, "there is no such folder", id="no-folder"),
        pytest.param(["routers"], 2, "invalid choice: 'routers'", id="unknown-sub-command"),
        pytest.param([], 2, "required: WHAT", id="no-sub-command"),
    ],
)
def test_bad_arguments_end_in_one_sentence(
    arguments: list[str], code: int, message: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)

    assert main(["bench", *arguments]) == code

    assert_one_sentence(capsys, message)


def assert_one_sentence(capsys: pytest.CaptureFixture[str], *parts: str) -> None:
    printed = capsys.readouterr()
    *_, last = (line for line in printed.err.splitlines() if not line.startswith("`trtnode "))
    assert all(part in last for part in parts), printed.err
    assert "Traceback" not in printed.err
    assert printed.out == ""


def test_a_compiled_model_is_not_measured_as_a_source(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled = tmp_path / "compiled.onnx"
    compile_model(MODEL, CompileOptions()).save(compiled)

    assert main(["bench", "model", str(compiled)]) == 1

    assert_one_sentence(capsys, f"{compiled}: this model is compiled already.")
