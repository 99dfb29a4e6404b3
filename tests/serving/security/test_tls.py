"""TLS and mutual TLS of the gRPC port: handshakes, bad files, and certificates that change under a running server."""

from __future__ import annotations

import contextlib
import pathlib
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.utils import InferenceServerException

from authority import DAY, Authority
from tests.serving.conftest import FakeExecutable, Running, Starter, given
from trtnode.serving.config.load import load_config
from trtnode.serving.errors import ConfigError, TlsError


@pytest.fixture
def authority(tmp_path: pathlib.Path) -> Authority:
    made = Authority(tmp_path, "ca")
    made.issue("server")
    return made


@pytest.fixture
def start_tls(start: Starter, fake: FakeExecutable) -> Callable:
    """Start a server with ``fake`` and the files server.pem and server.key."""

    def start_server(extra: str = "", cert: str = "server.pem", key: str = "server.key"):
        ports = f"grpc: {{port: 0, tls: {{cert: {cert}, key: {key}, {extra}}}}}, http: {{port: 0}}"
        return start("- {name: fake, path: fake.onnx}\n", ports=ports, loader=lambda model: fake)

    return start_server


@pytest.fixture
def call(tmp_path: pathlib.Path) -> Callable:
    """Infer with tritonclient over a connection of its own."""

    def infer(running: Running, name: str | None = None, ca: str = "ca.pem") -> list[float]:
        identity = {"private_key": f"{tmp_path}/{name}.key", "certificate_chain": f"{tmp_path}/{name}.pem"}
        with triton.InferenceServerClient(
            running.address, ssl=True, root_certificates=str(tmp_path / ca), **(identity if name else {}),
            channel_args=[("grpc.use_local_subchannel_pool", 1)],
        ) as client:  # fmt: skip
            x = given("x", np.zeros(1, np.float32))
            return client.infer("fake", [x], client_timeout=120).as_numpy("y").tolist()

    return infer


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(InferenceServerException) as caught:
        call()
    assert caught.value.status() == "StatusCode.UNAVAILABLE"
    return caught.value.message()


def test_a_client_that_trusts_the_authority_is_answered(
    authority: Authority, start_tls: Callable, call: Callable
) -> None:
    assert call(start_tls()) == [1]


def test_a_client_in_the_clear_is_not_answered(authority: Authority, start_tls: Callable) -> None:
    running = start_tls()

    with grpc.insecure_channel(running.address) as channel, pytest.raises(grpc.RpcError) as caught:
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=120)

    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_client_of_another_authority_refuses_the_server(
    authority: Authority, start_tls: Callable, call: Callable, tmp_path: pathlib.Path
) -> None:
    Authority(tmp_path, "other")

    assert "CERTIFICATE_VERIFY_FAILED" in refused(lambda: call(start_tls(), ca="other.pem"))


def test_mutual_tls_answers_only_clients_with_a_certificate_of_the_authority(
    authority: Authority, start_tls: Callable, call: Callable, tmp_path: pathlib.Path
) -> None:
    authority.issue("friend")
    authority.issue("late", -DAY)
    Authority(tmp_path, "other").issue("stranger")
    running = start_tls("client_ca: ca.pem")

    assert call(running, "friend") == [1]
    for name in (None, "stranger", "late"):
        refused(lambda name=name: call(running, name))
    assert call(running, "friend") == [1]


def test_an_expired_certificate_fails_handshakes_and_leaves_the_server_up(
    authority: Authority, start_tls: Callable, call: Callable, caplog: pytest.LogCaptureFixture
) -> None:
    authority.issue("server", -DAY)

    running = start_tls()

    assert "CERTIFICATE_VERIFY_FAILED" in refused(lambda: call(running))
    assert "expired on" in caplog.text
    with urllib.request.urlopen(f"{running.http}/readyz") as ready:
        assert "server.pem expired on" in ready.read().decode()
    authority.issue("server")
    assert call(running) == [1]
    with urllib.request.urlopen(f"{running.http}/readyz") as ready:
        assert ready.read() == b"ready\n"


def test_new_connections_get_the_new_certificate(
    authority: Authority, start_tls: Callable, call: Callable, tmp_path: pathlib.Path
) -> None:
    running = start_tls()
    assert call(running) == [1]

    Authority(tmp_path, "new").issue("server")

    refused(lambda: call(running, ca="ca.pem"))
    assert call(running, ca="new.pem") == [1]


def test_client_authorities_may_be_exchanged_too(
    authority: Authority, start_tls: Callable, call: Callable, tmp_path: pathlib.Path
) -> None:
    other = Authority(tmp_path, "other")
    authority.issue("first")
    other.issue("second")
    (tmp_path / "clients.pem").write_bytes(authority.file.read_bytes())
    running = start_tls("client_ca: clients.pem")
    assert call(running, "first") == [1]

    (tmp_path / "clients.pem").write_bytes(other.file.read_bytes())

    assert call(running, "second") == [1]
    refused(lambda: call(running, "first"))


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        pytest.param(lambda file: file.unlink(), "can't be read (No such file or directory)", id="gone"),
        pytest.param(lambda file: file.write_text("nonsense"), "holds no certificate in PEM form", id="no-certificate"),
        pytest.param(lambda file: file.write_text(""), "holds no certificate in PEM form", id="empty"),
        pytest.param(
            lambda file: file.write_bytes(file.with_name("ca.pem").read_bytes()), "is not that of", id="of-another-key"
        ),
    ],
)
def test_new_files_that_can_not_be_used_leave_the_old_ones_in_use(
    authority: Authority,
    start_tls: Callable,
    call: Callable,
    tmp_path: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[..., Any],
    expected: str,
) -> None:
    running = start_tls()
    assert call(running) == [1]

    spoil(tmp_path / "server.pem")

    assert call(running) == [1]
    assert call(running) == [1]
    told = [record for record in caplog.records if "keeps its certificate" in record.getMessage()]
    assert len(told) == 1
    assert expected in told[0].getMessage()
    authority.issue("server")
    assert call(running) == [1]


def test_a_key_of_another_certificate_is_refused_at_start(
    authority: Authority, start_tls: Callable, tmp_path: pathlib.Path
) -> None:
    authority.issue("other")

    with pytest.raises(TlsError) as caught:
        start_tls(key="other.key")

    assert str(caught.value).replace(f"{tmp_path}/", "") == (
        "server.grpc.tls: the key other.key is not that of the certificate server.pem; use the two of one pair."
    )
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("cert", "key", "expected"),
    [
        ("server.key", "server.key", "server.key holds no certificate in PEM form; check that the right file is named"),
        ("server.pem", "server.pem", "server.pem holds no private key without a password in PEM form"),
        ("locked.pem", "locked.key", "locked.key holds no private key without a password in PEM form"),
    ],
)
def test_a_file_that_holds_something_else_is_refused_at_start(
    authority: Authority, start_tls: Callable, cert: str, key: str, expected: str
) -> None:
    authority.issue("locked", password=b"open sesame")

    with pytest.raises(TlsError) as caught:
        start_tls(cert=cert, key=key)

    assert expected in str(caught.value)


def test_a_client_authority_that_is_none_is_refused_at_start(authority: Authority, start_tls: Callable) -> None:
    with pytest.raises(TlsError, match=r"server\.key holds no certificate in PEM form"):
        start_tls("client_ca: server.key")


@pytest.mark.parametrize("section", ["grpc", "http"])
@pytest.mark.parametrize("key", ["cert", "key", "client_ca"])
def test_a_missing_file_is_told_with_its_line(
    authority: Authority, tmp_path: pathlib.Path, section: str, key: str
) -> None:
    files = {"cert": "server.pem", "key": "server.key", "client_ca": "ca.pem"} | {key: "gone.pem"}
    (tmp_path / "m.onnx").touch()
    tls = ", ".join(f"{name}: {file}" for name, file in files.items())
    config = tmp_path / "servable.yaml"
    config.write_text(f"server: {{{section}: {{tls: {{{tls}}}}}}}\nmodels: [{{name: m, path: m.onnx}}]\n")

    with pytest.raises(ConfigError) as caught:
        load_config(config)

    assert str(caught.value).replace(f"{tmp_path}/", "") == (
        f"servable.yaml:1: server.{section}.tls.{key}: there is no file gone.pem; correct the path"
    )


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, False), (0o644, True), (0o602, True)])
def test_a_key_that_others_can_read_or_change_is_warned_of(
    authority: Authority,
    start_tls: Callable,
    tmp_path: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
    mode: int,
    warned: bool,
) -> None:
    (tmp_path / "server.key").chmod(mode)

    start_tls()

    assert ("server.key; run `chmod o-rw` on it" in caplog.text) is warned


def test_no_log_line_quotes_a_key(
    authority: Authority, start_tls: Callable, call: Callable, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    secret = (tmp_path / "server.key").read_text().splitlines()[1]
    running = start_tls()
    call(running)

    (tmp_path / "server.pem").write_text((tmp_path / "server.key").read_text())
    call(running)

    assert caplog.text
    assert secret not in caplog.text


@pytest.fixture
def start_https(start: Starter, fake: FakeExecutable) -> Callable:
    """Start a server whose HTTP port has the files server.pem and server.key."""

    def start_server(extra: str = ""):
        ports = f"grpc: {{port: 0}}, http: {{port: 0, tls: {{cert: server.pem, key: server.key, {extra}}}}}"
        return start("- {name: fake, path: fake.onnx}\n", ports=ports, loader=lambda model: fake)

    return start_server


def https(running: Running, folder: pathlib.Path, name: str | None = None) -> tuple[int, str]:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if name:
        context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    url = f"https://127.0.0.1:{running.server.http_port}/readyz"
    with urllib.request.urlopen(url, context=context) as answer:
        return answer.status, answer.read().decode()


def test_the_http_port_has_tls_where_it_is_configured(
    authority: Authority, start_https: Callable, tmp_path: pathlib.Path
) -> None:
    running = start_https()

    assert https(running, tmp_path) == (200, "ready\n")
    with pytest.raises(OSError):
        urllib.request.urlopen(f"{running.http}/readyz")


def test_a_connection_that_begins_no_tls_is_closed_and_gives_way(
    authority: Authority, start: Starter, fake: FakeExecutable, tmp_path: pathlib.Path
) -> None:
    running = start(
        "- {name: fake, path: fake.onnx}\n",
        ports="grpc: {port: 0}, http: {port: 0, tls: {cert: server.pem, key: server.key}}",
        server="limits: {http_connections: 2, http_header_timeout_s: 2}",
        loader=lambda model: fake,
    )
    address = ("127.0.0.1", running.server.http_port)
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(address, timeout=120)) for _ in range(4)]
        assert https(running, tmp_path) == (200, "ready\n")

        for one in silent:
            with contextlib.suppress(ConnectionError):
                assert one.recv(1) == b""


def test_the_http_port_has_mutual_tls_too(authority: Authority, start_https: Callable, tmp_path: pathlib.Path) -> None:
    authority.issue("friend")
    running = start_https("client_ca: ca.pem")

    assert https(running, tmp_path, "friend") == (200, "ready\n")
    with pytest.raises(OSError):
        https(running, tmp_path)


def test_new_connections_to_the_http_port_get_new_certificates(
    authority: Authority, start_https: Callable, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority.issue("server", -DAY)
    running = start_https()
    with pytest.raises(urllib.error.URLError, match="expired"):
        https(running, tmp_path)

    (tmp_path / "server.key").write_text("half a file")
    with pytest.raises(urllib.error.URLError, match="expired"):
        https(running, tmp_path)
    authority.issue("server")

    assert https(running, tmp_path) == (200, "ready\n")
    assert "The HTTP port keeps its certificate: server.http.tls: " in caplog.text


def test_a_bad_certificate_of_the_http_port_names_its_section(
    authority: Authority, start_https: Callable, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "server.pem").write_text("nonsense")

    with pytest.raises(TlsError, match=r"^server\.http\.tls: .*server\.pem holds no certificate in PEM form"):
        start_https()
