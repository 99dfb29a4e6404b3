"""Models whose operators are in libraries, behind a real server; a library that is broken costs its model alone."""

from __future__ import annotations

import pathlib

import numpy as np
import onnx
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from operator_libraries import DOMAIN, SCALE, broken_libraries, compile_library
from tests.serving.conftest import Eventually, Running, Starter

TEXT = f"""<ir_version: 10, opset_import: ["": 21{DOMAIN}]>
    g (float[4] x) => (float[4] y) {{ a = Exp(x) b = test.operators.Scale(a) y = Neg(b) }}"""
X = np.linspace(-1, 1, 4, dtype=np.float32)


@pytest.fixture
def library(tmp_path: pathlib.Path) -> pathlib.Path:
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "scaled.onnx")
    return compile_library(tmp_path / "scale.so", SCALE)


def ask(running: Running, model: str) -> np.ndarray:
    given = triton.InferInput("x", X.shape, "FP32")
    given.set_data_from_numpy(X)
    return np.asarray(running.client.infer(model, [given]).as_numpy("y"))


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("place", ["server", "model"])
def test_a_model_answers_with_operators_of_a_library(place: str, start: Starter) -> None:
    named = "custom_op_libraries: [scale.so]"
    mine, servers = (named, "") if place == "model" else ("warmup: 1", named)

    running = start(f"- {{name: scaled, path: scaled.onnx, {mine}}}", server=servers)

    np.testing.assert_allclose(ask(running, "scaled"), -2 * np.exp(X), rtol=1e-4)


@pytest.mark.usefixtures("library")
def test_a_broken_library_costs_its_own_model_alone(
    start: Starter, tmp_path: pathlib.Path, eventually: Eventually
) -> None:
    broken = broken_libraries(tmp_path)
    models = ["- {name: scaled, path: scaled.onnx, custom_op_libraries: [scale.so]}"]
    for number, file in enumerate(broken):
        models.append(f"- {{name: m{number}, path: scaled.onnx, custom_op_libraries: [{file}], required: false}}")
    running = start("\n".join(models))

    def reasons() -> dict[str, str]:
        return {one.name: one.reason for one in running.client.get_model_repository_index().models}

    eventually(lambda: all(reasons()[f"m{number}"] for number in range(len(broken))))

    assert all(problem in reasons()[f"m{number}"] for number, problem in enumerate(broken.values()))
    np.testing.assert_allclose(ask(running, "scaled"), -2 * np.exp(X), rtol=1e-4)


def test_no_request_names_a_library(start: Starter, library: pathlib.Path, tmp_path: pathlib.Path) -> None:
    models = "- {name: scaled, path: scaled.onnx, custom_op_libraries: [scale.so]}"
    running = start(models, server="admin: {repository: true}")

    with pytest.raises(InferenceServerException, match="custom_op_libraries"):
        running.client.load_model("scaled", config=f'{{"custom_op_libraries": ["{library}"]}}')
    content = (tmp_path / "scaled.onnx").read_bytes()
    with pytest.raises(InferenceServerException, match="is not a registered function/op"):
        running.client.load_model("added", config="{}", files={"file:1/model.onnx": content})
