"""Errors of models and inputs that a user gives to be measured."""

from __future__ import annotations

import pathlib

from trtnode.bench.errors import BenchmarkError


class InputFileError(BenchmarkError):
    """The inputs that a user gives don't fit the model."""

    def __init__(self, path: pathlib.Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


class UnmeasurableModelError(BenchmarkError):
    """A model can't be measured with these options."""

    def __init__(self, model: pathlib.Path, problem: str) -> None:
        super().__init__(f"{model}: {problem}")
