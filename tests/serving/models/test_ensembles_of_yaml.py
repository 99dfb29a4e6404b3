"""Ensembles of a servable.yaml: members with pipelines, and what is refused with its line."""

from __future__ import annotations

import pathlib

import numpy as np
import onnx
import pytest

from tests.serving.conftest import Starter, given
from trtnode.serving.config.load import load_config
from trtnode.serving.errors import ConfigError

NEGATE = '<ir_version: 10, opset_import: ["": 18]> g (float[N, 4] x) => (float[N, 4] y) { y = Neg(x) }'
MEMBERS = """
- {name: a, path: a.onnx, engine: native}
- name: b
  path: a.onnx
  engine: native
  preprocess: [{input: {type: int32, shape: [-1, 4]}}, {cast: float32}]
- {name: later, path: later.onnx, required: false, engine: native}
"""
X = np.array([[1, -2, 3, 4]], np.int32)


@pytest.fixture(autouse=True)
def member(tmp_path: pathlib.Path) -> None:
    onnx.save(onnx.parser.parse_model(NEGATE), tmp_path / "a.onnx")


def ensemble(steps: str, more: str = "") -> str:
    return f"{MEMBERS}- name: e\n  engine: native\n  ensemble:\n{steps}{more}"


CHAIN = (
    "  - {model: b, inputs: {x: in}, outputs: {y: middle}}\n  - {model: a, inputs: {x: middle}, outputs: {y: out}}\n"
)


def test_steps_may_have_pipelines_and_be_batched(start: Starter) -> None:
    client = start(ensemble(CHAIN, "  batching: {max_batch_size: 4}\n")).client

    answer = client.infer("e", [given("in", X)]).as_numpy("out")

    assert answer.tolist() == X.tolist()
    config = client.get_model_config("e").config
    assert (config.platform, config.max_batch_size) == ("ensemble", 4)
    assert [step.model_name for step in config.ensemble_scheduling.step] == ["b", "a"]
    assert client.infer("b", [given("x", X)]).as_numpy("y").tolist() == (-X).tolist()


REFUSED = [
    ("  - {model: c, inputs: {x: in}}\n", ":11: models[3].ensemble[0].model: there is no model 'c' here; add it, or"),
    (
        "  - {model: e, inputs: {x: in}}\n",
        ":11: models[3].ensemble[0].model: 'e' is, or contains, an ensemble that contains itself; take it out",
    ),
    (
        "  - {model: a, version: 2, inputs: {x: in}}\n",
        ":11: models[3].ensemble[0].version: 'a' has no such version to serve; it has 1",
    ),
    (
        "  - {model: later, inputs: {x: in}}\n",
        ":11: models[3].ensemble[0].version: 'later' has no such version to serve; it has none",
    ),
    (
        "  - {model: a, inputs: {x: in}, outputs: {y: m}}\n  - model: b\n    inputs:\n      x: m\n",
        ":14: models[3].ensemble[1].inputs.x: takes int32[b/N, 4], and 'm' is float32[a/N, 4]; export one of the",
    ),
    (
        "  - {model: a, inputs: {x: in}, outputs: {y: m}}\n  preprocess: [{cast: float32}]\n",
        ":12: models[3].preprocess: is nothing that an ensemble has; give it to one of its models, or leave",
    ),
    ("  - {model: a, inputs: {x: in}}\n", ":10: models[3].ensemble: gives nothing; name an output of a step that no"),
    (
        "  - {model: a, inputs: {x: in}, outputs: {y: y}}\n  versions: [3]\n",
        ":12: models[3].versions: has none of them; an ensemble without version folders has 1",
    ),
    ("  - {model: a, input: {x: in}}\n", ":11: models[3].ensemble[0].input: unknown key; did you mean 'inputs'?"),
    ("  - {inputs: {x: in}}\n", ":11: models[3].ensemble[0].model: is missing; add it"),
]


@pytest.mark.parametrize(("steps", "sentence"), REFUSED)
def test_a_step_that_cannot_be_is_refused_with_its_line(tmp_path: pathlib.Path, steps: str, sentence: str) -> None:
    (tmp_path / "servable.yaml").write_text(f"models:\n{ensemble(steps).lstrip()}")

    with pytest.raises(ConfigError) as refused:
        load_config(tmp_path / "servable.yaml")

    assert f"servable.yaml{sentence}" in str(refused.value)


@pytest.mark.parametrize("stage", ["decode: {}", "tiles: {size: [32, 32]}", "tokenize: {file: tokenizer.json}"])
def test_a_model_with_a_stage_outside_of_its_graph_is_no_step(tmp_path: pathlib.Path, stage: str) -> None:
    step = "- name: e\n  ensemble: [{model: images, inputs: {image: in}}]\n"
    images = f"- {{name: images, path: a.onnx, preprocess: [{{{stage}}}]}}\n"
    (tmp_path / "servable.yaml").write_text(f"models:{MEMBERS}{images}{step}")

    with pytest.raises(ConfigError, match="'images' is more than a graph: variants, state, tiles, a decoder, texts"):
        load_config(tmp_path / "servable.yaml")
