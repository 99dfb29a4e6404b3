"""Log and trace settings that clients read and change while the server runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
import tritonclient.grpc as triton
from google.protobuf.message import Message
from tritonclient.utils import InferenceServerException

from tests.serving.conftest import Running, refusal

INFO = {
    "log_file": "",
    "log_format": "default",
    "log_error": True,
    "log_warning": True,
    "log_info": True,
    "log_verbose_level": 0,
}


@pytest.fixture
def client(with_memory: Running) -> Iterator[triton.InferenceServerClient]:
    before = logging.getLogger().level
    logging.getLogger().setLevel(logging.INFO)
    yield with_memory.client
    logging.getLogger().setLevel(before)


def settings_of(response: Message) -> dict[str, bool | int]:
    return {key: getattr(value, value.WhichOneof("parameter_choice")) for key, value in response.settings.items()}


@pytest.mark.parametrize(
    ("change", "level"),
    [
        ({"log_verbose_level": 1}, logging.DEBUG),
        ({"log_verbose_level": 0}, logging.INFO),
        ({"log_info": False}, logging.WARNING),
        ({"log_info": True}, logging.INFO),
        ({"log_info": False, "log_warning": False, "log_verbose_level": 0}, logging.ERROR),
        ({"log_error": False}, logging.CRITICAL),
        ({"log_made_up": True}, logging.INFO),
    ],
)
def test_a_change_of_the_log_settings_takes_effect_at_once(
    client: triton.InferenceServerClient, change: dict[str, Any], level: int
) -> None:
    changed = settings_of(client.update_log_settings(change))

    assert logging.getLogger().level == level
    assert changed.items() >= {key: value for key, value in change.items() if key != "log_made_up"}.items()
    assert settings_of(client.get_log_settings()) == changed


def test_switches_that_are_left_out_follow_the_others(client: triton.InferenceServerClient) -> None:
    client.update_log_settings({"log_error": False})

    assert settings_of(client.update_log_settings({"log_info": True})) == INFO


def test_what_is_logged_follows_the_settings(
    client: triton.InferenceServerClient, caplog: pytest.LogCaptureFixture
) -> None:
    client.update_log_settings({"log_warning": False})
    with pytest.raises(InferenceServerException):
        client.register_system_shared_memory("r", "/never-created", 1)
    logged = [record.levelname for record in caplog.records]
    client.update_log_settings({"log_info": True})

    assert "ERROR" in logged
    assert "WARNING" not in logged
    assert "A client changed the log level to info" in caplog.text


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({"log_info": None}, "INVALID_ARGUMENT", "has no value"),
        ({"log_info": True, "log_warning": False}, "INVALID_ARGUMENT", "can't be off while a lower one is on"),
        ({"log_file": "/etc/passwd"}, "UNIMPLEMENTED", "can't be changed while the server runs"),
        ({"log_format": "ISO8601"}, "UNIMPLEMENTED", "can't be changed while the server runs"),
    ],
)
def test_log_settings_that_can_not_be_change_nothing(
    client: triton.InferenceServerClient, change: dict[str, Any], code: str, text: str
) -> None:
    status, message = refusal(lambda: client.update_log_settings(change))

    assert (status, text in message) == (code, True), message
    assert settings_of(client.get_log_settings()) == INFO


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("log_info", {"uint32_param": 1}, "bool"),
        ("log_error", {"string_param": "yes"}, "bool"),
        ("log_verbose_level", {"bool_param": True}, "int"),
    ],
)
def test_log_settings_of_another_type_are_refused(
    client: triton.InferenceServerClient, with_memory: Running, key: str, value: dict[str, Any], kind: str
) -> None:
    with grpc.insecure_channel(with_memory.address) as channel, pytest.raises(grpc.RpcError) as caught:
        triton.service_pb2_grpc.GRPCInferenceServiceStub(channel).LogSettings(
            triton.service_pb2.LogSettingsRequest(settings={key: value})
        )

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert f"{key!r} should be of type {kind}" in caught.value.details()
    assert settings_of(client.get_log_settings()) == INFO


def test_nothing_is_traced_and_the_server_says_so(client: triton.InferenceServerClient) -> None:
    settings = client.get_trace_settings().settings

    assert {key: list(value.value) for key, value in settings.items()} == {
        "trace_level": ["OFF"],
        "trace_rate": ["1"],
        "trace_count": ["-1"],
        "log_frequency": ["0"],
        "trace_file": [""],
        "trace_mode": ["opentelemetry"],
    }
    assert client.update_trace_settings("two", {"trace_level": ["OFF"]}).settings == settings
    assert client.update_trace_settings(settings={"made_up": "1"}).settings == settings


@pytest.mark.parametrize(
    ("model", "level", "code", "text"),
    [
        ("", "TIMESTAMPS", "UNIMPLEMENTED", "doesn't trace requests"),
        ("", "EVERYTHING", "INVALID_ARGUMENT", "no trace level 'EVERYTHING'"),
        ("nowhere", "OFF", "INVALID_ARGUMENT", "nowhere"),
    ],
)
def test_trace_settings_that_can_not_be_are_refused(
    client: triton.InferenceServerClient, model: str, level: str, code: str, text: str
) -> None:
    status, message = refusal(lambda: client.update_trace_settings(model, {"trace_level": [level]}))

    assert (status, text in message) == (code, True), message


def test_settings_are_closed_unless_they_are_allowed(shared: Running) -> None:
    level = logging.getLogger().level

    assert refusal(lambda: shared.client.update_log_settings({"log_info": False}))[0] == "PERMISSION_DENIED"
    assert (
        refusal(lambda: shared.client.update_trace_settings(settings={"trace_level": "OFF"}))[0] == "PERMISSION_DENIED"
    )
    assert logging.getLogger().level == level
