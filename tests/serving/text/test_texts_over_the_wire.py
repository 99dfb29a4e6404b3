"""Texts over both ports of a real server."""

from __future__ import annotations

import json
import pathlib
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.serving.conftest import Running, Starter, given, refusal
from tests.workshop.text_models import TABLE, save_encoder, save_tokenizer

ENTRY = """- name: m
  path: model.onnx
  engine: native
  batching: {max_batch_size: 8}
  preprocess:
    - tokenize: {file: tokenizer.json, max_length: 6}
"""


@pytest.fixture
def serve(tmp_path: pathlib.Path, start: Starter) -> Callable[[str], Running]:
    """Start a server of a model of text, with more keys."""

    def started(keys: str = "") -> Running:
        save_tokenizer(tmp_path / "tokenizer.json")
        save_encoder(tmp_path / "model.onnx", {"vectors": "mean"}, more_inputs=["token_type_ids"])
        return start(ENTRY + keys)

    return started


def vectors(running: Running, *texts: str | bytes) -> np.ndarray:
    array: np.ndarray = running.client.infer("m", [given("text", np.array(texts, object))]).as_numpy("vectors")
    return array


def test_texts_come_in_and_vectors_go_out(serve: Callable[[str], Running]) -> None:
    running = serve("")

    found = vectors(running, "the red fox", "dog")

    expected = [TABLE[[1, 7, 9, 12, 2]].mean(0), TABLE[[1, 13, 2]].mean(0)]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    metadata = running.client.get_model_metadata("m")
    assert [(t.name, t.datatype, list(t.shape)) for t in metadata.inputs] == [("text", "BYTES", [-1])]


def test_texts_of_many_requests_share_batches(serve: Callable[[str], Running]) -> None:
    running = serve("  lengths: auto\n")
    texts = ["fox", "the red fox", "a dog runs", "blue"]
    alone = {text: vectors(running, text)[0] for text in texts}

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: vectors(running, texts[n % 4])[0], range(32)))

    np.testing.assert_allclose(found, [alone[texts[n % 4]] for n in range(32)], rtol=1e-5, atol=1e-6)


def test_the_default_prompt_stands_before_each_text(serve: Callable[[str], Running]) -> None:
    running = serve('  text: {prompts: {query: "query: "}, default_prompt: query}\n')

    np.testing.assert_allclose(vectors(running, "fox")[0], TABLE[[1, 4, 5, 12, 2]].mean(0), rtol=1e-5, atol=1e-6)


def test_texts_come_as_json_too(serve: Callable[[str], Running]) -> None:
    running = serve("")
    text = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["the red fox"]}
    request = urllib.request.Request(f"{running.http}/v2/models/m/infer", json.dumps({"inputs": [text]}).encode())

    with urllib.request.urlopen(request) as answer:
        (output,) = json.loads(answer.read())["outputs"]

    np.testing.assert_allclose(output["data"], vectors(running, "the red fox")[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "problem"),
    [(b"", "text 0 is empty; send at least one character"), (b"\xff", "has an element that is not UTF-8 text")],
)
def test_a_text_at_fault_is_the_clients_mistake(serve: Callable[[str], Running], text: bytes, problem: str) -> None:
    running = serve("")

    code, message = refusal(lambda: vectors(running, text))

    assert code == "INVALID_ARGUMENT"
    assert message.startswith("input 'text' of model 'm'")
    assert message.endswith(problem)
