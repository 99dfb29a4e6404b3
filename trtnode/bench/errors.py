"""Errors of what a user gives to be measured, and of files that a report is read from or written into."""

from __future__ import annotations

import pathlib

from trtnode.serving.errors import ServingError


class BenchmarkError(ServingError):
    """Base of this package's errors, by default about arguments. The text is complete and meant for the user."""

    exit_code = 2


class InputFileError(BenchmarkError):
    """The inputs that a user gives don't fit the model."""

    def __init__(self, path: pathlib.Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


class UnmeasurableModelError(BenchmarkError):
    """A model can't be measured with these options."""

    def __init__(self, model: pathlib.Path, problem: str) -> None:
        super().__init__(f"{model}: {problem}")


class ResultFileError(BenchmarkError):
    """A file that should hold the rows of an earlier run doesn't."""

    def __init__(self, path: pathlib.Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}. Give a file that --json of this command has written.")
