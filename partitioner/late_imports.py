"""Imports onnx_ir without sympy, which takes about as long as half of the other imports of this program together.

onnx_ir computes with symbolic dimensions by it, which nothing here does. Whoever does loads it by the first access.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any

LATE = ("sympy", "onnx_ir._symbolic_shapes")


class _LateFinder(importlib.abc.MetaPathFinder):
    """Finds modules that run when something of them is needed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in LATE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _LateLoader(spec.loader)
        return spec


class _LateLoader(importlib.abc.Loader):
    """Runs a module when it is asked for a name that it doesn't have yet.

    ``importlib.util.LazyLoader`` does so at every name, and ``inspect`` asks all modules for their ``__file__``.
    """

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader
        self._lock = threading.RLock()
        self._has_begun = False

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        def get(name: str) -> Any:
            with self._lock:
                if not self._has_begun:
                    self._has_begun = True
                    self._loader.exec_module(module)
                    del module.__getattr__
            if name in module.__dict__:
                return module.__dict__[name]
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

        module.__getattr__ = get  # type: ignore[method-assign]


_finder = _LateFinder()
sys.meta_path.insert(0, _finder)
try:
    import onnx_ir  # noqa: F401
finally:
    sys.meta_path.remove(_finder)
