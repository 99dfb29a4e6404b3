"""The form of log lines: text or JSON, one line a record, with the request that they belong to.

Clients choose request ids, model names and, through error messages, more. Whatever is not printable in them is escaped,
so that no request can forge a line or steer a terminal.
"""

from __future__ import annotations

import contextvars
import datetime
import json
import logging
import math
import sys
import threading
import time
from typing import Any, TextIO

logger = logging.getLogger(__name__)

MAX_ID = 128
"""Characters of a request id that are written."""

CURRENT_REQUEST: contextvars.ContextVar[Any] = contextvars.ContextVar("request")
"""The protocol message that this thread answers; read only when a line is written."""


class StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to what stderr is at the time: while a progress bar is drawn, that prints lines above the bar."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        self.setStream(sys.stderr)
        super().emit(record)


def log_answer(rpc: str, context: Any, started: float) -> None:
    """Write a line at DEBUG about a request that is answered, or failed.

    Args:
        rpc: Its name.
        context: Of the request.
        started: When it began, as ``time.perf_counter`` counts.
    """
    if logger.isEnabledFor(logging.DEBUG):
        code = context.code.name if context.code else "OK"
        milliseconds = 1000 * (time.perf_counter() - started)
        logger.debug("%s of %s: %s in %.3f ms", rpc, context.peer(), code, milliseconds)


def use_format(form: str, **facts: str) -> None:
    """Let the process write its log in a form of ``FORMATTERS``, with facts on every line."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(FORMATTERS[form](**facts))


class OneASecond(logging.Filter):
    """Lets one record of a kind pass a second. The next one tells how many were left out. A kind is a line of code."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._kinds: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is written."""
        kind, now = (record.pathname, record.lineno), time.monotonic()
        with self._lock:
            written, left_out = self._kinds.get(kind, (-math.inf, 0))
            passes = now - written >= 1
            self._kinds[kind] = (now, 0) if passes else (written, left_out + 1)
        if passes and left_out:
            record.msg, record.args = f"{record.getMessage()} ({left_out} more such lines were left out)", ()
        return passes


class _Formatter(logging.Formatter):
    """Knows what stands on every line of the process."""

    def __init__(self, **facts: str) -> None:
        super().__init__()
        self._facts = facts

    def _all_facts(self) -> dict[str, str]:
        return {**self._facts, **_request_facts()}


class TextFormatter(_Formatter):
    """Time, level, logger and message, then request id and model where a request is being answered.

    Lines of a traceback are set in, so that none of them looks like the start of a record.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and those of the traceback if there is one."""
        facts = "".join(f" {key}={value!r}" for key, value in self._all_facts().items())
        message = f"{record.getMessage()} [{facts[1:]}]" if facts else record.getMessage()
        lines = [f"{self.formatTime(record)} {record.levelname:<7} {record.name}: {escaped(message)}"]
        if record.exc_info:
            lines += [f"    {escaped(line)}" for line in self.formatException(record.exc_info).split("\n")]
        return "\n".join(lines)


class JsonFormatter(_Formatter):
    """One JSON object a line: time (UTC), level, logger, message, and request_id, model and exception where known."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        written = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line = {
            "time": written.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._all_facts(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


FORMATTERS: dict[str, type[_Formatter]] = {"text": TextFormatter, "json": JsonFormatter}


def escaped(text: str) -> str:
    r"""Return text with everything that is not printable as an escape, such as ``\n``."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _request_facts() -> dict[str, str]:
    """Return id and model of the request that this thread answers, without what is empty. Never its tensors."""
    request = CURRENT_REQUEST.get(None)
    facts = {
        "request_id": getattr(request, "id", ""),
        "model": getattr(request, "model_name", "") or getattr(request, "name", ""),
    }
    return {key: value[:MAX_ID] for key, value in facts.items() if value}
