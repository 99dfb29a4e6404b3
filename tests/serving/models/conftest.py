"""A model with a pipeline, and images for it."""

from __future__ import annotations

import io
import pathlib
import textwrap
from collections.abc import Callable
from typing import Never

import numpy as np
import onnx
import pytest
import tritonclient.grpc as triton
from PIL import Image

from tests.serving.conftest import given

COLOURS = ["red", "green", "blue"]
BRIGHTEST = """<ir_version: 10, opset_import: ["": 18]>
g (float[N, 3, 8, 6] image) => (float[N, 3] logits) <int64[2] axes = {2, 3}> {
    logits = ReduceMean<keepdims = 0>(image, axes)
}"""
"""Mean of each colour."""

PIPELINE = """
  preprocess:
    - decode: {size: [8, 6]}
    - normalize: {mean: [0.5, 0.5, 0.5], std: [0.25, 0.25, 0.25]}
    - layout: nchw
  postprocess:
    - softmax: {}
    - top_k: {k: 2, labels: labels.txt}
"""


@pytest.fixture
def entry(tmp_path: pathlib.Path) -> Callable[[str], str]:
    """Write the model and its labels; return its entry in servable.yaml with more keys, without engines by default."""

    def write(extra: str, model: str = BRIGHTEST, folder: str = "", engine: str = "native") -> str:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        onnx.save(onnx.parser.parse_model(model), tmp_path / folder / "m.onnx")
        (tmp_path / "labels.txt").write_text("\n".join(COLOURS) + "\n")
        path = folder.partition("/")[0] or "m.onnx"
        keys = textwrap.indent(textwrap.dedent(extra).strip(), "  ")
        return f"- name: m\n  path: {path}\n{keys}\n  engine: {engine}\n"

    return write


def encoded(colour: str, size: tuple[int, int] = (40, 30), kind: str = "JPEG") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, colour).save(file, kind)
    return file.getvalue()


def ask(client: triton.InferenceServerClient, *files: bytes) -> triton.InferResult:
    return client.infer("m", [given("image", np.array(files, object))])


def labels(result: triton.InferResult) -> list[str]:
    return [row[0].decode() for row in result.as_numpy("labels")]


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compiled from now on."""

    def refuse(*_: object, **__: object) -> Never:
        raise AssertionError("something is compiled")

    monkeypatch.setattr("trtnode.serving.models.isolation.prepare_model", refuse)
    monkeypatch.setattr("trtnode.serving.models.isolation.SubprocessWorker", refuse)
