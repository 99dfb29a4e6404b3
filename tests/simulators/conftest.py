"""Tests of the simulated libraries themselves."""

from __future__ import annotations

import pytest

from workbench import Workbench

collect_ignore = ["libraries"]  # packages for child processes: importing them would put simulations into this one


@pytest.fixture
def bench() -> Workbench:
    return Workbench()
