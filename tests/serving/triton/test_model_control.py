"""Which models of a repository are loaded at the start and on request, and what is read anew for that."""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Callable, Iterator

import pytest
import tritonclient.grpc as triton

from ensembles import written
from tests.serving.conftest import READY_S, Adders, Running, refusal
from trtnode.serving.cli.compile_flags import given_options
from trtnode.serving.cli.serve import SERVE
from trtnode.serving.config.command_line import config_from
from trtnode.serving.errors import ConfigError, InvalidOptionError
from trtnode.serving.models.loader import engine_loader
from trtnode.serving.process.single_process import Server
from trtnode.serving.schema.server import ServableConfig

Serve = Callable[..., Running]
EXPLICIT = ("--model-control-mode", "explicit")


def config_of(repository: pathlib.Path, *arguments: object) -> ServableConfig:
    parser = argparse.ArgumentParser()
    SERVE.configure(parser)
    common = ["--model-repository", repository, "--engine", "native", "--port", 0, "--http-port", 0]
    given = parser.parse_args([str(one) for one in (*common, *arguments)])
    return config_from(given, given_options(given))


@pytest.fixture
def serve(warm_cache: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    running: list[Running] = []
    server = tmp_path_factory.mktemp("server") / "server.yaml"
    server.write_text(f"server: {{admin: {{repository: true}}}}\ncache: {{dir: {warm_cache}}}\n")

    def start(repository: pathlib.Path, *arguments: object, wait: bool = True) -> Running:
        config = config_of(repository, "--config", server, *arguments)
        built = Server(config, engine_loader(config))
        built.start()
        running.append(Running(built, triton.InferenceServerClient(f"127.0.0.1:{built.port}")))
        assert not wait or built.wait_ready(READY_S), built.failure
        return running[-1]

    yield start
    for one in running:
        one.client.close()
        one.server.stop(5)


def index(running: Running) -> list[tuple[str, str]]:
    return [(one.name, one.state) for one in running.client.get_model_repository_index().models]


def test_explicit_mode_begins_with_no_model_and_loads_those_that_are_asked_for(serve: Serve, adders: Adders) -> None:
    for name in ("one", "two"):
        adders.write(f"{name}/1/model.onnx", 1)
    running = serve(adders.folder, *EXPLICIT)

    assert running.client.is_server_ready()
    assert index(running) == [("one", ""), ("two", "")]
    running.client.load_model("two")
    assert index(running) == [("two", "READY"), ("one", "")]
    assert adders.ask(running.client, model="two") == 1
    running.client.unload_model("two")
    assert running.client.is_server_ready()


def test_explicit_mode_begins_with_named_models_and_with_those_that_ensembles_run(
    serve: Serve, tmp_path: pathlib.Path
) -> None:
    running = serve(written(tmp_path, "three"), *EXPLICIT, "--load-model", "softmax")

    assert ("softmax", "READY") in index(running)
    running.client.load_model("three")

    assert {name for name, state in index(running) if state == "READY"} == {"three", "scale", "dense", "softmax"}


def test_a_folder_that_is_added_and_a_configuration_that_changes_are_read_by_the_next_load(
    serve: Serve, adders: Adders
) -> None:
    adders.write("one/1/model.onnx", 1)
    (adders.folder / "one" / "config.pbtxt").write_text("max_batch_size: 8")
    running = serve(adders.folder)

    adders.write("late/1/model.onnx", 2)
    (adders.folder / "one" / "config.pbtxt").write_text("max_batch_size: 4")
    for name in ("late", "one"):
        running.client.load_model(name)

    assert adders.ask(running.client, model="late") == 2
    assert running.client.get_model_config("one").config.max_batch_size == 4


def test_a_load_of_what_cannot_be_served_names_the_line_and_leaves_the_server_as_it_is(
    serve: Serve, adders: Adders
) -> None:
    adders.write("one/1/model.onnx", 1)
    running = serve(adders.folder)
    (adders.folder / "one" / "config.pbtxt").write_text('\nbackend: "python"')
    adders.write("late/1/model.onnx", 2).write_bytes(b"no model")

    refused = refusal(lambda: running.client.load_model("one"))[1]
    damaged = refusal(lambda: running.client.load_model("late"))[1]

    assert f"{adders.folder}/one/config.pbtxt:2: backend: is 'python'" in refused
    assert "not an ONNX file" in damaged
    assert index(running) == [("one", "READY"), ("late", "")]
    assert running.client.is_server_ready()
    assert adders.ask(running.client, model="one") == 1


def test_a_model_that_no_folder_has_is_an_error(serve: Serve, adders: Adders) -> None:
    adders.write("one/1/model.onnx", 1)

    assert (
        "'nobody' is not found; this server has one"
        in refusal(lambda: serve(adders.folder).client.load_model("nobody"))[1]
    )
    with pytest.raises(InvalidOptionError, match="--load-model: there is no 'nobody' in the repository; it has one"):
        config_of(adders.folder, *EXPLICIT, "--load-model", "nobody")
    with pytest.raises(InvalidOptionError, match="--load-model: needs --model-control-mode explicit"):
        config_of(adders.folder, "--load-model", "one")


def test_an_accelerator_that_is_missing_here_may_be_taken_out_or_overruled(serve: Serve, adders: Adders) -> None:
    adders.write("one/1/model.onnx", 1)
    (adders.folder / "one" / "config.pbtxt").write_text(
        'optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" } } }'
    )

    refused = serve(adders.folder, "--engine", "tensorrt", wait=False).server
    assert not refused.wait_ready(READY_S)
    assert "Or take optimization.execution_accelerators out of its config.pbtxt: engines of this machine" in str(
        refused.failure
    )
    assert adders.ask(serve(adders.folder).client, model="one") == 1  # with --engine native


def test_a_start_names_the_faults_of_all_configurations(adders: Adders) -> None:
    faults = {
        "python": 'backend: "python"',
        "gpus": "\ninstance_group { gpus: [0, 1] }",
        "library": 'model_operations { op_library_filename: "x.so" }',
        "typo": "max_batch_siz: 4",
        "versions": "version_policy { specific { versions: 7 } }",
    }
    for name, text in faults.items():
        adders.write(f"{name}/1/model.onnx", 1)
        (adders.folder / name / "config.pbtxt").write_text(text)

    with pytest.raises(ConfigError) as refused:
        config_of(adders.folder)

    lines = str(refused.value).splitlines()
    assert len(lines) == len(faults)
    assert [name for name in faults if not any(name in line for line in lines)] == []
    assert f"{adders.folder}/gpus/config.pbtxt:2: instance_group[0]: models can't be spread over GPUs" in str(
        refused.value
    )


def test_a_start_names_the_faults_of_all_files_before_any_model_is_loaded(
    serve: Serve, adders: Adders, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("good", "damaged", "narrow"):
        adders.write(f"{name}/1/model.onnx", 3)
    (adders.folder / "damaged" / "1" / "model.onnx").write_bytes(b"no model")
    (adders.folder / "narrow" / "config.pbtxt").write_text('input { name: "x" data_type: TYPE_INT8 dims: [ -1, 1 ] }')

    with caplog.at_level("INFO"):
        server = serve(adders.folder, wait=False).server
        assert not server.wait_ready(READY_S)

    assert [line.partition(": ")[0] for line in str(server.failure).splitlines()] == [
        "Model 'damaged' is required but didn't load",
        "Model 'narrow' is required but didn't load",
    ]
    assert f"input 'x' should be INT8, and is FP32 ({adders.folder}/narrow/config.pbtxt:1)" in str(server.failure)
    assert "Loaded model" not in caplog.text
