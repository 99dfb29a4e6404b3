"""Pipelines and images that can not work, and what the user is told."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
from tritonclient.utils import InferenceServerException

from tests.serving.conftest import Eventually, Starter
from tests.serving.models.conftest import BRIGHTEST, PIPELINE, ask, encoded, labels
from trtnode.serving.config.load import load_config
from trtnode.serving.errors import ConfigError
from trtnode.serving.models import image_decoder
from trtnode.serving.schema.json_schema import config_schema


def fails_with(code: str, call: Callable[[], object]) -> str:
    with pytest.raises(InferenceServerException) as caught:
        call()
    assert caught.value.status() == f"StatusCode.{code}"
    return str(caught.value.message())


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([b"hello"], "image 0 is no JPEG or PNG file"),
        ([encoded("red"), encoded("red", kind="PNG")[:-40]], "image 1 can't be decoded"),
        ([encoded("red", (300, 300))], "the images of the request have 90000 pixels; together they may have 50000"),
    ],
)
def test_bad_images_are_the_clients_fault(
    start: Starter, entry: Callable[[str], str], files: list[bytes], message: str
) -> None:
    text = PIPELINE.replace("size: [8, 6]", "size: [8, 6], max_pixels: 50000")
    client = start(entry(text)).client

    refusal = fails_with("INVALID_ARGUMENT", lambda: ask(client, *files))

    assert refusal.startswith(f"input 'image' of model 'm': {message}")
    assert labels(ask(client, encoded("red"))) == ["red"]


def test_images_of_a_size_that_the_model_does_not_take_are_refused(start: Starter, entry: Callable[[str], str]) -> None:
    client = start(entry(PIPELINE.replace("size: [8, 6]", ""))).client

    assert labels(ask(client, encoded("red", (6, 8)))) == ["red"]
    assert "uint8[N, 8, 6, 3]" in fails_with("INVALID_ARGUMENT", lambda: ask(client, encoded("red", (8, 6))))


def faults(folder: pathlib.Path, models: str) -> str:
    path = folder / "servable.yaml"
    path.write_text(f"models:\n{models}")
    with pytest.raises(ConfigError) as caught:
        load_config(path, {})
    return str(caught.value).replace(f"{folder}/", "")


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        pytest.param("preprocess: [{normalise: {}}]", "preprocess[0].normalise: unknown key; did you mean 'normalize'?",
                     id="unknown-block"),
        pytest.param("preprocess: [{softmax: {}}]",
                     "preprocess[0].softmax: unknown key; known here: tensor, tokenize, decode, input, tiles, resize, "
                     "center_crop, color_order, layout, normalize, cast.", id="block-of-the-other-side"),
        pytest.param("preprocess: [{resize: [8]}]", "preprocess[0].resize[1]: is missing; add it", id="one-size"),
        pytest.param("preprocess: [{resize: [8, 6, 3]}]",
                     "preprocess[0].resize: should have at most 2 values, not 3", id="three-sizes"),
        pytest.param("preprocess: [{resize: [0, 6]}]",
                     "preprocess[0].resize[0]: should be greater than or equal to 1, not 0", id="no-size"),
        pytest.param("preprocess: [{layout: hwcn}]",
                     "preprocess[0].layout: should be 'nchw' or 'nhwc', not \"hwcn\"", id="unknown-layout"),
        pytest.param("preprocess: [{normalize: {std: [0.0]}}]",
                     "preprocess[0].normalize.std[0]: should be greater than 0, not 0.0", id="division-by-zero"),
        pytest.param("preprocess: [{normalize: {mean: []}}]",
                     "preprocess[0].normalize.mean: should have at least 1 values, not 0", id="no-mean"),
        pytest.param("preprocess: [{layout: nchw, cast: float32}]",
                     "preprocess[0]: should have one key with a value that says what it does (tokenize, decode, input, "
                     "tiles, resize, center_crop, color_order, layout, normalize, cast)", id="two-blocks"),
        pytest.param("postprocess: [{}]",
                     "postprocess[0]: should have one key with a value that says what it does (keep, pool, "
                     "dense, activation, l2_normalize, softmax, top_k, cast)",
                     id="no-block"),
        pytest.param("preprocess: [3]", "preprocess[0]: should be a path, not 3", id="no-path"),
        pytest.param("preprocess: [gone.onnx]",
                     "preprocess[0]: gone.onnx: can't be read (No such file or directory). Check the path and its "
                     "permissions.", id="missing-file"),
        pytest.param("postprocess: [{top_k: {labels: gone.txt}}]",
                     "postprocess[0].top_k.labels: gone.txt can't be read (No such file or directory); correct the "
                     "path", id="missing-labels"),
        pytest.param("postprocess: [{top_k: {labels: two.txt}}]",
                     "postprocess[0].top_k: there are 2 labels, but 3 classes; write one label a line",
                     id="too-few-labels"),
        pytest.param("postprocess: [{top_k: {labels: latin1.txt}}]",
                     "postprocess[0].top_k.labels: latin1.txt is not UTF-8; save the file as UTF-8",
                     id="labels-of-another-encoding"),
        pytest.param("postprocess: [{top_k: {labels: empty.txt}}]",
                     "postprocess[0].top_k.labels: empty.txt is empty; write the name of a class in each line",
                     id="no-labels"),
        pytest.param("postprocess: [{top_k: {k: 4}}]",
                     "postprocess[0].top_k: k is 4, but there are only 3 classes in [N, 3]", id="too-many-wanted"),
        pytest.param("preprocess: [{decode: {size: [8, 6]}}, {normalize: {}}]",
                     "preprocess[1].normalize: gives float32[image.batch, 8, 6, 3], but 'image' takes "
                     "float32[N, 3, 8, 6]; add {layout: nchw}", id="wrong-layout"),
        pytest.param("preprocess: [{decode: {size: [8, 6]}}, {layout: nchw}]",
                     "preprocess[1].layout: gives uint8[image.batch, 3, 8, 6], but 'image' takes "
                     "float32[N, 3, 8, 6]; add {cast: float32}", id="wrong-type"),
        pytest.param("preprocess: [{decode: {}}, {center_crop: [8, 6]}]",
                     "preprocess[1].center_crop: needs images of a known height and width; put resize before it, or "
                     "give decode a size", id="crop-of-anything"),
        pytest.param("preprocess: [{normalize: {}}, {decode: {}}]",
                     "preprocess[1].decode: must stand before all other stages of 'image'", id="late-decode"),
        pytest.param("preprocess: [{cast: float32, tensor: picture}]",
                     "preprocess[0].cast: there is no tensor 'picture' here, only 'image'", id="unknown-tensor"),
    ],
)  # fmt: skip
def test_pipelines_that_can_not_work_are_refused(
    entry: Callable[[str], str], tmp_path: pathlib.Path, extra: str, expected: str
) -> None:
    (tmp_path / "two.txt").write_text("red\ngreen\n")
    (tmp_path / "empty.txt").touch()
    (tmp_path / "latin1.txt").write_bytes("grün\n".encode("latin-1"))

    assert faults(tmp_path, entry(extra)) == f"servable.yaml:4: models[0].{expected}"


def test_a_version_that_comes_later_and_does_not_fit_is_told_by_its_load(
    start: Starter, entry: Callable[[str], str], tmp_path: pathlib.Path, eventually: Eventually
) -> None:
    running = start(entry(f"watch: true\n{textwrap.dedent(PIPELINE)}", folder="versions/1"))
    entry("", BRIGHTEST.replace("3, 8, 6", "3, 9, 6"), "versions/2")

    def reasons() -> list[str]:
        return [one.reason for one in running.client.get_model_repository_index().models]

    eventually(lambda: any(reasons()))
    assert "preprocess[2].layout: gives float32[image.batch, 3, 8, 6], but 'image' takes" in "".join(reasons())
    assert labels(ask(running.client, encoded("red"))) == ["red"]


def test_without_pillow_the_configuration_says_how_to_install_it(
    entry: Callable[[str], str], tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "servable.yaml"
    path.write_text(f"models:\n{entry(PIPELINE)}")
    script = """
        import pathlib, sys
        sys.modules["PIL"] = None
        from trtnode.serving.config.load import load_config
        try:
            load_config(pathlib.Path(sys.argv[1]))
        except Exception as error:
            print(error)
    """

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(path)], capture_output=True, text=True, check=True
    )

    assert "models[0].preprocess[0].decode: Pillow is not installed here; run: pip install 'trtnode[images]'" in (
        done.stdout
    )


def test_pipelines_of_arrays_need_no_pillow(
    entry: Callable[[str], str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_decoder, "MISSING", "not here")
    path = tmp_path / "servable.yaml"
    path.write_text(f"models:\n{entry('preprocess: [{normalize: {}}, {layout: nchw}]')}")

    assert len(load_config(path, {}).models[0].preprocess) == 2


def test_the_schema_describes_every_block() -> None:
    definitions: Any = config_schema()["$defs"]

    for name in ("Preprocess", "Postprocess", "Decode", "Input", "Normalize", "TopK"):
        assert all("description" in key or "$ref" in key for key in definitions[f"{name}Config"]["properties"].values())
