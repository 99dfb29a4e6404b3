"""Files that version 0.1.0 compiled. They load for ever, and give the answers that they gave."""

from __future__ import annotations

import pathlib

import numpy as np
import onnxruntime
import pytest

from trtnode.engines.artifact.trust import Trust
from trtnode.engines.compile.opening import open_model
from trtnode.engines.runtime.options import RunOptions

FILES = pathlib.Path(__file__).parents[2] / "fixtures" / "0.1.0"


@pytest.fixture
def answers() -> dict[str, np.ndarray]:
    with np.load(FILES / "answers.npz") as arrays:
        return dict(arrays)


@pytest.mark.parametrize("trust", [None, Trust()], ids=["unchecked", "trusted-by-default"])
def test_a_compiled_file_answers_as_it_did(answers: dict[str, np.ndarray], trust: Trust | None) -> None:
    executable = open_model(FILES / "compiled.onnx", run=RunOptions(trust=trust))

    np.testing.assert_allclose(executable.run({"x": answers["x"]})["y"], answers["y"], rtol=1e-5)
    assert executable.facts.native_nodes >= 1


def test_a_compiled_file_runs_in_plain_onnxruntime(answers: dict[str, np.ndarray]) -> None:
    session = onnxruntime.InferenceSession(FILES / "compiled.onnx", providers=["CPUExecutionProvider"])

    (result,) = session.run(None, {"x": answers["x"]})

    np.testing.assert_allclose(result, answers["y"], rtol=1e-5)


def test_engines_in_a_branch_give_way_to_the_nodes_that_they_replaced(caplog: pytest.LogCaptureFixture) -> None:
    path = FILES / "engines_in_a_branch.onnx"
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    feeds = {
        "c": np.array(True),
        "s": 2 * np.eye(4, dtype=np.float32),
        "x": rng.standard_normal((256, 1024), dtype=np.float32),
        "k": rng.standard_normal(1024, dtype=np.float32),
    }

    executable = open_model(path)

    np.testing.assert_allclose(executable.run(feeds)["y"], session.run(None, feeds)[0], rtol=1e-5)
    assert executable.facts.segments == 0
    assert "engines in subgraphs of control flow are not used" in caplog.text
