"""``trtnode bench server`` against real servers on the loopback: ours, and a small one that can misbehave."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import mmap
import multiprocessing
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest

import protos
from benchmarks.load.caller import Shot
from benchmarks.load.errors import ClientError
from benchmarks.load.fleet import Fleet
from benchmarks.load.level import Level
from benchmarks.load.target import INFER_METHOD, SERVICE
from serving.cli import main
from serving.config import load_config
from serving.loader import engine_loader
from serving.server import Server

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "digits"
READY_S = 240
LATENCIES = ("p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms")


class Peer:
    """A V2 server with one model, ``plus``, that adds 1 to ``x``, float32[N, 3]; it also takes shared memory.

    A test may make it fail, and sees what it was sent.
    """

    def __init__(self) -> None:
        self.ready = True
        self.inputs = [("x", "FP32", [-1, 3])]
        self.failure = grpc.StatusCode.RESOURCE_EXHAUSTED
        self.fails: Callable[[int], bool] = lambda count: False
        self.requests: list[Any] = []
        self.regions: dict[str, Any] = {}
        self.written: list[np.ndarray] = []
        self._counter = itertools.count(1)

    def ServerLive(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        return protos.ServerLiveResponse(live=True)

    def ModelReady(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        return protos.ModelReadyResponse(ready=self.ready)

    def ModelMetadata(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        tensor = protos.ModelMetadataResponse.TensorMetadata
        return protos.ModelMetadataResponse(
            name="plus",
            inputs=[tensor(name=name, datatype=datatype, shape=shape) for name, datatype, shape in self.inputs],
            outputs=[tensor(name="y", datatype="FP32", shape=[-1, 3])],
        )

    def ModelInfer(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        if self.fails(next(self._counter)):
            context.abort(self.failure, "one too many")
        self.requests.append(request)
        response = protos.ModelInferResponse(model_name="plus")
        response.outputs.add(name="y", datatype="FP32", shape=request.inputs[0].shape)
        response.raw_output_contents.append(self._write(request, self._read(request) + np.float32(1)))
        return response

    def SystemSharedMemoryRegister(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self.regions[request.name] = request
        return protos.SystemSharedMemoryRegisterResponse()

    def SystemSharedMemoryUnregister(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        del self.regions[request.name]
        return protos.SystemSharedMemoryUnregisterResponse()

    def _read(self, request: Any) -> np.ndarray:
        if request.raw_input_contents:
            return np.frombuffer(request.raw_input_contents[0], np.float32)
        with self._mapped(request.inputs[0]) as (memory, start, size):
            return np.frombuffer(memory[start : start + size], np.float32)

    def _write(self, request: Any, result: np.ndarray) -> bytes:
        if not (request.outputs and request.outputs[0].parameters):
            return result.tobytes()
        with self._mapped(request.outputs[0]) as (memory, start, size):
            memory[start : start + size] = result.tobytes()
        self.written.append(result)
        return b""

    @contextlib.contextmanager
    def _mapped(self, tensor: Any) -> Iterator[tuple[mmap.mmap, int, int]]:
        region = self.regions[tensor.parameters["shared_memory_region"].string_param]
        path = pathlib.Path("/dev/shm") / region.key.removeprefix("/")
        with path.open("r+b") as file, mmap.mmap(file.fileno(), region.byte_size) as memory:
            start = tensor.parameters["shared_memory_offset"].int64_param
            yield memory, start, tensor.parameters["shared_memory_byte_size"].int64_param


@dataclasses.dataclass
class Serving:
    """A peer and where it answers."""

    peer: Peer
    address: str


def open_port(handlers: dict[str, grpc.RpcMethodHandler]) -> tuple[grpc.Server, str]:
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
    server.add_registered_method_handlers(SERVICE, handlers)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, f"127.0.0.1:{port}"


@pytest.fixture
def serving() -> Iterator[Serving]:
    peer = Peer()
    rpcs = [name for name in dir(Peer) if name[0].isupper()]
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            getattr(peer, name),
            request_deserializer=getattr(protos, f"{name}Request").FromString,
            response_serializer=getattr(protos, f"{name}Response").SerializeToString,
        )
        for name in rpcs
    }
    server, address = open_port(handlers)
    yield Serving(peer, address)
    server.stop(None).wait()


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server of this project with the example model."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "servable.yaml").write_text(
        f"server: {{grpc: {{port: 0}}, http: {{port: 0}}}}\ncache: {{dir: {folder / 'cache'}}}\n"
        f"models:\n- {{name: digits, path: {EXAMPLES / 'digits.onnx'}, engine: native}}\n"
    )
    config = load_config(folder / "servable.yaml")
    server = Server(config, engine_loader(config))
    server.start()
    assert server.wait_ready(READY_S), server.failure
    yield f"127.0.0.1:{server.port}"
    server.stop(5)


def bench(address: str, *options: str, model: str = "plus", length: tuple[str, ...] = ("--requests", "20")) -> int:
    return main(["bench", "server", address, "--model", model, "--warmup", "0", *length, *options])


def rows_of(file: pathlib.Path) -> list[dict[str, Any]]:
    content = json.loads(file.read_text())
    assert content["complete"]
    assert content["environment"]["cores"]
    rows: list[dict[str, Any]] = content["rows"]
    return rows


def test_a_closed_loop_measures_a_row_for_each_number_of_callers(digits, tmp_path, capsys) -> None:
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


def test_an_open_loop_measures_a_row_for_each_rate(serving, tmp_path, capsys) -> None:
    file = tmp_path / "rows.json"

    code = bench(serving.address, "--rate", "100,200.5", "--json", str(file))

    assert code == 0
    rows = rows_of(file)
    assert [(row["concurrency"], row["rate_per_s"], row["requests"]) for row in rows] == [
        (None, 100.0, 20),
        (None, 200.5, 20),
    ]
    assert all(0 <= row["send_lag_p50_ms"] <= row["send_lag_p99_ms"] for row in rows)
    assert "lag: ms within which" in capsys.readouterr().out


def test_a_row_may_last_for_a_time_instead(serving, tmp_path) -> None:
    file = tmp_path / "rows.json"

    code = bench(serving.address, "--concurrency", "2", "--json", str(file), length=("--seconds", "0.3"))

    assert code == 0
    (row,) = rows_of(file)
    assert row["requests"] >= 2
    assert row["seconds"] >= 0.3


def test_several_client_processes_share_a_row(serving, tmp_path) -> None:
    file = tmp_path / "rows.json"

    code = bench(serving.address, "--concurrency", "3", "--processes", "2", "--json", str(file))

    assert code == 0
    (row,) = rows_of(file)
    assert (row["requests"], row["client_processes"]) == (20, 2)
    assert len(serving.peer.requests) == 20 + 1  # the first one asks whether the inputs fit


def test_failed_requests_are_counted_and_explained(serving, tmp_path, capsys) -> None:
    serving.peer.fails = lambda count: count % 3 == 0
    file = tmp_path / "rows.json"

    code = bench(serving.address, "--concurrency", "2", "--json", str(file), length=("--requests", "30"))

    assert code == 0
    (row,) = rows_of(file)
    assert (row["requests"], row["errors"]) == (30, {"RESOURCE_EXHAUSTED": 10})
    assert "2 callers: 10 of 30 requests failed with RESOURCE_EXHAUSTED: one too many" in capsys.readouterr().out


def test_a_row_without_any_answer_is_a_failure(serving, tmp_path) -> None:
    serving.peer.fails = lambda count: count > 1
    file = tmp_path / "rows.json"

    code = bench(serving.address, "--concurrency", "1", "--json", str(file))

    assert code == 1
    (row,) = rows_of(file)
    assert (row["p50_ms"], row["throughput_per_s"], row["errors"]) == (None, 0.0, {"RESOURCE_EXHAUSTED": 20})


def test_a_rate_too_low_for_the_time_is_told(serving, capsys) -> None:
    code = bench(serving.address, "--rate", "0.001", length=("--seconds", "0.05"))

    assert code == 1
    assert "0.001 requests a second: no request was due in this time. Give more --seconds." in capsys.readouterr().out


def test_tensors_travel_in_shared_memory(serving, tmp_path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(tmp_path / "in.npz", x=x)

    code = bench(serving.address, "--concurrency", "2", "--shared-memory", "--inputs", str(tmp_path / "in.npz"))

    assert code == 0
    first, *others = serving.peer.requests
    assert first.raw_input_contents
    assert len(others) == 20 + 1
    assert not any(request.raw_input_contents for request in others)
    assert len(serving.peer.written) == 21
    assert all(np.array_equal(result, x.ravel() + 1) for result in serving.peer.written)
    (region,) = {request.inputs[0].parameters["shared_memory_region"].string_param for request in others}
    assert serving.peer.regions == {}
    assert not (pathlib.Path("/dev/shm") / region).exists()


def test_generated_inputs_have_the_shapes_that_are_asked_for(serving) -> None:
    assert bench(serving.address, "--concurrency", "1", "--batch", "4") == 0
    assert bench(serving.address, "--concurrency", "1", "--shape", "x:2x3") == 0

    assert {tuple(request.inputs[0].shape) for request in serving.peer.requests} == {(4, 3), (2, 3)}


def test_ctrl_c_prints_what_was_measured_so_far(serving, tmp_path) -> None:
    file = tmp_path / "rows.json"
    command = [sys.executable, "-m", "serving.cli", "bench", "server", serving.address, "--model", "plus"]
    options = ["--concurrency", "1,2,3", "--warmup", "0", "--seconds", "600", "--json", str(file)]
    child = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    busy = threading.Event()
    serving.peer.fails = lambda count: count == 50 and busy.set()

    assert busy.wait(120)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=240)

    assert (child.returncode, err) == (130, "")
    assert "OK/s" in out
    content = json.loads(file.read_text())
    assert (content["complete"], [row["concurrency"] for row in content["rows"]]) == (False, [1])


def test_a_client_process_that_dies_is_told(serving) -> None:
    request = protos.ModelInferRequest(model_name="plus")
    shot = Shot(address=serving.address, method=INFER_METHOD, request=request.SerializeToString(), timeout_s=10.0)
    with Fleet(shot, 1) as fleet:
        multiprocessing.active_children()[0].kill()

        with pytest.raises(ClientError, match="ended before it was done"):
            fleet.run(Level(callers=1), lambda answers: None)


def refusal(capsys: pytest.CaptureFixture[str], code: int) -> str:
    """The one sentence on stderr of a command that was refused."""
    printed = capsys.readouterr()
    assert code == 2
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


def test_a_server_that_is_not_there_is_refused(capsys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"

    code = bench(address)

    assert f"No server answers at {address}" in refusal(capsys, code)


def test_a_server_of_another_protocol_is_refused(capsys) -> None:
    server, address = open_port({})

    code = bench(address)

    server.stop(None).wait()
    assert f"The server at {address} doesn't speak KServe V2" in refusal(capsys, code)


def test_a_model_that_the_server_lacks_is_refused(digits, capsys) -> None:
    code = bench(digits, model="letters")

    assert f"The server at {digits} doesn't know the model 'letters'" in refusal(capsys, code)


def test_a_model_that_is_not_ready_is_refused(serving, capsys) -> None:
    serving.peer.ready = False

    code = bench(serving.address)

    assert f"The model 'plus' at {serving.address} isn't ready." in refusal(capsys, code)


def test_a_model_that_refuses_every_input_is_told_with_its_reason(serving, capsys) -> None:
    serving.peer.fails = lambda count: True

    code = bench(serving.address)

    assert "refuses the first request: RESOURCE_EXHAUSTED: one too many." in refusal(capsys, code)


def test_a_model_that_does_not_answer_is_told(serving, capsys) -> None:
    serving.peer.fails = lambda count: True
    serving.peer.failure = grpc.StatusCode.UNAVAILABLE

    code = bench(serving.address)

    found = refusal(capsys, code)
    assert f"The model 'plus' at {serving.address} doesn't answer: UNAVAILABLE: one too many." in found


def test_a_model_without_described_inputs_takes_those_of_a_file(serving, tmp_path, capsys) -> None:
    serving.peer.inputs = []
    np.savez(tmp_path / "in.npz", x=np.ones((1, 3), np.float32))

    assert bench(serving.address, "--concurrency", "1", "--inputs", str(tmp_path / "in.npz")) == 0

    capsys.readouterr()
    code = bench(serving.address)
    assert "names no inputs of model 'plus'. Give them with --inputs." in refusal(capsys, code)


def test_a_server_without_shared_memory_is_told(digits, capsys) -> None:
    code = bench(digits, "--shared-memory", model="digits")

    assert f"The server at {digits} takes no system shared memory: PERMISSION_DENIED" in refusal(capsys, code)


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        pytest.param({"z": np.ones((1, 3), np.float32)}, "the model has no input 'z'; it has 'x'", id="unknown"),
        pytest.param({}, "there is no array 'x', which is an input of the model", id="missing"),
        pytest.param({"x": np.ones((1, 3))}, "'x' of model 'plus' is float64 there, but takes FP32", id="dtype"),
        pytest.param({"x": np.ones((1, 4), np.float32)}, "has shape [1, 4], but takes [-1, 3]", id="shape"),
    ],
)
def test_inputs_that_do_not_fit_the_model_are_refused(serving, tmp_path, capsys, arrays, reason) -> None:
    file = tmp_path / "in.npz"
    np.savez(file, **arrays)

    code = bench(serving.address, "--inputs", str(file))

    found = refusal(capsys, code)
    assert str(file) in found
    assert reason in found


def test_a_file_that_is_no_npz_is_refused(serving, tmp_path, capsys) -> None:
    file = tmp_path / "in.npz"
    file.write_text("not arrays")

    code = bench(serving.address, "--inputs", str(file))

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
def test_options_that_do_not_fit_are_refused(serving, capsys, options, reason) -> None:
    assert reason in refusal(capsys, bench(serving.address, *options))


def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(serving, tmp_path, capsys) -> None:
    file = tmp_path / "no" / "such" / "folder" / "rows.json"

    code = bench(serving.address, "--json", str(file))

    assert code == 1
    assert f"{file}: can't be written" in capsys.readouterr().err
    assert serving.peer.requests == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        pytest.param(("--requests", "0"), "--requests: 0 is not a positive number", id="zero-requests"),
        pytest.param(("--seconds", "0"), "--seconds: 0 is not a positive number", id="zero-seconds"),
        pytest.param(("--rate", "0"), "--rate: 0 is not a positive number", id="zero-rate"),
        pytest.param(("--rate", "-5"), "--rate: -5 is not a positive number", id="negative-rate"),
        pytest.param(("--rate", "10,nan"), "--rate: nan is not a positive number", id="no-rate"),
        pytest.param(("--concurrency", "0"), "--concurrency: 0 is not a positive number", id="zero-callers"),
        pytest.param(("--concurrency", "1,-1"), "--concurrency: -1 is not a positive number", id="negative-callers"),
        pytest.param(("--concurrency", "1", "--rate", "5"), "not allowed with argument", id="both-loops"),
        pytest.param(("--requests", "5", "--seconds", "5"), "not allowed with argument", id="both-lengths"),
        pytest.param(("--shape", "x"), "--shape: x is no shape; write NAME:1x3x224x224", id="no-shape"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(capsys, options, reason) -> None:
    code = main(["bench", "server", "127.0.0.1:8001", "--model", "plus", *options])

    assert code == 2
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize("address", ["localhost", ":8001", "localhost:0", "localhost:http", "localhost:70000"])
def test_an_address_names_a_host_and_a_port(capsys, address) -> None:
    assert bench(address) == 2

    assert re.search("is no address; write HOST:PORT", capsys.readouterr().err)
