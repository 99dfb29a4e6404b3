"""Decisions by the turns of two calls, on simulated machines: the rates of wrong choices are part of the contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from trtnode.engines.tuning.decision import Confidence, Decision, decide, is_clear

ROUNDS, MEASUREMENTS = 30, 400
TURNS = (2, ROUNDS)
BEARABLE = 1.05
"""A choice is wrong if the other one would be so many times as fast."""

GAINS = (0.5, 0.8, 0.9, 0.94, 1.0, 1.06, 1.1, 1.25, 2.0)

Noise = Callable[[np.random.Generator], np.ndarray]
"""Makes factors of all turns, those of the challenger first; without noise they are 1."""


def quiet(random: np.random.Generator) -> np.ndarray:
    return random.lognormal(sigma=0.02, size=TURNS)


def drift(random: np.random.Generator) -> np.ndarray:
    """Both become half as fast again in the course of the measurement."""
    return quiet(random) * np.linspace(1, 1.5, 2 * ROUNDS).reshape(ROUNDS, 2).T


def bursts(random: np.random.Generator) -> np.ndarray:
    """Some program takes a core in a third of the turns."""
    return quiet(random) * np.where(random.random(TURNS) < 1 / 3, random.uniform(1.3, 2.0, TURNS), 1)


def heavy_tails(random: np.random.Generator) -> np.ndarray:
    return quiet(random) * (1 + 0.05 * random.pareto(1.0, TURNS))


def neighbour(random: np.random.Generator) -> np.ndarray:
    """A program always computes beside, and takes now more and now less from either."""
    return random.uniform(1.0, 2.0, TURNS)


def measure(noise: np.ndarray, gain: float) -> tuple[Decision, int]:
    """Return the decision about a challenger that is so many times as fast, and how many turns it took."""
    challenger, holder = noise * [[10 / gain], [10]]
    done = next((n for n in range(1, ROUNDS) if is_clear(challenger[:n], holder[:n])), ROUNDS)
    return decide(challenger[:done].tolist(), holder[:done].tolist()), done


@pytest.mark.parametrize(
    ("noise", "most_wrong"), [(quiet, 0.0), (drift, 0.01), (bursts, 0.02), (heavy_tails, 0.02), (neighbour, 0.1)]
)
def test_few_choices_are_wrong(noise: Noise, most_wrong: float) -> None:
    random = np.random.default_rng(0)
    wrong = 0
    for gain in GAINS:
        for _ in range(MEASUREMENTS):
            decision, _ = measure(noise(random), gain)
            wrong += (gain > BEARABLE and not decision.faster) or (1 / gain > BEARABLE and decision.faster)

    assert wrong <= most_wrong * MEASUREMENTS * len(GAINS)


@pytest.mark.parametrize(("gain", "most"), [(2.0, 7), (1.25, 7), (0.9, 7), (1.1, 9)])
def test_on_a_quiet_machine_a_few_turns_are_enough(gain: float, most: int) -> None:
    random = np.random.default_rng(1)

    assert np.median([measure(quiet(random), gain)[1] for _ in range(100)]) <= most


@pytest.mark.parametrize(
    ("challenger", "holder", "faster", "confidence"),
    [
        pytest.param([10.0] * 20, [10.0] * 20, False, Confidence.CLEAR, id="ties-are-no-gain"),
        pytest.param([10.0, 10.0] * 20, [10.2, 10.4] * 20, False, Confidence.CLOSE, id="close"),
        pytest.param([8.0, 24.0] * 10, [10.0, 10.0] * 10, True, Confidence.UNKNOWN, id="as-often-slower"),
        pytest.param([5.0, 12.0, 5.0] * 7, [10.0] * 21, True, Confidence.CLEAR, id="mostly-faster"),
        pytest.param([12.0, 3.0, 12.0] * 7, [10.0] * 21, True, Confidence.UNKNOWN, id="fastest-turns-disagree"),
        pytest.param([10.0], [12.0], True, Confidence.CLEAR, id="one-turn"),
        pytest.param([10.0], [10.5], False, Confidence.CLEAR, id="one-turn-gains-too-little"),
        pytest.param([6.0, 12.0], [10.0, 10.0], False, Confidence.UNKNOWN, id="two-turns-disagree"),
    ],
)
def test_decisions_say_how_sure_they_are(
    challenger: Sequence[float], holder: Sequence[float], faster: bool, confidence: Confidence
) -> None:
    decision = decide(challenger, holder)

    assert (decision.faster, decision.confidence) == (faster, confidence)


def test_few_turns_beside_busy_programs_say_nothing() -> None:
    assert decide([10.0], [20.0], disturbed=True).confidence is Confidence.UNKNOWN


def test_the_gain_has_an_interval() -> None:
    noise = np.random.default_rng(0).lognormal(sigma=0.3, size=(200, 41))

    intervals = [decide([1.0] * 41, (2 * turns).tolist()).gain for turns in noise]

    assert sum(low <= 2 <= high for low, _, high in intervals) >= 0.93 * len(intervals)
    assert all(low <= middle <= high for low, middle, high in intervals)
    assert decide([1.0, 2.0, 1.0], [2.0, 2.0, 3.0]).gain == (1.0, 2.0, 3.0)
