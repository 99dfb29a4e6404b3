"""Triton's trace settings, as far as this server has them: on or off, and one request in how many, for all models."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from serving.errors import InvalidRequestError, UnsupportedError

if TYPE_CHECKING:
    from serving.tracing import Tracing

_OFF, _ON = "OFF", "TIMESTAMPS"
_LEVELS = (_OFF, _ON, "TENSORS")
_MOST = 2**31 - 1
_MOST_DIGITS = 10


def trace_settings(tracing: "Tracing | None") -> dict[str, list[str]]:
    """Return the settings in effect."""
    if tracing is None:
        return {"trace_level": [_OFF]}
    return {"trace_level": [_ON if tracing.enabled else _OFF], "trace_rate": [str(tracing.rate)]}


def change_trace_settings(tracing: "Tracing | None", model: str, wanted: Mapping[str, Sequence[str]]) -> None:
    """Change what is traced. Unknown settings are ignored, as Triton does; an empty one goes back to its default.

    Args:
        tracing: What makes the spans; None where ``server.tracing`` is not set.
        model: Whose settings to change; empty for all models.
        wanted: Values by setting.

    Raises:
        InvalidRequestError: A value isn't one that the setting can have.
        UnsupportedError: This server doesn't have what the value asks for.
    """
    enabled, rate = _enabled(wanted.get("trace_level")), _rate(wanted.get("trace_rate"))
    if tracing is None:
        if enabled and wanted.get("trace_level"):
            raise UnsupportedError("this server doesn't trace requests; set server.tracing in its configuration")
        return
    if model and (enabled, rate) != (None, None):
        raise UnsupportedError("trace settings are those of all models; leave the model's name out")
    if enabled is not None:
        tracing.enabled = enabled
    if rate is not None:
        tracing.rate = rate


def _enabled(levels: Sequence[str] | None) -> bool | None:
    """Whether requests are to be traced; None for as before."""
    for level in levels or ():
        if level not in _LEVELS:
            raise InvalidRequestError(f"there is no trace level {level[:100]!r}; use one of {_LEVELS}")
        if level not in (_OFF, _ON):
            raise UnsupportedError(f"this server never writes tensors to a trace; use {_ON}")
    return None if levels is None else not levels or _ON in levels


def _rate(values: Sequence[str] | None) -> int | None:
    """One in how many requests is to be traced; None for as before."""
    if values is None:
        return None
    if not values:
        return 1
    text = values[0]
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else 0
    if len(values) > 1 or not 0 < number <= _MOST:
        raise InvalidRequestError(f"trace_rate should be a whole number from 1 to {_MOST}, not {text[:100]!r}")
    return number
