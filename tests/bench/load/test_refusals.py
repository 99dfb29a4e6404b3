"""``trtnode bench server`` refuses what it can't measure, with one sentence."""

from __future__ import annotations

import pathlib
import re
import socket
from collections.abc import Callable, Mapping

import grpc
import numpy as np
import pytest

from simulated_server import SimulatedServer, open_port
from trtnode.serving.cli.program import main


def refusal(capsys: pytest.CaptureFixture[str], code: int) -> str:
    """The one sentence on stderr of a command that was refused."""
    printed = capsys.readouterr()
    assert code == 2
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


def test_a_server_that_is_not_there_is_refused(bench: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"

    code = bench(address)

    assert f"No server answers at {address}" in refusal(capsys, code)


def test_a_server_of_another_protocol_is_refused(bench: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    server, address = open_port({})

    code = bench(address)

    server.stop(None).wait()
    assert f"The server at {address} doesn't speak KServe V2" in refusal(capsys, code)


def test_a_model_that_the_server_lacks_is_refused(
    bench: Callable[..., int], digits: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = bench(digits, model="letters")

    assert f"The server at {digits} doesn't know the model 'letters'" in refusal(capsys, code)


def test_a_model_that_is_not_ready_is_refused(
    bench: Callable[..., int], simulated: SimulatedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated.ready = False

    code = bench(simulated.address)

    assert f"The model 'plus' at {simulated.address} isn't ready." in refusal(capsys, code)


def test_a_model_that_refuses_every_input_is_told_with_its_reason(
    bench: Callable[..., int], simulated: SimulatedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated.fails = lambda count: True

    code = bench(simulated.address)

    assert "refuses the first request: RESOURCE_EXHAUSTED: one too many." in refusal(capsys, code)


def test_a_model_that_does_not_answer_is_told(
    bench: Callable[..., int], simulated: SimulatedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated.fails = lambda count: True
    simulated.failure = grpc.StatusCode.UNAVAILABLE

    code = bench(simulated.address)

    found = refusal(capsys, code)
    assert f"The model 'plus' at {simulated.address} doesn't answer: UNAVAILABLE: one too many." in found


def test_a_model_without_described_inputs_takes_those_of_a_file(
    bench: Callable[..., int], simulated: SimulatedServer, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated.inputs = []
    np.savez(tmp_path / "in.npz", x=np.ones((1, 3), np.float32))

    assert bench(simulated.address, "--concurrency", "1", "--inputs", str(tmp_path / "in.npz")) == 0

    capsys.readouterr()
    code = bench(simulated.address)
    assert "names no inputs of model 'plus'. Give them with --inputs." in refusal(capsys, code)


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        pytest.param({"z": np.ones((1, 3), np.float32)}, "the model has no input 'z'; it has 'x'", id="unknown"),
        pytest.param({}, "there is no array 'x', which is an input of the model", id="missing"),
        pytest.param({"x": np.ones((1, 3))}, "'x' of model 'plus' is float64 there, but takes FP32", id="dtype"),
        pytest.param({"x": np.ones((1, 4), np.float32)}, "has shape [1, 4], but takes [-1, 3]", id="shape"),
    ],
)
def test_inputs_that_do_not_fit_the_model_are_refused(
    bench: Callable[..., int],
    simulated: SimulatedServer,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    arrays: Mapping[str, np.ndarray],
    reason: str,
) -> None:
    file = tmp_path / "in.npz"
    np.savez(file, **arrays)

    code = bench(simulated.address, "--inputs", str(file))

    found = refusal(capsys, code)
    assert str(file) in found
    assert reason in found


def test_a_file_that_is_no_npz_is_refused(
    bench: Callable[..., int], simulated: SimulatedServer, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "in.npz"
    file.write_text("not arrays")

    code = bench(simulated.address, "--inputs", str(file))

    assert f"{file}: not an .npz file of arrays" in refusal(capsys, code)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        pytest.param(("--shape", "z:1x3"), "--shape: the model has no input 'z'; it has 'x'", id="unknown-input"),
        pytest.param(("--shape", "x:1x4"), "--shape: input 'x' of model 'plus' has shape [1, 4]", id="wrong-size"),
        pytest.param(
            ("--shape", "x:1x3", "--batch", "2"), "--batch 2: no input of the model that has no --shape", id="no-batch"
        ),
        pytest.param(("--inputs", "in.npz", "--batch", "2"), "--inputs has shapes of its own", id="shapes-twice"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    bench: Callable[..., int],
    simulated: SimulatedServer,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    reason: str,
) -> None:
    assert reason in refusal(capsys, bench(simulated.address, *options))


def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(
    bench: Callable[..., int], simulated: SimulatedServer, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "no" / "such" / "folder" / "rows.json"

    code = bench(simulated.address, "--json", str(file))

    assert code == 1
    assert f"{file}: can't be written" in capsys.readouterr().err
    assert simulated.requests == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        pytest.param(("--requests", "0"), "--requests: 0 is no whole number from 1", id="zero-requests"),
        pytest.param(("--seconds", "0"), "--seconds: 0 is not a positive number", id="zero-seconds"),
        pytest.param(("--rate", "0"), "--rate: 0 is not a positive number", id="zero-rate"),
        pytest.param(("--rate", "-5"), "--rate: -5 is not a positive number", id="negative-rate"),
        pytest.param(("--rate", "10,nan"), "--rate: nan is not a positive number", id="no-rate"),
        pytest.param(("--concurrency", "0"), "--concurrency: 0 is no whole number from 1", id="zero-callers"),
        pytest.param(("--concurrency", "1,-1"), "--concurrency: -1 is no whole number from 1", id="negative-callers"),
        pytest.param(("--concurrency", "1", "--rate", "5"), "not allowed with argument", id="both-loops"),
        pytest.param(("--requests", "5", "--seconds", "5"), "not allowed with argument", id="both-lengths"),
        pytest.param(("--shape", "x"), "--shape: x is no shape; write NAME:1x3x224x224", id="no-shape"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], reason: str
) -> None:
    code = main(["bench", "server", "127.0.0.1:8001", "--model", "plus", *options])

    assert code == 2
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize("address", ["localhost", ":8001", "localhost:0", "localhost:http", "localhost:70000"])
def test_an_address_names_a_host_and_a_port(
    bench: Callable[..., int], capsys: pytest.CaptureFixture[str], address: str
) -> None:
    assert bench(address) == 2

    assert re.search("is no address; write HOST:PORT", capsys.readouterr().err)
