"""The options of a request in the queue: priority, time limit, and cancellation."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from trtnode.serving.threads.request_pool import RequestPool


def _never(_leave: Callable[[], None]) -> bool:
    return True


class RequestOptions(NamedTuple):  # a frozen dataclass takes five times as long to make
    """The options of one request in the queue.

    Attributes:
        pool: The threads that work for the request, once it has waited.
        priority: 1 is the highest; 0 for the default.
        timeout_us: Longest time in the queue, in microseconds; 0 for the configured one.
        on_cancel: Registers what to call when the client leaves; returns False if it has left already.
    """

    pool: RequestPool
    priority: int = 0
    timeout_us: int = 0
    on_cancel: Callable[[Callable[[], None]], bool] = _never

    def level(self, levels: int) -> int:
        """Return the priority among ``levels``; the last level is for requests that name none, or one beyond."""
        return self.priority if 0 < self.priority <= levels else levels

    def timeout_ns(self, configured_ms: int | None, *, only_configured: bool = False) -> int | None:
        """Return the longest time in the queue in nanoseconds: the shorter of both limits, None if there is none.

        Args:
            configured_ms: The limit of the model; None for none.
            only_configured: Whether that of the request has no effect.
        """
        limits = [self.timeout_us * 1_000] if self.timeout_us and not only_configured else []
        if configured_ms is not None:
            limits.append(configured_ms * 1_000_000)
        return min(limits, default=None)
