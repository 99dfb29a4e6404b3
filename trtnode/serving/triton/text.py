"""config.pbtxt as a message, and the line of each of its fields."""

from __future__ import annotations

import difflib
import logging
import pathlib
import re
from collections.abc import Iterator
from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor

from trtnode.partitioner.model.regular_files import read_regular
from trtnode.protos import ModelConfig
from trtnode.serving.errors import ConfigError, Problem

logger = logging.getLogger(__name__)

MAX_BYTES = 1 << 20
_TOKEN = re.compile(r"""\#[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[\w.+-]+|[^\s\w]""")
_BRACKETS = {"{": "}", "<": ">"}


class ConfigText:
    """The text of a config.pbtxt.

    Attributes:
        message: What it says.
    """

    def __init__(self, file: pathlib.Path) -> None:
        """Read a file. Fields that this version doesn't know are logged.

        Raises:
            ConfigError: It can't be read, is no text of a configuration, or has a typo in a field.
        """
        self._file = file
        text = _text_of(file)
        self._lines: dict[str, int] = {}
        self._tokens = _tokens(text)
        self._ahead = next(self._tokens, ("", 0))
        self._typos: list[Problem] = []
        try:
            self.message = text_format.Parse(text, ModelConfig(), allow_unknown_field=True)
            self._read_fields(self.message.DESCRIPTOR, "")
        except RecursionError:
            raise ConfigError(file, [Problem("nested too deep for a model configuration")]) from None
        except text_format.ParseError as error:
            problem = str(error).rpartition(" : ")[2].rstrip(".")
            problem = f"not a model configuration in protobuf's text format: {problem}"
            raise ConfigError(file, [Problem(problem, line=error.GetLine())]) from None
        if self._typos:
            raise ConfigError(file, self._typos)

    def line(self, place: str) -> int | None:
        """Return the line of a field, such as ``input[0].dims``, or of what holds it; None where neither is there."""
        while place and place not in self._lines:
            place = re.sub(r"(\.?\w+|\[[^\[\]]*\])$", "", place)
        return self._lines.get(place)

    def _next(self) -> tuple[str, int]:
        token, self._ahead = self._ahead, next(self._tokens, ("", 0))
        return token

    def _read_fields(self, descriptor: Any, place: str) -> None:
        """Read the fields of a message up to its end, and note their lines."""
        counts: dict[str, int] = {}
        while self._ahead[0] not in ("", *_BRACKETS.values()):
            name, line = self._next()
            if name in (",", ";"):
                continue
            field = descriptor.fields_by_name.get(name) if descriptor is not None else None
            if field is None and descriptor is not None:
                self._report_unknown(descriptor, name, place, line)
            here = f"{place}{name}"
            self._lines.setdefault(here, line)
            if self._ahead[0] == ":":
                self._next()
            if self._ahead[0] != "[":
                self._read_value(field, here, counts, line)
                continue
            self._next()
            while self._ahead[0] not in ("]", ""):
                if self._ahead[0] == ",":
                    self._next()
                else:
                    self._read_value(field, here, counts, self._ahead[1])
            self._next()

    def _read_value(self, field: FieldDescriptor | None, place: str, counts: dict[str, int], line: int) -> None:
        below = field.message_type if field is not None else None
        if field is not None and field.is_repeated and below is not None:
            number = counts[place] = counts.get(place, -1) + 1
            place = f"{place}[{number}]"
            self._lines.setdefault(place, line)
        opening, _ = self._next()
        if opening in _BRACKETS:
            self._read_fields(below, f"{place}.")
            self._next()
        elif opening[:1] in ('"', "'"):
            if place.endswith("].key"):
                entry = place.rpartition("[")[0]
                self._lines.setdefault(f"{entry}[{opening[1:-1]!r}]", line)
            while self._ahead[0][:1] in ('"', "'"):  # pieces of one string
                self._next()

    def _report_unknown(self, descriptor: Any, name: str, place: str, line: int) -> None:
        nearest = difflib.get_close_matches(name, list(descriptor.fields_by_name), n=1)
        if nearest:
            self._typos.append(Problem(f"unknown field; did you mean {nearest[0]!r}?", f"{place}{name}", line))
        else:
            logger.warning("%s:%d: %s%s: unknown to this version, and not followed", self._file, line, place, name)


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    """Yield each token with its line."""
    line, position = 1, 0
    for match in _TOKEN.finditer(text):
        line += text.count("\n", position, match.start())
        position = match.start()
        if not match[0].startswith("#"):
            yield match[0], line


def _text_of(file: pathlib.Path) -> str:
    try:
        if file.stat().st_size > MAX_BYTES:
            raise ConfigError(file, [Problem(f"larger than {MAX_BYTES} bytes; this is no {file.name}")])
        return read_regular(file).decode()
    except OSError as error:
        raise ConfigError(file, [Problem(f"can't be read ({error.strerror}); check its permissions")]) from None
    except UnicodeDecodeError:
        raise ConfigError(file, [Problem("not UTF-8; save the file as UTF-8")]) from None
