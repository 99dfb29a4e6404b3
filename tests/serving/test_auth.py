"""Bearer tokens and admin rights: who is let in, what each may do, and a tokens file that changes."""

import contextlib
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tritonclient.utils import InferenceServerException

import protos
from serving import tokens
from serving.access import ADMIN_RIGHTS, ANYONE, MODEL_FIELDS
from serving.config import load_config
from serving.errors import ConfigError
from serving.loader import engine_loader
from serving.schema import AdminConfig
from serving.server import Server
from serving.tokens import Tokens

ALL, ONE, ADMIN = "all-models-0123456789", "one-model-0123456789", "administrator-0123456789"
FILE = f"""
tokens:
- name: all
  token: {ALL}
- name: one
  sha256: {hashlib.sha256(ONE.encode()).hexdigest()}
  models: ["fake", "team-*"]
- name: admin
  token: {ADMIN}
  admin: [repository]
"""
SERVICE = "/inference.GRPCInferenceService/"


@pytest.fixture
def file(tmp_path: pathlib.Path, monkeypatch) -> pathlib.Path:
    """A tokens file whose changes are seen at the next call."""
    monkeypatch.setattr(tokens, "RECHECK_S", 0)
    path = tmp_path / "tokens.yaml"
    path.touch(0o600)
    path.write_text(FILE)
    return path


@pytest.fixture
def running(file, start_fake):
    return start_fake(server=f"auth: {{tokens_file: {file}}}")


@pytest.fixture
def start_admin(file, tmp_path, fake) -> Iterator[Callable[..., str]]:
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


def bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"authorization": f"Bearer {token}"}


def infer(running, token: str | None = None, model: str = "fake", headers: dict[str, str] | None = None) -> object:
    x = triton.InferInput("x", [1], "FP32")
    x.set_data_from_numpy(np.zeros(1, np.float32))
    return running.client.infer(model, [x], headers=headers or bearer(token)).as_numpy("y").tolist()


def refusal(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(InferenceServerException) as caught:
        call()
    return caught.value.status().removeprefix("StatusCode."), caught.value.message()


def raw(address: str, rpc: str, token: str, request: bytes = b"") -> grpc.StatusCode:
    with grpc.insecure_channel(address) as channel:
        try:
            channel.unary_unary(SERVICE + rpc)(request, metadata=list(bearer(token).items()), timeout=120)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def http(url: str, token: str | None = None) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=bearer(token))) as response:
            return response.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def refusals(running, token: str = ALL) -> dict[str, int]:
    with urllib.request.urlopen(urllib.request.Request(f"{running.http}/metrics", headers=bearer(token))) as response:
        lines = [line for line in response.read().decode().splitlines() if line.startswith("trtnode_refused")]
    return {line.split('"')[1]: int(float(line.split()[-1])) for line in lines}


@pytest.mark.parametrize("token", [ALL, ONE, ADMIN])
def test_a_known_token_is_let_in_whether_the_file_has_its_text_or_its_hash(running, token: str) -> None:
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
def test_everyone_else_is_unauthenticated(running, header: str) -> None:
    code, text = refusal(lambda: infer(running, headers={"authorization": header}))

    assert (code, text) == (
        "UNAUTHENTICATED", "a token is needed that this server knows; send 'authorization: Bearer TOKEN'"
    )  # fmt: skip
    assert refusals(running) == {"unauthenticated": 1, "forbidden": 0}


def test_the_scheme_may_be_written_in_any_case(running) -> None:
    assert infer(running, headers={"authorization": f"bearer {ALL}"}) == [1]


def test_every_rpc_but_health_needs_a_token(running) -> None:
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
def test_odd_paths_are_no_way_around_the_token(running, path: str) -> None:
    with grpc.insecure_channel(running.address) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(path)(b"", timeout=120)

    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_a_refused_call_never_waits_for_its_body_nor_takes_a_place(running, fake) -> None:
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
def test_a_token_is_forbidden_other_models_whether_or_not_they_exist(running, model: str) -> None:
    code, text = refusal(lambda: infer(running, ONE, model))

    assert code == "PERMISSION_DENIED"
    assert text.startswith("the token 'one' doesn't cover ")
    assert refusals(running) == {"unauthenticated": 0, "forbidden": 1}


def test_globs_cover_models(running) -> None:
    assert refusal(lambda: infer(running, ONE, "team-vision"))[0] == "NOT_FOUND"
    assert refusal(lambda: running.client.get_model_metadata("other", headers=bearer(ONE)))[0] == "PERMISSION_DENIED"
    assert running.client.get_model_metadata("fake", headers=bearer(ONE)).name == "fake"
    assert running.client.is_server_ready(headers=bearer(ONE))


def test_the_index_of_all_models_needs_a_token_that_covers_all(running) -> None:
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


@pytest.mark.parametrize("rpc", ADMIN_RIGHTS)
def test_rpcs_that_change_the_server_are_off_unless_allowed(running, shared, rpc: str) -> None:
    assert raw(running.address, rpc, ADMIN) is grpc.StatusCode.PERMISSION_DENIED
    assert raw(shared.address, rpc, "") is grpc.StatusCode.PERMISSION_DENIED


def test_rpcs_that_change_the_server_need_the_right_of_the_token_too(start_admin) -> None:
    address = start_admin(repository=True, settings=True)

    # Who passes the gate is told that there is no model without a name.
    assert raw(address, "RepositoryModelLoad", ADMIN) is grpc.StatusCode.INTERNAL
    assert raw(address, "RepositoryModelLoad", ALL) is grpc.StatusCode.PERMISSION_DENIED
    assert raw(address, "LogSettings", ADMIN) is grpc.StatusCode.PERMISSION_DENIED
    assert raw(address, "SystemSharedMemoryRegister", ADMIN) is grpc.StatusCode.PERMISSION_DENIED
    assert raw(address, "NoSuchMethod", ALL) is grpc.StatusCode.UNIMPLEMENTED


def test_http_needs_a_token_for_everything_but_probes(running) -> None:
    assert http(f"{running.http}/livez") == 200
    assert http(f"{running.http}/readyz") == 200
    assert [http(f"{running.http}/{path}") for path in ("metrics", "other")] == [401, 401]
    assert http(f"{running.http}/metrics", "wrong") == 401
    assert http(f"{running.http}/metrics", ONE) == 200
    assert http(f"{running.http}/other", ONE) == 404
    assert refusals(running) == {"unauthenticated": 3, "forbidden": 0}


def test_a_changed_file_holds_from_the_next_call(running, file) -> None:
    file.write_text(FILE.replace(ALL, "another-token-0123456789"))

    assert refusal(lambda: infer(running, ALL))[0] == "UNAUTHENTICATED"
    assert infer(running, "another-token-0123456789") == [1]
    assert infer(running, ONE) == [1]


def test_a_change_that_keeps_size_and_time_is_seen(running, file) -> None:
    before = file.stat()
    file.write_text(FILE.replace(ALL, ALL[::-1]))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert refusal(lambda: infer(running, ALL))[0] == "UNAUTHENTICATED"
    assert infer(running, ALL[::-1]) == [1]


def test_the_file_is_not_read_more_often_than_it_should(running, file, monkeypatch) -> None:
    infer(running, ALL)
    monkeypatch.setattr(tokens, "RECHECK_S", 3600)

    file.write_text("")

    assert infer(running, ALL) == [1]


@pytest.mark.parametrize("content", ["", "\n# none\n", "{}", "tokens:\n", "tokens: []\n"])
def test_an_emptied_file_lets_nobody_in(running, file, caplog, content: str) -> None:
    assert infer(running, ALL) == [1]

    file.write_text(content)

    assert refusal(lambda: infer(running, ALL))[0] == "UNAUTHENTICATED"
    assert refusal(lambda: infer(running))[0] == "UNAUTHENTICATED"
    assert "tokens.yaml has no tokens, so nobody may call" in caplog.text
    file.write_text(FILE)
    assert infer(running, ALL) == [1]


@pytest.mark.parametrize("content", ["tokens: [", "tokens: [{name: all}]", "[1]", "\0", None])
def test_a_bad_new_file_keeps_the_old_tokens_and_is_told_once(running, file, caplog, content: str | None) -> None:
    file.write_text(content) if content is not None else file.unlink()

    assert [infer(running, ALL), infer(running, ALL)] == [[1], [1]]
    assert refusal(lambda: infer(running, "wrong"))[0] == "UNAUTHENTICATED"
    assert caplog.text.count("The tokens stay as they were") == 1
    file.write_text(FILE.replace(ALL, ALL[::-1]))
    assert infer(running, ALL[::-1]) == [1]


SECRET = "s3cret-0123456789abcdef"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(f"[{SECRET}", "tokens.yaml:1: can't be read as YAML; put tokens in quotes", id="no-yaml"),
        pytest.param(f"tokens:\n- name: a\n  token: !{SECRET} x", "tokens.yaml:3: can't be read as YAML", id="tag"),
        pytest.param(SECRET, "tokens.yaml:1: should be a mapping", id="only-text"),
        pytest.param(f"{SECRET}: x", "tokens.yaml:1: has an unknown key; known here: tokens", id="unknown-key"),
        pytest.param(f"tokens: {{{SECRET}: a}}", "tokens.yaml:1: tokens: should be a list", id="no-list"),
        pytest.param(
            f"tokens:\n- name: a\n  {SECRET}: x",
            "tokens.yaml:2: tokens[0]: has an unknown key; known here: name, token, sha256, models, admin",
            id="unknown-key-of-a-token",
        ),
        pytest.param(
            f"tokens:\n- token: {SECRET}", "tokens.yaml:2: tokens[0].name: is missing; add it", id="without-a-name"
        ),
        pytest.param(
            "tokens:\n- name: a", "tokens.yaml:2: tokens[0]: should have either token or sha256", id="without-a-token"
        ),
        pytest.param(
            f"tokens:\n- {{name: a, token: {SECRET}, sha256: {64 * 'a'}}}",
            "tokens.yaml:2: tokens[0]: should have either token or sha256",
            id="both",
        ),
        pytest.param(
            "tokens:\n- {name: a, token: short}",
            "tokens.yaml:2: tokens[0]: should have a token of 16 or more printable ASCII characters without spaces",
            id="too-short",
        ),
        pytest.param(
            f"tokens:\n- {{name: a, token: '{SECRET} {SECRET}'}}",
            "tokens.yaml:2: tokens[0]: should have a token of 16 or more printable ASCII characters without spaces",
            id="spaces",
        ),
        pytest.param(
            f"tokens:\n- {{name: a, sha256: {SECRET}}}",
            "tokens.yaml:2: tokens[0]: should have a sha256 of 64 hexadecimal digits",
            id="no-hash",
        ),
        pytest.param(
            "tokens:\n- {name: a, token: 12345678901234567890}",
            "tokens.yaml:2: tokens[0].token: should be a valid string",
            id="a-number",
        ),
        pytest.param(
            f"tokens:\n- {{name: a, token: {SECRET}, admin: [everything]}}",
            "tokens.yaml:2: tokens[0].admin[0]: should be 'repository', 'shared_memory' or 'settings'",
            id="no-such-right",
        ),
        pytest.param(
            f"tokens:\n- {{name: a, token: {SECRET}}}\n- {{name: b, token: {SECRET}}}",
            "tokens.yaml:3: tokens[1]: is the token of tokens[0] too; remove one",
            id="one-token-twice",
        ),
        pytest.param(
            f"tokens:\n- {{name: a, token: {SECRET}}}\n- {{name: a, token: {SECRET}2}}",
            "tokens.yaml:3: tokens[1].name: is the name of tokens[0] too; rename one",
            id="one-name-twice",
        ),
    ],
)
def test_faults_of_the_file_name_line_and_field_and_quote_no_secret(file, content: str, expected: str) -> None:
    file.write_text(content)

    with pytest.raises(ConfigError) as caught:
        Tokens(file)

    assert str(caught.value).replace(f"{file.parent}/", "").startswith(expected)
    assert SECRET not in str(caught.value)


def test_a_file_that_is_not_utf_8_is_refused(file) -> None:
    file.write_bytes(b"tokens: \xff")

    with pytest.raises(ConfigError, match="not UTF-8; save the file as UTF-8"):
        Tokens(file)


def test_a_missing_file_is_refused_with_its_line_at_start(file, start_fake, tmp_path) -> None:
    file.unlink()

    with pytest.raises(ConfigError) as caught:
        start_fake(server=f"auth: {{tokens_file: {file}}}")

    assert str(caught.value).replace(f"{tmp_path}/", "") == (
        "servable0.yaml:1: server.auth.tokens_file: there is no file tokens.yaml; correct the path"
    )


def test_a_token_may_come_from_the_environment(file, monkeypatch) -> None:
    monkeypatch.setenv("CI_TOKEN", SECRET)
    file.write_text("tokens: [{name: ci, token: '${CI_TOKEN}'}]")

    assert Tokens(file).find(f"Bearer {SECRET}").name == "ci"


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o644, True)])
def test_a_file_that_others_can_read_is_warned_of(file, caplog, mode: int, warned: bool) -> None:
    file.chmod(mode)

    Tokens(file)

    assert ("tokens.yaml; run `chmod o-rw` on it" in caplog.text) is warned


def test_no_log_line_quotes_a_token(running, file, caplog) -> None:
    caplog.set_level("DEBUG")
    infer(running, ALL)
    for token in (f"{ALL}x", SECRET):
        refusal(lambda token=token: infer(running, token))
    refusal(lambda: infer(running, ONE, "other"))
    for content in (f"tokens: {SECRET}", f"{SECRET}: [", FILE.replace("name", SECRET), FILE + " "):
        file.write_text(content)
        infer(running, ALL)

    assert "Refused ModelInfer of ipv4:127.0.0.1:" in caplog.text
    assert "The tokens stay as they were" in caplog.text
    for secret in (ALL, ONE, ADMIN, SECRET, hashlib.sha256(ONE.encode()).hexdigest()):
        assert secret not in caplog.text


def test_many_callers_at_once_are_told_apart_while_the_file_changes(running, file) -> None:
    def outcome(number: int) -> bool:
        if number % 10 == 0:
            new = file.with_suffix(f".{number}")
            new.write_text(FILE + f"# {number}\n")
            new.replace(file)
        if number % 2:
            return infer(running, ALL) == [1]
        return refusal(lambda: infer(running, f"wrong-{number}"))[0] == "UNAUTHENTICATED"

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(outcome, range(200)))


@pytest.fixture
def stream(running) -> Iterator[Callable[..., grpc.Call]]:
    """Send a request for each model on one stream; bytes are sent as they are."""
    with grpc.insecure_channel(running.address) as channel:

        def send(token: str, names: Iterable[str | bytes], **metadata: str) -> grpc.Call:
            requests = (name if isinstance(name, bytes) else streamed(name).SerializeToString() for name in names)
            call = channel.stream_stream(
                SERVICE + "ModelStreamInfer", response_deserializer=protos.ModelStreamInferResponse.FromString
            )
            return call(requests, metadata=[*bearer(token).items(), *metadata.items()], timeout=120)

        yield send


def streamed(name: str) -> protos.ModelInferRequest:
    request = protos.ModelInferRequest(model_name=name, id=f"for {name}", raw_input_contents=[bytes(4)])
    request.inputs.add(name="x", datatype="FP32", shape=[1])
    return request


def test_a_streamed_request_for_a_model_that_the_token_does_not_cover_fails_alone(running, stream) -> None:
    answers = list(stream(ONE, ["fake", "other", "", "fake"]))

    by_id = {one.infer_response.id: one.error_message for one in answers}
    assert len(answers) == 4
    assert by_id["for fake"] == ""
    assert "the token 'one' doesn't cover model 'other'" in by_id["for other"]
    assert "the token 'one' doesn't cover all models at once" in by_id["for "]
    assert refusals(running)["forbidden"] == 2


def test_a_stream_that_asks_for_statuses_ends_with_that_of_a_model_that_is_not_covered(stream) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        list(stream(ONE, ["other"], triton_grpc_error="true"))

    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_bytes_that_are_no_message_end_the_stream_of_any_token(stream) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        list(stream(ONE, [b"\xff\xff"]))

    assert caught.value.code() is grpc.StatusCode.INTERNAL


def test_a_stream_ends_when_its_token_is_withdrawn(stream, file) -> None:
    withdrawn = threading.Event()

    def names() -> Iterator[str]:
        yield "fake"
        withdrawn.wait(120)
        yield "fake"

    answers = stream(ALL, names())
    assert not next(answers).error_message
    file.write_text("")
    withdrawn.set()
    with pytest.raises(grpc.RpcError) as caught:
        next(answers)

    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_without_a_tokens_file_anyone_may_call(shared) -> None:
    assert ANYONE.covers("two")
    assert shared.client.is_server_ready()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_the_secure_example_works_as_its_comment_says(tmp_path, monkeypatch) -> None:
    root = pathlib.Path(__file__).parents[2]
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
