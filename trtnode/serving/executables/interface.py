"""The calls that a served model needs of what runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from trtnode.engines.backends.stage_times import StageTime
from trtnode.engines.model_facts import ModelFacts
from trtnode.partitioner.graph.view import TensorSpec

Run = Callable[[Mapping[str, np.ndarray], Sequence[str] | None, list[StageTime] | None], Mapping[str, np.ndarray]]
"""Executes the model once: inputs and names of outputs (None for all) to results; the list gets when stages ran."""


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

    facts: ModelFacts
    """The place of its nodes, and the findings of its compilation."""

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
