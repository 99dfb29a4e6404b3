"""A model of three segments, and its compilation, by which engines stay where they measure faster."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from clock import GRAPH, Tune
from stand_in_workers import AnyWorker
from trtnode.engines.artifact.compiled_model import CompiledModel
from workshop import Workshop


@pytest.fixture
def source(workshop: Workshop) -> pathlib.Path:
    return workshop.write(GRAPH)


@pytest.fixture
def tune(workshop: Workshop, source: pathlib.Path, choosing_engines: None) -> Tune:
    def compile_it(worker: AnyWorker, **changes: Any) -> CompiledModel:
        options = {"engine": "reference", "native_ops": ("Erf",), "worker": worker, **changes}
        return workshop.compile(options.pop("source", source), **options)

    return compile_it


@pytest.fixture
def write_module(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Writes a module of the user's own, and makes it importable."""

    def write(module: str, text: str) -> None:
        (tmp_path / f"{module}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)

    return write
