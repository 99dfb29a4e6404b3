"""Engines that a test offers: in this process, or as a package of their own."""

from __future__ import annotations

import pathlib
import sys
import types
import zipfile
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from trtnode.engines.backends import plugins, registry

MODULE = """
from __future__ import annotations
import numpy as np
from trtnode.engines.backends.plugins import EngineLibrary
from trtnode.engines.backends.reference import ReferenceBackend, ReferenceEngine

open({imported!r}, "a").close()

ENGINE = EngineLibrary("{module}:Backend", place={place})


class Backend(ReferenceBackend):
    name = "{name}"

    def load(self, engine, envelope, *options):
        loaded = super().load(engine, envelope, *options)
        evaluate = loaded._evaluator
        return ReferenceEngine(lambda feeds: [a + np.ones((), a.dtype) * {shift} for a in evaluate(feeds)],
            envelope.inputs, envelope.outputs)
"""


def offer(monkeypatch: pytest.MonkeyPatch, name: str, backend: Callable[[], Any]) -> None:
    """Offer an engine to this process, until the test ends. Call ``forget_engines`` then."""
    module = types.ModuleType(f"backend_of_a_test_{len(plugins.own())}")
    module.__dict__.update(Backend=backend, LIBRARY=plugins.EngineLibrary(f"{module.__name__}:Backend"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(plugins.own(), name, EntryPoint(name, f"{module.__name__}:LIBRARY", plugins.GROUP))
    forget_engines()


def forget_engines() -> None:
    """Have engines found and made anew, except for this package's own and those that a test has offered."""
    for found in (plugins.foreign, plugins.find_library, plugins.libraries_by_place, registry.get_backend):
        found.cache_clear()


def install(
    monkeypatch: pytest.MonkeyPatch, folder: pathlib.Path, package: str, name: str, **facts: Any
) -> pathlib.Path:
    """Install a package with an engine, until the test ends. Call ``forget_engines`` then.

    Args:
        monkeypatch: Undoes it.
        folder: For the package.
        package: As of ``write_wheel``, like the others.
        name: Of the engine.
        **facts: Of the package.

    Returns:
        The file that the package writes when it is imported.
    """
    with zipfile.ZipFile(write_wheel(folder, package, name, **facts)) as wheel:
        wheel.extractall(folder / f"site_of_{package}")
    monkeypatch.syspath_prepend(folder / f"site_of_{package}")
    monkeypatch.delitem(sys.modules, package, raising=False)
    forget_engines()
    return folder / f"{package}.imported"


def write_wheel(folder: pathlib.Path, package: str, name: str, **facts: Any) -> pathlib.Path:
    """Write the wheel of a package whose engine is the reference.

    Args:
        folder: Of the wheel. The package writes the file ``PACKAGE.imported`` there when it is imported.
        package: Its name.
        name: Of the engine.
        **facts: ``place`` in ``auto``; ``shift`` is added to each result, which makes it wrong; ``target`` is what the
            entry point leads to.
    """
    info = f"{package}-1.0.dist-info"
    given = {"place": None, "shift": 0, "target": f"{package}:ENGINE", **facts}
    text = MODULE.format(imported=str(folder / f"{package}.imported"), module=package, name=name, **given)
    files = {
        f"{package}.py": text,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[{plugins.GROUP}]\n{name} = {given['target']}\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    wheel = folder / f"{package}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, content)
    return wheel
