"""Triton's model repositories: what each ``config.pbtxt`` becomes, and what is refused."""

from __future__ import annotations

import argparse
import logging
import pathlib
import shutil

import pytest

from trtnode.serving.cli.serve import SERVE
from trtnode.serving.config.command_line import config_from
from trtnode.serving.errors import ConfigError
from trtnode.serving.schema.model import ModelConfig

PLAIN = """
name: "sum"
platform: "onnxruntime_onnx"
max_batch_size: 0
input [ { name: "a" data_type: TYPE_FP32 dims: [ -1, 3 ] }, { name: "b" data_type: TYPE_FP32 dims: [ -1, 3 ] } ]
output [ { name: "sum" data_type: TYPE_FP32 dims: [ -1, 3 ] } ]
"""
BATCHED = """
backend: "onnxruntime"
max_batch_size : 8
input [ { name: "a", data_type: TYPE_FP32, format: FORMAT_NONE, dims: [ 3 ] } ]
instance_group [ { count: 2 kind: KIND_CPU } ]
version_policy: { specific { versions: [ 1, 3 ] } }
dynamic_batching {
  preferred_batch_size: [ 4, 8 ]
  max_queue_delay_microseconds: 100
  default_queue_policy { default_timeout_microseconds: 20000 max_queue_size: 64 }
  priority_levels: 2
  default_priority_level: 2
}
model_warmup [
  { name: "zeros" batch_size: 1 inputs: { key: "a" value: { data_type: TYPE_FP32 dims: [ 3 ] zero_data: true } } }
]
parameters { key: "intra_op_thread_count" value: { string_value: "2" } }
"""
ACCELERATED = """
optimization { execution_accelerators {
  gpu_execution_accelerator : [ {
    name : "tensorrt"
    parameters { key: "precision_mode" value: "FP16" }
    parameters { key: "max_workspace_size_bytes" value: "1073741824" }
  } ]
} }
"""


@pytest.fixture
def repository(models: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """A repository of one model, ``sum``, of versions 1 and 3."""
    for version in (1, 3):
        file = tmp_path / "sum" / str(version) / "model.onnx"
        file.parent.mkdir(parents=True)
        shutil.copy(models / "two.onnx", file)
    return tmp_path


def configured(repository: pathlib.Path, text: str, *flags: str) -> ModelConfig:
    (repository / "sum" / "config.pbtxt").write_text(text)
    parser = argparse.ArgumentParser()
    SERVE.configure(parser)
    return config_from(parser.parse_args(["--model-repository", str(repository), *flags])).models[0]


def refusal(repository: pathlib.Path, text: str, *flags: str) -> str:
    with pytest.raises(ConfigError) as refused:
        configured(repository, text, *flags)
    return str(refused.value)


def test_a_model_without_a_configuration_is_served_with_defaults(repository: pathlib.Path) -> None:
    parser = argparse.ArgumentParser()
    SERVE.configure(parser)

    (model,) = config_from(parser.parse_args(["--model-repository", str(repository), "--port", "0"])).models

    assert (model.name, model.path, model.batching) == ("sum", repository / "sum", None)


def test_inputs_and_outputs_are_what_the_model_must_have(repository: pathlib.Path) -> None:
    model = configured(repository, PLAIN)

    assert model.batching is None
    assert model.interface.inputs["a"].shape == (-1, 3)
    assert model.interface.outputs["sum"].datatype == "FP32"


def test_everything_about_batches_instances_versions_and_threads_is_followed(repository: pathlib.Path) -> None:
    model = configured(repository, BATCHED)

    assert (model.instances, model.versions, model.warmup, model.threads) == (2, (1, 3), 1, 2)
    assert model.interface.inputs["a"].shape == (-1, 3)
    batching = model.batching
    assert (batching.max_batch_size, batching.preferred_batch_sizes) == (8, (4, 8))
    assert (batching.max_queue_delay_us, batching.max_queue_size, batching.timeout_ms) == (100, 64, 20)
    assert batching.priority_levels == 2


def test_a_batch_size_alone_joins_what_waits_anyway(repository: pathlib.Path) -> None:
    batching = configured(repository, "max_batch_size: 4").batching

    assert (batching.max_batch_size, batching.max_queue_delay_us) == (4, 0)


def test_an_accelerator_is_an_engine_and_its_precision(
    repository: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        model = configured(repository, ACCELERATED)

    assert (model.options.engine, model.options.precision) == ("tensorrt", "fp16")
    assert "parameters['max_workspace_size_bytes']: is chosen by the engine" in caplog.text


def test_libraries_of_operators_stand_below_folders_that_the_server_names(repository: pathlib.Path) -> None:
    text = 'model_operations { op_library_filename: ["ops.so", "../../shared.so"] }'
    operators = repository.parent / "operators"
    operators.mkdir(exist_ok=True)
    (repository / "sum" / "ops.so").symlink_to(operators / "ops.so")

    assert f"model_operations.op_library_filename: {operators / 'ops.so'} is below none of" in refusal(repository, text)
    (repository / "server.yaml").write_text("server: {custom_op_folders: [../operators]}")
    assert f"{repository.parent / 'shared.so'} is below none of server.custom_op_folders" in refusal(
        repository, text, "--config", str(repository / "server.yaml")
    )
    (repository / "server.yaml").write_text("server: {custom_op_folders: [../operators, ..]}")
    model = configured(repository, text, "--config", str(repository / "server.yaml"))

    assert model.options.custom_op_libraries == (operators / "ops.so", repository.parent / "shared.so")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        pytest.param("gone", "can't be read (No such file", id="missing"),
        pytest.param("empty", "holds no model", id="empty"),
        pytest.param("model.onnx", "is a file; name the folder that holds the models' folders", id="a-file"),
    ],
)
def test_a_folder_without_models_is_refused(name: str, sentence: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "model.onnx").touch()
    (tmp_path / "empty").mkdir()
    parser = argparse.ArgumentParser()
    SERVE.configure(parser)

    with pytest.raises(ConfigError, match=sentence.replace("(", r"\(")):
        config_from(parser.parse_args(["--model-repository", str(tmp_path / name)]))


@pytest.mark.parametrize("name", [None, "letters"])
def test_a_folder_of_one_model_is_a_repository_of_one(name: str | None, repository: pathlib.Path) -> None:
    (repository / "sum" / "config.pbtxt").write_text('name: "digits"')
    parser = argparse.ArgumentParser()
    SERVE.configure(parser)
    flags = ["--model-repository", str(repository / "sum"), *(["--name", name] if name else [])]

    (model,) = config_from(parser.parse_args(flags)).models

    assert (model.name, model.path) == (name or "digits", repository / "sum")


def test_a_folder_of_one_file_is_a_repository_of_one(models: pathlib.Path, tmp_path: pathlib.Path) -> None:
    shutil.copy(models / "two.onnx", tmp_path / "model.onnx")
    parser = argparse.ArgumentParser()
    SERVE.configure(parser)

    (model,) = config_from(parser.parse_args(["--model-repository", str(tmp_path), "--name", "sum"])).models

    assert (model.name, model.path) == ("sum", tmp_path / "model.onnx")


def test_the_name_of_several_models_is_none_of_one(repository: pathlib.Path) -> None:
    shutil.copytree(repository / "sum", repository / "second")
    parser = argparse.ArgumentParser()
    SERVE.configure(parser)

    with pytest.raises(ConfigError, match="holds 2 models, and --name is about one"):
        config_from(parser.parse_args(["--model-repository", str(repository), "--name", "m"]))
