"""Commands and servers take files of texts where they take samples of arrays."""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
from typing import Any

import numpy as np
import pytest

from tests.workshop.text_models import save_encoder, save_folder, save_tokenizer, token_vectors
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.precision.options import Calibration
from trtnode.serving.cli.program import main
from trtnode.serving.errors import TextModelError
from trtnode.serving.models.version_files import find_files
from trtnode.serving.schema.model import ModelConfig
from trtnode.serving.text.samples import read_texts, tokenized_arguments, with_arrays
from trtnode.serving.text.sentence_folder import as_folder_says

PROMPTS = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}


@pytest.fixture
def model(tmp_path: pathlib.Path) -> pathlib.Path:
    """The ONNX file of a folder with a default prompt."""
    save_folder(tmp_path / "folder", {"config_sentence_transformers.json": PROMPTS})
    return tmp_path / "folder" / "onnx" / "model.onnx"


def write(path: pathlib.Path, text: str) -> pathlib.Path:
    path.write_text(text)
    return path


def test_run_takes_texts_as_one_batch(model: pathlib.Path, tmp_path: pathlib.Path) -> None:
    texts = write(tmp_path / "texts.txt", "dog\n\nthe red fox\r\n")

    code = main(["run", str(model), "--inputs", str(texts), "--outputs", str(tmp_path / "out.npz"), "--native"])

    assert code == 0
    with np.load(tmp_path / "out.npz") as archive:
        hidden = archive["last_hidden_state"]
    assert hidden.shape == (2, 7, 4)
    np.testing.assert_allclose(hidden[0, :5], token_vectors([1, 4, 5, 13, 2]), rtol=1e-5)


def test_calibrate_takes_a_sample_a_text(model: pathlib.Path, tmp_path: pathlib.Path) -> None:
    texts = write(tmp_path / "texts.jsonl", '"dog"\n{"text": "the red fox"}\n"a"\n')
    ranges = tmp_path / "ranges.json"

    assert main(["calibrate", str(model), "--data", str(texts), "-o", str(ranges)]) == 0

    assert json.loads(ranges.read_text())["samples"] == 3


def test_a_tokenizer_beside_the_file_is_enough(tmp_path: pathlib.Path) -> None:
    save_encoder(tmp_path / "m.onnx", {"y": "mean"}, more_inputs=["token_type_ids"])
    texts = write(tmp_path / "pairs.jsonl", '{"query": "dog", "document": "the red fox"}\n["a", "b"]\n')
    arguments = argparse.Namespace(model=tmp_path / "m.onnx", inputs=texts, calibration=str(texts))

    with pytest.raises(TextModelError, match=r"tokenizer\.json: there is no such file; put that of"):
        tokenized_arguments(arguments).__enter__()
    save_tokenizer(tmp_path / "tokenizer.json")
    with tokenized_arguments(arguments), np.load(arguments.inputs) as archive:
        ids, types = archive["input_ids"], archive["token_type_ids"]
        assert len(list(pathlib.Path(arguments.calibration).iterdir())) == 2

    assert ids.tolist() == [[1, 13, 2, 7, 9, 12, 2], [1, 8, 2, 3, 2, 0, 0]]
    assert types.tolist() == [[0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 0, 0]]


def test_a_folder_is_asked_for_its_file(model: pathlib.Path, tmp_path: pathlib.Path) -> None:
    texts = write(tmp_path / "texts.txt", "dog\n")

    with pytest.raises(TextModelError, match=r"folder: it is a folder; name its \.onnx file for samples of text"):
        tokenized_arguments(argparse.Namespace(model=model.parent.parent, inputs=texts)).__enter__()


def test_models_on_a_server_get_the_texts_themselves(tmp_path: pathlib.Path) -> None:
    arguments = argparse.Namespace(model="m", inputs=write(tmp_path / "texts.txt", "dog\ncafé\n"))

    with tokenized_arguments(arguments), np.load(arguments.inputs) as archive:
        assert archive["text"].tolist() == ["dog", "café"]


def test_a_server_calibrates_on_texts_with_its_own_stages(model: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (file,) = find_files(config := ModelConfig(name="m", path=model.parent.parent)).values()
    whole, _ = as_folder_says(file.configured(config))
    texts = write(tmp_path / "texts.txt", "dog\nthe red fox\n")
    options = CompileOptions(calibration=Calibration(data=str(texts)), check_inputs=texts)

    made = with_arrays(whole, model, options, tmp_path)

    files = sorted(pathlib.Path(str(made.calibration.data)).iterdir())
    with np.load(files[1]) as archive:
        assert archive["input_ids"].tolist() == [[1, 4, 5, 7, 9, 12, 2]]
    with np.load(made.check_inputs or "") as archive:
        assert archive["input_ids"].shape == (2, 7)
    with pytest.raises(TextModelError, match=r"it has texts, and the model takes none; add tokenize to preprocess"):
        with_arrays(config, model, dataclasses.replace(options, check_inputs=None), tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.txt", b" \n\n", "it has no texts; write one a line"),
        ("a.txt", b"\xff", "it is not UTF-8; save the file as UTF-8"),
        ("a.jsonl", b'"a"\n\n{"body": 1}', "line 3 is none of "),
        ("a.jsonl", b"[" * 100_000, "line 1 is none of "),
        ("a.jsonl", b'"a"\n["a", "b"]', "it has texts and pairs; write one kind"),
    ],
)
def test_files_that_are_no_texts_are_refused(tmp_path: pathlib.Path, name: str, content: Any, problem: str) -> None:
    (tmp_path / name).write_bytes(content)

    with pytest.raises(TextModelError, match=problem):
        read_texts(tmp_path / name)
