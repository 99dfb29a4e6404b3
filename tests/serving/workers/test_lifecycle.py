"""Workers that die, hang, join later and end."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
import tritonclient.grpc as triton
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException

from tests.serving.conftest import Adders, Eventually, given
from tests.serving.workers.conftest import (
    CONNECTIONS,
    EXAMPLE,
    READY_S,
    Group,
    Launch,
    entry,
    infer,
    is_alive,
    status_of,
)

SPIN = '{model="spin",version="1"}'
PENDING = "nv_inference_pending_request_count"


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
    return float(client.infer("spin", [given("n", np.array([iterations]))]).as_numpy("y"))


@pytest.fixture(scope="module")
def adders(tmp_path_factory: pytest.TempPathFactory) -> Adders:
    return Adders(tmp_path_factory.mktemp("adders"))


@pytest.fixture(scope="module")
def group(
    models: pathlib.Path, adders: Adders, tmp_path_factory: pytest.TempPathFactory, warm_cache: pathlib.Path
) -> Iterator[Group]:
    """A server for tests after each of which it is ready again."""
    adder = f"- {{name: adder, path: {adders.write('m.onnx', 1)}, engine: native, warmup: 0}}\n"
    admin = "admin: {repository: true, shared_memory: true, settings: true}"
    running = Group(tmp_path_factory.mktemp("group"), entry(models) + adder, server=admin, cache=warm_cache)
    running.wait_ready()
    yield running
    running.close()


def test_the_server_is_not_ready_before_its_workers(launch: Launch, models: pathlib.Path) -> None:
    group = launch(entry(models))
    group.wait_for("HTTP on")

    code, text = group.http("/readyz")

    assert code == 503
    assert set(text.splitlines()) <= {"not all workers are ready"} | {
        f"worker {number}: {reason}"
        for number in (0, 1)
        for reason in ("it is starting", "model 'm' is loading", "it doesn't take requests yet")
    }


def test_a_killed_worker_is_replaced_while_the_other_goes_on(group: Group) -> None:
    killed, kept = group.pids[0], group.pids[1]
    clients = group.connect_to_all()
    assert [infer(client) for client in clients] == [2] * CONNECTIONS
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


def test_a_worker_that_hangs_is_replaced(group: Group) -> None:
    os.kill(group.pids[1], signal.SIGSTOP)

    group.wait_for("Worker 1 sent no heartbeat for 10 s; another one starts in 0 s")
    group.wait_ready()
    assert [infer(client) for client in group.connect_to_all()] == [2] * CONNECTIONS
    assert group.metric('trtnode_worker_restarts_total{reason="silent"}') == 1


def test_a_server_whose_workers_have_all_died_answers_probes_until_they_are_back(
    group: Group, eventually: Eventually
) -> None:
    before = group.pids

    for pid in before.values():
        os.kill(pid, signal.SIGKILL)

    eventually(lambda: answers(group, "/livez"))
    eventually(lambda: answers(group, "/readyz"))
    assert not set(before.values()) & set(group.pids.values())
    assert [infer(client) for client in group.connect_to_all()] == [2] * CONNECTIONS


def answers(group: Group, path: str) -> bool:
    try:
        return group.http(path)[0] == 200
    except OSError:  # a worker takes the port over
        return False


def test_changes_reach_every_worker_also_one_that_comes_later(
    group: Group, adders: Adders, eventually: Eventually
) -> None:
    region = pathlib.Path("/dev/shm", f"trtnode-test-{uuid.uuid4().hex}")
    region.write_bytes(bytes(16))
    try:
        clients = group.connect_to_all()
        adders.write("m.onnx", 2)
        clients[0].load_model("adder")
        clients[1].register_system_shared_memory("region", region.name, 16)
        clients[2].update_log_settings({"log_info": False})
        check_changes(group, adders)

        before = group.log.count(killed := "Worker 1 was ended by signal SIGKILL")
        os.kill(group.pids[1], signal.SIGKILL)
        eventually(lambda: group.log.count(killed) > before)
        group.wait_ready()
        check_changes(group, adders)

        group.connect().unregister_system_shared_memory("region")
        group.connect().unload_model("adder")
        clients = group.connect_to_all()
        asked = [status_of(lambda one=one: adders.ask(one, model="adder")) for one in clients]
        assert asked == ["NOT_FOUND"] * CONNECTIONS
        assert not any(one.get_system_shared_memory_status().regions for one in clients)
        clients[0].update_log_settings({"log_info": True})
    finally:
        region.unlink()


def check_changes(group: Group, adders: Adders) -> None:
    clients = group.connect_to_all()
    assert [adders.ask(client, model="adder") for client in clients] == [2] * CONNECTIONS
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
    launch: Launch, spinner: str, eventually: Eventually
) -> None:
    group = launch(spinner)
    group.wait_ready()
    clients = group.connect_to_all()
    assert all(client.is_server_ready() for client in clients)
    with ThreadPoolExecutor() as pool:
        answers = [pool.submit(spin, client, 500) for client in clients[:6]]
        eventually(lambda: group.metric(f"nv_inference_exec_count{SPIN}") + group.metric(f"{PENDING}{SPIN}") == 6)

        group.child.send_signal(signal.SIGTERM)
        eventually(lambda: group.http("/readyz")[0] == 503)
        assert group.http("/livez")[0] == 200
        eventually(lambda: status_of(lambda: spin(clients[-1], 1)) == "UNAVAILABLE")

        assert [answer.result(READY_S) for answer in answers] == [0.0] * 6
    assert group.ended()[0] == 0, group.log


def test_a_second_signal_ends_all_processes_at_once(launch: Launch, spinner: str, eventually: Eventually) -> None:
    group = launch(spinner)
    group.wait_ready()
    client = group.connect()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(spin, client, 10**6)
        eventually(lambda: group.metric(f"nv_inference_exec_count{SPIN}") == 1)
        group.child.send_signal(signal.SIGTERM)
        with contextlib.suppress(ConnectionError):  # a connection to a listener that was just closed
            eventually(lambda: group.http("/readyz")[0] == 503)

        assert group.end()[0] == 128 + signal.SIGTERM
        eventually(lambda: not any(is_alive(pid) for pid in group.pids.values()))
        assert isinstance(answer.exception(READY_S), InferenceServerException)


def test_workers_end_with_their_supervisor(launch: Launch, models: pathlib.Path, eventually: Eventually) -> None:
    group = launch(entry(models))
    group.wait_ready()

    assert group.end(signal.SIGKILL)[0] == -signal.SIGKILL

    eventually(lambda: not any(is_alive(pid) for pid in group.pids.values()))


def test_a_model_that_is_no_model_ends_all_with_one_sentence(launch: Launch, tmp_path: pathlib.Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"this is no model")

    group = launch(f"- {{name: m, path: {tmp_path}/broken.onnx}}\n")

    assert group.ended()[0] == 1
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

    assert group.ended()[0] == 2
    assert "should have a token of 16 or more printable ASCII characters" in group.log
    assert group.pids == {}
