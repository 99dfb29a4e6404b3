"""Triton's model repository as a configuration: a folder of models, each with version folders and a ``config.pbtxt``.

Source: docs/user_guide/model_repository.md and model_configuration.md of triton-inference-server/server.
"""

from __future__ import annotations

import logging
import pathlib
from collections.abc import Iterable, Iterator

from trtnode.partitioner.model.regular_files import without_links
from trtnode.protos import ModelConfig as TritonConfig
from trtnode.serving.errors import ConfigError, Problem
from trtnode.serving.models.version_files import DEFAULT_FILE, find_versions
from trtnode.serving.schema.model import ModelConfig
from trtnode.serving.schema.server import ServableConfig
from trtnode.serving.triton.conversion import model_of, problems_of
from trtnode.serving.triton.keys import Finding
from trtnode.serving.triton.text import ConfigText

logger = logging.getLogger(__name__)

CONFIG_FILE = "config.pbtxt"


def models_in(repository: pathlib.Path, name: str | None = None) -> list[ModelConfig]:
    """Return the ``models`` of a servable.yaml that serves a repository as Triton would.

    A folder that holds a model's version folders, or its file, is a repository of one. What has no effect here is
    logged, one line a setting.

    Args:
        repository: Its folder.
        name: The name of its only model; None for that of the folder, or in its ``config.pbtxt``.

    Raises:
        ConfigError: The folder can't be read or holds no model, or a ``config.pbtxt`` asks for what isn't possible.
    """
    if repository.is_file():
        problem = "is a file; name the folder that holds the models' folders, such as resnet50/"
        raise ConfigError(repository, [Problem(problem)])
    try:
        folders = sorted(entry for entry in repository.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise ConfigError(repository, [Problem(f"can't be read ({error.strerror}); check the path")]) from None
    if (repository / DEFAULT_FILE).is_file() or find_versions(repository):
        return [_model(repository, name, alone=True)]
    if name is not None and len(folders) > 1:
        problem = f"holds {len(folders)} models, and --name is about one; leave it out"
        raise ConfigError(repository, [Problem(problem)])
    if not folders:
        problem = f"holds no model; a model is a folder, such as resnet50/1/{DEFAULT_FILE}"
        raise ConfigError(repository, [Problem(problem)])
    return [_model(folder, name) for folder in folders]


def _model(folder: pathlib.Path, name: str | None, *, alone: bool = False) -> ModelConfig:
    """Return the model of a folder; of one that stands alone, ``config.pbtxt`` may give the name."""
    file = folder / CONFIG_FILE
    text = ConfigText(file) if file.exists() else None
    config = text.message if text is not None else TritonConfig()
    refused, logged = problems_of(config)
    name = name or (config.name if alone else "") or folder.absolute().name
    refused += _about_folder(config, folder, alone=alone)
    model, faults = (None, refused) if refused else model_of(config, name, folder)
    if model is None or faults:
        lines = {one.place: text.line(one.place) if text is not None else None for one in faults}
        raise ConfigError(file, [Problem(one.text, one.place, lines[one.place]) for one in faults])
    for one in logged:
        logger.warning("%s:%s: %s: %s", file, text.line(one.place) if text is not None else "", one.place, one.text)
    for side in ("input", "output"):
        for index, tensor in enumerate(getattr(config, side)):
            place = text.line(f"{side}[{index}].dims") if text is not None else None
            getattr(model.interface, f"{side}s")[tensor.name].stands_at(f"{file}:{place}")
    return model.model_copy(update={"path": folder / DEFAULT_FILE}) if (folder / DEFAULT_FILE).is_file() else model


def _about_folder(config: TritonConfig, folder: pathlib.Path, *, alone: bool) -> Iterator[Finding]:
    if not alone and config.name not in ("", folder.name):
        yield Finding("name", f"is {config.name!r} in the folder {folder.name!r}; give both the same name", True)
    if config.default_model_filename not in ("", *_only_files(folder)):
        name = config.default_model_filename
        text = f"is {name!r}; call the file {DEFAULT_FILE}, or leave it alone in its folder"
        yield Finding("default_model_filename", text, refused=True)


def _only_files(folder: pathlib.Path) -> Iterable[str]:
    """Return the names under which each version's file is found by default."""
    found = {entry.name for entry in folder.glob("*/*.onnx")}
    return (DEFAULT_FILE, *found) if len(found) == 1 else (DEFAULT_FILE,)


def check_libraries(repository: pathlib.Path, config: ServableConfig) -> None:
    """Refuse libraries of custom operators outside of the folders that the server's own configuration names.

    Raises:
        ConfigError: A ``config.pbtxt`` names one. It is a part of the repository, and the library would run here.
    """
    folders = [without_links(folder) for folder in config.server.custom_op_folders]
    for model in config.models:
        for library in model.options.custom_op_libraries:
            if not any(library.is_relative_to(folder) for folder in folders):
                text = (
                    f"{library} is below none of server.custom_op_folders; name its folder there (--config), or move it"
                )
                file = repository / model.name / CONFIG_FILE
                raise ConfigError(file, [Problem(text, "model_operations.op_library_filename")])
