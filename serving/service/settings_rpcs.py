"""The RPCs about log and trace settings. The ports have checked the rights to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trtnode.protos import LogSettingsRequest, LogSettingsResponse, TraceSettingRequest, TraceSettingResponse
from trtnode.serving.errors import InvalidRequestError
from trtnode.serving.service.inference_service import InferenceService
from trtnode.serving.telemetry.settings import change_log_settings, change_trace_settings, log_settings, trace_settings


def settings_methods(service: InferenceService) -> dict[str, Callable[[Any], Any]]:
    """Return what answers each of the RPCs, by its name."""

    def trace(request: TraceSettingRequest) -> TraceSettingResponse:
        wanted = {key: list(setting.value) for key, setting in request.settings.items()}
        if request.model_name:
            service.find_all(request.model_name, "")
        change_trace_settings(service.tracing, request.model_name, wanted)
        settings = trace_settings(service.tracing)
        value = TraceSettingResponse.SettingValue
        return TraceSettingResponse(settings={key: value(value=values) for key, values in settings.items()})

    return {"TraceSetting": trace, "LogSettings": answer_log_settings}


def answer_log_settings(request: LogSettingsRequest) -> LogSettingsResponse:
    """Change what the process logs, and say what is in effect.

    Raises:
        InvalidRequestError: A value is of another type, or the switches contradict each other.
        UnsupportedError: The request changes the file or the format of the log.
    """
    if request.settings:
        change_log_settings({key: _value(setting) for key, setting in request.settings.items()})
    return LogSettingsResponse(settings={key: _setting(value) for key, value in log_settings().items()})


def _setting(value: bool | int | str) -> LogSettingsResponse.SettingValue:
    if isinstance(value, bool):
        return LogSettingsResponse.SettingValue(bool_param=value)
    if isinstance(value, int):
        return LogSettingsResponse.SettingValue(uint32_param=value)
    return LogSettingsResponse.SettingValue(string_param=value)


def _value(setting: LogSettingsRequest.SettingValue) -> bool | int | str:
    field = setting.WhichOneof("parameter_choice")
    if field is None:
        raise InvalidRequestError("a log setting has no value")
    return getattr(setting, field)  # type: ignore[no-any-return]
