"""Files of a folder that somebody else made: JSON of known fields, and no way out of the folder."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import TypeVar

import pydantic

from trtnode.partitioner.model.regular_files import open_regular, without_links
from trtnode.serving.errors import TextModelError
from trtnode.serving.schema.problems import contrast, field_text, structure_text

MOST_JSON_BYTES = 8 << 20
"""The names of 100,000 classes take less."""

_Kind = TypeVar("_Kind")


class JsonObject(pydantic.BaseModel):
    """Fields of an object of JSON that decide something. Others are passed over; null counts as not there."""

    model_config = pydantic.ConfigDict(strict=True, frozen=True, defer_build=True)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _without_null(cls, data: object) -> object:
        return {name: value for name, value in data.items() if value is not None} if isinstance(data, Mapping) else data


@dataclasses.dataclass(frozen=True, slots=True)
class FolderFiles:
    """Looks into a folder, and never beyond it. What is at fault raises ``TextModelError``."""

    folder: pathlib.Path

    def path(self, name: str) -> pathlib.Path | None:
        """Return the path of a file; None if there is none. Links of a hub's cache to its blobs count as inside."""
        path, inside = self.folder / name, without_links(self.folder)
        if not os.path.lexists(path):
            return None
        target = without_links(path)
        is_blob = inside.parent.name == "snapshots" and target.parent == inside.parent.parent / "blobs"
        if not (target.is_relative_to(inside) or is_blob):
            raise TextModelError(path, f"it leads out of {self.folder}; put a copy of the file there")
        return path if target.is_file() else None

    def needed(self, name: str) -> pathlib.Path:
        """Return the path of a file that has to be there."""
        path = self.path(name)
        if path is None:
            raise TextModelError(self.folder / name, "there is no such file; save the model anew with it")
        return path

    def read(self, name: str, kind: type[_Kind]) -> _Kind | None:
        """Return the content of a file of JSON; None if there is none."""
        path = self.path(name)
        if path is None:
            return None
        try:
            return pydantic.TypeAdapter(kind).validate_json(read_bounded(path, MOST_JSON_BYTES))
        except pydantic.ValidationError as error:
            fault = error.errors()[0]
            field = field_text(fault["loc"])
            raise TextModelError(
                path, f"{field}: {structure_text(fault)}{contrast(fault)}".removeprefix(": ")
            ) from None


def read_bounded(path: pathlib.Path, most: int) -> bytes:
    """Return the content of a file of at most so many bytes.

    Raises:
        TextModelError: It is larger, or can't be read.
    """
    try:
        with open_regular(path) as file:
            content = file.read(most + 1)
    except OSError as error:
        raise TextModelError(path, f"it can't be read ({error.strerror}); correct the path") from None
    if len(content) > most:
        raise TextModelError(path, f"it has more than {most >> 20} MiB")
    return content
