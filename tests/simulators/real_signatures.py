"""Compares a simulated class with what the real bindings say about theirs."""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

READ_ONLY = "property that is only read"
SIGNATURE = re.compile(r"^(?:\d+\. )?\w+\((.*)\) -> ", re.MULTILINE)

Calls = set[tuple[str, ...]]
"""The argument names of each way to call a method, without the object itself."""


def differences(kind: type, real: Mapping[str, Any]) -> Iterator[str]:
    """Tell what a simulated class has that the real one lacks, or has otherwise.

    Args:
        kind: A simulated class or enumeration.
        real: Kind and documentation of each member of the real one; of an enumeration, its numbers.
    """
    if issubclass(kind, enum.Enum):
        yield from (f"{m.name} is {m.value}" for m in kind if real.get(m.name) != m.value)
        return
    for name, member in sorted(public_members(kind).items()):
        if name not in real:
            yield f"{name} does not exist"
            continue
        found, documentation = real[name]
        if inspect.isfunction(member):
            ours, theirs = calls(member), real_calls(documentation)
            if not ours <= theirs and (theirs or name != "__init__"):  # without, users can't make such an object
                yield f"{name}{_shown(ours)} is not {name}{_shown(theirs)}"
        elif not isinstance(member, property) and found == READ_ONLY:
            yield f"{name} is set, which is a {READ_ONLY}"


def public_members(kind: type) -> dict[str, Any]:
    """Members of a class and of its bases that the simulator defines."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith(("simulated", __name__, "test_")) or base is kind:
            found.update(dict.fromkeys(base.__annotations__) if "__annotations__" in vars(base) else {})
            found.update(vars(base))
    absent = {name for name in found if not hasattr(kind, name) and found[name] is not None}
    public = {name for name in found if name == "__init__" or not name.startswith("_")}
    return {name: found[name] for name in public - absent}


def calls(function: Any) -> Calls:
    """Return the calls of a Python function: with all arguments, or without the last ones that have defaults."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    return _prefixes([(p.name, p.default is not p.empty) for p in parameters])


def real_calls(documentation: str) -> Calls:
    """Return the calls of a method of the bindings, of all its overloads."""
    return set().union(*(_prefixes([*_arguments(text)][1:]) for text in SIGNATURE.findall(documentation)))


def _prefixes(arguments: list[tuple[str, bool]]) -> Calls:
    names = tuple(name for name, _ in arguments)
    required = sum(not optional for _, optional in arguments)
    return {names[:count] for count in range(required, len(names) + 1)}


def _arguments(text: str) -> Iterator[tuple[str, bool]]:
    """Name of each argument, and whether it has a default; commas inside of brackets part nothing."""
    depth, start = 0, 0
    for index, letter in enumerate(f"{text},"):
        depth += (letter in "[(<") - (letter in "])>")
        if letter == "," and not depth:
            argument, start = text[start:index], index + 1
            yield argument.split(":")[0].split("=")[0].strip(), "=" in argument


def _shown(found: Calls) -> str:
    return f"({', '.join(map(str, sorted(found, key=len)))})"
