"""Pipelines through a real server: encoded images in, labels out, and what is refused before or at load."""

import gc
import io
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
import tritonclient.grpc as triton
from PIL import Image
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

from serving import images
from serving.config import config_schema, load_config
from serving.errors import ConfigError

pytestmark = pytest.mark.usefixtures("one_builder")

ROOT = pathlib.Path(__file__).parents[2]
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
    image = triton.InferInput("image", [len(files)], "BYTES")
    image.set_data_from_numpy(np.array(files, object))
    return client.infer("m", [image])


def post(url: str, body: bytes, headers: dict[str, str]) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def labels(result: triton.InferResult) -> list[str]:
    return [row[0].decode() for row in result.as_numpy("labels")]


def fails_with(code: str, call: Callable[[], object]) -> str:
    with pytest.raises(InferenceServerException) as caught:
        call()
    assert caught.value.status() == f"StatusCode.{code}"
    return str(caught.value.message())


@pytest.mark.parametrize("startup", ["wait", "native"])
def test_an_encoded_image_becomes_a_label(start: Any, entry: Any, startup: str) -> None:
    client = start(entry(PIPELINE), server=f"startup: {startup}").client

    result = ask(client, encoded("red"), encoded("blue", (7, 90), "PNG"))

    assert labels(result) == ["red", "blue"]
    scores = result.as_numpy("scores")
    assert scores.shape == (2, 2)
    assert scores[0, 0] == pytest.approx(np.exp(2) / (np.exp(2) + 2 * np.exp(-2)), rel=0.05)


def test_images_come_over_rest_too_but_not_in_json(start: Any, entry: Any) -> None:
    url = f"{start(entry(PIPELINE)).http}/v2/models/m/infer"
    content = serialize_byte_tensor(np.array([encoded("green")], object)).item()
    image = {"name": "image", "shape": [1], "datatype": "BYTES"}
    facts = json.dumps({"inputs": [{**image, "parameters": {"binary_data_size": len(content)}}]}).encode()

    status, raw = post(url, facts + content, {"Inference-Header-Content-Length": str(len(facts))})
    refused, text = post(url, json.dumps({"inputs": [{**image, "data": ["file"]}]}).encode(), {})

    assert (status, refused) == (200, 400)
    assert {one["name"]: one["data"] for one in raw["outputs"]}["labels"][0] == "green"
    assert text["error"].endswith("holds images, which JSON can't carry; send it raw")


def test_the_example_reads_digits(start: Any) -> None:
    text = (ROOT / "configs" / "images.yaml").read_text().partition("models:\n")[2]
    address = start(text.replace("../", f"{ROOT}/")).address
    command = [sys.executable, str(ROOT / "examples" / "digits" / "read_picture.py"), "--url", address]
    held_out = np.load(ROOT / "examples" / "digits" / "test.npz")["label"]

    for number, digit in ((0, "zero"), (7, "seven")):
        place = str(np.flatnonzero(held_out == number)[0])
        done = subprocess.run([*command, "--number", place], capture_output=True, text=True)

        assert done.stderr == ""
        assert done.stdout.split()[0] == digit


def test_metadata_and_configuration_are_those_of_the_pipeline(start: Any, entry: Any) -> None:
    client = start(entry(PIPELINE)).client

    metadata = client.get_model_metadata("m")
    config = client.get_model_config("m").config

    assert [(t.name, t.datatype, list(t.shape)) for t in metadata.inputs] == [("image", "BYTES", [-1])]
    assert [(t.name, t.datatype, list(t.shape)) for t in metadata.outputs] == [
        ("scores", "FP32", [-1, 2]),
        ("labels", "BYTES", [-1, 2]),
    ]
    assert [(one.name, one.data_type) for one in config.input] == [("image", 8 + 5)]  # TYPE_STRING


def test_blocks_run_in_the_engine_and_strings_outside(start: Any, entry: Any) -> None:
    client = start(entry(PIPELINE, engine="openvino")).client

    config = client.get_model_config("m").config
    parameters = {key: value.string_value for key, value in config.parameters.items()}

    assert parameters["engine"] == "openvino"
    assert (parameters["segments"], parameters["native_nodes"]) == ("1", "2")  # TopK and the labels' Gather


def test_requests_with_images_are_batched(start: Any, entry: Any) -> None:
    client = start(entry("batching: {max_batch_size: 8}\n" + textwrap.dedent(PIPELINE))).client

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: labels(ask(client, encoded(COLOURS[n % 3]))), range(24)))

    assert found == [[COLOURS[n % 3]] for n in range(24)]
    assert client.get_model_config("m").config.max_batch_size == 8


def test_a_second_start_builds_nothing_and_another_pipeline_does(start: Any, entry: Any, caplog: Any) -> None:
    caplog.set_level("INFO", "engines.building")
    text = entry(PIPELINE, engine="openvino")
    for models in (text, text, text.replace("0.25", "0.5")):
        start(models)
        caplog.set_level("INFO", "engines.building")

    assert sum("Building" in record.message for record in caplog.records) == 2


def test_calibration_data_are_what_the_pipeline_takes_decoded(start: Any, entry: Any, tmp_path: pathlib.Path) -> None:
    pixels = np.random.default_rng(5).integers(0, 256, (16, 8, 6, 3), np.uint8)
    np.savez(tmp_path / "samples.npz", image=pixels)
    convolution = """<ir_version: 10, opset_import: ["": 18]>
    g (float[N, 3, 8, 6] image) => (float[N, 3, 8, 6] y) <float[3, 3, 1, 1] w = {1,0,0, 0,1,0, 0,0,1}> {
        y = Conv(image, w)
    }"""
    extra = "precision: int8\ncalibration: {data: samples.npz}\n" + textwrap.dedent(PIPELINE.partition("  post")[0])

    client = start(entry(extra, convolution, engine="openvino")).client

    assert client.get_model_config("m").config.parameters["precision"].string_value == "int8"


def test_calibration_data_of_the_model_alone_are_refused(start: Any, entry: Any, tmp_path: pathlib.Path) -> None:
    np.savez(tmp_path / "samples.npz", image=np.zeros((16, 3, 8, 6), np.float32))
    extra = "precision: int8\ncalibration: {data: samples.npz}\n" + textwrap.dedent(PIPELINE)

    running = start(entry(extra, engine="openvino"), wait=False)

    assert not running.server.wait_ready(60)
    assert "samples.npz: sample 1: Input 'image' must be uint8[" in str(running.server.failure)


@pytest.mark.parametrize("batching", ["", "batching: {max_batch_size: 8}\n"])
def test_a_model_leaves_no_file_behind(
    batching: str, start: Any, entry: Any, tmp_path: pathlib.Path, monkeypatch: Any
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    running = start(entry(PIPELINE), server="admin: {repository: true}")
    loaded = list(folder.glob("trtnode-pipeline-*"))
    fails = "warmup_inputs: labels.txt\n" + batching + textwrap.dedent(PIPELINE)

    running.client.unload_model("m")
    running.server.stop(5)
    start(entry(fails), wait=False).server.wait_ready(60)
    gc.collect()

    assert len(loaded) == 1
    assert list(folder.glob("trtnode-pipeline-*")) == []


def test_warm_up_inputs_are_what_the_pipeline_takes_decoded(start: Any, entry: Any, tmp_path: pathlib.Path) -> None:
    np.savez(tmp_path / "warm.npz", image=np.zeros((1, 8, 6, 3), np.uint8))

    running = start(entry("warmup_inputs: warm.npz\n" + textwrap.dedent(PIPELINE)))

    assert labels(ask(running.client, encoded("red"))) == ["red"]


def test_warm_up_inputs_that_do_not_fit_are_named_with_their_file(
    start: Any, entry: Any, tmp_path: pathlib.Path
) -> None:
    np.savez(tmp_path / "warm.npz", image=np.zeros((1, 8, 6, 4), np.uint8))

    running = start(entry("warmup_inputs: warm.npz\n" + textwrap.dedent(PIPELINE)), wait=False)

    assert not running.server.wait_ready(60)
    assert "warm.npz: Input 'image' must be uint8[" in str(running.server.failure)


def test_arrays_may_come_instead_of_files(start: Any, entry: Any) -> None:
    text = "preprocess: [{resize: [8, 6]}, {color_order: bgr}, {normalize: {scale: 1}}, {layout: nchw}]"
    client = start(entry(text)).client
    image = triton.InferInput("image", [1, 50, 20, 3], "UINT8")
    image.set_data_from_numpy(np.full((1, 50, 20, 3), (10, 20, 30), np.uint8))

    result = client.infer("m", [image])

    np.testing.assert_allclose(result.as_numpy("logits"), [[30, 20, 10]], rtol=1e-4)


def test_onnx_files_may_be_stages(start: Any, entry: Any, tmp_path: pathlib.Path) -> None:
    flip = "flip (float[B, 3] values) => (float[B, 3] negative) { negative = Neg(values) }"
    head = '<ir_version: 8, opset_import: ["": 13]>'
    onnx.save(onnx.parser.parse_model(head + flip), tmp_path / "flip.onnx")
    client = start(entry("postprocess: [flip.onnx, {top_k: {labels: labels.txt}}]")).client
    image = triton.InferInput("image", [1, 3, 8, 6], "FP32")
    image.set_data_from_numpy(np.ones((1, 3, 8, 6), np.float32) * np.float32([1, 3, 2]).reshape(3, 1, 1))

    assert labels(client.infer("m", [image])) == ["red"]


def test_every_version_of_a_model_gets_the_pipeline(start: Any, entry: Any, eventually: Any) -> None:
    entry("", BRIGHTEST.replace("ReduceMean", "ReduceMin"), "versions/1")
    running = start(entry(f"versions: all\n{textwrap.dedent(PIPELINE)}", folder="versions/2"))

    for version in ("1", "2"):
        eventually(lambda version=version: running.client.is_model_ready("m", version))
        metadata = running.client.get_model_metadata("m", version)
        assert [t.datatype for t in metadata.inputs] == ["BYTES"]


def test_streams_take_images_too(start: Any, entry: Any) -> None:
    client = start(entry(PIPELINE)).client
    image = triton.InferInput("image", [1], "BYTES")
    image.set_data_from_numpy(np.array([encoded("green")], object))
    found: list[Any] = []

    client.start_stream(lambda result, error: found.append(error or labels(result)))
    client.async_stream_infer("m", [image])
    client.stop_stream()

    assert found == [["green"]]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([b"hello"], "image 0 is no JPEG or PNG file"),
        ([encoded("red"), encoded("red", kind="PNG")[:-40]], "image 1 can't be decoded"),
        ([encoded("red", (300, 300))], "the images of the request have 90000 pixels; together they may have 50000"),
    ],
)
def test_bad_images_are_the_clients_fault(start: Any, entry: Any, files: list[bytes], message: str) -> None:
    text = PIPELINE.replace("size: [8, 6]", "size: [8, 6], max_pixels: 50000")
    client = start(entry(text)).client

    refusal = fails_with("INVALID_ARGUMENT", lambda: ask(client, *files))

    assert refusal.startswith(f"input 'image' of model 'm': {message}")
    assert labels(ask(client, encoded("red"))) == ["red"]


def test_images_of_a_size_that_the_model_does_not_take_are_refused(start: Any, entry: Any) -> None:
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
                     "preprocess[0].softmax: unknown key; known here: tensor, decode, input, resize, center_crop, "
                     "color_order, layout, normalize, cast.", id="block-of-the-other-side"),
        pytest.param("preprocess: [{resize: [8]}]", "preprocess[0].resize[1]: is missing; add it", id="one-size"),
        pytest.param("preprocess: [{resize: [8, 6, 3]}]",
                     "preprocess[0].resize: should have at most 2 values, not 3", id="three-sizes"),
        pytest.param("preprocess: [{resize: [0, 6]}]",
                     "preprocess[0].resize[0]: should be greater than 0, not 0", id="no-size"),
        pytest.param("preprocess: [{layout: hwcn}]",
                     "preprocess[0].layout: should be 'nchw' or 'nhwc', not \"hwcn\"", id="unknown-layout"),
        pytest.param("preprocess: [{normalize: {std: [0.0]}}]",
                     "preprocess[0].normalize.std[0]: should be greater than 0, not 0.0", id="division-by-zero"),
        pytest.param("preprocess: [{normalize: {mean: []}}]",
                     "preprocess[0].normalize.mean: should have at least 1 values, not 0", id="no-mean"),
        pytest.param("preprocess: [{layout: nchw, cast: float32}]",
                     "preprocess[0]: should have one key with a value that says what it does (decode, input, resize, "
                     "center_crop, color_order, layout, normalize, cast)", id="two-blocks"),
        pytest.param("postprocess: [{}]",
                     "postprocess[0]: should have one key with a value that says what it does (softmax, top_k, cast)",
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
def test_pipelines_that_can_not_work_are_refused(entry: Any, tmp_path: pathlib.Path, extra: str, expected: str) -> None:
    (tmp_path / "two.txt").write_text("red\ngreen\n")
    (tmp_path / "empty.txt").touch()
    (tmp_path / "latin1.txt").write_bytes("grün\n".encode("latin-1"))

    assert faults(tmp_path, entry(extra)) == f"servable.yaml:4: models[0].{expected}"


def test_a_version_that_comes_later_and_does_not_fit_is_told_by_its_load(
    start: Any, entry: Any, tmp_path: pathlib.Path, eventually: Any
) -> None:
    running = start(entry(f"watch: true\n{textwrap.dedent(PIPELINE)}", folder="versions/1"))
    entry("", BRIGHTEST.replace("3, 8, 6", "3, 9, 6"), "versions/2")

    def reasons() -> list[str]:
        return [one.reason for one in running.client.get_model_repository_index().models]

    eventually(lambda: any(reasons()))
    assert "preprocess[2].layout: gives float32[image.batch, 3, 8, 6], but 'image' takes" in "".join(reasons())
    assert labels(ask(running.client, encoded("red"))) == ["red"]


def test_without_pillow_the_configuration_says_how_to_install_it(entry: Any, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "servable.yaml"
    path.write_text(f"models:\n{entry(PIPELINE)}")
    script = """
        import pathlib, sys
        sys.modules["PIL"] = None
        from serving.config import load_config
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


def test_pipelines_of_arrays_need_no_pillow(entry: Any, tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(images, "MISSING", "not here")
    path = tmp_path / "servable.yaml"
    path.write_text(f"models:\n{entry('preprocess: [{normalize: {}}, {layout: nchw}]')}")

    assert len(load_config(path, {}).models[0].preprocess) == 2


def test_the_schema_describes_every_block() -> None:
    definitions: Any = config_schema()["$defs"]

    for name in ("Preprocess", "Postprocess", "Decode", "Input", "Normalize", "TopK"):
        assert all("description" in key or "$ref" in key for key in definitions[f"{name}Config"]["properties"].values())
