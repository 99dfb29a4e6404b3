"""Triton's log and trace settings, as far as this server has them.

Triton's four log switches map to one level, because Python's levels are nested. A request whose switches contradict
that is refused; switches that it leaves out follow. The response holds the levels in effect. Traces are on or off, and
of one request in how many, for all models.
"""

from __future__ import annotations

import bisect
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trtnode.serving.errors import InvalidRequestError, UnsupportedError

if TYPE_CHECKING:
    from trtnode.serving.telemetry.tracing import Tracing

logger = logging.getLogger(__name__)

Value = bool | int | str

_LOG_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
"""From everything to nothing: this server logs nothing at CRITICAL."""
_SWITCHES: Mapping[str, type] = {"log_verbose_level": int, "log_info": bool, "log_warning": bool, "log_error": bool}
"""The switch of each level, with its type, in the order of ``_LOG_LEVELS``."""
_FIXED: Mapping[str, Value] = {"log_file": "", "log_format": "default"}
"""Settings that don't change while the server runs, as Triton calls those of this one."""
_FIXED_TRACE = {"trace_count": ["-1"], "log_frequency": ["0"], "trace_file": [""], "trace_mode": ["opentelemetry"]}

_OFF, _ON = "OFF", "TIMESTAMPS"
_TRACE_LEVELS = (_OFF, _ON, "TENSORS")
_MAX_RATE = 2**31 - 1
_RATE_DIGITS = 10


def log_settings() -> dict[str, Value]:
    """Return the settings in effect: which levels are written, and 1 or 0 for debug lines."""
    lowest = _lowest()
    return {**_FIXED, **{key: kind(place >= lowest) for place, (key, kind) in enumerate(_SWITCHES.items())}}


def change_log_settings(wanted: Mapping[str, Value]) -> None:
    """Change what the process writes to its log. Unknown settings are ignored, as Triton does.

    A level that is on has all higher ones on too. So switches that the request leaves out follow those in it.

    Raises:
        InvalidRequestError: A value is of another type, or the switches contradict each other.
        UnsupportedError: The request changes the file or the format of the log.
    """
    if any(wanted.get(key, value) != value for key, value in _FIXED.items()):
        raise UnsupportedError("file and format of the log can't be changed while the server runs; see server.log")
    least, most = 0, len(_LOG_LEVELS) - 1
    for place, (key, kind) in enumerate(_SWITCHES.items()):
        if key not in wanted:
            continue
        if type(wanted[key]) is not kind:
            raise InvalidRequestError(f"the log setting {key!r} should be of type {kind.__name__}")
        if wanted[key]:
            most = min(most, place)
        else:
            least = max(least, place + 1)
    if least > most:
        raise InvalidRequestError("a level of the log can't be off while a lower one is on; turn off both")
    _set_lowest(min(max(_lowest(), least), most))


def _lowest() -> int:
    """Return which of the levels is the lowest that is written."""
    return min(bisect.bisect_left(_LOG_LEVELS, logging.getLogger().level), len(_LOG_LEVELS) - 1)


def _set_lowest(place: int) -> None:
    if place != _lowest():
        logging.getLogger().setLevel(_LOG_LEVELS[place])
        logger.warning("A client changed the log level to %s", logging.getLevelName(_LOG_LEVELS[place]).lower())


def trace_settings(tracing: Tracing | None) -> dict[str, list[str]]:
    """Return the settings in effect."""
    if tracing is None:
        return {**_FIXED_TRACE, "trace_level": [_OFF], "trace_rate": ["1"]}
    return {**_FIXED_TRACE, "trace_level": [_ON if tracing.enabled else _OFF], "trace_rate": [str(tracing.rate)]}


def change_trace_settings(tracing: Tracing | None, model: str, wanted: Mapping[str, Sequence[str]]) -> None:
    """Change what is traced. Unknown settings are ignored, as Triton does; an empty one goes back to its default.

    Args:
        tracing: Makes the spans; None where ``server.tracing`` is not set.
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
    """Return whether requests are to be traced; None for as before."""
    for level in levels or ():
        if level not in _TRACE_LEVELS:
            raise InvalidRequestError(f"there is no trace level {level[:100]!r}; use one of {_TRACE_LEVELS}")
        if level not in (_OFF, _ON):
            raise UnsupportedError(f"this server never writes tensors to a trace; use {_ON}")
    return None if levels is None else not levels or _ON in levels


def _rate(values: Sequence[str] | None) -> int | None:
    """Return one in how many requests is to be traced; None for as before."""
    if values is None:
        return None
    if not values:
        return 1
    text = values[0]
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= _RATE_DIGITS else 0
    if len(values) > 1 or not 0 < number <= _MAX_RATE:
        raise InvalidRequestError(f"trace_rate should be a whole number from 1 to {_MAX_RATE}, not {text[:100]!r}")
    return number
