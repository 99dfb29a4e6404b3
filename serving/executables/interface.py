"""The calls that a served model needs of what runs it, and the choice of what runs next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from trtnode.engines.backends.stage_times import StageTime
from trtnode.engines.runtime.executor import Executable
from trtnode.partitioner.graph.view import TensorSpec

Run = Callable[[Mapping[str, np.ndarray], Sequence[str] | None, list[StageTime] | None], Mapping[str, np.ndarray]]
"""Executes the model once: inputs and names of outputs (None for all) to results; the list gets when stages ran."""


class Choice(NamedTuple):
    """The run of the next execution, and the name of its variant; the name is empty for a model without variants."""

    run: Run
    variant: str = ""


Choose = Callable[[], Choice]
"""Is called once an execution."""


def always(run: Run) -> Choose:
    """Return the choice of a model without variants."""
    choice = Choice(run)
    return lambda: choice


class ServedExecutable(Protocol):
    """A model that is ready to run, see ``engines.Executable``. Thread-safe."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Of ``run``."""
        ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Of ``run``."""
        ...

    @property
    def description(self) -> dict[str, Any]:
        """Facts for metadata."""
        ...

    def run(
        self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None, times: list[StageTime] | None = None
    ) -> dict[str, Any]:
        """Answer one request."""
        ...

    def run_checked(
        self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None, times: list[StageTime] | None = None
    ) -> dict[str, Any]:
        """Answer one request whose inputs are known to fit."""
        ...

    def needs_native(self, feeds: Mapping[str, Any]) -> bool:
        """Return whether a request is to be answered natively for NaN or infinity in its inputs."""
        ...

    def close(self) -> None:
        """Free it."""
        ...


class Composite:
    """An executable that runs others.

    Attributes:
        parts: Those that may run.
    """

    parts: Sequence[ServedExecutable]

    def close(self) -> None:
        """Free all parts."""
        for one in self.parts:
            one.close()


def leaves(executable: ServedExecutable) -> Iterator[Executable]:
    """Yield the executables of files that an executable runs; itself if it is one."""
    if isinstance(executable, Composite):
        for part in executable.parts:
            yield from leaves(part)
    else:
        yield cast(Executable, executable)
