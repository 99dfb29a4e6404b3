from __future__ import annotations

import pytest

from trtnode.serving.threads.inline_policy import INLINE_NS, MAX_BYTES, InlinePolicy

LONG_NS = 2 * INLINE_NS


@pytest.fixture
def policy() -> InlinePolicy:
    made = InlinePolicy()
    made.note(100, INLINE_NS, INLINE_NS)
    return made


def test_requests_count_as_long_until_one_of_their_size_was_brief(policy: InlinePolicy) -> None:
    assert not InlinePolicy().covers(1)
    assert policy.covers(100)
    assert not policy.covers(101)


def test_large_messages_are_never_brief(policy: InlinePolicy) -> None:
    policy.note(MAX_BYTES + 1, 1, 1)

    assert not policy.covers(MAX_BYTES + 1)


@pytest.mark.parametrize(
    ("cpu_ns", "most"),
    [
        pytest.param(INLINE_NS, 3, id="busy"),
        pytest.param(100 * INLINE_NS, 1, id="very-busy"),
        pytest.param(0, 24, id="slow-by-the-clock-alone"),
    ],
)
def test_requests_that_become_long_leave_the_serving_thread_soon(policy: InlinePolicy, cpu_ns: int, most: int) -> None:
    runs = 0
    while policy.covers(100):
        policy.note(100, LONG_NS, cpu_ns)
        runs += 1

    assert runs == most
    for _ in range(9):
        policy.note(100, INLINE_NS, 0)
    assert policy.covers(100)


def test_a_crowded_machine_does_not_make_requests_long(policy: InlinePolicy) -> None:
    for _ in range(100):
        policy.note(100, 10 * INLINE_NS, INLINE_NS // 2)
        policy.note(100, 10 * INLINE_NS, INLINE_NS // 2)
        policy.note(100, INLINE_NS, INLINE_NS // 2)

    assert policy.covers(100)
