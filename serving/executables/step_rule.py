"""The choice among variants under load: a function of latencies, busy time and the clock."""

from __future__ import annotations

from collections.abc import Sequence

WINDOW_S, LONGEST_WINDOW_S, FULL = 1.0, 4.0, 20
"""A window lasts as long as the first; with fewer requests than the third, until these have come or the second."""

LATE_SHARE = 0.05
"""The share of late requests up to which a window holds the target."""

SAFE_LOAD = 0.6
"""The share of its time up to which a slower variant may be busy at the present load."""

FIRST_HOLD_S, LONGEST_HOLD_S = 5.0, 320.0
"""Calm seconds before a step back: at first, and at most."""


class StepRule:
    """Steps down to a faster variant while the latency target is missed, and back when that is safe.

    Requests are counted in windows of about a second. The rule at the end of each window:

    - **Down**, to the next faster variant: more than one request and more than 5 % of the requests were late.
    - **Back**, to the next slower one: for ``hold`` seconds each window held the target, and the slower variant would
      have been busy for at most 60 % of its time. That share is the busy time of the present variant, times the
      measured ratio of their latencies.
    - The first window after a step judges nothing, since its requests may have waited for the variant before.
    - ``hold`` is 5 s at first. It doubles, up to 320 s, with each step down that follows a step back. It is 5 s again
      after 320 s without a step at the slowest variant.

    So the steps are bounded for any load: of ``n`` variants in ``t`` seconds, ``2 (n - 1) (7 + 7 t / 320)``. A pair of
    directions takes at most ``2 (n - 1)`` steps and doubles ``hold``, which 6 pairs bring to 320 s. From then on each
    pair takes 320 s, and so does a return of ``hold`` to 5 s.

    Attributes:
        level: The variant that answers; 0 is the slowest.
        steps: The number of steps so far.
    """

    def __init__(self, latencies: Sequence[float], now_s: float) -> None:
        """Begin with the slowest variant.

        Args:
            latencies: Measured latency of each variant, falling; the unit doesn't matter.
            now_s: The time.
        """
        self.level = 0
        self.steps = 0
        self._latencies = latencies
        self._hold_s = FIRST_HOLD_S
        self._was_back = False
        self._is_settling = False
        self._calm_since_s = self._stepped_s = now_s
        self._open_window(now_s)

    def observe(self, *, late: bool, now_s: float) -> None:
        """Count a request that has ended.

        Args:
            late: Whether it took longer than the target, or was refused for want of time or room.
            now_s: The time.
        """
        self._requests += 1
        self._late += late
        spent_s = now_s - self._began_s
        if spent_s >= WINDOW_S and (self._requests >= FULL or spent_s >= LONGEST_WINDOW_S):
            self._judge(spent_s, now_s)
            self._open_window(now_s)

    def add_busy(self, seconds: float) -> None:
        """Count the time of an execution, divided by the number of instances."""
        self._busy_s += seconds

    def _open_window(self, now_s: float) -> None:
        self._began_s, self._requests, self._late, self._busy_s = now_s, 0, 0, 0.0

    def _judge(self, spent_s: float, now_s: float) -> None:
        if self._is_settling:
            self._is_settling, self._calm_since_s = False, now_s
        elif self._late > max(1, LATE_SHARE * self._requests):
            self._calm_since_s = now_s
            if self.level + 1 < len(self._latencies):
                self._hold_s = min(2 * self._hold_s, LONGEST_HOLD_S) if self._was_back else self._hold_s
                self._step(1, now_s)
        elif self.level == 0:
            if now_s - self._stepped_s >= LONGEST_HOLD_S:
                self._hold_s = FIRST_HOLD_S
        elif self._load_above(spent_s) > SAFE_LOAD:
            self._calm_since_s = now_s
        elif now_s - self._calm_since_s >= self._hold_s:
            self._step(-1, now_s)

    def _load_above(self, spent_s: float) -> float:
        """Return the share of its time that the next slower variant would have been busy."""
        return self._busy_s / spent_s * self._latencies[self.level - 1] / self._latencies[self.level]

    def _step(self, by: int, now_s: float) -> None:
        self.level += by
        self.steps += 1
        self._was_back = by < 0
        self._is_settling = True
        self._stepped_s = self._calm_since_s = now_s
