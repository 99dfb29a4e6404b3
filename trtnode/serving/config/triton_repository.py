"""Triton's model repository as a configuration: a folder of models, each with version folders and a ``config.pbtxt``.

Source: docs/user_guide/model_repository.md and model_configuration.md of triton-inference-server/server.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import pathlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from trtnode.engines.artifact.files import write_model
from trtnode.engines.artifact.temporary_folder import TemporaryFolder
from trtnode.engines.backends.names import NATIVE
from trtnode.partitioner.errors import PipelineError
from trtnode.partitioner.model.regular_files import without_links
from trtnode.protos import ModelConfig as TritonConfig
from trtnode.serving.config.checks import ensemble_problems, setting_problems
from trtnode.serving.errors import ConfigError, Problem
from trtnode.serving.models.pipelines import chain_model
from trtnode.serving.models.version_files import DEFAULT_FILE, find_versions
from trtnode.serving.schema.model import OPTIONS, ModelConfig
from trtnode.serving.schema.problems import field_text
from trtnode.serving.schema.server import ServableConfig, ServerConfig
from trtnode.serving.schema.yaml_reader import Location
from trtnode.serving.triton.conversion import STATE_FOLDER, field_of_step, model_of, problems_of, triton_config
from trtnode.serving.triton.keys import Finding
from trtnode.serving.triton.text import ConfigText

logger = logging.getLogger(__name__)

CONFIG_FILE = "config.pbtxt"


@dataclasses.dataclass(frozen=True, slots=True)
class TritonRepository:
    """A model repository of Triton, as the source of models.

    Attributes:
        folder: Its folder.
        name: The name of its only model; None for that of the folder, or in its ``config.pbtxt``.
        options: Options of the compilation of all models, by field; they win over those of a ``config.pbtxt``.
    """

    folder: pathlib.Path
    name: str | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def names(self) -> list[str]:
        """Return the models that are there now; none where the folder can't be read."""
        with contextlib.suppress(ConfigError):
            return [name for name in _folders(self.folder, self.name) if name]
        return []

    def read(self, wanted: Collection[str] | None, server: ServerConfig) -> Sequence[ModelConfig]:
        """Return models as they are described now; see ``ModelSource``."""
        models, faults = _read(self.folder, self.name, wanted)
        models = [self._with_options(model) for model in models]
        config = ServableConfig.model_validate({"server": server, "models": models})
        faults += [self._problem(config, *fault) for fault in setting_problems(config)]
        faults += _foreign_libraries(self.folder, config)
        if faults:
            raise ConfigError.joined(faults)
        return config.models

    def _with_options(self, model: ModelConfig) -> ModelConfig:
        options = dict(self.options)
        if options.get("engine") == NATIVE:
            options["precision"] = "fp32"  # that of an accelerator is no other's
        return model.model_copy(update={OPTIONS: dataclasses.replace(model.options, **options)})

    def _problem(self, config: ServableConfig, place: Location, text: str) -> ConfigError:
        """Return a fault with the model's name in its field, since a repository has no list of models."""
        match place:
            case ("models", int(index), "ensemble" | "interface", *_) if config.models[index].ensemble:
                return step_problem(config.models[index], place[2:], text)
            case ("models", int(index), *inner):
                field = ".".join([config.models[index].name, field_text(tuple(inner))]).rstrip(".")
                return ConfigError(self.folder, [Problem(text, field)])
        return ConfigError(self.folder, [Problem(text, field_text(place))])


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
    models, faults = _read(repository, name, None)
    if faults:
        raise ConfigError.joined(faults)
    return models


def _folders(repository: pathlib.Path, name: str | None) -> dict[str, pathlib.Path]:
    """Return the folder of each model by name, which is empty where the model's own configuration says it.

    Raises:
        ConfigError: The folder can't be read.
    """
    if repository.is_file():
        problem = "is a file; name the folder that holds the models' folders, such as resnet50/"
        raise ConfigError(repository, [Problem(problem)])
    try:
        folders = sorted(entry for entry in repository.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise ConfigError(repository, [Problem(f"can't be read ({error.strerror}); check the path")]) from None
    if (repository / DEFAULT_FILE).is_file() or find_versions(repository):
        return {name or "": repository}
    if name is not None and len(folders) > 1:
        problem = f"holds {len(folders)} models, and --name is about one; leave it out"
        raise ConfigError(repository, [Problem(problem)])
    return {name or folder.name: folder for folder in folders}


def _read(
    repository: pathlib.Path, name: str | None, wanted: Collection[str] | None
) -> tuple[list[ModelConfig], list[ConfigError]]:
    """Return the models of a repository that can be had, without ensembles of others, and the faults of the others.

    Names that aren't there have no model; a repository of one has it whatever the name.

    Raises:
        ConfigError: The folder can't be read, or holds no model.
    """
    folders = _folders(repository, name)
    if not folders and wanted is None:
        problem = f"holds no model; a model is a folder, such as resnet50/1/{DEFAULT_FILE}"
        raise ConfigError(repository, [Problem(problem)])
    models: dict[str, ModelConfig] = {}
    refused: dict[str, ConfigError] = {}
    waiting = list(folders if wanted is None or repository in folders.values() else wanted)
    for one in waiting:  # it grows by the models that ensembles run
        if one in folders and one not in models and one not in refused:
            try:
                models[one] = _model(folders[one], one, alone=folders[one] is repository)
                waiting += [step.model for step in models[one].ensemble]
            except ConfigError as error:
                refused[one] = error
    faults, told = [], set()
    for model in models.values():
        for index, step in enumerate(model.ensemble):
            if step.model in refused:
                text = f"{step.model!r} can't be a step ({refused[step.model]}); correct that, or export an ONNX model"
                faults.append(step_problem(model, ("ensemble", index, "model"), text))
                told.add(step.model)
    whole = [one for one in models.values() if not any(step.model in refused for step in one.ensemble)]
    return whole, faults + [error for one, error in refused.items() if one not in told]


@contextlib.contextmanager
def ensemble_file(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Merge the ensemble of a folder into a temporary file, and yield that; a folder of anything else is yielded.

    Raises:
        ConfigError: The repository can't be used.
    """
    file = folder / CONFIG_FILE
    if not (file.is_file() and ConfigText(file).message.ensemble_scheduling.step):
        yield folder
        return
    models = ServableConfig.model_validate({"models": models_in(folder.absolute().parent)}).models
    (model,) = (one for one in models if one.name == folder.absolute().name)
    for place, text in ensemble_problems(model, {one.name for one in models}):
        raise step_problem(model, place, text)
    try:
        merged = chain_model(model)
    except PipelineError as error:
        raise step_problem(model, error.place, error.problem) from error
    with TemporaryFolder() as written:
        write_model(merged, written / f"{model.name}.onnx")
        yield written / f"{model.name}.onnx"


def _model(folder: pathlib.Path, name: str, *, alone: bool) -> ModelConfig:
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


def step_problem(model: ModelConfig, place: Sequence[str | int], text: str) -> ConfigError:
    """Return what is wrong with an ensemble of a repository, with its field and line."""
    file = model.path / CONFIG_FILE
    field = field_of_step(place, triton_config(model))
    return ConfigError(file, [Problem(text, field, ConfigText(file).line(field))])


def _about_folder(config: TritonConfig, folder: pathlib.Path, *, alone: bool) -> Iterator[Finding]:
    if not alone and config.name not in ("", folder.name):
        yield Finding("name", f"is {config.name!r} in the folder {folder.name!r}; give both the same name", True)
    for index, state in enumerate(config.sequence_batching.state):
        for first in state.initial_state:
            if first.data_file and not without_links(folder / STATE_FOLDER / first.data_file).is_relative_to(
                without_links(folder)
            ):
                text = f"{first.data_file!r} is outside of the model's folder; put it into its {STATE_FOLDER}/"
                yield Finding(f"sequence_batching.state[{index}].initial_state", text, refused=True)
    if config.default_model_filename not in ("", *_only_files(folder)):
        name = config.default_model_filename
        text = f"is {name!r}; call the file {DEFAULT_FILE}, or leave it alone in its folder"
        yield Finding("default_model_filename", text, refused=True)


def _only_files(folder: pathlib.Path) -> Iterable[str]:
    """Return the names under which each version's file is found by default."""
    found = {entry.name for entry in folder.glob("*/*.onnx")}
    return (DEFAULT_FILE, *found) if len(found) == 1 else (DEFAULT_FILE,)


def _foreign_libraries(repository: pathlib.Path, config: ServableConfig) -> Iterator[ConfigError]:
    """Yield what names libraries of custom operators outside of the folders that the server's configuration names.

    A ``config.pbtxt`` is a part of the repository, and the library would run here.
    """
    folders = [without_links(folder) for folder in config.server.custom_op_folders]
    for model in config.models:
        for library in model.options.custom_op_libraries:
            if not any(library.is_relative_to(folder) for folder in folders):
                text = (
                    f"{library} is below none of server.custom_op_folders; name its folder there (--config), or move it"
                )
                file = repository / model.name / CONFIG_FILE
                yield ConfigError(file, [Problem(text, "model_operations.op_library_filename")])
