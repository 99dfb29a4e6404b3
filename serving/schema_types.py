"""What the sections of servable.yaml share: strictness, paths, and marks on keys whose feature isn't built yet."""

import dataclasses
import pathlib
import re
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar

import pydantic
from pydantic_core import CoreSchema

from serving.yaml_tree import Expanded, Location


class Section(pydantic.BaseModel):
    """A mapping of servable.yaml: unknown keys and values of another type are errors."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)

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


@dataclasses.dataclass(frozen=True, slots=True)
class NotBuilt:
    """Marks a key whose feature isn't there yet: it accepts its default and nothing else.

    Attributes:
        feature: What is missing, as the subject of "... not built yet".
        but: Values that do work, besides the default.
    """

    feature: str
    but: tuple[object, ...] = ()

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: pydantic.GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Show the mark in the JSON Schema, for editors and for readers."""
        return {**handler(core_schema), "x-not-built-yet": True}


def _resolve_path(value: object, info: pydantic.ValidationInfo) -> object:
    if not isinstance(value, str | pathlib.Path):
        return value
    if not str(value) or "\0" in str(value):
        raise ValueError("should be a path")
    folder = (info.context or {}).get("folder", pathlib.Path())
    return folder / pathlib.Path(value).expanduser()


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


def settings_not_built(section: Section, location: Location = ()) -> Iterator[tuple[Location, str]]:
    """Yield the location of each setting that asks for a feature that isn't built yet, with a sentence about it."""
    for name, field in type(section).model_fields.items():
        value, place = getattr(section, name), (*location, name)
        default = field.get_default(call_default_factory=True)
        marks = [mark for mark in field.metadata if isinstance(mark, NotBuilt)]
        refused = [mark for mark in marks if value != default and value not in mark.but]
        if refused:
            yield place, _sentence(refused[0], default)
        else:
            yield from _inside(value, place)


def _inside(value: object, place: Location) -> Iterator[tuple[Location, str]]:
    if isinstance(value, Section):
        yield from settings_not_built(value, place)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _inside(item, (*place, index))


def _sentence(mark: NotBuilt, default: object) -> str:
    if mark.but:
        return f"{mark.feature} not built yet; use {' or '.join(map(str, dict.fromkeys((default, *mark.but))))}"
    return f"{mark.feature} not built yet; leave the key out"
