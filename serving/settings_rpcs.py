"""The RPCs about log and trace settings. The gate has checked the rights to them."""

from collections.abc import Callable, Iterable
from typing import Any

from protos import LogSettingsRequest, LogSettingsResponse, TraceSettingRequest, TraceSettingResponse
from serving.errors import InvalidRequestError, UnsupportedError
from serving.log_settings import change_log_settings, log_settings
from serving.service import InferenceService

_TRACE_LEVELS = ("OFF", "TIMESTAMPS", "TENSORS")


def settings_methods(service: InferenceService) -> dict[str, Callable[[Any], Any]]:
    """Return what answers each of the RPCs, by its name."""

    def trace(request: TraceSettingRequest) -> TraceSettingResponse:
        if request.model_name:
            service.find_all(request.model_name, "")
        if "trace_level" in request.settings:
            _check_trace_levels(request.settings["trace_level"].value)
        off = TraceSettingResponse.SettingValue(value=["OFF"])
        return TraceSettingResponse(settings={"trace_level": off})

    return {"TraceSetting": trace, "LogSettings": answer_log_settings}


def _check_trace_levels(levels: Iterable[str]) -> None:
    for level in levels:
        if level not in _TRACE_LEVELS:
            raise InvalidRequestError(f"there is no trace level {level[:100]!r}; use one of {_TRACE_LEVELS}")
        if level != "OFF":
            raise UnsupportedError("this server doesn't trace requests")


def answer_log_settings(request: LogSettingsRequest) -> LogSettingsResponse:
    """Change what the process logs, and say what is in effect.

    Raises:
        InvalidRequestError: A value is of another type, or the switches contradict each other.
        UnsupportedError: The request changes the file or the format of the log.
    """
    if request.settings:
        change_log_settings({key: _value(setting) for key, setting in request.settings.items()})
    value = LogSettingsResponse.SettingValue
    settings = {
        key: value(bool_param=setting) if isinstance(setting, bool) else value(uint32_param=int(setting))
        for key, setting in log_settings().items()
    }
    return LogSettingsResponse(settings=settings)


def _value(setting: LogSettingsRequest.SettingValue) -> bool | int | str:
    field = setting.WhichOneof("parameter_choice")
    if field is None:
        raise InvalidRequestError("a log setting has no value")
    return getattr(setting, field)  # type: ignore[no-any-return]
