"""Folders of models of text, served as they are by real servers."""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import pytest
import tritonclient.grpc as triton

from tests.serving.conftest import Eventually, Running, Starter, given
from tests.workshop.text_models import save_encoder, save_folder, token_vectors, write_json
from trtnode.serving.cli.program import main

POOLING = {
    "modules.json": [
        {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ],
    "1_Pooling/config.json": {"pooling_mode_cls_token": True},
}
ENTRY = "- {name: m, path: folder, engine: native, watch: true}\n"


def vectors(running: Running, *texts: str) -> np.ndarray:
    result = running.client.infer("m", [given("text", np.array(texts, object))])
    array: np.ndarray = result.as_numpy("sentence_embedding")
    return array


def test_a_folder_is_a_server_and_follows_its_files(
    start: Starter, tmp_path: pathlib.Path, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "trtnode.serving.models")
    save_folder(tmp_path / "folder", {**POOLING, "sentence_bert_config.json": {"max_seq_length": 30}})
    running = start(ENTRY)
    expected = token_vectors([1, 13, 2])

    np.testing.assert_allclose(vectors(running, "dog", "the red fox")[0], expected[0], rtol=1e-4)
    assert sum("assumed: nothing" in record.message for record in caplog.records) == 1
    assert any("padded to [8, 12, 16, 20, 24, 28, 30]" in record.message for record in caplog.records)
    write_json(tmp_path / "folder", {"1_Pooling/config.json": {"pooling_mode": "lasttoken"}})
    eventually(lambda: bool(np.allclose(vectors(running, "dog")[0], expected[-1], rtol=1e-4)))


def test_a_changed_folder_at_fault_leaves_the_version_that_serves(
    start: Starter, tmp_path: pathlib.Path, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    save_folder(tmp_path / "folder", POOLING)
    running = start(ENTRY)

    write_json(tmp_path / "folder", {"1_Pooling/config.json": {"pooling_mode": "median"}})
    eventually(lambda: any("pooling_mode[0]: should be" in record.message for record in caplog.records))

    np.testing.assert_allclose(vectors(running, "dog")[0], token_vectors([1, 13, 2])[0], rtol=1e-4)


def test_labels_name_the_classes_of_an_answer(start: Starter, tmp_path: pathlib.Path) -> None:
    config = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "good", "1": "bad"}}
    save_folder(tmp_path / "folder", {"config.json": config}, {"logits": "scores"})
    save_encoder(tmp_path / "folder" / "onnx" / "model.onnx", {"logits": "scores"}, classes=2)
    running = start(ENTRY)

    asked = [triton.InferRequestedOutput("logits", class_count=1)]
    result = running.client.infer("m", [given("text", np.array(["dog"], object))], outputs=asked)

    assert result.as_numpy("logits")[0, 0].decode().endswith(":0:good")


def test_python_of_a_folder_never_runs(start: Starter, tmp_path: pathlib.Path) -> None:
    mark = tmp_path / "ran"
    config = {"model_type": "custom", "auto_map": {"AutoModel": "modeling_custom.Model"}}
    save_folder(tmp_path / "folder", {**POOLING, "config.json": config})
    for name in ("modeling_custom.py", "__init__.py", "conftest.py", "sitecustomize.py"):
        (tmp_path / "folder" / name).write_text(f"open({str(mark)!r}, 'w')")

    running = start(ENTRY)

    np.testing.assert_allclose(vectors(running, "dog")[0], token_vectors([1, 13, 2])[0], rtol=1e-4)
    assert not mark.exists()
    assert "modeling_custom" not in sys.modules


def test_the_command_refuses_a_folder_in_one_sentence(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "folder"
    save_folder(folder, {**POOLING, "1_Pooling/config.json": {"pooling_mode": "median"}})

    code = main(["serve", str(folder)])

    assert code == 2
    expected = "1_Pooling/config.json: pooling_mode[0]: should be 'cls', 'max', 'mean', 'mean_sqrt_len_tokens'"
    assert expected in capsys.readouterr().err


def test_texts_calibrate_a_folder_once(
    start: Starter, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_folder(tmp_path / "folder", POOLING)
    (tmp_path / "texts.txt").write_text("\n".join(f"the {word} dog runs" for word in ("red", "green", "blue")))
    calibration = "calibration: {data: texts.txt, allow_few_samples: true}"
    keys = "engine: openvino, measure: false, warmup: 0, lengths: null, batching: null"
    entry = f"- {{name: m, path: folder, precision: int8, {calibration}, {keys}}}\n"

    for _ in range(2):
        caplog.set_level("INFO", "trtnode.engines")
        running = start(entry, cache="{dir: cache}")

    assert vectors(running, "dog").shape == (1, 4)
    assert sum("Calibrating" in record.message for record in caplog.records) == 1
