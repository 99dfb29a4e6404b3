"""The place where commands print for people."""

from __future__ import annotations

from rich.console import Console

UNBROKEN = 100_000
"""Columns where the output is no terminal: a line there is a sentence or a row of a table, so ``grep`` finds it."""


def open_console(*, stderr: bool = False) -> Console:
    """Return a console on stdout or stderr that breaks lines at the edge of a terminal, and nowhere else."""
    console = Console(stderr=stderr, emoji=False)
    if not console.is_terminal:
        console.width = UNBROKEN
    return console
