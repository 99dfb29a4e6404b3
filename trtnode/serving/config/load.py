"""servable.yaml: read, checked, and every fault reported with its file, line and field."""

from __future__ import annotations

import logging
import os
import pathlib
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pydantic
from pydantic_core import ErrorDetails

from trtnode.engines.build.options import CompileOptions
from trtnode.serving.config.checks import cluster_problems, scaling_problems, setting_problems
from trtnode.serving.errors import ConfigError, Problem
from trtnode.serving.schema.model import ModelConfig
from trtnode.serving.schema.problems import contrast, field_text, problem_at, read_text, structure_text
from trtnode.serving.schema.server import ServableConfig
from trtnode.serving.schema.yaml_reader import Location, YamlProblemError, YamlTree, read_yaml

logger = logging.getLogger(__name__)

MAX_BYTES = 1 << 20
GONE: dict[Location, str] = {
    ("server", "grpc", "direct"): "all requests go past grpcio's Python layer; take it out",
    **dict.fromkeys(
        (("cache", "shared"), ("cache", "shared_key")),
        "compile once with `trtnode compile`, and give that file to all machines",
    ),
    **{("models", 0, key): instead for key, instead in CompileOptions.gone.items()},
    ("models", 0, "approximate"): "no approximation was faster beyond chance; take it out",
    ("models", 0, "optimize"): "name the rewrites to leave out in no_optimize",
    ("models", 0, "step_down"): "a variant is chosen once, when it is loaded; take it out",
    ("models", 0, "batching", "adaptive"): "set max_batch_size and max_queue_delay_us yourself",
    ("models", 0, "batching", "latency_target_ms"): "variants of the model hold one; timeout_ms bounds the queue",
    ("models", 0, "preprocess", 0, "tiles", "low_texture"): "every tile runs in the model; take it out",
    ("models", 0, "tensorrt", "strip_plan"): "engines keep their weights; take it out",
    ("models", 0, "tensorrt", "build_timeout_s"): "set build_timeout_s of the model, for engines of any library",
}
"""Keys of earlier releases that have no effect any more, and what to do instead. A position in a list is 0."""


def load_config(
    path: pathlib.Path,
    environment: Mapping[str, str] = os.environ,
    overrides: Mapping[tuple[str, ...], object] = types.MappingProxyType({}),
    *,
    on_ray: bool = False,
    models: Sequence[ModelConfig] | None = None,
) -> ServableConfig:
    """Read a servable.yaml; relative paths in it become paths relative to its folder.

    Args:
        path: The file.
        environment: The variables that it may name.
        overrides: Values that replace what it says, by place, such as ``("server", "grpc", "port")``.
        on_ray: Whether a Ray cluster is to serve it.
        models: The models, if they come from elsewhere: the file has none then.

    Raises:
        ConfigError: The file can't be used. The error names all problems of the first stage that finds any: reading,
            structure, then what the settings ask for.
    """
    tree = _read_tree(path, environment)
    _drop_gone_keys(tree, path)
    if models is not None:
        if ("models",) in tree.lines:
            problem = "names models, and so does the command; leave them out here, or name none there"
            raise ConfigError(path, [problem_at(tree, ("models",), problem)])
        overrides = {**overrides, ("models",): list(models)}
    for place, value in overrides.items():
        _set(tree.value, place, value)
    try:
        config = ServableConfig.model_validate(tree.value, context={"folder": path.absolute().parent})
    except pydantic.ValidationError as error:
        raise ConfigError(path, list(_structure_problems(error.errors(), tree))) from None
    for number, model in enumerate(config.models if ("models",) in tree.lines else ()):
        for side in ("inputs", "outputs"):
            for name, tensor in getattr(model.interface, side, {}).items():
                tensor.stands_at(f"{path}:{problem_at(tree, ('models', number, 'interface', side, name), '').line}")
    faults = [*setting_problems(config), *(cluster_problems if on_ray else scaling_problems)(config)]
    if not config.models and models is None:
        faults.insert(0, (("models",), "names no model; give at least one name and path"))
    problems = [problem_at(tree, place, text) for place, text in faults]
    if problems:
        raise ConfigError(path, problems)
    return config


def _read_tree(path: pathlib.Path, environment: Mapping[str, str]) -> YamlTree:
    try:
        tree = read_yaml(read_text(path, MAX_BYTES, "servable.yaml"), environment)
    except YamlProblemError as error:
        raise ConfigError(path, [Problem(str(error), field_text(error.location), error.line)]) from None
    if not isinstance(tree.value, dict):
        found = "is empty" if tree.value is None else "is not a mapping"
        raise ConfigError(path, [Problem(f"{found}; it needs at least models: with a name and a path")])
    return tree


def _drop_gone_keys(tree: YamlTree, path: pathlib.Path) -> None:
    for place, line in tree.lines.items():
        instead = GONE.get(tuple(0 if isinstance(step, int) else step for step in place))
        if instead is not None:
            *sections, key = place
            section: Any = tree.value
            for name in sections:
                section = section[name]
            del section[key]
            logger.warning("%s:%d: %s has no effect: %s", path, line, field_text(place), instead)


def _set(tree: object, place: Sequence[str], value: object) -> None:
    """Put a value into nested mappings. What is no mapping stays, for the check of the structure to report."""
    *sections, key = place
    for section in sections:
        if not isinstance(tree, dict):
            return
        tree = tree.setdefault(section, {})
    if isinstance(tree, dict):
        tree[key] = value


def _structure_problems(errors: Iterable[ErrorDetails], tree: YamlTree) -> Iterator[Problem]:
    """Yield one problem a location.

    Where no branch of a choice fits, pydantic reports them all: the deepest fault is the one to correct, and faults
    of one value are joined.
    """
    found: dict[Location, list[ErrorDetails]] = {}
    for error in errors:
        found.setdefault(_place(error, tree), []).append(error)
    for place, faults in found.items():
        if not any(other != place and other[: len(place)] == place for other in found):
            texts = dict.fromkeys(structure_text(fault) for fault in faults)
            yield problem_at(tree, place, ", or ".join(texts) + contrast(faults[0]))


def _place(error: ErrorDetails, tree: YamlTree) -> Location:
    """Return the location in the file: without the branches of a choice that pydantic names on the way."""
    place: Location = ()
    for step in error["loc"]:
        place = (*place, step) if (*place, step) in tree.lines else place
    return (*place, error["loc"][-1]) if error["type"] == "missing" else place
