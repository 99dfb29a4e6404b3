"""Runs of a model that hand their state on: what a user says of the state, and a sequence of runs."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trtnode.engines.backends.stage_times import StageTime
from trtnode.engines.errors import InvalidInputError, StateError
from trtnode.engines.inputs.samples import load_samples
from trtnode.engines.inputs.signature import Signature
from trtnode.partitioner.graph.states import States, StateSource, find_states, given_states
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.partitioner.model.regular_files import read_regular

AUTO = "auto"
ZEROS = "zeros"
KEYS = ("input", "output", "initial", "shape")

State = Mapping[str, Any]
"""Tensors by the name of their input, as the run that made them left them: arrays, or tensors of ONNX Runtime."""

Step = Callable[[Mapping[str, Any], Sequence[str], list[StageTime] | None], dict[str, Any]]
"""Runs a model on inputs with a state, and returns the outputs that are asked for and the next state."""


def read_states(
    state: str | Sequence[Mapping[str, Any]],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    append: Sequence[str] = (),
) -> States:
    """Return the state of a model.

    Args:
        state: ``auto`` finds the pairs by their names; else a mapping for each pair, with the keys ``input``,
            ``output``, and if need be ``initial`` (``zeros`` or an .npz file) and ``shape``.
        inputs: Of the model.
        outputs: Of the model.
        append: Names of inputs that get what all runs were given, joined in the last axis, such as a decoder's mask.

    Raises:
        StateError: It doesn't fit the model, or there is none.
        EngineError: A file of initial values can't be read.
    """
    found = _found_states(state, inputs, outputs)
    known = [spec.name for spec in found.inputs if spec.shape and not spec.optional]
    if unknown := [name for name in append if name not in known]:
        raise StateError(f"{unknown[0]!r} can't be appended to; inputs that can be are {', '.join(known)}")
    return dataclasses.replace(found, appended=tuple(append))


def _found_states(
    state: str | Sequence[Mapping[str, Any]], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> States:
    if state == AUTO:
        found = find_states(inputs, outputs)
        if not found.pairs:
            listed = ", ".join(spec.name for spec in inputs), ", ".join(spec.name for spec in outputs)
            raise StateError(f"auto finds no pair among the inputs {listed[0]} and outputs {listed[1]}; list the pairs")
        return found
    if isinstance(state, str):
        raise StateError(f"should be auto or a list of pairs, not {state!r}")
    try:
        kinds = {spec.name: spec.dtype.numpy() for spec in inputs if spec.dtype is not None}
        return given_states([_source(pair, kinds) for pair in state], inputs, outputs)
    except ValueError as error:
        raise StateError(str(error)) from None


def _source(pair: Mapping[str, Any], kinds: Mapping[str, np.dtype]) -> StateSource:
    for key in pair:
        if key not in KEYS:
            raise StateError(f"a pair has no key {key!r}; it has {', '.join(KEYS)}")
    for key in KEYS[:2]:
        if not isinstance(pair.get(key), str):
            raise StateError(f"a pair should have {key!r}, the name of an {key} of the model")
    initial, shape = pair.get("initial", ZEROS), pair.get("shape")
    given = None if shape is None else tuple(shape)
    array = None if initial == ZEROS else _initial(pathlib.Path(initial), pair["input"], given, kinds)
    return StateSource(input=pair["input"], output=pair["output"], initial=array, shape=given)


def _initial(path: pathlib.Path, name: str, shape: tuple[int, ...] | None, kinds: Mapping[str, np.dtype]) -> np.ndarray:
    """Read a first value: an array of an .npz file, or the bytes of its elements in any other."""
    if path.suffix != ".npz" and shape is not None and name in kinds:
        try:
            return np.frombuffer(read_regular(path), kinds[name]).reshape(shape)
        except (OSError, ValueError) as error:
            raise StateError(
                f"{path} doesn't hold {name!r} in shape {list(shape)} ({error}); write its bytes"
            ) from None
    arrays = load_samples(path)
    if name not in arrays:
        raise StateError(f"{path} has no array {name!r}; write it with numpy.savez")
    return arrays[name]


def state_of_run(states: States, feeds: Mapping[str, Any], state: State | None) -> State:
    """Return the state that a run begins with, after ``state`` or as a first one, with what it appends.

    Raises:
        InvalidInputError: That doesn't fit what earlier runs were given.
    """
    state = states.first(feeds) if state is None else state
    if not states.appended:
        return state
    return {**state, **{name: _joined(name, state[name], feeds[name]) for name in states.appended}}


def _joined(name: str, before: np.ndarray, given: np.ndarray) -> np.ndarray:
    if before.shape[:-1] != given.shape[:-1]:
        raise InvalidInputError(
            f"Input {name!r} has shape {list(given.shape)}, and earlier requests gave {list(before.shape)} together: "
            "only the last size may differ. Send as many rows as before, or begin another sequence."
        )
    return np.concatenate((before, given), -1)


class ModelSequence:
    """Runs of one model in order, each of which begins with the state that the one before has left.

    One at a time: several threads need a sequence each. A run that fails leaves the state of before.

    Attributes:
        states: The state that it keeps.
    """

    def __init__(self, step: Step, states: States, outputs: Sequence[TensorSpec]) -> None:
        """Begin.

        Args:
            step: Runs the model.
            states: Of the model.
            outputs: All that may be asked for.
        """
        self.states = states
        self._step = step
        self._signature = Signature(states.inputs, tuple(outputs))
        self._default = [spec.name for spec in states.outputs]
        self._state: State | None = None

    def run(
        self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None, times: list[StageTime] | None = None
    ) -> dict[str, Any]:
        """Run once.

        Args:
            feeds: An array for each input that has no default and is no state.
            outputs: Names of the outputs to return, state too; None returns all that are no state.
            times: As of ``Executable.run``.

        Raises:
            InvalidInputError: The inputs do not fit the model.
            ExecutionError: The run failed.
        """
        checked = self._signature.check(feeds, outputs)
        state = state_of_run(self.states, checked, self._state)
        results = self._step({**checked, **state}, self._default if outputs is None else outputs, times)
        self._state = {name: results.pop(name) for name in state}
        return results

    def reset(self) -> None:
        """Begin anew: the next run has the first state."""
        self._state = None
