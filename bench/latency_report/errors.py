"""Errors of files that a report is read from or written into."""

from __future__ import annotations

import pathlib

from trtnode.bench.errors import BenchmarkError


class ResultFileError(BenchmarkError):
    """A file that should hold the rows of an earlier run doesn't."""

    def __init__(self, path: pathlib.Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}. Give a file that `trtnode bench networks --json` has written.")


class MarkerError(BenchmarkError):
    """A file has no place for the table."""

    def __init__(self, path: pathlib.Path, begin: str, end: str) -> None:
        super().__init__(f"{path}: there are no lines {begin!r} and {end!r}, in this order. Put them around the table.")
