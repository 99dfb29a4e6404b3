"""The longest time that a request waits in the queue."""

from __future__ import annotations

from typing import Any

import pytest

from trtnode.serving.batching.request_options import RequestOptions

POOL: Any = None  # no request is run here


@pytest.mark.parametrize(
    ("configured_ms", "only_configured", "limit_ns"),
    [
        pytest.param(30, False, 5_000, id="a-request-may-wait-shorter"),
        pytest.param(30, True, 30_000_000, id="unless-the-configuration-does-not-allow-it"),
        pytest.param(None, False, 5_000, id="or-set-the-only-limit"),
        pytest.param(None, True, None, id="and-that-neither"),
    ],
)
def test_the_longest_time_in_the_queue(configured_ms: int | None, only_configured: bool, limit_ns: int | None) -> None:
    options = RequestOptions(POOL, timeout_us=5)

    assert options.timeout_ns(configured_ms, only_configured=only_configured) == limit_ns
