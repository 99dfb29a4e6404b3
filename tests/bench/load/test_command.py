"""``trtnode bench server`` measures real servers on the loopback: ours, and a simulated one that can fail."""

from __future__ import annotations

import json
import multiprocessing
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from simulated_server import SimulatedServer
from trtnode.bench.load.client_pool import ClientProcessPool
from trtnode.bench.load.client_process import RepeatedRequest
from trtnode.bench.load.errors import ClientError
from trtnode.bench.load.load_level import Level
from trtnode.bench.load.target import INFER_METHOD
from trtnode.protos import ModelInferRequest

LATENCIES = ("p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms")


def rows_of(file: pathlib.Path) -> list[dict[str, Any]]:
    content = json.loads(file.read_text())
    assert content["complete"]
    assert content["environment"]["cores"]
    rows: list[dict[str, Any]] = content["rows"]
    return rows


def test_a_closed_loop_measures_a_row_for_each_number_of_callers(
    bench: Callable[..., int], digits: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.json"

    code = bench(digits, "--concurrency", "1,8", "--warmup", "0.1", "--json", str(file), model="digits")

    assert code == 0
    rows = rows_of(file)
    assert [(row["concurrency"], row["rate_per_s"], row["requests"], row["errors"]) for row in rows] == [
        (1, None, 20, {}),
        (8, None, 20, {}),
    ]
    for row in rows:
        times = [row[name] for name in LATENCIES]
        assert times == sorted(times)
        assert 0 < times[0] <= row["seconds"] * 1e3
        assert row["throughput_per_s"] == pytest.approx(20 / row["seconds"], rel=0.01)
        assert row["client_cores"] > 0
        assert row["inputs"] == {"image": [1, 1, 8, 8]}
    printed = capsys.readouterr()
    assert "OK/s" in printed.out
    assert printed.err == ""


def test_an_open_loop_measures_a_row_for_each_rate(
    bench: Callable[..., int], simulated: SimulatedServer, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.json"

    code = bench(simulated.address, "--rate", "100,200.5", "--json", str(file))

    assert code == 0
    rows = rows_of(file)
    assert [(row["concurrency"], row["rate_per_s"], row["requests"]) for row in rows] == [
        (None, 100.0, 20),
        (None, 200.5, 20),
    ]
    assert all(0 <= row["send_lag_p50_ms"] <= row["send_lag_p99_ms"] for row in rows)
    assert "lag: ms within which" in capsys.readouterr().out


def test_a_row_may_last_for_a_time_instead(
    bench: Callable[..., int], simulated: SimulatedServer, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "rows.json"

    code = bench(simulated.address, "--concurrency", "2", "--json", str(file), length=("--seconds", "0.3"))

    assert code == 0
    (row,) = rows_of(file)
    assert row["requests"] >= 2
    assert row["seconds"] >= 0.3


def test_several_client_processes_share_a_row(
    bench: Callable[..., int], simulated: SimulatedServer, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "rows.json"

    code = bench(simulated.address, "--concurrency", "3", "--processes", "2", "--json", str(file))

    assert code == 0
    (row,) = rows_of(file)
    assert (row["requests"], row["client_processes"]) == (20, 2)
    assert len(simulated.requests) == 20 + 1  # the first one asks whether the inputs fit


def test_failed_requests_are_counted_and_explained(
    bench: Callable[..., int], simulated: SimulatedServer, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated.fails = lambda count: count % 3 == 0
    file = tmp_path / "rows.json"

    code = bench(simulated.address, "--concurrency", "2", "--json", str(file), length=("--requests", "30"))

    assert code == 0
    (row,) = rows_of(file)
    assert (row["requests"], row["errors"]) == (30, {"RESOURCE_EXHAUSTED": 10})
    assert "2 callers: 10 of 30 requests failed with RESOURCE_EXHAUSTED: one too many" in capsys.readouterr().out


def test_a_row_without_any_answer_is_a_failure(
    bench: Callable[..., int], simulated: SimulatedServer, tmp_path: pathlib.Path
) -> None:
    simulated.fails = lambda count: count > 1
    file = tmp_path / "rows.json"

    code = bench(simulated.address, "--concurrency", "1", "--json", str(file))

    assert code == 1
    (row,) = rows_of(file)
    assert (row["p50_ms"], row["throughput_per_s"], row["errors"]) == (None, 0.0, {"RESOURCE_EXHAUSTED": 20})


def test_a_rate_too_low_for_the_time_is_told(
    bench: Callable[..., int], simulated: SimulatedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    code = bench(simulated.address, "--rate", "0.001", length=("--seconds", "0.05"))

    assert code == 1
    assert "0.001 requests a second: no request was due in this time. Give more --seconds." in capsys.readouterr().out


def test_generated_inputs_have_the_shapes_that_are_asked_for(
    bench: Callable[..., int], simulated: SimulatedServer
) -> None:
    assert bench(simulated.address, "--concurrency", "1", "--batch", "4") == 0
    assert bench(simulated.address, "--concurrency", "1", "--shape", "x:2x3") == 0

    assert {tuple(request.inputs[0].shape) for request in simulated.requests} == {(4, 3), (2, 3)}


def test_ctrl_c_prints_what_was_measured_so_far(simulated: SimulatedServer, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "rows.json"
    command = [sys.executable, "-m", "trtnode", "bench", "server", simulated.address, "--model", "plus"]
    options = ["--concurrency", "1,2,3", "--warmup", "0", "--seconds", "600", "--json", str(file)]
    child = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    busy = threading.Event()
    simulated.fails = lambda count: count == 50 and busy.set()

    assert busy.wait(120)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=240)

    assert (child.returncode, err) == (130, "")
    assert "OK/s" in out
    content = json.loads(file.read_text())
    assert (content["complete"], [row["concurrency"] for row in content["rows"]]) == (False, [1])


def test_a_client_process_that_dies_is_told(simulated: SimulatedServer) -> None:
    request = ModelInferRequest(model_name="plus")
    repeated = RepeatedRequest(
        address=simulated.address, method=INFER_METHOD, request=request.SerializeToString(), timeout_s=10.0
    )
    with ClientProcessPool(repeated, 1) as pool:
        multiprocessing.active_children()[0].kill()

        with pytest.raises(ClientError, match="ended before it was done"):
            pool.run(Level(callers=1), lambda answers: None)
