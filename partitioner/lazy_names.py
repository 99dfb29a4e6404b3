"""Names that are imported on first use, so that what isn't needed costs nothing at the start."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
from collections.abc import Callable, Mapping
from typing import Any

from partitioner.model.garbage import without_collections


def names_on_first_use(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's ``__getattr__`` and ``__dir__`` (PEP 562).

    Args:
        package: Its ``__name__``.
        homes: The module and the name there, as ``module:name``, of each public name.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = homes[name].partition(":")
        value = getattr(importlib.import_module(module), attribute)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return get, names


def on_first_call(home: str) -> Callable[..., Any]:
    """Return a function that imports another one when it is first called, and calls it.

    Args:
        home: Its module and its name there, as ``module:name``.
    """

    @functools.cache
    def imported() -> Callable[..., Any]:
        with without_collections():  # what is imported stays
            function: Callable[..., Any] = pkgutil.resolve_name(home)
        return function

    return lambda *arguments, **named: imported()(*arguments, **named)
