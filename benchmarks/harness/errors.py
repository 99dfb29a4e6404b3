"""What can be wrong about models, inputs and results that someone gives to be measured or compared."""

from __future__ import annotations

import pathlib

from benchmarks.errors import BenchmarkError


class InputFileError(BenchmarkError):
    """The inputs that a user gives don't fit the model."""

    def __init__(self, path: pathlib.Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


class UnmeasurableModelError(BenchmarkError):
    """A model can't be measured as asked."""

    def __init__(self, model: pathlib.Path, problem: str) -> None:
        super().__init__(f"{model}: {problem}")


class ResultFileError(BenchmarkError):
    """A file that should hold the rows of an earlier run doesn't."""

    def __init__(self, path: pathlib.Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}. Give a file that `trtnode bench networks --json` has written.")
