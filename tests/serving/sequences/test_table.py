"""The bounds of sequences, their order, and the versions that they keep."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from trtnode.serving.errors import SequenceError, SequencesFullError
from trtnode.serving.protocol.parameters import SequenceMark
from trtnode.serving.schema.sequences import SequencesConfig
from trtnode.serving.sequences.table import SequenceTable, Turn
from trtnode.serving.telemetry.request_stats import ModelCounts
from trtnode.serving.threads.request_pool import RequestPool


class Version:
    """A version of a model, with the sequences that keep it from being freed."""

    def __init__(self) -> None:
        self.counts = ModelCounts()
        self.users: list[object] = []

    def enter(self, user: object) -> bool:
        self.users.append(user)
        return True

    def leave(self, user: object) -> None:
        self.users.remove(user)


class Client:
    """Takes turns in sequences of one table."""

    def __init__(self, pool: RequestPool, **bounds: object) -> None:
        self.table = SequenceTable("m", SequencesConfig(**bounds))
        self.version = Version()
        self._pool = pool

    def take(self, identity: int, *, start: bool = False, end: bool = False, owner: str = "me") -> Turn:
        return self.table.take(SequenceMark(identity, start, end), owner, lambda: self.version, self._pool)

    def step(self, identity: int, value: float, *, size: int = 1, **flags: bool) -> float | None:
        """Answer one request, which leaves some numbers; return the first number that it begins with."""
        turn = self.take(identity, **flags)
        found = []
        self.table.submit(turn, lambda: found.append(self.table.state(turn)))
        try:
            self.table.keep(turn, {"h": np.full(size, value, np.float32)})
        finally:
            self.table.end(turn)()
        return None if found[0] is None else float(found[0]["h"][0])


@pytest.fixture
def pool() -> Iterator[RequestPool]:
    one = RequestPool(1)
    yield one
    one.close()


@pytest.fixture
def new(pool: RequestPool) -> Callable[..., Client]:
    return lambda **bounds: Client(pool, **bounds)


def test_the_sequence_that_is_idle_for_longest_makes_room(new: Callable[..., Client]) -> None:
    client = new(max=2)
    for identity in (1, 2):
        client.step(identity, identity, start=True)
    client.step(1, 10)

    client.step(3, 3, start=True)

    assert (client.step(1, 11), client.step(3, 4)) == (10, 3)
    with pytest.raises(SequenceError, match="sequence 2 of model 'm' made room for others"):
        client.step(2, 5)
    assert client.version.counts.sequences.ended == {"evicted": 1}


def test_a_sequence_in_use_makes_no_room(new: Callable[..., Client]) -> None:
    client = new(max=1)
    client.take(1, start=True)

    with pytest.raises(SequencesFullError, match=r"1 sequences are in use, the most \(sequences.max\)"):
        client.take(2, start=True)
    assert client.version.counts.sequences.refused == 1


def test_state_makes_room_within_its_memory(new: Callable[..., Client]) -> None:
    client = new(memory_mb=1)
    client.step(1, 1, start=True, size=100_000)
    client.step(2, 2, start=True, size=100_000)

    client.step(3, 3, start=True, size=100_000)

    assert client.version.counts.sequences.bytes == 800_000
    assert client.step(2, 4, size=100_000) == 2
    with pytest.raises(SequenceError, match="sequence 1 of model 'm' made room"):
        client.step(1, 1)


def test_state_beyond_the_memory_is_refused_and_that_of_before_stays(new: Callable[..., Client]) -> None:
    client = new(memory_mb=1)
    client.step(1, 1, start=True)

    with pytest.raises(
        SequencesFullError, match=r"their state takes more than 1 MiB, the most \(sequences.memory_mb\)"
    ):
        client.step(1, 2, size=300_000)

    assert client.step(1, 3) == 1


def test_callers_have_sequences_of_their_own(new: Callable[..., Client]) -> None:
    client = new()
    client.step(1, 1, start=True)

    with pytest.raises(SequenceError, match="is not begun"):
        client.take(1, owner="another")


def test_requests_that_come_first_run_first_whenever_they_are_read(new: Callable[..., Client]) -> None:
    client = new()
    first, second = client.take(1, start=True), client.take(1)
    ran: list[str] = []

    client.table.submit(second, lambda: ran.append("second"))
    client.table.submit(first, lambda: ran.append("first"))

    assert ran == ["first"]


def test_a_request_runs_once_the_one_before_is_answered(new: Callable[..., Client], pool: RequestPool) -> None:
    client = new()
    first, second = client.take(1, start=True), client.take(1)
    ran: list[str] = []
    answered = client.table.end(first)
    client.table.submit(second, lambda: ran.append("second"))
    assert not ran

    answered()
    pool.call(lambda: None).result(60)

    assert ran == ["second"]


def test_a_request_that_cannot_be_read_lets_the_next_one_run(new: Callable[..., Client], pool: RequestPool) -> None:
    client = new()
    first, second = client.take(1, start=True), client.take(1)
    ran: list[str] = []
    client.table.submit(second, lambda: ran.append("second"))

    client.table.end(first)()
    pool.call(lambda: None).result(60)

    assert ran == ["second"]


def test_a_replaced_version_is_kept_until_its_sequences_end(new: Callable[..., Client]) -> None:
    client = new()
    client.step(1, 1, start=True)
    before, client.version = client.version, Version()
    client.table.retire(before)

    assert client.step(1, 2) == 1
    assert before.users
    client.step(1, 3, end=True)
    assert not before.users
    assert client.step(1, 4, start=True) is None
    assert client.version.users


def test_a_sequence_that_begins_anew_takes_the_new_version(new: Callable[..., Client]) -> None:
    client = new()
    client.step(1, 1, start=True)
    before, client.version = client.version, Version()
    client.table.retire(before)

    assert client.step(1, 2, start=True) is None
    assert (len(before.users), len(client.version.users)) == (0, 1)


def test_a_sequence_that_waits_when_it_begins_anew_ends_with_its_own_state(new: Callable[..., Client]) -> None:
    client = new()
    client.step(1, 7, start=True)
    waiting = client.take(1)
    before, client.version = client.version, Version()
    client.table.retire(before)
    client.take(1, start=True)

    state = client.table.state(waiting)
    client.table.end(waiting)()

    assert state is not None
    assert state["h"] == 7
    assert not before.users


def test_an_unloaded_model_ends_its_sequences_and_those_that_wait_are_told(new: Callable[..., Client]) -> None:
    client = new()
    client.step(1, 1, start=True)
    waiting = client.take(1)

    client.table.end_all()

    with pytest.raises(SequenceError, match="sequence 1 of model 'm' ended when its model was unloaded"):
        client.table.state(waiting)
    assert client.version.users
    client.table.end(waiting)()
    assert not client.version.users


def test_sequences_that_are_left_end_and_their_state_is_freed(
    new: Callable[..., Client], eventually: Callable[[Callable[[], bool]], None]
) -> None:
    client = new(idle_s=0.2, memory_mb=1024)
    for identity in range(1000):
        client.step(identity, 1, start=True, size=100)
    counts = client.version.counts.sequences

    eventually(lambda: not counts.open)

    gc.collect()
    assert (counts.bytes, client.version.users, counts.ended) == (0, [], {"idle": 1000})
    with pytest.raises(SequenceError, match=r"had no request for longer than sequences.idle_s"):
        client.step(1, 1)
