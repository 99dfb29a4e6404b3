"""A model's interface in its configuration: it narrows the file's, and requests, metadata and warm-up keep to it."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import numpy as np
import pytest
import tritonclient.grpc as triton
from onnx import TensorProto, helper

from tests.serving.conftest import Eventually, Running, Starter, given, refusal, save
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model

FLOAT = TensorProto.FLOAT


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A file of two outputs and no fixed size, and no answer to images smaller than 4 x 4."""
    file = tmp_path_factory.mktemp("images") / "images.onnx"
    nodes = [
        helper.make_node("MaxPool", ["x"], ["pooled"], kernel_shape=[4, 4]),
        helper.make_node("GlobalAveragePool", ["x"], ["mean"]),
    ]
    outputs = [
        helper.make_tensor_value_info("pooled", FLOAT, ["n", "c", "p", "q"]),
        helper.make_tensor_value_info("mean", FLOAT, ["n", "c", 1, 1]),
    ]
    save(file, nodes, [helper.make_tensor_value_info("x", FLOAT, ["n", "c", "h", "w"])], outputs)
    return file


@pytest.fixture(scope="module")
def served(
    images: pathlib.Path, tmp_path_factory: pytest.TempPathFactory, warm_cache: pathlib.Path
) -> Iterator[Running]:
    starter = Starter(tmp_path_factory.mktemp("interface"), warm_cache)
    narrow = "{inputs: {x: {datatype: FP32, shape: [-1, 3, 8, 8]}}, outputs: {mean: {shape: [-1, 3, 1, 1]}}}"
    yield starter(f"- {{name: narrow, path: {images}, interface: {narrow}}}\n")
    starter.close()


def test_requests_keep_to_the_configured_sizes(served: Running) -> None:
    image = np.ones((2, 3, 8, 8), np.float32)

    assert served.client.infer("narrow", [given("x", image)]).as_numpy("mean").shape == (2, 3, 1, 1)
    code, text = refusal(lambda: served.client.infer("narrow", [given("x", image[:, :, :5, :5])]))

    assert code == "INVALID_ARGUMENT"
    assert "has shape [2, 3, 5, 5], but takes [-1, 3, 8, 8]" in text


def test_metadata_and_configuration_report_the_configured_sizes(served: Running) -> None:
    metadata = served.client.get_model_metadata("narrow")
    config = served.client.get_model_config("narrow").config

    assert [(one.name, list(one.shape)) for one in metadata.inputs] == [("x", [-1, 3, 8, 8])]
    assert [list(one.dims) for one in config.input] == [[-1, 3, 8, 8]]


def test_outputs_that_the_configuration_leaves_out_are_not_there(served: Running) -> None:
    pooled = [triton.InferRequestedOutput("pooled")]
    code, text = refusal(
        lambda: served.client.infer("narrow", [given("x", np.ones((1, 3, 8, 8), np.float32))], outputs=pooled)
    )

    assert [one.name for one in served.client.get_model_metadata("narrow").outputs] == ["mean"]
    assert (code, "has no output 'pooled'; it has 'mean'" in text) == ("INVALID_ARGUMENT", True)


def test_a_contradiction_is_refused_with_file_and_line(
    start: Starter, models: pathlib.Path, eventually: Eventually
) -> None:
    running = start(
        f"- name: two\n  path: {models / 'two.onnx'}\n  required: false\n  interface:\n    inputs:\n"
        "      a: {shape: [-1, 4]}\n      b: {shape: [-1, 3]}\n"
    )
    reasons: list[str] = []

    def has_failed() -> bool:
        reasons[:] = [one.reason for one in running.client.get_model_repository_index().models]
        return any(reasons)

    eventually(has_failed)
    assert "input 'a' should have shape [-1, 4], and has [-1, 3] (" in reasons[0]
    assert "servable0.yaml:9)" in reasons[0]


def test_engines_are_built_and_measured_on_the_configured_sizes(images: pathlib.Path) -> None:
    options = CompileOptions(engine="openvino", all_engines=True, declared_sizes={"x": (-1, 3, 8, 8)})

    compiled = compile_model(images, options)

    (x,) = compiled.model.graph.input
    assert [dim.dim_value or dim.dim_param for dim in x.type.tensor_type.shape.dim][1:] == [3, 8, 8]
