"""The configuration that the arguments of ``trtnode serve`` name: a file, a repository, or one model."""

from __future__ import annotations

import argparse
import pathlib
import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pydantic

from trtnode.engines.build.options import CompileOptions
from trtnode.engines.precision.options import Calibration
from trtnode.partitioner.errors import OptionError
from trtnode.partitioner.options import made_of
from trtnode.partitioner.wording import some_of
from trtnode.serving.config.checks import setting_problems
from trtnode.serving.config.load import load_config
from trtnode.serving.config.triton_repository import TritonRepository
from trtnode.serving.errors import ConfigError, InvalidOptionError, Problem
from trtnode.serving.schema.model import OPTIONS, ModelConfig
from trtnode.serving.schema.problems import contrast, field_text, structure_text
from trtnode.serving.schema.server import ServableConfig
from trtnode.serving.schema.yaml_reader import Location

ONE_FILE = "`trtnode serve model.onnx` serves one file without a configuration"
FOR_ALL = {"engine", "measure", "no_optimize"}
"""Options of the compilation that may be about all models of a repository."""
EXPLICIT = "explicit"
"""The mode in which only those models load that are named."""
ALL_MODELS = "*"
"""The name that stands for all models of a repository."""
_OPTIONS = {"path": "MODEL", "name": "--name", "grpc": "--port", "http": "--http-port"}


def config_from(
    arguments: argparse.Namespace, options: Mapping[str, object] = types.MappingProxyType({})
) -> ServableConfig:
    """Return the configuration that the arguments of ``serve`` name or describe. Ports and hosts in them win.

    Args:
        arguments: All but the options of the compilation.
        options: Those that are given, by name.

    Raises:
        ConfigError: The configuration file can't be used.
        InvalidOptionError: An option can't be used, or there is nothing to serve.
    """
    about_model = (*options, *(["name"] if arguments.name is not None else []))
    if arguments.model_repository is not None:
        return _repository(arguments, options)
    if arguments.model_control_mode == EXPLICIT or arguments.load_model:
        raise InvalidOptionError("--model-control-mode", "is about --model-repository; name one, or leave it out")
    if arguments.model is not None:
        config = _one_model(arguments, options)
        return config if arguments.config is None else _load(arguments, config.models)
    if arguments.config is None:
        raise InvalidOptionError("MODEL", f"is missing; {ONE_FILE}, and --config serves a servable.yaml")
    _refuse(about_model, f"with --config, write it in {arguments.config}")
    return _load(arguments)


def _load(arguments: argparse.Namespace, models: Sequence[ModelConfig] | None = None) -> ServableConfig:
    if arguments.config.suffix == ".onnx":
        raise InvalidOptionError("--config", f"{arguments.config} is a model, and no configuration; {ONE_FILE}")
    overrides: dict[tuple[str, ...], object] = dict(_addresses(arguments))
    return load_config(arguments.config, overrides=overrides, on_ray=arguments.on == "ray", models=models)


def valid_name(path: pathlib.Path) -> str:
    """Return a model name made of a file's stem or a folder's name: other characters become ``_``."""
    text = path.absolute().name if path.is_dir() else path.stem
    name = re.sub(r"\.{2,}", ".", re.sub(r"[^A-Za-z0-9_.-]", "_", text)).lstrip(".-")
    return name[:255] or "model"


def _repository(arguments: argparse.Namespace, options: Mapping[str, object]) -> ServableConfig:
    _refuse(options.keys() - FOR_ALL, "with --model-repository, write it in the model's config.pbtxt")
    made = made_of(CompileOptions, options)
    source = TritonRepository(
        arguments.model_repository, arguments.name, {name: getattr(made, name) for name in options}
    )
    try:
        served = {"server": _server(arguments), "models": ()}
        config = ServableConfig.model_validate(served) if arguments.config is None else _load(arguments, ())
    except pydantic.ValidationError as error:
        faults = [
            Problem(structure_text(fault) + contrast(fault), field_text(fault["loc"])) for fault in error.errors()
        ]
        raise ConfigError(arguments.model_repository, faults) from None
    named, wanted = arguments.load_model, None
    if arguments.model_control_mode == EXPLICIT:
        admin = config.server.admin.model_copy(update={"repository": True})
        config = config.model_copy(update={"server": config.server.model_copy(update={"admin": admin})})
        wanted = None if ALL_MODELS in named else named
    elif named:
        raise InvalidOptionError("--load-model", "needs --model-control-mode explicit; without it, all models load")
    models = source.read(wanted, config.server)
    for name in set(wanted or ()) - {model.name for model in models}:
        raise InvalidOptionError(
            "--load-model", f"there is no {name!r} in the repository; it has {some_of(source.names())}"
        )
    return config.with_models(models, source)


def _refuse(names: Iterable[str], instead: str) -> None:
    for name in names:
        raise InvalidOptionError(f"--{name.replace('_', '-')}", f"is about MODEL; {instead}")


def _one_model(arguments: argparse.Namespace, given: Mapping[str, object]) -> ServableConfig:
    name = valid_name(arguments.model) if arguments.name is None else arguments.name
    try:
        options = made_of(CompileOptions, given)
        model = {"name": name, "path": str(arguments.model), OPTIONS: options}
        config = ServableConfig.model_validate({"server": _server(arguments), "models": [model]})
    except OptionError as error:
        raise InvalidOptionError(f"--{error.name.replace('_', '-')}", error.problem) from None
    except pydantic.ValidationError as error:
        fault = error.errors()[0]
        raise InvalidOptionError(_option(fault["loc"]), structure_text(fault) + contrast(fault)) from None
    if options.precision in ("int8", "fp8") and options.calibration == Calibration():
        problem = f"{options.precision} needs ranges; add --calibration with samples of the inputs, or with the file"
        raise InvalidOptionError("--precision", f"{problem} that `trtnode calibrate` writes")
    for place, text in setting_problems(config):
        raise InvalidOptionError(_option(place), text)
    return config


def _server(arguments: argparse.Namespace) -> dict[str, dict[str, object]]:
    """Return the ports that options name, unless ``--config`` says what else there is to say about them."""
    server: dict[str, dict[str, object]] = {"grpc": {}, "http": {}}
    if arguments.config is not None:
        return server
    for (_, section, key), value in _addresses(arguments):
        server[section][key] = value
    return server


def _addresses(arguments: argparse.Namespace) -> Iterator[tuple[tuple[str, ...], object]]:
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
