"""Waiting times that textbooks tell."""

from __future__ import annotations

import pytest

from benchmarks.ray_cluster.queueing import waiting_s


@pytest.mark.parametrize("load", [0.1, 0.5, 0.9])
def test_one_server_waits_as_pollaczek_and_khinchine_say(load: float) -> None:
    assert waiting_s(servers=1, service_s=2, load=load) == pytest.approx(load * 2 / (2 * (1 - load)))


def test_two_servers_wait_half_as_long_as_with_exponential_times() -> None:
    assert waiting_s(servers=2, service_s=1, load=0.5) == pytest.approx((1 / 3) / 2)


def test_many_servers_hardly_wait() -> None:
    assert waiting_s(servers=100, service_s=1, load=0.7) < 0.001
