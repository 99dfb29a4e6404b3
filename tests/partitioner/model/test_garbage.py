"""The garbage collector, paused while large graphs are built."""

from __future__ import annotations

import gc

from trtnode.partitioner.model.garbage import without_collections


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
    try:
        with without_collections():
            pass

        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
