"""Forms of JSON values, by which text that somebody may have edited is checked once, where it is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

Form = Any
"""The form of a value: ``str``, ``int``, ``float`` (any number), ``bool`` or ``object`` (anything); a set of texts;
``[form]`` for a list; ``MapOf(form)``; a mapping of names to forms, where a name with ``?`` may be missing; a tuple of
forms, of which one should fit. None stands for null."""

LARGEST = 2**63
"""Whole numbers beyond it are none of ours, and no float either."""

_KINDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", None: "null"}


@dataclasses.dataclass(frozen=True, slots=True)
class MapOf:
    """A mapping of any texts to values of one form."""

    form: Form


def misfit(value: object, form: Form, place: str = "it") -> str:
    """Return what the first value should be that is something else, with its place; empty if all fit."""
    return next(_misfits(value, form, place), "")


def _misfits(value: object, form: Form, place: str) -> Iterator[str]:
    if isinstance(form, MapOf | Mapping):
        if not isinstance(value, Mapping):
            yield f"{place} should be a mapping"
        elif isinstance(form, MapOf):
            for key, one in value.items():
                yield from _misfits(one, form.form, f"{place}.{key:.40}")
        else:
            yield from _misfits_of_fields(value, form, place)
    elif isinstance(form, list):
        if not isinstance(value, list):
            yield f"{place} should be a list"
        else:
            for index, one in enumerate(value):
                yield from _misfits(one, form[0], f"{place}[{index}]")
    elif not _fits(value, form):
        yield f"{place} should be {_words(form)}"


def _misfits_of_fields(value: Mapping[str, object], form: Mapping[str, Form], place: str) -> Iterator[str]:
    for key, one in form.items():
        name = key.removesuffix("?")
        if name in value:
            yield from _misfits(value[name], one, f"{place}.{name}")
        elif name == key:
            yield f"{place} should have {name!r}"


def _fits(value: object, form: Form) -> bool:
    if isinstance(form, tuple):
        return any(not misfit(value, one) for one in form)
    if isinstance(form, frozenset):
        return isinstance(value, str) and value in form
    if form is None or form is bool or form is object:
        return value is None if form is None else isinstance(value, form)
    if isinstance(value, bool) or (isinstance(value, int) and abs(value) >= LARGEST):
        return False
    return isinstance(value, int | float if form is float else form)


def _words(form: Form) -> str:
    if isinstance(form, frozenset):
        return f"one of {', '.join(sorted(form))}"
    if isinstance(form, tuple):
        return " or ".join(map(_words, form))
    return "a list" if isinstance(form, list) else _KINDS[form]
