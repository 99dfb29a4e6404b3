"""Triton's log settings, as the one level that Python's logging has."""

import bisect
import logging
from collections.abc import Mapping

from serving.errors import InvalidRequestError, UnsupportedError

logger = logging.getLogger(__name__)

Value = bool | int | str

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
"""From everything to nothing: this server logs nothing at CRITICAL."""
_SWITCHES: Mapping[str, type] = {"log_verbose_level": int, "log_info": bool, "log_warning": bool, "log_error": bool}
"""What turns each level on, with its type, in the order of ``_LEVELS``."""
_FIXED = ("log_file", "log_format")


def log_settings() -> dict[str, Value]:
    """Return the settings in effect: which levels are written, and 1 or 0 for debug lines."""
    lowest = _lowest()
    return {key: kind(place >= lowest) for place, (key, kind) in enumerate(_SWITCHES.items())}


def change_log_settings(wanted: Mapping[str, Value]) -> None:
    """Change what the process writes to its log. Unknown settings are ignored, as Triton does.

    A level that is on has all higher ones on too. So switches that the request leaves out follow those in it.

    Raises:
        InvalidRequestError: A value is of another type, or the switches contradict each other.
        UnsupportedError: The request changes the file or the format of the log.
    """
    if any(key in wanted for key in _FIXED):
        raise UnsupportedError("file and format of the log can't be changed while the server runs; see server.log")
    least, most = 0, len(_LEVELS) - 1
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
    return min(bisect.bisect_left(_LEVELS, logging.getLogger().level), len(_LEVELS) - 1)


def _set_lowest(place: int) -> None:
    if place != _lowest():
        logging.getLogger().setLevel(_LEVELS[place])
        logger.warning("A client changed the log level to %s", logging.getLevelName(_LEVELS[place]).lower())
