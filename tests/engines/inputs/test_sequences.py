"""Runs that hand their state on, natively and in engines: step by step, they answer as one long run."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from model_texts import parse
from stateful_models import COUNTER, MASKED, VOCABULARY, WIDTH, cached_decoder, recurrent
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import InvalidInputError, StateError
from trtnode.engines.inputs.sequences import ModelSequence, read_states
from workshop import Workshop

ENGINES = ["native", "openvino"]


def sequence_of(
    workshop: Workshop,
    model: onnx.ModelProto,
    engine: str,
    state: Any = "auto",
    append: Sequence[str] = (),
    **options: Any,
) -> ModelSequence:
    path = workshop.write(model)
    if engine != "native":
        path = workshop.compile_file(path, all_engines=True, **options)
    executable = open_model(path)
    executable.keep(read_states(state, executable.inputs, executable.outputs, append))
    assert bool(executable.facts.segments) == (engine != "native")
    return executable.sequence()


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("engine", ENGINES)
def test_steps_of_a_recurrent_model_equal_one_run(workshop: Workshop, kind: str, engine: str) -> None:
    sequence = sequence_of(workshop, recurrent(kind), engine)
    x = np.random.default_rng(1).standard_normal((6, 2, WIDTH)).astype(np.float32)

    whole = sequence.run({"x": x})["y"]
    sequence.reset()
    steps = [sequence.run({"x": x[[index]]})["y"] for index in range(6)]

    np.testing.assert_allclose(np.concatenate(steps), whole, atol=1e-5)


@pytest.mark.parametrize(
    ("engine", "options"),
    [
        pytest.param("native", {}, id="native"),
        pytest.param("openvino", {}, id="engine"),
        pytest.param("openvino", {"native_ops": ["Softmax"]}, id="engines-and-native-stages"),
        pytest.param("openvino", {"native_ops": ["Concat"]}, id="caches-native"),
    ],
)
def test_steps_of_a_decoder_equal_one_run(workshop: Workshop, engine: str, options: dict[str, Any]) -> None:
    layers = 12 if engine == "native" else 2
    sequence = sequence_of(workshop, cached_decoder(layers), engine, **options)
    ids = np.random.default_rng(1).integers(0, VOCABULARY, (2, 7))

    whole = sequence.run({"input_ids": ids})["logits"]
    sequence.reset()
    steps = [sequence.run({"input_ids": part})["logits"] for part in np.split(ids, [3, 4, 5, 6], axis=1)]

    assert len(sequence.states.pairs) == 2 * layers
    np.testing.assert_allclose(np.concatenate(steps, axis=1), whole, atol=1e-3)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_mask_of_each_run_is_appended_to_those_before(workshop: Workshop, engine: str) -> None:
    pair = {"input": "past", "output": "present"}
    sequence = sequence_of(workshop, parse(MASKED), engine, [pair], append=["attention_mask"])
    x, mask = np.arange(10, dtype=np.float32).reshape(2, 5), np.array([[1, 0, 1, 1, 1], [0, 0, 1, 1, 0]])

    parts = zip(np.split(x, [3, 4], axis=1), np.split(mask, [3, 4], axis=1), strict=True)
    sums = [sequence.run({"x": part, "attention_mask": own})["sum"] for part, own in parts]

    np.testing.assert_array_equal(np.concatenate(sums, axis=1), [[2, 5, 9], [7, 15, 15]])
    with pytest.raises(InvalidInputError, match=r"'attention_mask' has shape .* only the last size may differ"):
        sequence.run({"x": x[:1], "attention_mask": mask[:1]})


def test_state_is_nothing_to_append_to(workshop: Workshop) -> None:
    with pytest.raises(StateError, match="'state' can't be appended to; inputs that can be are x"):
        sequence_of(workshop, parse(COUNTER), "native", append=["state"])


def test_a_failed_run_leaves_the_state_of_before(workshop: Workshop) -> None:
    sequence = sequence_of(workshop, parse(COUNTER), "native")
    sequence.run({"x": np.array([[2]], np.float32)})

    with pytest.raises(InvalidInputError, match="Input 'x' must be"):
        sequence.run({"x": np.zeros((1, 2), np.float32)})

    assert sequence.run({"x": np.array([[3]], np.float32)})["sum"] == 5


def test_state_may_be_asked_for_and_belongs_to_the_caller(workshop: Workshop) -> None:
    sequence = sequence_of(workshop, parse(COUNTER), "native")

    given = sequence.run({"x": np.array([[2]], np.float32)}, ["stateN"])["stateN"]
    given[:] = 100

    assert sequence.run({"x": np.array([[3]], np.float32)}, ["sum"])["sum"] == 5


def test_a_sequence_begins_with_what_a_file_has(workshop: Workshop, tmp_path: pathlib.Path) -> None:
    np.savez(tmp_path / "first.npz", state=np.array([[40]], np.float32))
    pair = {"input": "state", "output": "stateN", "initial": tmp_path / "first.npz"}
    sequence = sequence_of(workshop, parse(COUNTER), "native", [pair])

    assert sequence.run({"x": np.array([[2]], np.float32)})["sum"] == 42


def test_without_state_there_is_no_sequence(workshop: Workshop) -> None:
    with pytest.raises(StateError, match="load it with state='auto'"):
        open_model(workshop.write(parse(COUNTER))).sequence()


@pytest.mark.parametrize(
    ("state", "message"),
    [
        pytest.param("always", "state: should be auto or a list of pairs, not 'always'.", id="text"),
        pytest.param([{"input": "state"}], "should have 'output', the name of an output of the model", id="no-output"),
        pytest.param([{"input": "s", "output": "stateN"}], "there is no input 's'; the model has x, state", id="input"),
        pytest.param([{"input": "state", "output": "n"}], "there is no output 'n'; the model has sum", id="output"),
        pytest.param(
            [{"input": "state", "output": "stateN", "shape": [1, 3]}],
            r"the first value of 'state' has shape \[1, 3\], but it is float32\[batch, 1\]",
            id="shape",
        ),
        pytest.param([{"input": "state", "output": "stateN", "init": 0}], "a pair has no key 'init'", id="key"),
        pytest.param([{"input": "state", "output": "stateN", "initial": "no.npz"}], "there is no such file", id="file"),
        pytest.param([{"input": "state", "output": "stateN"}] * 2, "stand in one pair only", id="twice"),
    ],
)
def test_state_that_does_not_fit_is_refused(workshop: Workshop, state: Any, message: str) -> None:
    executable = open_model(workshop.write(parse(COUNTER)))

    with pytest.raises(Exception, match=message):
        read_states(state, executable.inputs, executable.outputs)
