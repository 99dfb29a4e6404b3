"""The chain that tests compile."""

from __future__ import annotations

import pathlib

import pytest

from chain import GRAPH
from workshop import Workshop


@pytest.fixture(scope="module")
def source(shared_workshop: Workshop) -> pathlib.Path:
    return shared_workshop.write(GRAPH)
