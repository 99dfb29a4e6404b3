"""Log lines: text or JSON, with the request that they belong to, whatever clients put into it."""

from __future__ import annotations

import io
import json
import logging
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tests.serving.conftest import FakeExecutable, Running, Starter, StartFake, given
from trtnode.engines.errors import ExecutionError
from trtnode.serving.schema.server import AuthConfig, GrpcConfig, HttpConfig, ServerConfig, TlsConfig
from trtnode.serving.security.exposure_warnings import warn_of_open_ports
from trtnode.serving.telemetry import logs
from trtnode.serving.telemetry.logs import FORMATTERS, OneASecond, StderrHandler, escaped

FORGED = "7\n2026-01-01 00:00:00,000 ERROR   serving: forged \x1b[31m\u2028\u202e"


class Lines(logging.Handler):
    """Keeps what a formatter makes of each record, in the thread that logs."""

    def __init__(self, form: str) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(FORMATTERS[form]())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    def about(self, text: str) -> list[str]:
        return [line for line in self.lines if text in line]


@pytest.fixture
def log_as(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[str], Lines]]:
    caplog.set_level("DEBUG")
    added: list[Lines] = []

    def add(form: str) -> Lines:
        added.append(Lines(form))
        logging.getLogger().addHandler(added[-1])
        return added[-1]

    yield add
    for lines in added:
        logging.getLogger().removeHandler(lines)


def infer(running: Running, request_id: str = "", value: float = 0, model: str = "fake") -> None:
    running.client.infer(model, [given("x", np.full(1, value, np.float32))], request_id=request_id)


def test_json_lines_name_time_level_logger_message_request_and_model(
    log_as: Callable[[str], Lines], start_fake: StartFake, fake: FakeExecutable
) -> None:
    log = log_as("json")
    running = start_fake()
    fake.error = ExecutionError("the engine broke")

    with pytest.raises(InferenceServerException):
        infer(running, "order-7")

    (line,) = log.about("the engine broke")
    facts = json.loads(line)
    assert facts.pop("time")[10:].endswith("Z")
    assert facts == {
        "level": "error",
        "logger": "trtnode.serving.service.status",
        "message": "ModelInfer failed: the engine broke",
        "request_id": "order-7",
        "model": "fake",
    }


def test_text_lines_end_with_request_and_model(
    log_as: Callable[[str], Lines], start_fake: StartFake, fake: FakeExecutable
) -> None:
    log = log_as("text")
    running = start_fake()
    fake.error = ExecutionError("the engine broke")

    with pytest.raises(InferenceServerException):
        infer(running, "order-7")

    (line,) = log.about("the engine broke")
    assert line.endswith(
        "ERROR   trtnode.serving.service.status: "
        "ModelInfer failed: the engine broke [request_id='order-7' model='fake']"
    )


def test_an_unexpected_error_has_its_traceback_in_the_record(
    log_as: Callable[[str], Lines], start_fake: StartFake, fake: FakeExecutable
) -> None:
    text, objects = log_as("text"), log_as("json")
    running = start_fake()
    fake.error = RuntimeError(f"odd {FORGED}")

    with pytest.raises(InferenceServerException):
        infer(running)

    (line,) = objects.about("failed unexpectedly")
    assert "Traceback" in json.loads(line)["exception"]
    first, *rest = text.about("failed unexpectedly")[0].split("\n")
    assert first.endswith("ModelInfer failed unexpectedly [model='fake']")
    assert rest
    assert all(line.startswith("    ") and line.isprintable() for line in rest)


def test_each_request_has_a_line_at_level_debug(log_as: Callable[[str], Lines], start_fake: StartFake) -> None:
    log = log_as("json")
    running = start_fake()

    infer(running, "a")
    with pytest.raises(InferenceServerException):
        infer(running, "b", model="other")

    first, second = (json.loads(line) for line in log.about("ModelInfer of ipv4:127.0.0.1:"))
    assert (first["level"], first["request_id"], first["model"]) == ("debug", "a", "fake")
    assert ": OK in " in first["message"]
    assert (second["request_id"], second["model"]) == ("b", "other")
    assert ": NOT_FOUND in " in second["message"]


def test_nothing_is_logged_for_a_request_at_level_info(
    log_as: Callable[[str], Lines], start_fake: StartFake, caplog: pytest.LogCaptureFixture
) -> None:
    running = start_fake()
    log = log_as("text")
    caplog.set_level("INFO")

    infer(running, "order-7")

    assert log.lines == []


@pytest.mark.parametrize("form", FORMATTERS)
def test_a_request_can_not_forge_a_line(
    log_as: Callable[[str], Lines], start_fake: StartFake, fake: FakeExecutable, form: str
) -> None:
    log = log_as(form)
    running = start_fake()
    fake.error = ExecutionError(f"broken {FORGED}")

    with pytest.raises(InferenceServerException):
        infer(running, FORGED)
    with pytest.raises(InferenceServerException):
        infer(running, FORGED, model=FORGED)

    assert len(log.about("forged")) == 3  # the failure, and a line for each request
    for line in log.lines:
        assert line.isprintable(), line


def test_long_request_ids_are_cut(log_as: Callable[[str], Lines], start_fake: StartFake) -> None:
    log = log_as("json")

    infer(start_fake(), 10_000 * "x")

    (line,) = log.about("ModelInfer of")
    assert json.loads(line)["request_id"] == 128 * "x"


@pytest.mark.parametrize("form", FORMATTERS)
def test_no_line_holds_what_a_request_or_answer_carries(
    log_as: Callable[[str], Lines], start_fake: StartFake, form: str
) -> None:
    log = log_as(form)

    infer(start_fake(), "order-7", value=31415.5)

    assert log.about("order-7")
    for payload in ("31415", "31416", repr(np.float32(31415.5).tobytes())[2:-1]):
        assert not log.about(payload)


def test_what_is_printable_stays_as_it_is() -> None:
    assert escaped("größe 3 'x'") == "größe 3 'x'"
    assert escaped("a\tb\n\x1b[0m\u2028") == r"a\tb\n\x1b[0m\u2028"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "host.example"])
def test_ports_that_others_reach_are_warned_of(caplog: pytest.LogCaptureFixture, host: str) -> None:
    warn_of_open_ports(ServerConfig(grpc=GrpcConfig(host=host), http=HttpConfig(host=host)))

    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        f"Other machines reach {host}, where anyone may call (server.auth is not set) and tokens and tensors travel in "
        "the clear (not set: server.grpc.tls, server.http.tls)"
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_ports_on_loopback_are_not_warned_of(caplog: pytest.LogCaptureFixture, host: str) -> None:
    warn_of_open_ports(ServerConfig(grpc=GrpcConfig(host=host), http=HttpConfig(host=host)))

    assert caplog.records == []


AUTH = AuthConfig(tokens_file=pathlib.Path("tokens.yaml"))
TLS = TlsConfig(cert=pathlib.Path("c.pem"), key=pathlib.Path("k.pem"))
MUTUAL = TLS.model_copy(update={"client_ca": pathlib.Path("ca.pem")})


@pytest.mark.parametrize(
    ("auth", "tls", "missing"),
    [
        (AUTH, None, "tokens and tensors travel in the clear (not set: server.grpc.tls)"),
        (None, TLS, "anyone may call (server.auth is not set)"),
        (AUTH, TLS, None),
        (None, MUTUAL, None),
    ],
)
def test_the_warning_names_what_is_missing(
    caplog: pytest.LogCaptureFixture, auth: AuthConfig | None, tls: TlsConfig | None, missing: str | None
) -> None:
    warn_of_open_ports(ServerConfig(auth=auth, grpc=GrpcConfig(host="0.0.0.0", tls=tls)))

    assert [record.getMessage() for record in caplog.records] == (
        [f"Other machines reach 0.0.0.0, where {missing}"] if missing else []
    )


def test_a_server_on_all_addresses_warns_once(
    start: Starter, fake: FakeExecutable, caplog: pytest.LogCaptureFixture
) -> None:
    running = start(
        "- {name: fake, path: fake.onnx}",
        ports="grpc: {host: 0.0.0.0, port: 0}, http: {host: 0.0.0.0, port: 0}",
        loader=lambda model: fake,
    )
    for _ in range(3):
        infer(running)

    assert caplog.text.count("Other machines reach 0.0.0.0") == 1


def test_a_process_logs_json_objects_alone_of_the_level_that_is_configured(
    tmp_path: pathlib.Path, models: pathlib.Path, warm_cache: pathlib.Path
) -> None:
    config = tmp_path / "servable.yaml"
    config.write_text(
        "server: {grpc: {host: 0.0.0.0, port: 0}, http: {port: 0}, log: {level: debug, format: json}}\n"
        f"cache: {{dir: {warm_cache}}}\nmodels: [{{name: m, path: {models}/two.onnx, engine: native, warmup: 0}}]\n"
    )
    command = [sys.executable, "-m", "trtnode", "serve", "--config", str(config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = []
        while not lines or "ready on" not in lines[-1]:
            lines.append(process.stderr.readline())
        process.send_signal(signal.SIGTERM)
        lines += process.stderr.readlines()

    assert process.returncode == 0
    facts = [json.loads(line) for line in lines]
    assert [fact["level"] for fact in facts if fact["message"].startswith("Other machines reach")] == ["warning"]
    assert "debug" in {fact["level"] for fact in facts}
    assert facts[-1] | {"time": ""} == {
        "time": "",
        "level": "info",
        "logger": "trtnode.serving.process.signals",
        "message": "stopped",
    }


def test_lines_of_one_kind_come_once_a_second_with_the_number_of_those_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 100.0
    monkeypatch.setattr(logs.time, "monotonic", lambda: now)
    logger = logging.getLogger("test.one_a_second")
    logger.addFilter(OneASecond())

    def attack(peer: str) -> None:
        logger.warning("Closed %s", peer)

    for peer in ("a", "b", "c"):
        attack(peer)
    logger.warning("something else")
    now += 1
    attack("100 %")
    now += 1
    attack("e")

    assert [record.getMessage() for record in caplog.records] == [
        "Closed a",
        "something else",
        "Closed 100 % (2 more such lines were left out)",
        "Closed e",
    ]


def test_lines_go_to_what_stands_for_stderr_at_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = StderrHandler()
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)

    handler.handle(logging.makeLogRecord({"msg": "above the bar"}))

    assert screen.getvalue() == "above the bar\n"
