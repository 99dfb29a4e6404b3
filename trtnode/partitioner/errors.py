"""The base of all errors of this program, and those between a model file and its segments."""

from __future__ import annotations

import copyreg
import pathlib
from collections.abc import Sequence
from typing import Any


class ProjectError(Exception):
    """Base of every error of this program. Its text is complete and meant for the user.

    Attributes:
        exit_code: What the process exits with when the error ends it.
    """

    exit_code = 1

    def __reduce__(self) -> tuple[Any, ...]:
        """Cross to another process without calling ``__init__``, which takes facts instead of the finished text."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class PartitionError(ProjectError):
    """Base of every error of this package."""


class ModelFileError(PartitionError):
    """A model file can't be read, is not ONNX, or needs something that doesn't exist."""

    def __init__(self, path: pathlib.Path, problem: str, advice: str) -> None:
        super().__init__(f"{path}: {problem} {advice}")
        self.path = path


class ExternalDataError(ModelFileError):
    """An initializer's external data is missing, too short, or outside the model's folder."""

    def __init__(self, path: pathlib.Path, tensor: str, location: str, problem: str) -> None:
        super().__init__(
            path,
            f"the data of tensor {tensor!r} should be in {location[:255]!r}, but {problem}.",
            "Put the data file back beside the model, or export the model again with its weights inside.",
        )


class DataOutsideError(PartitionError):
    """A tensor of a model that should be whole in itself has its data in a file."""

    def __init__(self, tensor: str, location: str | None) -> None:
        super().__init__(
            f"tensor {tensor!r} has its data in file {location!r}, and an engine holds all of its own. "
            "Compile the model again."
        )


class UnknownOptionError(PartitionError):
    """A partition option names something that the model doesn't have."""

    exit_code = 2  # exit status of a command with wrong arguments

    def __init__(self, option: str, value: str, known: str) -> None:
        super().__init__(f"{option}: {value!r} matches nothing in this model; it has {known}.")


class OptionError(PartitionError):
    """An option of a compilation has a value that it can't have."""

    exit_code = 2

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}.")
        self.name = name
        self.problem = problem


class CompiledModelError(PartitionError):
    """A model says that it was compiled, but its TrtNodes can't be read."""

    def __init__(self, node: str, problem: str) -> None:
        super().__init__(f"TrtNode {node!r}: {problem}. Compile the model again.")


class MergeError(PartitionError):
    """Compiled models can't be one file.

    Attributes:
        problem: Why.
        nodes: Those that are in engines of some of them, and native in others.
    """

    def __init__(self, files: str, problem: str, nodes: Sequence[str] = ()) -> None:
        super().__init__(f"{files} can't be merged: {problem}.")
        self.problem = problem
        self.nodes = tuple(nodes)


class PipelineError(PartitionError):
    """A stage of a pipeline can't be used, or doesn't fit the previous one.

    Attributes:
        place: Path of the stage in the configuration, such as ``("preprocess", 1, "normalize")``.
        problem: The problem, and what to do about it.
    """

    def __init__(self, place: Sequence[str | int], problem: str) -> None:
        field = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).removeprefix(".")
        super().__init__(f"{field}: {problem}")
        self.place = tuple(place)
        self.problem = problem
