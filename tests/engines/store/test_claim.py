"""One of several builders builds; the others wait for what it publishes, or for its end."""

from __future__ import annotations

import contextlib
import pathlib
import threading
import time
from collections.abc import Callable

import pytest

from trtnode.engines.artifact.second_tier import Entry
from trtnode.engines.store.claim import BuildClaim
from trtnode.engines.store.places import Folder
from trtnode.engines.store.shared import SharedStore

LEASE_S = 0.6
ENTRY = Entry(fields={"built": True}, content=b"engine")


@pytest.fixture
def store(tmp_path: pathlib.Path) -> SharedStore:
    return SharedStore(str(tmp_path / "store"), lease_s=LEASE_S)


def nothing() -> None:
    return None


def test_who_has_the_claim_builds_and_the_other_takes_what_is_published(store: SharedStore) -> None:
    first, second = store.claim("m"), store.claim("m")
    assert first.wait_for(nothing) is None
    taken: list[Entry | None] = []

    waiting = threading.Thread(target=lambda: taken.append(second.wait_for(lambda: store.fetch("key"))))
    waiting.start()
    time.sleep(3 * LEASE_S)  # its owner lives, so it doesn't expire
    assert not taken
    store.publish("key", ENTRY)
    waiting.join()

    assert taken == [ENTRY]
    assert store.state.events["waited"] == 1
    first.close()


def test_a_claim_that_was_given_back_is_free(store: SharedStore, tmp_path: pathlib.Path) -> None:
    first = store.claim("m")
    first.wait_for(nothing)
    first.close()
    assert not (tmp_path / "store" / "m.lease").exists()

    with contextlib.closing(store.claim("m")) as second:
        assert second.wait_for(nothing) is None


@pytest.mark.parametrize("left", [b"", b"another machine 7"], ids=["half-written", "whole"])
def test_the_claim_of_a_builder_that_was_killed_expires_for_one_of_those_who_wait(
    left: bytes, store: SharedStore, tmp_path: pathlib.Path
) -> None:
    Folder(tmp_path / "store").write("m.lease", left)
    owners: list[BuildClaim] = []
    over = threading.Barrier(3)

    def build() -> None:
        claim = store.claim("m")
        if claim.wait_for(lambda: store.fetch("key")) is None:
            owners.append(claim)
            store.publish("key", ENTRY)
        over.wait()

    for _ in range(2):
        threading.Thread(target=build).start()
    over.wait()

    assert len(owners) == 1
    owners[0].close()


def test_an_owner_whose_claim_was_taken_over_leaves_it(store: SharedStore, tmp_path: pathlib.Path) -> None:
    lease = tmp_path / "store" / "m.lease"
    claim = store.claim("m")
    claim.wait_for(nothing)

    lease.write_bytes(b"another machine")
    time.sleep(LEASE_S)
    claim.close()

    assert lease.read_bytes() == b"another machine"


def test_nobody_waits_longer_than_configured(tmp_path: pathlib.Path) -> None:
    store = SharedStore(str(tmp_path / "store"), lease_s=LEASE_S, wait_s=0.1)
    first = store.claim("m")
    first.wait_for(nothing)

    assert store.claim("m").wait_for(nothing) is None
    first.close()


@pytest.mark.parametrize("fault", [OSError(30, "Read-only file system"), ValueError("mode")], ids=["read-only", "odd"])
def test_where_the_store_fails_everybody_may_build(
    fault: Exception, store: SharedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bool:
        raise fault

    monkeypatch.setattr(Folder, "create", fail)
    finds: list[Callable[[], None]] = []

    assert store.claim("m").wait_for(lambda: finds.append(nothing)) is None
    assert len(finds) == 1
