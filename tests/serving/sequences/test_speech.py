"""Networks of the kind of Silero VAD and DTLN: frame by frame, each stream gets what one run over all of it gives."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import hypothesis
import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import strategies as st

import trtnode
from speech_models import BINS, FRAME, RATES, UNITS, in_one_run, noise_filter, noise_mask, voice_detector
from tests.serving.conftest import Starter, given
from trtnode.engines.runtime.executor import Executable

STREAMS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Network:
    """A model, and its names: of the input that takes frames, of the state in and out, of the answer."""

    model: Callable[[], onnx.ModelProto]
    frames: str
    state: tuple[str, str]
    answer: str
    frame: tuple[int, ...]
    first: tuple[int, ...]
    same: Sequence[Mapping[str, np.ndarray]] = ({},) * STREAMS

    @property
    def pair(self) -> dict[str, str]:
        return dict(zip(("input", "output"), self.state, strict=True))

    def sound(self, stream: int, frames: int) -> np.ndarray:
        return np.random.default_rng(stream).standard_normal((frames, *self.frame)).astype(np.float32)

    def in_one_run(self, stream: int, sound: np.ndarray) -> np.ndarray:
        """Return the answers to all frames."""
        whole = in_one_run(self.model(), dict([self.state]), self.frames)
        session = onnxruntime.InferenceSession(whole.SerializeToString(), providers=["CPUExecutionProvider"])
        state = {f"first_{self.state[0]}": np.zeros(self.first, np.float32)}
        return session.run(None, {"frames": sound, **state, **self.same[stream]})[0]


NETWORKS = {
    "silero": Network(
        model=voice_detector,
        frames="input",
        state=("state", "stateN"),
        answer="output",
        frame=(1, FRAME),
        first=(2, 1, UNITS),
        same=[{"sr": np.array(rate)} for rate in (*RATES, RATES[0])],
    ),
    "dtln-1": Network(
        model=noise_mask,
        frames="input_2",
        state=("input_3", "stack_2"),
        answer="activation_2",
        frame=(1, 1, BINS),
        first=(1, 2, UNITS, 2),
    ),
    "dtln-2": Network(
        model=noise_filter,
        frames="input_4",
        state=("input_5", "stack_5"),
        answer="conv1d_3",
        frame=(1, 1, FRAME),
        first=(1, 2, UNITS, 2),
    ),
}
"""Their streams of Silero have different rates."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """A folder of the models, as they are and with engines."""
    folder = tmp_path_factory.mktemp("speech")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        for name, network in NETWORKS.items():
            onnx.save(network.model(), folder / f"{name}.onnx")
            trtnode.compile(folder / f"{name}.onnx", folder / f"{name}-engine.onnx", engine="openvino")
        yield folder


@pytest.fixture(scope="module", params=["{}.onnx", "{}-engine.onnx"], ids=["native", "engine"])
def opened(folder: pathlib.Path, request: pytest.FixtureRequest) -> dict[str, Executable]:
    return {
        name: trtnode.load(folder / request.param.format(name), state=[network.pair])
        for name, network in NETWORKS.items()
    }


@hypothesis.given(turns=st.lists(st.integers(0, STREAMS - 1), min_size=1, max_size=20))
@hypothesis.settings(max_examples=10)
@pytest.mark.parametrize("name", NETWORKS)
def test_frames_of_streams_in_any_order_equal_one_run_each(
    opened: dict[str, Executable], name: str, turns: list[int]
) -> None:
    network, sequences = NETWORKS[name], [opened[name].sequence() for _ in range(STREAMS)]
    sounds = [network.sound(stream, turns.count(stream)) for stream in range(STREAMS)]
    answers: list[list[np.ndarray]] = [[] for _ in range(STREAMS)]

    for stream in turns:
        frame = sounds[stream][len(answers[stream])]
        found = sequences[stream].run({network.frames: frame, **network.same[stream]})
        answers[stream].append(found[network.answer])

    for stream in set(turns):
        expected = network.in_one_run(stream, sounds[stream])
        np.testing.assert_allclose(answers[stream], expected, atol=1e-5)


@hypothesis.given(cuts=st.sets(st.integers(1, 19)))
@hypothesis.settings(max_examples=10)
def test_pieces_of_any_length_equal_one_run_of_the_lstm_over_all(opened: dict[str, Executable], cuts: set[int]) -> None:
    sequence, sound = opened["dtln-1"].sequence(), NETWORKS["dtln-1"].sound(0, 20).reshape(1, 20, BINS)

    whole = sequence.run({"input_2": sound})["activation_2"]
    sequence.reset()
    pieces = [sequence.run({"input_2": part})["activation_2"] for part in np.split(sound, sorted(cuts), axis=1)]

    np.testing.assert_allclose(np.concatenate(pieces, axis=1), whole, atol=1e-5)


def test_auto_finds_the_state_of_silero_in_rows_of_several_streams(folder: pathlib.Path) -> None:
    network = NETWORKS["silero"]
    sounds = np.concatenate([network.sound(stream, 9) for stream in range(STREAMS)], axis=1)
    sequence = trtnode.load(folder / "silero.onnx", state="auto").sequence()

    answers = [sequence.run({"input": frames, **network.same[0]})["output"] for frames in sounds]

    for stream in range(STREAMS):
        expected = network.in_one_run(0, network.sound(stream, 9))[:, 0]
        np.testing.assert_allclose(np.array(answers)[:, stream], expected, atol=1e-5)


def test_streams_over_grpc_equal_one_run_each(folder: pathlib.Path, start: Starter) -> None:
    entries = "".join(
        f"- {{name: {name}, path: {folder}/{name}-engine.onnx, state: [{network.pair}]}}\n"
        for name, network in NETWORKS.items()
    )
    client = start(entries).client

    def answer(name: str, stream: int, step: int, frame: np.ndarray) -> np.ndarray:
        network = NETWORKS[name]
        inputs = [given(*one) for one in {network.frames: frame, **network.same[stream]}.items()]
        options = {"sequence_start": not step, "sequence_end": step == 9}
        return client.infer(name, inputs, sequence_id=stream + 1, **options).as_numpy(network.answer)

    for name, network in NETWORKS.items():
        sounds = np.array([network.sound(stream, 10) for stream in range(STREAMS)])

        answers = [
            [answer(name, stream, step, frame) for stream, frame in enumerate(frames)]
            for step, frames in enumerate(np.swapaxes(sounds, 0, 1))
        ]

        expected = [network.in_one_run(stream, sound) for stream, sound in enumerate(sounds)]
        np.testing.assert_allclose(np.swapaxes(answers, 0, 1), expected, atol=1e-5)
