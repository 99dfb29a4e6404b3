"""Makes sections of servable.yaml of the dataclasses of options."""

from __future__ import annotations

import dataclasses
import enum
import functools
import pathlib
import types
import typing
from typing import Annotated, Any

import pydantic
from pydantic import Field

from trtnode.partitioner.options import Option, declared
from trtnode.serving.schema.fields import CalibrationSource, ConfigPath, Section


@functools.cache
def section_of(options: Any) -> Any:
    """Return the type of a section with these options as keys. What is read is the dataclass itself."""
    fields: dict[str, Any] = {}
    for one in declared(options):
        given: dict[str, Any] = {key: getattr(one.field, key) for key in ("default", "default_factory")}
        default = {key: value for key, value in given.items() if value is not dataclasses.MISSING}
        fields[one.field.name] = (_annotation(one.hint, one.option), Field(**default, description=one.option.help))
    section = pydantic.create_model(options.__name__, __base__=Section, __doc__=options.__doc__, **fields)

    def read(value: Any, read_section: pydantic.ValidatorFunctionWrapHandler) -> Any:
        return value if isinstance(value, options) else options(**dict(read_section(value)))

    return Annotated[section, pydantic.WrapValidator(read)]


def _annotation(hint: Any, option: Option) -> Any:
    """Return a type for pydantic: with the bounds of numbers, and lists and paths as YAML has them."""
    parts = typing.get_args(hint)
    inner: Any
    match typing.get_origin(hint):
        case types.UnionType | typing.Union:
            return typing.Union[tuple(_annotation(part, option) for part in parts)]  # noqa: UP007
        case origin if origin is tuple:
            inner = _annotation(parts[0], option)
            return Annotated[tuple[inner, ...], Field(strict=False)]
        case origin if origin is not None and origin is not typing.Literal:
            inner = _annotation(parts[1], option)
            return dict[str, inner]
    if dataclasses.is_dataclass(hint):
        return section_of(typing.cast("Any", hint))
    if hint is pathlib.Path:
        return ConfigPath
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return Annotated[hint, Field(strict=False)]
    if hint in (int, float):
        limits: dict[str, Any] = {"ge": option.least, "le": option.most}
        finite: dict[str, Any] = {"allow_inf_nan": False} if hint is float else {}
        return Annotated[hint, Field(**limits, **finite)]
    if option.is_source:
        return CalibrationSource
    if option.choices:
        hint = typing.Literal[option.choices]
    if hint is bool or (hint is str and option.check is None):
        return hint
    return Annotated[hint, pydantic.BeforeValidator(functools.partial(_check, option))]


def _check(option: Option, value: object) -> object:
    """Say in words of the option itself why there is no such value. YAML reads ``off`` as false."""
    value = "off" if value is False else value
    if option.check is not None and (problem := option.check(value)):
        raise ValueError(problem)
    return value
