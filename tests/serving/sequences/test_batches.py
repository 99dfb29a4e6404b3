"""Requests of several sequences in one execution."""

from __future__ import annotations

import functools
import pathlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
import tritonclient.grpc as triton

from model_texts import parse
from stateful_models import WIDTH, recurrent
from tests.serving.conftest import Running, Starter, given
from trtnode.engines.compile.opening import open_model
from trtnode.engines.inputs.sequences import read_states

SEQUENCES, STEPS = 8, 4

BATCHING = "batching: {max_batch_size: 8, max_queue_delay_us: 2000}, warmup: 0"

ROWS_FIRST = """g (float[batch,3] x, float[2,batch,3] state) => (float[batch,3] y, float[2,batch,3] state_out)
<int64 one = {1}, int64 zero = {0}, int64[1] axes = {0}, float[1] scale = {0.5}> {
    first = Gather<axis = 0>(state, zero)
    second = Gather<axis = 0>(state, one)
    sum = Add(x, first)
    y = Add(sum, second)
    half = Mul(y, scale)
    row = Unsqueeze(half, axes)
    other = Unsqueeze(x, axes)
    state_out = Concat<axis = 0>(row, other)
}"""
"""A recurrent model whose state has the batch in its second axis."""


def serve(start: Starter, folder: pathlib.Path, model: onnx.ModelProto, options: str = BATCHING) -> Running:
    onnx.save(model, folder / "model.onnx")
    return start(f"- {{name: m, path: {folder}/model.onnx, engine: native, state: auto, {options}}}\n")


def step(running: Running, index: int, identity: int, x: np.ndarray) -> np.ndarray:
    with triton.InferenceServerClient(running.address) as client:
        options = {"sequence_start": not index, "sequence_end": index == STEPS - 1}
        return client.infer("m", [given("x", x)], sequence_id=identity, **options).as_numpy("y")


def run_all(running: Running, inputs: np.ndarray) -> np.ndarray:
    """Run the steps of all sequences, in each step all at once."""
    with ThreadPoolExecutor(SEQUENCES) as threads:
        steps = [
            list(threads.map(functools.partial(step, running, index), range(1, SEQUENCES + 1), inputs[:, index]))
            for index in range(STEPS)
        ]
    return np.swapaxes(np.array(steps), 0, 1)


def alone(path: pathlib.Path, inputs: np.ndarray) -> np.ndarray:
    executable = open_model(path)
    executable.keep(read_states("auto", executable.inputs, executable.outputs))
    sequences = [executable.sequence() for _ in range(SEQUENCES)]
    return np.array([[one.run({"x": x})["y"] for x in row] for one, row in zip(sequences, inputs, strict=True)])


def test_sequences_share_executions_and_keep_their_own_rows(start: Starter, tmp_path: pathlib.Path) -> None:
    running = serve(start, tmp_path, parse(ROWS_FIRST))
    inputs = np.random.default_rng(1).standard_normal((SEQUENCES, STEPS, 1, 3)).astype(np.float32)

    answers = run_all(running, inputs)

    np.testing.assert_allclose(answers, alone(tmp_path / "model.onnx", inputs), rtol=1e-5)
    statistics = running.client.get_inference_statistics("m").model_stats[0]
    assert statistics.inference_count == SEQUENCES * STEPS
    assert statistics.execution_count < SEQUENCES * STEPS


def test_rows_that_do_not_stand_in_axis_0_run_one_by_one(
    start: Starter, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    running = serve(start, tmp_path, recurrent("LSTM"))
    inputs = np.random.default_rng(1).standard_normal((SEQUENCES, STEPS, 1, 1, WIDTH)).astype(np.float32)

    answers = run_all(running, inputs)

    np.testing.assert_allclose(answers, alone(tmp_path / "model.onnx", inputs), rtol=1e-5)
    assert "requests run one by one, without batching" in caplog.text
