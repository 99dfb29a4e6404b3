"""A model whose state the server keeps: clients see neither the inputs nor the outputs of state."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from trtnode.engines.backends.stage_times import StageTime
from trtnode.engines.inputs.sequences import State, state_of_run
from trtnode.engines.onnxruntime.session import as_array
from trtnode.engines.runtime.executor import Executable
from trtnode.partitioner.graph.states import StatePair
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.serving.protocol.parameters import SequenceMark

ONLY = SequenceMark(1, start=True, end=True)


class Control(Protocol):
    """An input that tells the model of the place of a request in its sequence."""

    @property
    def spec(self) -> TensorSpec:
        """Of the model."""
        ...

    def array(self, mark: SequenceMark, rows: int) -> np.ndarray:
        """Return its value for a request at that place, of so many rows."""
        ...


class StatefulExecutable:
    """Runs an executable that knows its state, see ``ServedExecutable``. Thread-safe.

    ``run`` answers the first request of a sequence.

    Attributes:
        model: Runs the requests.
        inputs: Those that are neither state nor controls.
        outputs: Those that are no state, and those of state that clients may ask for.
        state_names: Names of the inputs of state, and of those that hold what earlier requests gave, too.
        controls: Inputs that tell the model of the place of a request in its sequence.
        joins: Whether requests of several sequences may run together.
    """

    joins = False

    def __init__(self, model: Executable, shown: Collection[str] = (), controls: Sequence[Control] = ()) -> None:
        """Wrap.

        Args:
            model: The model, with its ``states``.
            shown: Outputs of state that clients may ask for.
            controls: Its inputs of control.
        """
        assert model.states is not None
        self.facts = model.facts
        self.model = model
        self.states = model.states
        self.controls = controls
        told = {control.spec.name for control in controls}
        self.inputs = tuple(spec for spec in self.states.inputs if spec.name not in told)
        self.outputs = tuple(s for s in model.outputs if s.name in shown or s.name not in self.states.kept)
        self.state_names = [*self.states.kept.values(), *self.states.appended]
        self._names = [spec.name for spec in self.outputs]

    def run(
        self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None, times: list[StageTime] | None = None
    ) -> dict[str, Any]:
        """Answer one request."""
        sequence, names = self.model.sequence(), self._names if outputs is None else outputs
        return sequence.run(self._with_controls(feeds, ONLY), names, times)

    def all_feeds(self, feeds: Mapping[str, Any], state: State | None, mark: SequenceMark) -> dict[str, Any]:
        """Return the inputs of a request with its controls and the state that it begins with.

        Args:
            feeds: Its own.
            state: Left by the one before; None for a first one.
            mark: Its place.
        """
        feeds = self._with_controls(feeds, mark) if self.controls else feeds
        return {**feeds, **self._state_of_request(feeds, state)}

    def _with_controls(self, feeds: Mapping[str, Any], mark: SequenceMark) -> Mapping[str, Any]:
        rows = next((array.shape[0] for array in feeds.values() if array.ndim), 1)
        return {**feeds, **{control.spec.name: control.array(mark, rows) for control in self.controls}}

    def _state_of_request(self, feeds: Mapping[str, Any], state: State | None) -> State:
        return state_of_run(self.states, feeds, state)

    def run_checked(
        self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None, times: list[StageTime] | None = None
    ) -> dict[str, Any]:
        """Answer one request whose inputs are known to fit, with its state among them.

        Returns:
            The outputs, and the next state by the names of its inputs.
        """
        return self.model.step(feeds, self._names if outputs is None else outputs, times)

    def owned(self, state: State) -> State:
        """Return a state that a run has left, as a sequence may keep it."""
        return state

    def needs_native(self, feeds: Mapping[str, Any]) -> bool:
        """Return whether a request is to be answered natively for NaN or infinity in its inputs."""
        return self.model.needs_native(feeds)

    def close(self) -> None:
        """Free the model."""
        self.model.close()


class JoinedSequences(StatefulExecutable):
    """The same for requests of several sequences at once: axis 0 of their state is that of the batch.

    Attributes:
        all_inputs: With those of state.
        all_outputs: With those of state, by the names of their inputs.
    """

    joins = True

    def __init__(self, one: StatefulExecutable, axes: Mapping[str, int]) -> None:
        """Wrap.

        Args:
            one: The model.
            axes: That of the batch in each tensor of state.
        """
        super().__init__(one.model, {spec.name for spec in one.outputs}, one.controls)
        self._axes = axes
        moved = [self._moved(pair.input) for pair in self.states.pairs]
        self.all_inputs = (*self.inputs, *(control.spec for control in self.controls), *moved)
        self.all_outputs = (*self.outputs, *moved)

    @classmethod
    def of(cls, one: StatefulExecutable) -> JoinedSequences | str:
        """Return the form of a model for several sequences; the reason where there is none."""
        axes = {pair.input.name: _batch_axis(pair) for pair in one.states.pairs}
        fixed = [*(name for name, axis in axes.items() if axis is None), *one.states.appended]
        if fixed:
            return f"the state {fixed[0]!r} has no batch axis, or grows"
        return cls(one, {name: axis for name, axis in axes.items() if axis is not None})

    def _state_of_request(self, feeds: Mapping[str, Any], state: State | None) -> State:
        if state is not None:
            return state
        return {name: np.moveaxis(array, self._axes[name], 0) for name, array in self.states.first(feeds).items()}

    def run_checked(
        self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None, times: list[StageTime] | None = None
    ) -> dict[str, Any]:
        """Answer requests together; else as of one."""
        inside = {name: np.ascontiguousarray(np.moveaxis(feeds[name], 0, axis)) for name, axis in self._axes.items()}
        names = outputs and [name for name in outputs if name not in self._axes]
        results = super().run_checked({**feeds, **inside}, names, times)
        return {**results, **{name: np.moveaxis(as_array(results[name]), at, 0) for name, at in self._axes.items()}}

    def owned(self, state: State) -> State:
        """Return a copy: the state of a whole batch would stay in memory for the rows of one request."""
        return {name: array.copy() for name, array in state.items()}

    def _moved(self, spec: TensorSpec) -> TensorSpec:
        sizes = list(spec.shape or ())
        sizes.insert(0, sizes.pop(self._axes[spec.name]))
        return dataclasses.replace(spec, shape=tuple(sizes))


def _batch_axis(pair: StatePair) -> int | None:
    """Return the axis of a tensor of state that has the rows of a request; None if there is none, or it grows."""
    if pair.grows or pair.initial is not None:
        return None
    named = [axis for axis, size in enumerate(pair.shape) if isinstance(size, str)]
    declared = pair.input.shape or (1,)
    return named[0] if named else None if isinstance(declared[0], int) else 0
