"""The start of our own processes: onnx_ir without sympy.

onnx_ir needs sympy for arithmetic of symbolic sizes, which is asked for only where the name of a size is a sum. Its
import takes 0.6 s, two fifths of the start of a process. Only our programs and child processes call this, before they
have threads: ``import trtnode`` changes nothing in the process of a user.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

LATE = ("sympy", "onnx_ir._symbolic_shapes")


class _Late(types.ModuleType):
    """Stands for a module in onnx_ir. The module is imported when one of its names is used."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


def import_onnx_ir() -> None:
    """Import onnx_ir, unless it is there. Whoever imports sympy later gets sympy."""
    if "onnx_ir" in sys.modules:
        return
    late = [_Late(name) for name in LATE if name not in sys.modules]
    sys.modules.update({module.__name__: module for module in late})
    try:
        importlib.import_module("onnx_ir")
    finally:
        for module in late:
            del sys.modules[module.__name__]
