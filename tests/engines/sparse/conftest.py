"""Other kernels than the installed ones: ``make sanitize`` gives a library that checks itself."""

from __future__ import annotations

import os
import pathlib

import pytest

from trtnode.engines.sparse import library, packing

if given := os.environ.get("TRTNODE_TEST_KERNELS"):
    library.LIBRARY = pathlib.Path(given).resolve()


@pytest.fixture
def every_layer_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small and dense layers too: what pays is another question."""
    monkeypatch.setattr(packing, "LEAST_VALUES", 0)
