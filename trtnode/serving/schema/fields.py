"""The common part of all sections of servable.yaml: strictness and paths."""

from __future__ import annotations

import os
import pathlib
import re
import typing
from collections.abc import Mapping
from typing import Annotated, TypeVar

import pydantic

from trtnode.partitioner.options import LARGEST_SIZE
from trtnode.serving.schema.yaml_reader import Expanded

LONGEST_PATH, LONGEST_NAME = 4096, 255
"""Bytes; the first has its end mark with it."""


class Section(pydantic.BaseModel):
    """A mapping of servable.yaml: unknown keys and values of another type are errors."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _type_variables(cls, data: object) -> object:
        """Read text that came from a variable as a number where the key is one."""
        if not isinstance(data, Mapping):
            return data
        return {key: cls._typed(key, value) if isinstance(value, Expanded) else value for key, value in data.items()}

    @classmethod
    def _typed(cls, key: str, value: Expanded) -> object:
        field = cls.model_fields.get(key)
        return value.resolved() if field and _holds_number(field.annotation) else str(value)


def _holds_number(annotation: object) -> bool:
    return annotation in (bool, int, float) or any(_holds_number(part) for part in typing.get_args(annotation))


def _resolve_path(value: object, info: pydantic.ValidationInfo) -> object:
    if not isinstance(value, str | pathlib.Path):
        return value
    if not str(value) or "\0" in str(value) or _is_too_long(str(value)):
        raise ValueError("should be a path")
    folder = (info.context or {}).get("folder", pathlib.Path())
    try:
        return folder / pathlib.Path(value).expanduser()
    except RuntimeError:
        raise ValueError(
            f"should be a path without {pathlib.Path(value).parts[0]}, since there is no such home folder"
        ) from None


def _is_too_long(path: str) -> bool:
    """Return whether the system refuses a path, or a name in it, for its length or its characters."""
    try:
        return len(os.fsencode(path)) >= LONGEST_PATH or any(
            len(os.fsencode(n)) > LONGEST_NAME for n in path.split("/")
        )
    except UnicodeEncodeError:
        return True


LONGEST_S = 7 * 24 * 3600
LONGEST_MS = LONGEST_S * 1000

Count = Annotated[int, pydantic.Field(ge=1, le=1_000_000)]
"""A number of things that cost little each."""

Cores = Annotated[int, pydantic.Field(ge=1, le=4096)]
"""A number of threads, processes, or things that need one each."""

Rows = Annotated[int, pydantic.Field(ge=1, le=65_536)]
"""A number of rows of one execution, which has all of them in memory."""

Mebibytes = Annotated[int, pydantic.Field(ge=1, le=2**30)]
"""A size; the largest is a pebibyte."""

Size = Annotated[int, pydantic.Field(ge=-1, le=LARGEST_SIZE)]
"""A dimension of a shape; -1 for any."""

Axis = Annotated[int, pydantic.Field(ge=1, le=63)]
"""Place of a dimension in a shape, behind that of the batch."""

VersionNumber = Annotated[int, pydantic.Field(ge=1, le=LARGEST_SIZE)]

Seconds = Annotated[float, pydantic.Field(gt=0, le=LONGEST_S, allow_inf_nan=False)]
Milliseconds = Annotated[float, pydantic.Field(gt=0, le=LONGEST_MS, allow_inf_nan=False)]
"""Times; the longest are a week."""

Finite = Annotated[float, pydantic.Field(ge=-1e30, le=1e30, allow_inf_nan=False)]

_T = TypeVar("_T")
ListOf = Annotated[tuple[_T, ...], pydantic.Field(strict=False)]
"""A YAML list. It is kept as a tuple, which takes laxness about the container, not about its items."""

ConfigPath = Annotated[
    pathlib.Path,
    pydantic.BeforeValidator(_resolve_path),
    pydantic.WithJsonSchema({"type": "string", "minLength": 1, "format": "path"}),
]
"""A path; relative ones start at the folder of servable.yaml, ``~`` is the home folder."""


def _resolve_source(value: object, info: pydantic.ValidationInfo) -> object:
    """A path like others, unless it is the name of a function."""
    if not isinstance(value, str) or _FUNCTION.fullmatch(value):
        return value
    return str(_resolve_path(value, info))


_FUNCTION = re.compile(r"[\w.]+:[\w.]+")

CalibrationSource = Annotated[str, pydantic.BeforeValidator(_resolve_source)]
"""A path as ``ConfigPath``, or ``module:function``."""
