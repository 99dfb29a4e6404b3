"""A model whose state the server keeps: clients see neither the inputs nor the outputs of state."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from trtnode.engines.backends.stage_times import StageTime
from trtnode.engines.inputs.sequences import State
from trtnode.engines.runtime.executor import Executable


class StatefulExecutable:
    """Runs an executable that knows its state, see ``ServedExecutable``. Thread-safe.

    ``run`` answers the first request of a sequence.

    Attributes:
        model: Runs the requests.
        inputs: Those that are no state.
        outputs: Those that are no state, and those of state that clients may ask for.
    """

    def __init__(self, model: Executable, shown: Collection[str] = ()) -> None:
        """Wrap.

        Args:
            model: The model, with its ``states``.
            shown: Outputs of state that clients may ask for.
        """
        assert model.states is not None
        self.facts = model.facts
        self.model = model
        self.states = model.states
        self.inputs = self.states.inputs
        self.outputs = tuple(s for s in model.outputs if s.name in shown or s.name not in self.states.kept)
        self._names = [spec.name for spec in self.outputs]

    def run(
        self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None, times: list[StageTime] | None = None
    ) -> dict[str, Any]:
        """Answer one request."""
        sequence = self.model.sequence()
        return sequence.run(feeds, self._names if outputs is None else outputs, times)

    def run_checked(
        self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None, times: list[StageTime] | None = None
    ) -> dict[str, Any]:
        """Answer one request whose inputs are known to fit, with its state among them.

        Returns:
            The outputs, and the next state by the names of its inputs.
        """
        names = {pair.input.name for pair in self.states.pairs}
        state: State = {name: feeds[name] for name in names}
        given = {name: value for name, value in feeds.items() if name not in names}
        results, following = self.model.step(given, state, self._names if outputs is None else outputs, times)
        return {**results, **following}

    def needs_native(self, feeds: Mapping[str, Any]) -> bool:
        """Return whether a request is to be answered natively for NaN or infinity in its inputs."""
        return self.model.needs_native(feeds)

    def close(self) -> None:
        """Free the model."""
        self.model.close()
