"""Keeps libraries from importing what this program doesn't need, which would slow down the start of every command.

onnx_ir needs sympy only to compute with symbolic dimensions. Protobuf and onnx need protobuf's text forms only to read
and write them, and its messages in Python only where those in C are missing. onnx needs its tools only for who joins
models, onnx_ir its passes and safetensors only to change and write them, gRPC asyncio only for calls in an event loop,
and OpenVINO its operators and its converter only to make models in Python. A server that starts does none of that.
The first access to a module of ``LATE`` imports it, so other users of these libraries notice nothing.
This module imports none of them, so commands that need no model pay for none.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

from partitioner.lazy_names import on_first_call

LATE = {
    "google.protobuf.descriptor_pool": ("google.protobuf.internal.python_message",),
    "google.protobuf.internal.builder": ("google.protobuf.internal.python_message",),
    "google.protobuf.internal.python_message": ("google.protobuf.text_format",),
    "grpc": ("asyncio", "grpc.aio"),
    "onnx": ("onnx.compose", "onnx.gen_proto", "onnx.utils"),
    "onnx.serialization": ("google.protobuf.json_format", "google.protobuf.text_format"),
    "onnx_ir": (
        *("sympy", "onnx_ir._symbolic_shapes", "onnx_ir._safetensors:save_safetensors"),
        *("onnx_ir.passes", "onnx_ir.schemas", "onnx_ir.tape"),
    ),
    "openvino": (
        *("openvino.tools.ovc:convert_model", "openvino.properties"),
        *(f"openvino.opset{number}" for number in range(1, 18)),
    ),
}
"""Modules, and what each of them gets on its first use instead of at its own import: modules, and functions of some."""


class LateModule(ModuleType):
    """Stands for a module, which it imports when one of its names is first used."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:  # an import statement asks for more than it needs
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} yet")
        value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)
        return value


def _placeholder(late: str) -> tuple[str, ModuleType]:
    """Return the name of a module and what stands for it."""
    name, _, function = late.partition(":")
    placeholder = LateModule(name)
    if function:
        setattr(placeholder, function, on_first_call(late))
    return name, placeholder


class _Loader(SourceFileLoader):
    """Runs a module with placeholders for what ``LATE`` names beside it."""

    def exec_module(self, module: ModuleType) -> None:
        placeholders = dict(_placeholder(late) for late in LATE[module.__name__])
        placeholders = {name: placeholder for name, placeholder in placeholders.items() if name not in sys.modules}
        sys.modules.update(placeholders)
        for name, placeholder in placeholders.items():
            parent, _, child = name.rpartition(".")
            if parent:  # an import statement reads the name there; importing the module replaces it
                setattr(importlib.import_module(parent), child, placeholder)
        try:
            super().exec_module(module)
        finally:
            for name in placeholders:
                del sys.modules[name]


class _Finder:
    """Finds the modules of ``LATE`` for ``_Loader``."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in LATE else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


sys.meta_path.insert(0, _Finder)
