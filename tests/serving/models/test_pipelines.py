"""Pipelines through a real server: encoded images in, labels out, and what is refused before or at load."""

from __future__ import annotations

import gc
import json
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import pytest
from tritonclient.utils import serialize_byte_tensor

from tests.serving.conftest import Starter, given
from tests.serving.models.conftest import COLOURS, PIPELINE, ask, encoded, labels

ROOT = pathlib.Path(__file__).parents[3]


def post(url: str, body: bytes, headers: dict[str, str]) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@pytest.mark.parametrize("startup", ["wait", "native"])
def test_an_encoded_image_becomes_a_label(start: Starter, entry: Callable[[str], str], startup: str) -> None:
    client = start(entry(PIPELINE), server=f"startup: {startup}").client

    result = ask(client, encoded("red"), encoded("blue", (7, 90), "PNG"))

    assert labels(result) == ["red", "blue"]
    scores = result.as_numpy("scores")
    assert scores.shape == (2, 2)
    assert scores[0, 0] == pytest.approx(np.exp(2) / (np.exp(2) + 2 * np.exp(-2)), rel=0.05)


def test_images_come_over_rest_too_but_not_in_json(start: Starter, entry: Callable[[str], str]) -> None:
    url = f"{start(entry(PIPELINE)).http}/v2/models/m/infer"
    content = serialize_byte_tensor(np.array([encoded("green")], object)).item()
    image = {"name": "image", "shape": [1], "datatype": "BYTES"}
    facts = json.dumps({"inputs": [{**image, "parameters": {"binary_data_size": len(content)}}]}).encode()

    status, raw = post(url, facts + content, {"Inference-Header-Content-Length": str(len(facts))})
    refused, text = post(url, json.dumps({"inputs": [{**image, "data": ["file"]}]}).encode(), {})

    assert (status, refused) == (200, 400)
    assert {one["name"]: one["data"] for one in raw["outputs"]}["labels"][0] == "green"
    assert text["error"].endswith("holds images, which JSON can't carry; send it raw")


def test_the_example_reads_digits(start: Starter) -> None:
    text = (ROOT / "configs" / "images.yaml").read_text().partition("models:\n")[2]
    address = start(text.replace("../", f"{ROOT}/")).address
    command = [sys.executable, str(ROOT / "examples" / "digits" / "read_picture.py"), "--url", address]
    held_out = np.load(ROOT / "examples" / "digits" / "test.npz")["label"]

    for number, digit in ((0, "zero"), (7, "seven")):
        place = str(np.flatnonzero(held_out == number)[0])
        done = subprocess.run([*command, "--number", place], capture_output=True, text=True)

        assert done.stderr == ""
        assert done.stdout.split()[0] == digit


def test_metadata_and_configuration_are_those_of_the_pipeline(start: Starter, entry: Callable[[str], str]) -> None:
    client = start(entry(PIPELINE)).client

    metadata = client.get_model_metadata("m")
    config = client.get_model_config("m").config

    assert [(t.name, t.datatype, list(t.shape)) for t in metadata.inputs] == [("image", "BYTES", [-1])]
    assert [(t.name, t.datatype, list(t.shape)) for t in metadata.outputs] == [
        ("scores", "FP32", [-1, 2]),
        ("labels", "BYTES", [-1, 2]),
    ]
    assert [(one.name, one.data_type) for one in config.input] == [("image", 8 + 5)]  # TYPE_STRING


def test_blocks_run_in_the_engine_and_strings_outside(start: Starter, entry: Callable[[str], str]) -> None:
    client = start(entry(PIPELINE, engine="openvino")).client

    config = client.get_model_config("m").config
    parameters = {key: value.string_value for key, value in config.parameters.items()}

    assert parameters["engine"] == "openvino"
    assert (parameters["segments"], parameters["native_nodes"]) == ("1", "2")  # TopK and the labels' Gather


def test_requests_with_images_are_batched(start: Starter, entry: Callable[[str], str]) -> None:
    client = start(entry("batching: {max_batch_size: 8}\n" + textwrap.dedent(PIPELINE))).client

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: labels(ask(client, encoded(COLOURS[n % 3]))), range(24)))

    assert found == [[COLOURS[n % 3]] for n in range(24)]
    assert client.get_model_config("m").config.max_batch_size == 8


def test_a_second_start_builds_nothing_and_another_pipeline_does(
    start: Starter, entry: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "trtnode.engines.build.builder")
    text = entry(PIPELINE, engine="openvino")
    for models in (text, text, text.replace("0.25", "0.5")):
        start(models, cache="{dir: cache}")
        caplog.set_level("INFO", "trtnode.engines.build.builder")

    assert sum("Building" in record.message for record in caplog.records) == 2


def test_calibration_data_are_what_the_pipeline_takes_decoded(
    start: Starter, entry: Callable[[str], str], tmp_path: pathlib.Path
) -> None:
    pixels = np.random.default_rng(5).integers(0, 256, (16, 8, 6, 3), np.uint8)
    np.savez(tmp_path / "samples.npz", image=pixels)
    convolution = """<ir_version: 10, opset_import: ["": 18]>
    g (float[N, 3, 8, 6] image) => (float[N, 3, 8, 6] y) <float[3, 3, 1, 1] w = {1,0,0, 0,1,0, 0,0,1}> {
        y = Conv(image, w)
    }"""
    extra = "precision: int8\ncalibration: {data: samples.npz}\n" + textwrap.dedent(PIPELINE.partition("  post")[0])

    client = start(entry(extra, convolution, engine="openvino")).client

    assert client.get_model_config("m").config.parameters["precision"].string_value == "int8"


def test_calibration_data_of_the_model_alone_are_refused(
    start: Starter, entry: Callable[[str], str], tmp_path: pathlib.Path
) -> None:
    np.savez(tmp_path / "samples.npz", image=np.zeros((16, 3, 8, 6), np.float32))
    extra = "precision: int8\ncalibration: {data: samples.npz}\n" + textwrap.dedent(PIPELINE)

    running = start(entry(extra, engine="openvino"), wait=False)

    assert not running.server.wait_ready(60)
    assert "samples.npz: sample 1: Input 'image' must be uint8[" in str(running.server.failure)


@pytest.mark.parametrize("batching", ["", "batching: {max_batch_size: 8}\n"])
def test_a_model_leaves_no_file_behind(
    batching: str, start: Starter, entry: Callable[[str], str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    running = start(entry(PIPELINE), server="admin: {repository: true}")
    loaded = list(folder.glob("trtnode-tmp-*"))
    fails = "warmup_inputs: labels.txt\n" + batching + textwrap.dedent(PIPELINE)

    running.client.unload_model("m")
    running.server.stop(5)
    start(entry(fails), wait=False).server.wait_ready(60)
    gc.collect()

    assert len(loaded) == 1
    assert list(folder.glob("trtnode-tmp-*")) == []


def test_warm_up_inputs_are_what_the_pipeline_takes_decoded(
    start: Starter, entry: Callable[[str], str], tmp_path: pathlib.Path
) -> None:
    np.savez(tmp_path / "warm.npz", image=np.zeros((1, 8, 6, 3), np.uint8))

    running = start(entry("warmup_inputs: warm.npz\n" + textwrap.dedent(PIPELINE)))

    assert labels(ask(running.client, encoded("red"))) == ["red"]


def test_warm_up_inputs_that_do_not_fit_are_named_with_their_file(
    start: Starter, entry: Callable[[str], str], tmp_path: pathlib.Path
) -> None:
    np.savez(tmp_path / "warm.npz", image=np.zeros((1, 8, 6, 4), np.uint8))

    running = start(entry("warmup_inputs: warm.npz\n" + textwrap.dedent(PIPELINE)), wait=False)

    assert not running.server.wait_ready(60)
    assert "warm.npz: Input 'image' must be uint8[" in str(running.server.failure)


def test_arrays_may_come_instead_of_files(start: Starter, entry: Callable[[str], str]) -> None:
    text = "preprocess: [{resize: [8, 6]}, {color_order: bgr}, {normalize: {scale: 1}}, {layout: nchw}]"
    client = start(entry(text)).client
    image = given("image", np.full((1, 50, 20, 3), (10, 20, 30), np.uint8))

    result = client.infer("m", [image])

    np.testing.assert_allclose(result.as_numpy("logits"), [[30, 20, 10]], rtol=1e-4)


def test_onnx_files_may_be_stages(start: Starter, entry: Callable[[str], str], tmp_path: pathlib.Path) -> None:
    flip = "flip (float[B, 3] values) => (float[B, 3] negative) { negative = Neg(values) }"
    head = '<ir_version: 8, opset_import: ["": 13]>'
    onnx.save(onnx.parser.parse_model(head + flip), tmp_path / "flip.onnx")
    client = start(entry("postprocess: [flip.onnx, {top_k: {labels: labels.txt}}]")).client
    image = given("image", np.ones((1, 3, 8, 6), np.float32) * np.float32([1, 3, 2]).reshape(3, 1, 1))

    assert labels(client.infer("m", [image])) == ["red"]
