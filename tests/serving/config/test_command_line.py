"""The configuration that the arguments of ``trtnode serve`` name."""

from __future__ import annotations

import argparse
import pathlib

import pytest

from trtnode.serving.cli.compile_flags import given_options
from trtnode.serving.cli.serve import SERVE
from trtnode.serving.config.command_line import config_from
from trtnode.serving.errors import ConfigError, InvalidOptionError
from trtnode.serving.schema.server import ServableConfig


@pytest.fixture
def model(models: pathlib.Path) -> pathlib.Path:
    return models / "two.onnx"


def config_of(*arguments: object) -> ServableConfig:
    parser = argparse.ArgumentParser()
    SERVE.configure(parser)
    given = parser.parse_args([str(one) for one in arguments])
    return config_from(given, given_options(given))


def test_options_describe_the_model_and_the_ports(model: pathlib.Path) -> None:
    about_ports = ("--host", "0.0.0.0", "--port", 9001, "--http-port", 0)
    config = config_of(model, "--name", "sum", "--engine", "native", "--precision", "bf16", *about_ports)

    (served,) = config.models
    assert (served.name, served.options.engine, served.options.precision) == ("sum", "native", "bf16")
    assert (config.server.grpc.host, config.server.grpc.port) == ("0.0.0.0", 9001)
    assert (config.server.http.host, config.server.http.port) == ("0.0.0.0", 0)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("resnet50-v1.7.onnx", "resnet50-v1.7"),
        ("my model (2).onnx", "my_model__2_"),
        ("..b...onnx", "b."),
        ("ü.onnx", "_"),
    ],
)
def test_a_name_is_made_of_the_files(file: str, name: str, model: pathlib.Path, tmp_path: pathlib.Path) -> None:
    copy = tmp_path / file
    copy.write_bytes(model.read_bytes())

    assert config_of(copy).models[0].name == name


def test_a_folder_of_versions_has_its_folders_name(model: pathlib.Path, tmp_path: pathlib.Path) -> None:
    version = tmp_path / "sum" / "3" / "model.onnx"
    version.parent.mkdir(parents=True)
    version.write_bytes(model.read_bytes())

    assert config_of(tmp_path / "sum").models[0].name == "sum"


@pytest.mark.parametrize(("file", "source"), [("samples.npz", "sampled"), ("ranges.json", "table")])
def test_calibration_names_samples_or_ranges(file: str, source: str, model: pathlib.Path) -> None:
    calibration = config_of(model, "--precision", "int8", "--calibration", file).models[0].options.calibration

    assert str(getattr(calibration, source)) == file


def test_options_about_ports_win_over_the_file(model: pathlib.Path, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "servable.yaml"
    file.write_text(f"server: {{grpc: {{port: 1, workers: 2}}}}\nmodels: [{{name: m, path: {model}}}]\n")

    server = config_of("--config", file, "--port", 7001, "--http-port", 7002).server

    assert (server.grpc.port, server.grpc.workers, server.http.port) == (7001, 2, 7002)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "MODEL: is missing; `trtnode serve model.onnx` serves one file without a configuration"),
        (["gone.onnx"], "MODEL: there is no file gone.onnx; correct the path"),
        (["MODEL", "--name", "a/b"], "--name: should be letters, digits"),
        (["MODEL", "--precision", "int8"], "--precision: int8 needs ranges; add --calibration"),
        (["MODEL", "--port", "7", "--http-port", "7"], "--http-port: server.grpc.port is 7 too"),
        (["--config", "MODEL"], "two.onnx is a model, and no configuration; `trtnode serve model.onnx` serves"),
        (["--config", "servable.yaml", "--engine", "native"], "--engine: is about MODEL; with --config, write it in"),
        (["--model-repository", "models", "--precision", "bf16"], "--precision: is about MODEL; with --model-repo"),
        (["MODEL", "--load-model", "m"], "--model-control-mode: is about --model-repository; name one, or leave it"),
    ],
)
def test_what_cannot_be_served_is_one_sentence(arguments: list[str], sentence: str, model: pathlib.Path) -> None:
    with pytest.raises(InvalidOptionError) as refusal:
        config_of(*(str(model) if one == "MODEL" else one for one in arguments))

    assert sentence in str(refusal.value)
    assert refusal.value.exit_code == 2


@pytest.mark.parametrize(
    "arguments", [["m.onnx", "--model-repository", "r"], ["m.onnx", "--port", "65536"], ["a", "b"]]
)
def test_arguments_that_exclude_each_other_are_refused(arguments: list[str], capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as exit_:
        config_of(*arguments)

    assert exit_.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_a_file_without_models_says_all_else_beside_a_model(model: pathlib.Path, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text("server: {grpc: {port: 8002, workers: 2}, http: {port: 9002}}\ncache: {dir: engines}\n")

    config = config_of(model, "--config", file, "--engine", "native", "--http-port", "9003")

    assert [(one.name, one.options.engine) for one in config.models] == [("two", "native")]
    assert (config.server.grpc.port, config.server.grpc.workers, config.server.http.port) == (8002, 2, 9003)
    assert config.cache.dir == tmp_path / "engines"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("server: {}\nmodels: [{name: m, path: m.onnx}]\n", "server.yaml:2: models: names models, and so does the"),
        ("server: {grpc: {port: 70000}}\n", "server.yaml:1: server.grpc.port: should be less than or equal to 65535"),
        (
            "server: {limits: {load_timeout_s: .inf}}\n",
            "server.yaml:1: server.limits.load_timeout_s: should be",
        ),
    ],
)
def test_a_fault_of_the_file_beside_a_model_is_told_with_its_line(
    text: str, sentence: str, model: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "server.yaml"
    file.write_text(text)

    with pytest.raises(ConfigError) as refusal:
        config_of(model, "--config", file)

    assert sentence in str(refusal.value)
