"""The configuration that the arguments of ``trtnode serve`` name: a file, a repository, or one model."""

from __future__ import annotations

import argparse
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pydantic

from trtnode.engines.backends.names import RANGES_SUFFIX, left_out
from trtnode.serving.config.checks import setting_problems
from trtnode.serving.config.load import load_config
from trtnode.serving.config.triton_repository import models_in
from trtnode.serving.errors import ConfigError, InvalidOptionError, Problem
from trtnode.serving.schema.problems import contrast, field_text, structure_text
from trtnode.serving.schema.server import ServableConfig
from trtnode.serving.schema.yaml_reader import Location

ONE_FILE = "`trtnode serve model.onnx` serves one file without a configuration"
_MODEL_KEYS = ("name", "engine", "precision", "calibration", "no_optimize")
_OPTIONS = {"path": "MODEL", "name": "--name", "calibration": "--calibration", "grpc": "--port", "http": "--http-port"}


def config_from(arguments: argparse.Namespace) -> ServableConfig:
    """Return the configuration that the arguments of ``serve`` name or describe. Ports and hosts in them win.

    Raises:
        ConfigError: The configuration file can't be used.
        InvalidOptionError: An option can't be used, or there is nothing to serve.
    """
    if arguments.config is not None:
        return _config_in_file(arguments)
    if arguments.model_repository is not None:
        return _config_of_repository(arguments)
    if arguments.model is None:
        raise InvalidOptionError("MODEL", f"is missing; {ONE_FILE}, and --config serves a servable.yaml")
    return _config_of(arguments)


def valid_name(path: pathlib.Path) -> str:
    """Return a model name made of a file's stem or a folder's name: other characters become ``_``."""
    text = path.absolute().name if path.is_dir() else path.stem
    name = re.sub(r"\.{2,}", ".", re.sub(r"[^A-Za-z0-9_.-]", "_", text)).lstrip(".-")
    return name[:255] or "model"


def _config_in_file(arguments: argparse.Namespace) -> ServableConfig:
    _refuse_model_options(arguments, f"with --config, write it in {arguments.config}")
    if arguments.config.suffix == ".onnx":
        raise InvalidOptionError("--config", f"{arguments.config} is a model, and no configuration; {ONE_FILE}")
    return load_config(arguments.config, overrides=dict(_addresses(arguments)), on_ray=arguments.on == "ray")


def _config_of_repository(arguments: argparse.Namespace) -> ServableConfig:
    _refuse_model_options(arguments, "with --model-repository, write it in the model's config.pbtxt")
    repository = arguments.model_repository
    value = {"server": _server(arguments), "models": models_in(repository)}
    try:
        config = ServableConfig.model_validate(value)
    except pydantic.ValidationError as error:
        faults = [(fault["loc"], structure_text(fault) + contrast(fault)) for fault in error.errors()]
    else:
        faults = list(setting_problems(config))
    if faults:
        raise ConfigError(repository, [Problem(text, _field(value, place)) for place, text in faults])
    return config


def _refuse_model_options(arguments: argparse.Namespace, instead: str) -> None:
    for key in _MODEL_KEYS:
        if getattr(arguments, key) is not None:
            raise InvalidOptionError(f"--{key.replace('_', '-')}", f"is about MODEL; {instead}")


def _field(value: Mapping[str, Any], place: Location) -> str:
    """Write a place with the model's name in it, since a repository has no list of models."""
    match place:
        case ("models", int(index), *rest):
            return ".".join([value["models"][index]["name"], field_text(tuple(rest))]).rstrip(".")
    return field_text(place)


def _config_of(arguments: argparse.Namespace) -> ServableConfig:
    if arguments.precision in ("int8", "fp8") and arguments.calibration is None:
        problem = f"{arguments.precision} needs ranges; add --calibration with samples of the inputs, or with the file"
        raise InvalidOptionError("--precision", f"{problem} that `trtnode calibrate` writes")
    given = {key: getattr(arguments, key) for key in _MODEL_KEYS if getattr(arguments, key) is not None}
    model: dict[str, Any] = {"name": valid_name(arguments.model), "path": str(arguments.model), **given}
    if model.pop("no_optimize", None):
        model["optimize"] = dict.fromkeys(left_out(arguments.no_optimize), False)
    if arguments.calibration is not None:
        key = "ranges" if arguments.calibration.endswith(RANGES_SUFFIX) else "data"
        model["calibration"] = {key: arguments.calibration}
    try:
        config = ServableConfig.model_validate({"server": _server(arguments), "models": [model]})
    except pydantic.ValidationError as error:
        fault = error.errors()[0]
        raise InvalidOptionError(_option(fault["loc"]), structure_text(fault) + contrast(fault)) from None
    for place, text in setting_problems(config):
        raise InvalidOptionError(_option(place), text)
    return config


def _server(arguments: argparse.Namespace) -> dict[str, dict[str, object]]:
    server: dict[str, dict[str, object]] = {"grpc": {}, "http": {}}
    for (_, section, key), value in _addresses(arguments):
        server[section][key] = value
    return server


def _addresses(arguments: argparse.Namespace) -> Iterator[tuple[tuple[str, str, str], object]]:
    """Yield the place in servable.yaml, and the value, of each option about the ports."""
    if arguments.host is not None:
        yield ("server", "grpc", "host"), arguments.host
        yield ("server", "http", "host"), arguments.host
    if arguments.port is not None:
        yield ("server", "grpc", "port"), arguments.port
    if arguments.http_port is not None:
        yield ("server", "http", "port"), arguments.http_port


def _option(place: Location) -> str:
    return next((_OPTIONS[step] for step in place if isinstance(step, str) and step in _OPTIONS), "MODEL")
