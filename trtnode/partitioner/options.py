"""Options of a compilation. Each is declared once: as a field of the frozen dataclass of the stage that uses it.

``Annotated`` gives a field its ``Option``: help, bounds, and the form of its flag. ``trtnode.serving`` makes of these
the keys of servable.yaml and the flags of commands. A field without an ``Option`` is for the program alone.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import logging
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from trtnode.partitioner.errors import OptionError

logger = logging.getLogger(__name__)

Path = tuple[str | int, ...]
"""Fields, keys and positions that lead from options to a value in them."""

_T = TypeVar("_T")
_V = TypeVar("_V")
LARGEST_SIZE = 2**63 - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """All that users are told about one option, or about a section of options.

    Attributes:
        help: One sentence.
        least: Smallest number; of each element, if the option is a list.
        most: Largest number.
        name: Name outside its section, if that of the field says too little there.
        metavar: Word for its value.
        separator: What separates the values of one flag. A flag of a list may be repeated in any case.
        choices: All that its text may be, where its type doesn't say it.
        bare: Value of its flag where none follows.
        is_source: True for text that is the path of a file unless it is ``module:function``.
        check: Returns the reason for which there is no such value, or None.
        read: Reads the values of its flags.
    """

    help: str
    _: dataclasses.KW_ONLY
    least: float | None = None
    most: float | None = None
    name: str = ""
    metavar: str | None = None
    separator: str = ""
    choices: tuple[str, ...] = ()
    bare: str | None = None
    is_source: bool = False
    check: Callable[[Any], str | None] | None = None
    read: Callable[[Sequence[str]], tuple[Any, ...]] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Declared:
    """A field with an option.

    Attributes:
        field: The field, with its default.
        hint: Its type.
        option: The option.
    """

    field: dataclasses.Field[Any]
    hint: Any
    option: Option

    @property
    def name(self) -> str:
        """Name of the flag, with ``_`` for ``-``, and of the argument in Python."""
        return self.option.name or self.field.name

    @property
    def default(self) -> Any:
        """The default, made anew if it depends on the environment."""
        factory: Any = self.field.default_factory
        return self.field.default if factory is dataclasses.MISSING else factory()


@functools.cache
def declared(group: Any) -> tuple[Declared, ...]:
    """Return the fields of a dataclass that are options or sections of options."""
    found = []
    hints = typing.get_type_hints(group, include_extras=True)
    for field in dataclasses.fields(group):
        kind, *metadata = typing.get_args(hints[field.name]) or (None,)
        if metadata and isinstance(metadata[0], Option):
            found.append(Declared(field, kind, metadata[0]))
    return tuple(found)


def each_option(group: Any, path: Path = ()) -> Iterator[tuple[Path, Declared]]:
    """Yield all options of a dataclass and of its sections, with the fields that lead to them."""
    for one in declared(group):
        here = (*path, one.field.name)
        if dataclasses.is_dataclass(one.hint):
            yield from each_option(one.hint, here)
        else:
            yield here, one


def made_of(group: Callable[..., _T], values: Mapping[str, object]) -> _T:
    """Return the options of this dataclass with these values, by the names of flags; the others have their defaults.

    Raises:
        TypeError: There is no option of this name.
        OptionError: A value can't be, or contradicts another one.
    """
    tree: dict[str, Any] = {}
    places = {one.name: path for path, one in each_option(group)}
    for name, value in without_gone(group, values).items():
        if name not in places:
            raise TypeError(f"there is no option {name!r}; there are {', '.join(places)}")
        *sections, key = map(str, places[name])
        inner = functools.reduce(lambda tree, section: tree.setdefault(section, {}), sections, tree)
        inner[key] = tuple(value) if isinstance(value, list) else value
    options = _built(group, tree)
    for path, problem in option_problems(options):
        raise OptionError(name_of(group, path), problem)
    return options


def without_gone(group: Any, values: Mapping[str, _V], written: Callable[[str], str] = str) -> dict[str, _V]:
    """Return values by the names of options without those that earlier releases had, and warn of these.

    Args:
        group: A dataclass of options. Its ``gone`` says by name what to do instead.
        values: The values.
        written: Returns a name as the user writes it.
    """
    for name in values.keys() & group.gone.keys():
        logger.warning("%s has no effect: %s", written(name), group.gone[name])
    return {name: value for name, value in values.items() if name not in group.gone}


def name_of(group: Any, path: Path) -> str:
    """Return the name of the option that a path leads to, or into."""
    names = (one.name for place, one in each_option(group) if path[: len(place)] == place)
    return next(names, str(path[-1]))


def _built(group: Callable[..., _T], tree: Mapping[str, Any]) -> _T:
    kinds: dict[str, Any] = {one.field.name: one.hint for one in declared(group)}
    sections = {name: _built(kinds[name], tree[name]) for name in tree if dataclasses.is_dataclass(kinds[name])}
    return group(**{**tree, **sections})


def option_problems(options: object) -> Iterator[tuple[Path, str]]:
    """Yield the place and the fault of each value that can't be, and of each that contradicts another one.

    The second kind is what the dataclasses among ``options`` and their values say by a method ``problems``.
    """
    kind: Any = type(options)
    for one in declared(kind):
        for path, text in _faults(getattr(options, one.field.name), one.hint, one.option):
            yield (one.field.name, *path), text
    for name, text in getattr(options, "problems", tuple)():
        yield (name,), text


def _faults(value: Any, hint: Any, option: Option) -> Iterator[tuple[Path, str]]:
    hint = without_none(hint)
    if value is None or hint is bool:
        return
    problem = None
    if dataclasses.is_dataclass(value):
        yield from option_problems(value)
    elif isinstance(value, Mapping | tuple):
        *_, inner = (one for one in typing.get_args(hint) if one is not Ellipsis)
        for key, one in value.items() if isinstance(value, Mapping) else enumerate(value):
            for path, text in _faults(one, inner, option):
                yield (key, *path), text
    elif typing.get_origin(hint) is tuple:
        problem = f"should be a list, not {value!r}"
    elif option.check is not None:
        problem = option.check(value)
    elif choices := option.choices or choices_of(hint):
        problem = None if value in choices else f"should be one of {', '.join(choices)}, not {value!r}"
    elif hint in (int, float):
        fits = isinstance(value, int | hint) and lower(option) <= value <= upper(option)
        problem = None if fits else f"should be a {bounds_text(hint, option)}, not {str(value)[:40]}"
    if problem:
        yield (), problem


def choices_of(hint: Any) -> tuple[str, ...]:
    """Return the values that a type lists; none if it is no list of values."""
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return tuple(str(one.value) for one in hint)
    return typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()


def lower(option: Option) -> float:
    """Return the smallest number that the option may be."""
    return -math.inf if option.least is None else option.least


def upper(option: Option) -> float:
    """Return the largest number that the option may be."""
    return math.inf if option.most is None else option.most


def bounds_text(kind: type, option: Option) -> str:
    """Return a noun for the numbers that an option may be."""
    least = "" if option.least is None else f" from {option.least:g}"
    most = "" if option.most is None else f" up to {option.most:.12g}"
    return f"{'whole ' * (kind is int)}number{least}{most}"


def without_none(hint: Any) -> Any:
    """Return the type that an option has unless it is None."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        (hint,) = (one for one in typing.get_args(hint) if one is not type(None))
    return hint
