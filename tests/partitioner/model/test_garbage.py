"""The garbage collector, paused while large graphs are built."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from trtnode.partitioner.model import garbage
from trtnode.partitioner.model.garbage import without_collections


@pytest.fixture(autouse=True)
def _as_in_a_new_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Thaws what tests have frozen, and freezes it again."""
    monkeypatch.setattr(garbage, "_frozen", threading.Event())
    gc.unfreeze()
    yield
    gc.freeze()


def test_what_was_built_counts_as_old() -> None:
    with without_collections():
        built = [[number] for number in range(10_000)]
        young = gc.get_count()[0]

    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    assert gc.get_count()[0] < young
    assert any(one is built for one in gc.get_objects(generation=2))


def test_what_somebody_froze_stays_frozen() -> None:
    gc.freeze()

    with without_collections():
        pass

    assert gc.get_freeze_count() > 0
