"""The rule of steps between variants, with a simulated clock and simulated servers."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtnode.serving.executables.step_rule import FIRST_HOLD_S, LONGEST_HOLD_S, StepRule

LATENCIES = (0.8, 0.4, 0.1)
"""Seconds that a request of each variant takes alone."""


@dataclasses.dataclass
class Simulation:
    """A server with one instance: requests come evenly, and are late if they wait for longer than a second."""

    rule: StepRule
    now_s: float = 0.0
    free_s: float = 0.0

    def serve(self, rate: float, seconds: float) -> Iterator[int]:
        """Let requests come, and yield the variant after each."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += 1 / rate
            took_s = LATENCIES[self.rule.level]
            self.free_s = min(max(self.free_s, self.now_s) + took_s, self.now_s + 20)
            self.rule.add_busy(min(took_s, 1 / rate))
            self.rule.observe(late=self.free_s - self.now_s > 1, now_s=self.now_s)
            yield self.rule.level


def levels(simulation: Simulation, rate: float, seconds: float) -> list[int]:
    return list(simulation.serve(rate, seconds))


@pytest.fixture
def simulation() -> Simulation:
    return Simulation(StepRule(LATENCIES, 0.0))


def test_a_load_that_the_best_variant_holds_moves_nothing(simulation: Simulation) -> None:
    assert set(levels(simulation, 1, 600)) == {0}


def test_each_load_finds_the_best_variant_that_holds_it_and_stays_there(simulation: Simulation) -> None:
    for rate, wanted in ((1.0, 0), (1.4, 1), (8.0, 2), (0.5, 0)):
        levels(simulation, rate, 60)

        assert set(levels(simulation, rate, 60)) == {wanted}

    assert simulation.rule.steps == 4


def test_a_load_between_two_variants_does_not_make_them_alternate(simulation: Simulation) -> None:
    """The slower one can't hold 1.4 requests a second, and the faster one would be idle for half of its time."""
    levels(simulation, 1.4, 1000)

    assert simulation.rule.level == 1
    assert simulation.rule.steps == 1


def test_one_late_request_among_few_moves_nothing() -> None:
    rule = StepRule(LATENCIES, 0.0)

    for second in range(1000):
        rule.observe(late=second % 20 == 0, now_s=float(second))

    assert rule.steps == 0


def test_a_step_back_that_was_wrong_is_tried_again_ever_later() -> None:
    """Busy time says that a step back is safe, and the target is missed whenever it is made."""
    rule = StepRule((0.2, 0.1), 0.0)
    back: list[float] = []
    for tick in range(80_000):
        before = rule.level
        rule.observe(late=rule.level == 0, now_s=tick / 20)
        if rule.level < before:
            back.append(tick / 20)

    pauses = [later - earlier for earlier, later in itertools.pairwise(back)]
    assert pauses[0] < 3 * FIRST_HOLD_S
    assert pauses == sorted(pauses)
    assert pauses[-1] > LONGEST_HOLD_S


load = st.lists(
    st.tuples(
        st.floats(0.001, 30),  # seconds between two requests
        st.floats(0, 1),  # share of late requests
        st.floats(0, 1),  # share of time that instances are busy
        st.integers(1, 100),  # requests
    ),
    max_size=40,
)


@settings(max_examples=50)
@given(load, st.integers(2, 5), st.randoms(use_true_random=False))
def test_the_number_of_steps_is_bounded_for_any_load(
    load: list[tuple[float, ...]], variants: int, rng: random.Random
) -> None:
    rule = StepRule([2.0**-n for n in range(variants)], 0.0)
    now_s = 0.0
    for gap_s, late_share, busy_share, requests in load:
        for _ in range(requests):
            now_s += gap_s
            rule.add_busy(gap_s * busy_share)
            rule.observe(late=rng.random() < late_share, now_s=now_s)

            assert 0 <= rule.level < variants
    assert rule.steps <= 2 * (variants - 1) * (7 + 7 * now_s / LONGEST_HOLD_S)


@settings(max_examples=20)
@given(st.integers(2, 5), st.floats(0.05, 1))
def test_an_adversary_that_knows_the_rule_stays_below_the_bound(variants: int, gap_s: float) -> None:
    """It lets every request at the slowest variant be late, and none at the fastest."""
    rule = StepRule([2.0**-n for n in range(variants)], 0.0)
    now_s, down = 0.0, True
    while now_s < 2000:
        now_s += gap_s
        down = rule.level == 0 or (down and rule.level < variants - 1)
        rule.observe(late=down, now_s=now_s)

    assert 0 < rule.steps <= 2 * (variants - 1) * (7 + 7 * now_s / LONGEST_HOLD_S)
