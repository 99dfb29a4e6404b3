"""Flags made of the options of a compilation. Light: it describes them, and imports no library."""

from __future__ import annotations

import argparse
import pathlib
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any

from trtnode.engines.build.options import CompileOptions
from trtnode.partitioner.errors import OptionError
from trtnode.partitioner.options import Declared, choices_of, each_option, made_of, without_gone, without_none
from trtnode.serving.cli.command import flag, number
from trtnode.serving.errors import InvalidOptionError

OPTIONS: Mapping[str, Declared] = {one.name: one for _, one in each_option(CompileOptions)}
FLAGS = {*OPTIONS, *CompileOptions.gone}
_TITLES = {"": "options of the compilation", "tensorrt": "TensorRT options"}


def add_compile_options(parser: argparse.ArgumentParser, only: Collection[str] = FLAGS) -> None:
    """Add a flag for each option of a compilation, or for some. Those that aren't given leave no argument."""
    groups: dict[str, argparse._ArgumentGroup] = {}
    for path, one in each_option(CompileOptions):
        section = str(path[0]) if len(path) > 1 else ""
        if one.name in only:
            if section not in groups:
                groups[section] = parser.add_argument_group(_TITLES.get(section, f"{section} options"))
            _add(groups[section], one)
    for name in CompileOptions.gone.keys() & set(only):
        parser.add_argument(
            flag(name), action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=argparse.SUPPRESS
        )


def _add(group: argparse._ActionsContainer, one: Declared) -> None:
    kind, option = without_none(one.hint), one.option
    is_list = typing.get_origin(kind) is tuple
    element = typing.get_args(kind)[0] if is_list else kind
    settings: dict[str, Any] = {"dest": one.name, "default": argparse.SUPPRESS, "help": _help(one)}
    if kind is bool:
        group.add_argument(flag(one.name), action=argparse.BooleanOptionalAction, **settings)
        return
    choices = option.choices or choices_of(element)
    if is_list:
        settings["action"] = "append"
    if option.bare is not None:
        settings |= {"nargs": "?", "const": option.bare}
    if choices and option.check is None:
        settings["choices"] = choices
    else:
        settings |= {"metavar": option.metavar, "type": _reader(one, element)}
    group.add_argument(flag(one.name), **settings)


def _reader(one: Declared, element: Any) -> Callable[[str], Any]:
    option = one.option
    if element in (int, float):
        return number(option.least, option.most, whole=element is int)
    if element is pathlib.Path:
        return pathlib.Path

    def read(text: str) -> object:
        parts = tuple(part.strip() for part in text.split(",") if part.strip()) if option.separator else (text,)
        if option.check is not None and not parts:
            raise argparse.ArgumentTypeError(f"names none; there are {', '.join(choices_of(element))}")
        for part in parts:
            if option.check is not None and (problem := option.check(part)):
                behind = ". To leave out all, write the option behind MODEL" if option.bare else ""
                raise argparse.ArgumentTypeError(f"{part!r} {problem}{behind}")
        return parts if option.separator else text

    return read


def _help(one: Declared) -> str:
    default = "" if one.default in (None, (), False) else f"; default: {'yes' if one.default is True else one.default}"
    again = "; may be repeated" if typing.get_origin(one.hint) is tuple else ""
    text = one.option.help.removesuffix(".").replace("%", "%%")
    return text[0].lower() + text[1:] + again + default if text[1:2].islower() else text + again + default


def given_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the values of the flags that are given, by the names of options.

    Raises:
        InvalidOptionError: One has another form.
    """
    given = {name: getattr(arguments, name) for name in FLAGS if hasattr(arguments, name)}
    given = without_gone(CompileOptions, given, flag)
    for name, value in given.items():
        option = OPTIONS[name].option
        if option.read is not None:
            try:
                given[name] = option.read(value)
            except ValueError as error:
                raise InvalidOptionError(flag(name), str(error)) from None
        elif isinstance(value, list):
            given[name] = tuple(part for one in value for part in (one if option.separator else (one,)))
    return given


def options_from(arguments: argparse.Namespace) -> CompileOptions:
    """Translate command-line arguments.

    Raises:
        InvalidOptionError: An option has another form, or two exclude each other.
    """
    try:
        return made_of(CompileOptions, given_options(arguments))
    except OptionError as error:
        raise InvalidOptionError(flag(error.name), error.problem) from None
