from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest


@pytest.fixture
def write(tmp_path: pathlib.Path) -> Callable[[str | bytes], pathlib.Path]:
    (tmp_path / "m.onnx").touch()

    def write_file(text: str | bytes) -> pathlib.Path:
        path = tmp_path / "servable.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write_file
