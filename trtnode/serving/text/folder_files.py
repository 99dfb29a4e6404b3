"""Files of a folder that somebody else made: JSON of known fields, and no way out of the folder."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from trtnode.partitioner.model.regular_files import open_regular, without_links
from trtnode.serving.errors import TextModelError

MOST_JSON_BYTES = 8 << 20
"""The names of 100,000 classes take less."""

_Kind = TypeVar("_Kind")


@dataclasses.dataclass(frozen=True, slots=True)
class JsonFile:
    """An object of JSON, whose fields are asked for by type.

    Attributes:
        path: Its file, for messages.
        fields: What it holds; nothing if there is no file.
    """

    path: pathlib.Path
    fields: Mapping[str, Any]

    def get(self, name: str, kind: type[_Kind]) -> _Kind | None:
        """Return a field; None if it isn't there, or null.

        Raises:
            TextModelError: It is of another type.
        """
        value = self.fields.get(name)
        if value is None:
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.fault(name, f"is {value!r:.80}, and should be of type {kind.__name__}")
        return value

    def texts(self, name: str) -> dict[str, str]:
        """Return a field of texts by name; empty if it isn't there.

        Raises:
            TextModelError: It is something else.
        """
        found = self.get(name, dict) or {}
        if not all(isinstance(value, str) for value in found.values()):
            raise self.fault(name, "should have texts by name")
        return found

    def fault(self, name: str, problem: str) -> TextModelError:
        """The error for a field that can't be followed."""
        return TextModelError(self.path, f"{name} {problem}")


@dataclasses.dataclass(frozen=True, slots=True)
class FolderFiles:
    """Looks into a folder.

    Attributes:
        folder: Its path.
    """

    folder: pathlib.Path

    def path(self, name: str) -> pathlib.Path | None:
        """Return the path of a file; None if there is none.

        The snapshots of a hub's cache are links to its blobs, which count as inside.

        Raises:
            TextModelError: It lies outside the folder.
        """
        path, inside = self.folder / name, without_links(self.folder)
        if not os.path.lexists(path):
            return None
        target = without_links(path)
        snapshot = inside.parent.name == "snapshots" and target.parent == inside.parent.parent / "blobs"
        if not (target.is_relative_to(inside) or snapshot):
            raise TextModelError(path, f"it leads out of {self.folder}; put a copy of the file there")
        return path if target.is_file() else None

    def read(self, name: str) -> JsonFile:
        """Return an object of JSON, without fields if there is no file.

        Raises:
            TextModelError: It can't be read, is too large, or something else.
        """
        found = self._json(name)
        if found is not None and not isinstance(found, dict):
            raise TextModelError(self.folder / name, "it should be an object of JSON")
        return JsonFile(self.folder / name, found or {})

    def first(self, *names: str) -> JsonFile:
        """Return the first of several objects of JSON that there is."""
        return self.read(next((name for name in names if self.path(name)), names[0]))

    def entries(self, name: str) -> Iterator[JsonFile] | None:
        """Return the objects of a list of JSON; None if there is no file.

        Raises:
            TextModelError: As ``read``.
        """
        found = self._json(name)
        if found is None:
            return None
        path = self.folder / name
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise TextModelError(path, "it should be a list of objects of JSON")
        return (JsonFile(path, one) for one in found)

    def _json(self, name: str) -> Any:
        path = self.path(name)
        if path is None:
            return None
        try:
            with open_regular(path) as file:
                content = file.read(MOST_JSON_BYTES + 1)
            if len(content) > MOST_JSON_BYTES:
                raise TextModelError(path, f"it has more than {MOST_JSON_BYTES >> 20} MiB")
            return json.loads(content)
        except OSError as error:
            raise TextModelError(path, f"it can't be read ({error.strerror})") from None
        except (ValueError, RecursionError) as error:
            raise TextModelError(path, f"it is no JSON ({error})") from None
