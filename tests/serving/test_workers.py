"""``workers: N``: processes that share the gRPC port, and the supervisor that keeps them. All of them are real."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import pytest
import tritonclient.grpc as triton
import tritonclient.http as triton_http
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException

pytestmark = pytest.mark.slow

READY_S = 240
EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "digits"
CONNECTIONS = 12
"""So many that all of them go to one of two workers once in two thousand times."""
SPIN = '{model="spin",version="1"}'
PENDING = "nv_inference_pending_request_count"


class Group:
    """A server of several processes; its log is a file."""

    def __init__(self, folder: pathlib.Path, models: str, *, server: str = "", port: int = 0, workers: int = 2) -> None:
        self._log = folder / "log"
        self._clients: list[triton.InferenceServerClient] = []
        (folder / "servable.yaml").write_text(
            f"server: {{grpc: {{port: {port}, workers: {workers}}}, http: {{port: 0}}, {server}}}\n"
            f"cache: {{dir: cache}}\nmodels:\n{models}"
        )
        command = [sys.executable, "-m", "serving.cli", "serve", "--config", str(folder / "servable.yaml")]
        with self._log.open("w") as log:
            self.process = subprocess.Popen(command, stderr=log)

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def pids(self) -> dict[int, int]:
        """The last process of each worker, by the worker's number."""
        return {int(number): int(pid) for number, pid in re.findall(r"Worker (\d) is process (\d+)", self.log)}

    @property
    def address(self) -> str:
        return "127.0.0.1:" + re.search(r"ready on 127.0.0.1:(\d+)", self.log)[1]

    @property
    def http_address(self) -> str:
        return "127.0.0.1:" + re.search(r"HTTP on 127.0.0.1:(\d+)", self.log)[1]

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 120
        while text not in self.log:
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.02)

    def wait_ready(self) -> None:
        self.wait_for("ready on")
        while self.http("/readyz")[0] != 200:
            assert self.process.poll() is None, self.log
            time.sleep(0.02)

    def connect(self) -> triton.InferenceServerClient:
        """Return a client with a connection of its own."""
        alone = [("grpc.use_local_subchannel_pool", 1)]
        self._clients.append(triton.InferenceServerClient(self.address, channel_args=alone))
        return self._clients[-1]

    def connect_to_all(self) -> list[triton.InferenceServerClient]:
        """Return clients whose connections are spread over the workers."""
        return [self.connect() for _ in range(CONNECTIONS)]

    def http(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.http_address}{path}", timeout=READY_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, sample: str) -> float:
        return float(re.search(rf"^{re.escape(sample)} (\S+)$", self.http("/metrics")[1], re.MULTILINE)[1])

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(READY_S)

    def close(self) -> None:
        for client in self._clients:
            client.close()
        for pid in self.pids.values():  # one that a test has stopped can't notice that its supervisor is gone
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()


Launch = Callable[..., Group]


@pytest.fixture
def launch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launch]:
    groups: list[Group] = []

    def launch_group(models: str, **settings: Any) -> Group:
        groups.append(Group(tmp_path_factory.mktemp("group"), models, **settings))
        return groups[-1]

    yield launch_group
    for group in groups:
        group.close()


@pytest.fixture(scope="module")
def running(models: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """A ready server with two models, for tests that leave it as it is."""
    digits = f"- {{name: digits, path: {EXAMPLE}/digits.onnx, engine: openvino, warmup: 0}}\n"
    group = Group(
        tmp_path_factory.mktemp("running"),
        entry(models) + digits,
        server="admin: {repository: true, shared_memory: true}",
    )
    group.wait_ready()
    yield group
    group.close()


def entry(models: pathlib.Path) -> str:
    """Return the entry of a model that adds its inputs."""
    return f"- {{name: m, path: {models}/two.onnx, engine: native, warmup: 0}}\n"


def infer(client: triton.InferenceServerClient) -> float:
    inputs = [triton.InferInput(name, [1, 3], "FP32") for name in "ab"]
    for one in inputs:
        one.set_data_from_numpy(np.ones((1, 3), np.float32))
    return float(client.infer("m", inputs).as_numpy("sum")[0, 0])


@pytest.fixture
def spinner(tmp_path: pathlib.Path) -> str:
    """The entry of a model that takes as long as its input says, in iterations."""
    value = helper.make_tensor_value_info
    square = [TensorProto.FLOAT, [256, 256]]
    weights = helper.make_tensor("w", TensorProto.FLOAT, [256, 256], [0.0] * 65536)
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["before", "w"], ["after"]),
            helper.make_node("Identity", ["go"], ["goes_on"]),
        ],
        "body",
        [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("before", *square)],
        [value("goes_on", TensorProto.BOOL, []), value("after", *square)],
    )
    nodes = [
        helper.make_node("Squeeze", ["n"], ["count"]),
        helper.make_node("Loop", ["count", "", "w"], ["product"], body=body),
        helper.make_node("ReduceMax", ["product"], ["y"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes, "spin", [value("n", TensorProto.INT64, [1])], [value("y", TensorProto.FLOAT, [])], [weights]
    )
    path = tmp_path / "spin.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return f"- {{name: spin, path: {path}, engine: native, warmup: 0, instances: 2}}\n"


def spin(client: triton.InferenceServerClient, iterations: int) -> float:
    count = triton.InferInput("n", [1], "INT64")
    count.set_data_from_numpy(np.array([iterations]))
    return float(client.infer("spin", [count]).as_numpy("y"))


def status_of(call: Callable[[], object]) -> str:
    """Return how a call ended; empty if well."""
    try:
        call()
    except InferenceServerException as error:
        return error.status().removeprefix("StatusCode.")
    return ""


def is_alive(pid: int) -> bool:
    """Whether a worker process is there; its number may have gone to another process."""
    try:
        return b"serving.workers" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return False


def test_workers_answer_as_one_server(running: Group) -> None:
    clients = running.connect_to_all()

    assert [infer(client) for client in clients] == [2] * CONNECTIONS

    assert [one.get_inference_statistics("m").model_stats[0].inference_count for one in clients] == (
        [CONNECTIONS] * CONNECTIONS
    )
    assert [one.state for one in clients[0].get_model_repository_index().models] == ["READY", "READY"]
    assert running.metric('nv_inference_request_success{model="m",version="1"}') == CONNECTIONS
    assert running.metric('trtnode_model_ready{model="m",version="1"}') == 1
    assert running.metric("trtnode_workers") == 2
    assert running.http("/livez") == (200, "live\n")
    assert all(client.is_server_ready() for client in clients)


def test_engines_are_built_by_one_worker_for_all(running: Group) -> None:
    assert running.metric('trtnode_engine_builds_total{model="digits",version="1"}') == 1
    assert running.connect().get_model_metadata("digits").platform == "openvino_onnx"


def test_rest_reaches_every_worker(running: Group) -> None:
    with triton_http.InferenceServerClient(running.http_address) as client:
        image = triton_http.InferInput("image", [1, 1, 8, 8], "FP32")
        image.set_data_from_numpy(np.zeros((1, 1, 8, 8), np.float32))
        answers = [client.infer("digits", [image]).as_numpy("probabilities") for _ in range(4)]
        statistics = client.get_inference_statistics("digits")["model_stats"][0]
        index = client.get_model_repository_index()
        with pytest.raises(InferenceServerException, match="model 'other' is not loaded"):
            client.load_model("other")

    assert {answer.shape for answer in answers} == {(1, 10)}
    assert statistics["inference_count"] == 4
    assert [one["state"] for one in index] == ["READY", "READY"]
    for number in running.pids:
        assert f"[worker='{number}']" in running.log


def test_the_status_page_is_about_all_workers(running: Group) -> None:
    status, text = running.http("/status.json")
    facts = {one["name"]: one for one in json.loads(text)["models"]}
    success = running.metric('nv_inference_request_success{model="m",version="1"}')

    assert status == 200
    assert facts["m"]["counts"]["success"] == success
    assert facts["digits"]["state"] == "READY"
    assert running.http("/")[1].startswith("<!doctype html>")
    assert "openvino" in running.http("/models/digits/versions/1/explain")[1]


def test_what_rest_refuses_reads_the_same_behind_the_supervisor(running: Group) -> None:
    assert running.http("/v2/models/none") == (
        404,
        '{"error": "there is no model \'none\'; this server has digits, m"}',
    )
    assert running.http("/v2/nowhere")[0] == running.http("/nowhere")[0] == 404
    with triton_http.InferenceServerClient(running.http_address) as client:
        short = triton_http.InferInput("image", [1, 1, 8, 7], "FP32")
        short.set_data_from_numpy(np.zeros((1, 1, 8, 7), np.float32))
        with pytest.raises(InferenceServerException, match="image"):
            client.infer("digits", [short])


def test_a_line_of_the_log_names_its_worker(running: Group) -> None:
    for number in "01":
        assert re.search(rf"Loaded model 'm' version 1 .*\[worker='{number}'\]", running.log)


def test_a_change_that_no_worker_can_make_is_refused_in_one_sentence(running: Group) -> None:
    client = running.connect()

    with pytest.raises(InferenceServerException, match=r"^\[StatusCode.INTERNAL\] model 'other' is not loaded: there "):
        client.load_model("other")
    assert status_of(lambda: client.register_system_shared_memory("region", "no-such-object", 16)) == "INTERNAL"
    assert status_of(lambda: client.get_inference_statistics("other")) == "INVALID_ARGUMENT"
    assert status_of(lambda: client.update_log_settings({"log_info": False})) == "PERMISSION_DENIED"


def test_the_server_is_not_ready_before_its_workers(launch: Launch, models: pathlib.Path) -> None:
    group = launch(entry(models))
    group.wait_for("Worker 1 is process")

    code, text = group.http("/readyz")

    assert code == 503
    assert set(text.splitlines()) <= {
        f"worker {number}: {reason}"
        for number in (0, 1)
        for reason in ("it is starting", "model 'm' is loading", "it doesn't take requests yet")
    }


def test_a_killed_worker_is_replaced_while_the_other_goes_on(launch: Launch, models: pathlib.Path) -> None:
    group = launch(entry(models))
    group.wait_ready()
    killed, kept = group.pids[0], group.pids[1]
    clients = group.connect_to_all()
    assert [infer(client) for client in clients] == [2] * CONNECTIONS
    assert [group.http("/v2/models/m")[0] for _ in range(2)] == [200, 200]  # both workers are connected for REST too
    counted = group.metric('nv_inference_request_success{model="m",version="1"}')

    os.kill(killed, signal.SIGKILL)
    group.wait_for("Worker 0 was ended by signal SIGKILL")

    assert [group.http("/v2/models/m")[0] for _ in range(3)] == [200, 200, 200]
    assert not all(status_of(lambda one=one: infer(one)) for one in clients)  # others learn now that they are cut off
    while group.http("/readyz")[0] != 200:
        assert [infer(client) for client in clients] == [2] * CONNECTIONS
    assert group.pids[0] != killed
    assert group.pids[1] == kept
    assert [infer(client) for client in group.connect_to_all()] == [2] * CONNECTIONS
    assert group.metric('trtnode_worker_restarts_total{reason="died"}') == 1
    assert group.metric('nv_inference_request_success{model="m",version="1"}') >= counted + CONNECTIONS


def test_a_worker_that_hangs_is_replaced(launch: Launch, models: pathlib.Path) -> None:
    group = launch(entry(models))
    group.wait_ready()

    os.kill(group.pids[1], signal.SIGSTOP)

    group.wait_for("Worker 1 gave no sign of life for 10 s; another one starts in 0 s")
    group.wait_ready()
    assert [infer(client) for client in group.connect_to_all()] == [2] * CONNECTIONS
    assert group.metric('trtnode_worker_restarts_total{reason="silent"}') == 1


def test_changes_reach_every_worker_also_one_that_comes_later(launch: Launch, adders) -> None:
    path = adders.write("m.onnx", 1)
    group = launch(
        f"- {{name: m, path: {path}, engine: native, warmup: 0}}\n",
        server="admin: {repository: true, shared_memory: true, settings: true}",
    )
    group.wait_ready()
    region = pathlib.Path("/dev/shm", f"trtnode-test-{uuid.uuid4().hex}")
    region.write_bytes(bytes(16))
    try:
        clients = group.connect_to_all()
        adders.write("m.onnx", 2)
        clients[0].load_model("m")
        clients[1].register_system_shared_memory("region", region.name, 16)
        clients[2].update_log_settings({"log_info": False})
        check_changes(group, adders)

        os.kill(group.pids[0], signal.SIGKILL)
        group.wait_for("Worker 0 was ended by signal SIGKILL")
        group.wait_ready()
        check_changes(group, adders)

        group.connect().unregister_system_shared_memory("region")
        group.connect().unload_model("m")
        clients = group.connect_to_all()
        assert [status_of(lambda one=one: adders.ask(one)) for one in clients] == ["NOT_FOUND"] * CONNECTIONS
        assert not any(one.get_system_shared_memory_status().regions for one in clients)
    finally:
        region.unlink()


def check_changes(group: Group, adders) -> None:
    clients = group.connect_to_all()
    assert [adders.ask(client) for client in clients] == [2] * CONNECTIONS
    assert all("region" in one.get_system_shared_memory_status().regions for one in clients)
    assert not any(one.get_log_settings().settings["log_info"].bool_param for one in clients)


def test_workers_swap_engines_in_and_follow_new_versions_and_tokens(
    launch: Launch, tmp_path: pathlib.Path, eventually: Callable[..., None]
) -> None:
    def write_tokens(token: str) -> None:
        tokens = tmp_path / "tokens.yaml"
        tokens.with_suffix(".new").write_text(f"tokens: [{{name: a, token: {token}, models: ['*'], admin: []}}]\n")
        tokens.with_suffix(".new").chmod(0o600)
        tokens.with_suffix(".new").rename(tokens)

    def seen(token: str) -> set[str]:
        """Platform and version that clients of all workers read, or the statuses of their errors."""
        headers, found = {"authorization": f"Bearer {token}"}, []
        for client in clients:
            try:
                metadata = client.get_model_metadata("digits", headers=headers)
                found.append(f"{metadata.platform} {','.join(metadata.versions)}")
            except InferenceServerException as error:
                found.append(error.status().removeprefix("StatusCode."))
        return set(found)

    model = tmp_path / "model"
    shutil.copytree(EXAMPLE, model / "1", ignore=lambda _, names: [n for n in names if n != "digits.onnx"])
    (model / "1" / "digits.onnx").rename(model / "1" / "model.onnx")
    write_tokens("the-first-token-of-all")
    entry = f"- {{name: digits, path: {model}, engine: openvino, watch: true, warmup: 0}}\n"
    group = launch(entry, server=f"startup: native, auth: {{tokens_file: {tmp_path / 'tokens.yaml'}}}")
    group.wait_ready()
    clients = group.connect_to_all()

    eventually(lambda: seen("the-first-token-of-all") == {"openvino_onnx 1"})
    shutil.copytree(model / "1", tmp_path / "next")
    (tmp_path / "next").rename(model / "2")
    eventually(lambda: seen("the-first-token-of-all") == {"openvino_onnx 2"})
    write_tokens("another-token-than-it")
    eventually(lambda: seen("the-first-token-of-all") == {"UNAUTHENTICATED"})

    assert seen("another-token-than-it") == {"openvino_onnx 2"}


def test_a_signal_lets_requests_of_all_workers_finish_and_refuses_new_ones(
    launch: Launch, spinner: str, eventually
) -> None:
    group = launch(spinner)
    group.wait_ready()
    clients = group.connect_to_all()
    assert all(client.is_server_ready() for client in clients)
    with ThreadPoolExecutor() as pool:
        answers = [pool.submit(spin, client, 500) for client in clients[:6]]
        eventually(lambda: group.metric(f"nv_inference_exec_count{SPIN}") + group.metric(f"{PENDING}{SPIN}") == 6)

        group.process.send_signal(signal.SIGTERM)
        eventually(lambda: group.http("/readyz")[0] == 503)
        assert group.http("/livez")[0] == 200
        eventually(lambda: status_of(lambda: spin(clients[-1], 1)) == "UNAVAILABLE")

        assert [answer.result(READY_S) for answer in answers] == [0.0] * 6
    assert group.process.wait(READY_S) == 0, group.log


def test_a_second_signal_ends_all_processes_at_once(launch: Launch, spinner: str, eventually) -> None:
    group = launch(spinner)
    group.wait_ready()
    client = group.connect()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(spin, client, 10**6)
        eventually(lambda: group.metric(f"nv_inference_exec_count{SPIN}") == 1)
        group.process.send_signal(signal.SIGTERM)
        eventually(lambda: group.http("/readyz")[0] == 503)

        assert group.end() == 128 + signal.SIGTERM
        eventually(lambda: not any(is_alive(pid) for pid in group.pids.values()))
        assert isinstance(answer.exception(READY_S), InferenceServerException)


def test_workers_end_with_their_supervisor(launch: Launch, models: pathlib.Path, eventually) -> None:
    group = launch(entry(models))
    group.wait_ready()

    assert group.end(signal.SIGKILL) == -signal.SIGKILL

    eventually(lambda: not any(is_alive(pid) for pid in group.pids.values()))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_second_server_does_not_get_the_port(
    running: Group, launch: Launch, models: pathlib.Path, workers: int
) -> None:
    port = int(running.address.rsplit(":", 1)[1])

    second = launch(entry(models), port=port, workers=workers)

    assert second.process.wait(READY_S) == 2
    assert second.log == (
        f"trtnode: can't listen on 127.0.0.1:{port} (Address already in use); "
        "change server.grpc.port or server.grpc.host, or stop what uses the port.\n"
    )


def test_a_model_that_is_no_model_ends_all_with_one_sentence(launch: Launch, tmp_path: pathlib.Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"this is no model")

    group = launch(f"- {{name: m, path: {tmp_path}/broken.onnx}}\n")

    assert group.process.wait(READY_S) == 1
    assert group.log.splitlines()[-1].startswith("trtnode: Model 'm' is required but didn't load: ")
    assert "Traceback" not in group.log
    assert not any(is_alive(pid) for pid in group.pids.values())


def test_a_wrong_tokens_file_is_told_before_a_worker_starts(
    launch: Launch, models: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "tokens.yaml"
    file.touch(0o600)
    file.write_text("tokens: [{name: ci, token: short}]")

    group = launch(entry(models), server=f"auth: {{tokens_file: {file}}}")

    assert group.process.wait(READY_S) == 2
    assert "should have a token of 16 or more printable ASCII characters" in group.log
    assert group.pids == {}
