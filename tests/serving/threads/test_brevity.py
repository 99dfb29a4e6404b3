from __future__ import annotations

import pytest

from trtnode.serving.threads.brevity import BRIEF_NS, MAX_BYTES, Brevity

LONG_NS = 2 * BRIEF_NS


@pytest.fixture
def brevity() -> Brevity:
    made = Brevity()
    made.note(100, BRIEF_NS, BRIEF_NS)
    return made


def test_requests_count_as_long_until_one_of_their_size_was_brief(brevity: Brevity) -> None:
    assert not Brevity().covers(1)
    assert brevity.covers(100)
    assert not brevity.covers(101)


def test_large_messages_are_never_brief(brevity: Brevity) -> None:
    brevity.note(MAX_BYTES + 1, 1, 1)

    assert not brevity.covers(MAX_BYTES + 1)


@pytest.mark.parametrize(
    ("cpu_ns", "most"),
    [
        pytest.param(BRIEF_NS, 3, id="busy"),
        pytest.param(100 * BRIEF_NS, 1, id="very-busy"),
        pytest.param(0, 24, id="slow-by-the-clock-alone"),
    ],
)
def test_requests_that_become_long_leave_the_serving_thread_soon(brevity: Brevity, cpu_ns: int, most: int) -> None:
    runs = 0
    while brevity.covers(100):
        brevity.note(100, LONG_NS, cpu_ns)
        runs += 1

    assert runs == most
    for _ in range(9):
        brevity.note(100, BRIEF_NS, 0)
    assert brevity.covers(100)


def test_a_crowded_machine_does_not_make_requests_long(brevity: Brevity) -> None:
    for _ in range(100):
        brevity.note(100, 10 * BRIEF_NS, BRIEF_NS // 2)
        brevity.note(100, 10 * BRIEF_NS, BRIEF_NS // 2)
        brevity.note(100, BRIEF_NS, BRIEF_NS // 2)

    assert brevity.covers(100)
