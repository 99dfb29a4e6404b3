"""A repository of Triton, served, and a client for it over HTTP."""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Iterator

import onnx
import pytest
import tritonclient.grpc as triton
import tritonclient.http as triton_http

from tests.serving.conftest import READY_S, Running
from trtnode.serving.cli.serve import SERVE
from trtnode.serving.config.command_line import config_from
from trtnode.serving.models.loader import engine_loader
from trtnode.serving.process.single_process import Server

SERVER = """
server:
  name: triton
  admin: {repository: true, shared_memory: true, settings: true}
"""
CONFIGS = {
    "images": """
        platform: "onnxruntime_onnx"
        max_batch_size: 4
        input [ { name: "x" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, 4, 4 ] } ]
        output [ { name: "mean" data_type: TYPE_FP32 dims: [ 3 ] label_filename: "labels.txt"
                   reshape { shape: [ 3, 1, 1 ] } } ]
    """,
    "flat": """
        max_batch_size: 4
        input [ { name: "x" data_type: TYPE_FP32 dims: [ 48 ] reshape { shape: [ 3, 4, 4 ] } } ]
        output [ { name: "mean" data_type: TYPE_FP32 dims: [ 3, 1, 1 ] } ]
        dynamic_batching { default_queue_policy { allow_timeout_override: true } }
    """,
    "adder": """
        backend: "onnxruntime"
        input [
          { name: "a" data_type: TYPE_FP32 dims: [ -1 ] },
          { name: "k" data_type: TYPE_FP32 dims: [ 1 ] optional: true }
        ]
        output [ { name: "sum" data_type: TYPE_FP32 dims: [ -1 ] } ]
        version_policy { all { } }
        instance_group [ { count: 2 kind: KIND_CPU } ]
        parameters { key: "note" value { string_value: "kept" } }
    """,
    "text": "",
    "one_text": 'input [ { name: "t" data_type: TYPE_STRING dims: [ 1 ] } ]',
    "plain": None,
    "never": 'input [ { name: "a" data_type: TYPE_INT32 dims: [ -1 ] } ]',
    "optional": 'input [ { name: "k" },\n { name: "a" optional: true } ]',
    "outside": 'output [ { name: "sum" label_filename: "../images/labels.txt" } ]',
    "looped": 'output [ { name: "sum" label_filename: "loop" } ]',
    "numbers": 'input { name: "i" data_type: TYPE_INT64 dims: 3 }',
    "named": 'name: "named" platform: "onnxruntime_onnx"',
    "batched": "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 10 }",
}

UNSERVABLE = {
    "never": "input 'a' should be INT32, and is FP32 (",
    "optional": "input 'a' is optional there, and the file has no default for it (",
    "outside": "labels.txt' can't be read: it is outside of the model's folder",
    "looped": "loop' can't be read: Too many levels of symbolic links",
}
"""Models that don't load, and why."""

POOLS = """(float[n, c, h, w] x) => (float[n, c, 1, 1] mean, float[n, c, 1, 1] largest) {
    mean = GlobalAveragePool(x)
    largest = GlobalMaxPool(x)
}"""
GRAPHS = {
    "images": POOLS,
    "flat": POOLS,
    "one_text": "(string[n] t) => (string[n] u) { u = Identity(t) }",
    "text": "(string[n] t) => (string[n] u) { u = Identity(t) }",
    "numbers": "(int64[n] i) => (int64[n] j) { j = Neg(i) }",
    "batched": "(float[n, 2] x) => (float[n, 2] y) { y = Neg(x) }",
}
ADDER = "(float[n] a, float[1] k = {1}) => (float[n] sum) { sum = Add(a, k) }"
"""The graph of all others. Input k has a default."""


def written(folder: pathlib.Path) -> pathlib.Path:
    """Write a repository of models, of which eight load."""
    for name, config in CONFIGS.items():
        text = f'<ir_version: 8, opset_import: ["": 17]> model {GRAPHS.get(name, ADDER)}'
        for version in ("1", "2") if name == "adder" else ("1",):
            file = folder / name / version / "model.onnx"
            file.parent.mkdir(parents=True)
            onnx.save(onnx.parser.parse_model(text), file)
        if config is not None:
            (folder / name / "config.pbtxt").write_text(config)
    (folder / "looped" / "loop").symlink_to("loop")
    (folder / "images" / "labels.txt").write_text("red\ngreen\nblue\n")
    return folder


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, warm_cache: pathlib.Path) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("triton")
    server = folder / "server.yaml"
    server.write_text(f"{SERVER}cache: {{dir: {warm_cache}}}\n")
    repository = folder / "repository"
    repository.mkdir()
    parser = argparse.ArgumentParser()
    SERVE.configure(parser)
    arguments = ["--model-repository", str(written(repository)), "--config", str(server), "--port", "0"]
    config = config_from(parser.parse_args([*arguments, "--http-port", "0"]), {"engine": "native"})
    models = tuple(one.model_copy(update={"required": one.name not in UNSERVABLE}) for one in config.models)
    config = config.model_copy(update={"models": models})
    built = Server(config, engine_loader(config))
    built.start()
    running = Running(built, triton.InferenceServerClient(f"127.0.0.1:{built.port}"))
    assert built.wait_ready(READY_S), built.failure
    yield running
    running.client.close()
    built.stop(5)


@pytest.fixture(scope="module")
def web(served: Running) -> Iterator[triton_http.InferenceServerClient]:
    client = triton_http.InferenceServerClient(served.http.removeprefix("http://"))
    yield client
    client.close()
