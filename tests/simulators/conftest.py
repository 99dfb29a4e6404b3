"""Tests of the simulated libraries themselves."""

from __future__ import annotations

collect_ignore = ["libraries"]  # packages for child processes: importing them would put simulations into this one
