"""Functions of the user's own, by name: samples to calibrate with, and metrics."""

from __future__ import annotations

import importlib.util
import pathlib
import pkgutil
import sys
from importlib.machinery import PathFinder
from typing import Any


def load_function(name: str) -> Any:
    """Return what ``module:function`` names, from the current folder or else from where Python imports.

    Only the module that is named comes from the current folder, with the rest of its package. What it imports by other
    names comes from where Python imports: a file in that folder may bear the name of a library.

    Raises:
        ImportError: There is no such module.
        AttributeError: The module has no such function.
        ValueError: The name has another form.
        Exception: Whatever the module raises when it is imported.
    """
    top = name.partition(":")[0].partition(".")[0]
    if top not in sys.modules and (spec := PathFinder.find_spec(top, [str(pathlib.Path.cwd()), *sys.path])):
        module = sys.modules[top] = importlib.util.module_from_spec(spec)
        try:
            if spec.loader is not None:  # a folder without __init__.py has none
                spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[top]
            raise
    return pkgutil.resolve_name(name)
