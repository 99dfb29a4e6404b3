"""Bearer tokens and admin rights: who is let in, what each may do, and a tokens file that changes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import grpc
import pytest
import tritonclient.grpc as triton
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.serving.conftest import FakeExecutable, Running, refusal
from tests.serving.security.conftest import ADMIN, ALL, FILE, ONE, SERVICE, bearer, infer, refusals
from trtnode import protos
from trtnode.serving.config.load import load_config
from trtnode.serving.models.loader import engine_loader
from trtnode.serving.process.single_process import Server
from trtnode.serving.schema.server import AdminConfig
from trtnode.serving.security.authorization import ADMIN_RIGHTS, ANYONE, MODEL_FIELDS, READING_TOO


@pytest.fixture
def start_admin(file: pathlib.Path, tmp_path: pathlib.Path, fake: FakeExecutable) -> Iterator[Callable[..., str]]:
    """Start a server that allows changes, and return its address.

    servable.yaml refuses these keys until the RPCs behind them are built, so they are set here.
    """
    with contextlib.ExitStack() as stack:

        def start_server(**admin: bool) -> str:
            (tmp_path / "fake.onnx").touch()
            path = tmp_path / "servable.yaml"
            path.write_text(
                f"server: {{grpc: {{port: 0}}, http: {{port: 0}}, auth: {{tokens_file: {file}}}}}\n"
                "models: [{name: fake, path: fake.onnx, warmup: 0}]\n"
            )
            config = load_config(path)
            allowed = config.server.model_copy(update={"admin": AdminConfig(**admin)})
            server = Server(config.model_copy(update={"server": allowed}), lambda model: fake)
            server.start()
            stack.callback(server.stop, 5)
            return f"127.0.0.1:{server.port}"

        yield start_server


def raw(address: str, rpc: str, token: str, request: bytes = b"") -> grpc.StatusCode:
    with grpc.insecure_channel(address) as channel:
        try:
            channel.unary_unary(SERVICE + rpc)(request, metadata=list(bearer(token).items()), timeout=120)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def http(url: str, token: str | None = None, body: bytes | None = None) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers=bearer(token))) as response:
            return response.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.parametrize("token", [ALL, ONE, ADMIN])
def test_a_known_token_is_let_in_whether_the_file_has_its_text_or_its_hash(running: Running, token: str) -> None:
    assert infer(running, token) == [1]


@pytest.mark.parametrize(
    "header",
    [
        pytest.param("", id="none"),
        pytest.param("Bearer", id="no-token"),
        pytest.param("Bearer ", id="empty-token"),
        pytest.param("Bearer wrong", id="wrong-token"),
        pytest.param(f"Bearer {ALL[:-1]}", id="shorter"),
        pytest.param(f"Bearer {ALL}x", id="longer"),
        pytest.param(f"Bearer {hashlib.sha256(ONE.encode()).hexdigest()}", id="hash-of-a-token"),
        pytest.param(f"Basic {ALL}", id="other-scheme"),
        pytest.param(ALL, id="no-scheme"),
    ],
)
def test_everyone_else_is_unauthenticated(running: Running, header: str) -> None:
    code, text = refusal(lambda: infer(running, headers={"authorization": header}))

    assert (code, text) == (
        "UNAUTHENTICATED", "a token is needed that this server knows; send 'authorization: Bearer TOKEN'"
    )  # fmt: skip
    assert refusals(running) == {"unauthenticated": 1, "forbidden": 0}


def test_the_scheme_may_be_written_in_any_case(running: Running) -> None:
    assert infer(running, headers={"authorization": f"bearer {ALL}"}) == [1]


def test_every_rpc_but_health_needs_a_token(running: Running) -> None:
    for rpc in [method.name for method in protos.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods]:
        assert raw(running.address, rpc, "wrong") is grpc.StatusCode.UNAUTHENTICATED, rpc
    assert raw(running.address, "NoSuchMethod", "wrong") is grpc.StatusCode.UNAUTHENTICATED
    with grpc.insecure_channel(running.address) as channel:
        stream = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        )
        with pytest.raises(grpc.RpcError, match="a token is needed"):
            next(stream)
        health = health_pb2_grpc.HealthStub(channel)
        assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
        assert next(health.Watch(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("path", ["/", "//", "/nonsense", "/a/b/c", "//grpc.health.v1.Health/Check", "/Health/Check"])
def test_odd_paths_are_no_way_around_the_token(running: Running, path: str) -> None:
    with grpc.insecure_channel(running.address) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(path)(b"", timeout=120)

    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_a_refused_call_never_waits_for_its_body_nor_takes_a_place(running: Running, fake: FakeExecutable) -> None:
    refused = threading.Event()

    def body_that_never_comes() -> Iterator[bytes]:
        refused.wait(120)
        yield from ()

    with grpc.insecure_channel(running.address) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.stream_unary(SERVICE + "ModelInfer")(body_that_never_comes(), timeout=120)
        refused.set()

    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert running.server.in_flight == fake.runs == 0


@pytest.mark.parametrize("model", ["other", "", "FAKE", "fake2", "../fake"])
def test_a_token_is_forbidden_other_models_whether_or_not_they_exist(running: Running, model: str) -> None:
    code, text = refusal(lambda: infer(running, ONE, model))

    assert code == "PERMISSION_DENIED"
    assert text.startswith("the token 'one' doesn't cover ")
    assert refusals(running) == {"unauthenticated": 0, "forbidden": 1}


def test_globs_cover_models(running: Running) -> None:
    assert refusal(lambda: infer(running, ONE, "team-vision"))[0] == "NOT_FOUND"
    assert refusal(lambda: running.client.get_model_metadata("other", headers=bearer(ONE)))[0] == "PERMISSION_DENIED"
    assert running.client.get_model_metadata("fake", headers=bearer(ONE)).name == "fake"
    assert running.client.is_server_ready(headers=bearer(ONE))


def test_the_index_of_all_models_needs_a_token_that_covers_all(running: Running) -> None:
    assert refusal(lambda: running.client.get_model_repository_index(headers=bearer(ONE)))[0] == "PERMISSION_DENIED"
    assert running.client.get_model_repository_index(headers=bearer(ALL)).models[0].name == "fake"


def test_every_rpc_that_names_a_model_is_in_the_table() -> None:
    methods = protos.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods
    about_models = {
        method.name: field
        for method in methods
        for field in ("model_name", "name")
        if field in method.input_type.fields_by_name and "SharedMemory" not in method.name
    }

    assert about_models.items() <= MODEL_FIELDS.items()


SETTINGS_CHANGES = {
    "TraceSetting": protos.TraceSettingRequest(
        settings={"trace_rate": protos.TraceSettingRequest.SettingValue(value=["7"])}
    ),
    "LogSettings": protos.LogSettingsRequest(
        settings={"log_verbose_level": protos.LogSettingsRequest.SettingValue(uint32_param=1)}
    ),
}


@pytest.mark.parametrize("rpc", sorted(READING_TOO))
def test_settings_are_read_without_a_right_and_changed_with_one(
    running: Running, start_admin: Callable[..., str], rpc: str
) -> None:
    change = SETTINGS_CHANGES[rpc].SerializeToString()
    allowing = start_admin(settings=True)

    assert raw(running.address, rpc, ALL) is grpc.StatusCode.OK
    assert raw(running.address, rpc, "wrong") is grpc.StatusCode.UNAUTHENTICATED
    assert raw(running.address, rpc, ADMIN, change) is grpc.StatusCode.PERMISSION_DENIED
    assert raw(allowing, rpc, ALL, change) is grpc.StatusCode.PERMISSION_DENIED


def test_settings_are_read_and_not_changed_over_rest_too(running: Running) -> None:
    address = f"{running.http}/v2/logging"
    body = json.dumps({"log_verbose_level": 1}).encode()

    assert http(address, ALL) == 200
    assert http(address, ALL, body) == 403


@pytest.mark.parametrize("rpc", sorted(ADMIN_RIGHTS.keys() - READING_TOO))
def test_rpcs_that_change_the_server_are_off_unless_allowed(running: Running, shared: Running, rpc: str) -> None:
    assert raw(running.address, rpc, ADMIN) is grpc.StatusCode.PERMISSION_DENIED
    assert raw(shared.address, rpc, "") is grpc.StatusCode.PERMISSION_DENIED


def test_rpcs_that_change_the_server_need_the_right_of_the_token_too(start_admin: Callable[..., str]) -> None:
    address = start_admin(repository=True, settings=True)

    # Who passes the gate is told that there is no model without a name.
    assert raw(address, "RepositoryModelLoad", ADMIN) is grpc.StatusCode.INTERNAL
    assert raw(address, "RepositoryModelLoad", ALL) is grpc.StatusCode.PERMISSION_DENIED
    assert raw(address, "SystemSharedMemoryRegister", ADMIN) is grpc.StatusCode.PERMISSION_DENIED
    assert raw(address, "NoSuchMethod", ALL) is grpc.StatusCode.UNIMPLEMENTED


def test_http_needs_a_token_for_everything_but_probes(running: Running) -> None:
    assert http(f"{running.http}/livez") == 200
    assert http(f"{running.http}/readyz") == 200
    assert [http(f"{running.http}/{path}") for path in ("metrics", "other")] == [401, 401]
    assert http(f"{running.http}/metrics", "wrong") == 401
    assert http(f"{running.http}/metrics", ONE) == 200
    assert http(f"{running.http}/other", ONE) == 404
    assert refusals(running) == {"unauthenticated": 3, "forbidden": 0}


def test_metrics_show_the_models_of_the_token_alone(running: Running, file: pathlib.Path) -> None:
    def models(token: str) -> set[str]:
        request = urllib.request.Request(f"{running.http}/metrics", headers=bearer(token))
        with urllib.request.urlopen(request) as response:
            return set(re.findall(r'model="(.*?)"', response.read().decode()))

    infer(running, ONE)
    assert models(ONE) == {"fake"}
    assert models(ALL) == {"fake", ""}  # what was asked of unknown models

    file.write_text(FILE.replace('"fake", ', ""))

    assert models(ONE) == set()
    assert refusals(running, ONE) == {"unauthenticated": 0, "forbidden": 0}


def test_without_a_tokens_file_anyone_may_call(shared: Running) -> None:
    assert ANYONE.covers("two")
    assert shared.client.is_server_ready()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_the_secure_example_works_as_its_comment_says(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = pathlib.Path(__file__).parents[3]
    (tmp_path / "examples").symlink_to(root / "examples")
    folder = shutil.copytree(root / "configs", tmp_path / "configs")
    text = (folder / "secure.yaml").read_text()
    steps = [line.removeprefix("#   ") for line in text.splitlines() if line.startswith("#   ")]
    script = "\n".join([*steps, "echo $TRTNODE_TOKEN"])
    done = subprocess.run(["bash", "-ec", script], cwd=folder, capture_output=True, text=True, check=True)
    token = done.stdout.strip()
    monkeypatch.setenv("TRTNODE_TOKEN", token)
    monkeypatch.setenv("HOME", str(tmp_path))  # where the cache of engines goes
    (folder / "secure.yaml").write_text(re.sub(r"port: \d+", "port: 0", text.replace("0.0.0.0", "127.0.0.1")))
    config = load_config(folder / "secure.yaml")

    server = Server(config, engine_loader(config))
    server.start()

    assert server.wait_ready(60)
    with triton.InferenceServerClient(
        f"localhost:{server.port}", ssl=True, root_certificates=str(folder / "server.pem")
    ) as client:
        assert client.is_model_ready("digits", headers=bearer(token))
        assert refusal(lambda: client.is_model_ready("digits"))[0] == "UNAUTHENTICATED"
    server.stop(5)
