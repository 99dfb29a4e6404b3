"""Keeps onnx_ir from importing sympy, which would slow down the start of every command.

onnx_ir needs sympy only to compute with symbolic dimensions, which this program doesn't do.
The first access to a module of ``LATE`` imports it, so other users of onnx_ir notice nothing.
This module imports neither, so commands that need no model pay for neither.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

LATE = ("sympy", "onnx_ir._symbolic_shapes")
"""Modules that are imported on their first use."""


class LateModule(ModuleType):
    """Stands for a module, which it imports when one of its names is first used."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)
        return value


class _Loader(SourceFileLoader):
    """Runs onnx_ir with placeholders for the modules of ``LATE``."""

    def exec_module(self, module: ModuleType) -> None:
        placeholders = {name: LateModule(name) for name in LATE if name not in sys.modules}
        sys.modules.update(placeholders)
        try:
            super().exec_module(module)
        finally:
            for name in placeholders:
                del sys.modules[name]


class _Finder:
    """Finds onnx_ir for ``_Loader``."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name == "onnx_ir" else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


sys.meta_path.insert(0, _Finder)
