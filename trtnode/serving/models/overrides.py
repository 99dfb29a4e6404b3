"""Changes by a request to load a model: settings, and files that it brings along."""

from __future__ import annotations

import dataclasses
import json
import logging
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import pydantic
from google.protobuf import json_format

from trtnode.engines.artifact.temporary_folder import TemporaryFolder
from trtnode.engines.build.options import CompileOptions
from trtnode.partitioner.options import without_gone
from trtnode.protos import ModelConfig as TritonConfig
from trtnode.serving.errors import InvalidRequestError, ModelChangeError
from trtnode.serving.schema.model import OPTIONS, ModelConfig
from trtnode.serving.schema.problems import structure_text, written
from trtnode.serving.triton.conversion import model_of, problems_of, triton_config

logger = logging.getLogger(__name__)

OVERRIDABLE = (
    "versions", "engine", "precision", "measure", "no_optimize", "nan", "partition", "batching",
    "instances", "threads", "warmup",
)  # fmt: skip
"""Keys of a model in servable.yaml that a request may set. None of them is a path on the server."""

CONFIG_CHARACTERS = 1 << 20
"""Longest text of settings in a request; a longer one would make objects of many times its size."""
TRITON_KEYS = frozenset(name for field in TritonConfig.DESCRIPTOR.fields for name in (field.name, field.json_name))
"""Fields of Triton's model configuration, as JSON has them."""
TRITON_MADE = ("versions", "interface", "batching", "instances", "threads", "warmup", "state", "sequences")
"""Keys of a model that are made of these fields."""
_FILE = re.compile(r"file:([1-9][0-9]{0,17})/([A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)*)")


class UploadedFiles:
    """Files of a request in a temporary folder, which is deleted with the last reference to this object.

    Attributes:
        path: The folder; it holds version folders.
    """

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        """Write the files.

        Args:
            contents: Bytes by ``file:<version>/<path>``.

        Raises:
            InvalidRequestError: A name is no such path, or could lead out of the folder.
            OSError: A file can't be written.
        """
        places = {name: _FILE.fullmatch(name) for name in contents}
        for name, place in places.items():
            if place is None or ".." in name:
                raise InvalidRequestError(
                    f"the parameter {name[:255]!r} should be 'file:<version>/<path>' with a version from 1 and a plain "
                    "relative path, without '..'"
                )
        self._folder = TemporaryFolder()
        self.path = self._folder.path
        for name, content in contents.items():
            file = self.path / name.removeprefix("file:")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)


@dataclasses.dataclass(frozen=True, slots=True)
class Override:
    """The source of a model and its configuration.

    Attributes:
        config: The configuration in effect.
        files: What keeps its files there, if they came with a request.
    """

    config: ModelConfig
    files: object = None


def added_model(name: str) -> ModelConfig:
    """Return the configuration of a model that servable.yaml doesn't have; its files come with a request.

    Raises:
        InvalidRequestError: No model can have this name.
    """
    try:
        return ModelConfig.model_validate({"name": name, "path": pathlib.Path(), "required": False})
    except pydantic.ValidationError as error:
        raise InvalidRequestError(
            f"no model can be called {name[:255]!r}: {structure_text(error.errors()[0])}"
        ) from None


def read_override(config: ModelConfig, settings: str, contents: Mapping[str, bytes]) -> Override:
    """Apply what a request to load a model brings along.

    Args:
        config: The model as configured.
        settings: A JSON object with keys of the model's section in servable.yaml, see ``OVERRIDABLE``, or fields of
            Triton's model configuration, or both.
        contents: Bytes by ``file:<version>/<path>``; if there are any, they are all that is served.

    Raises:
        ModelChangeError: The files can't be written.
        InvalidRequestError: The settings or the name of a file are at fault.
    """
    given = _read_json(settings)
    changed = _as_triton_says(config, {key: given.pop(key) for key in list(given) if key in TRITON_KEYS})
    changed = changed.model_copy(update=_settings(changed, given))
    if not contents:
        return Override(changed)
    try:
        files = UploadedFiles(contents)
    except OSError as error:
        raise ModelChangeError(config.name, f"its files can't be written ({error.strerror})") from error
    return Override(changed.model_copy(update={"path": files.path, "variants": (), "ensemble": ()}), files)


def _as_triton_says(config: ModelConfig, given: Mapping[str, Any]) -> ModelConfig:
    """Return a model's configuration with what Triton's fields say in place of its own.

    As in Triton, they stand for the whole config.pbtxt of a model that has one.

    Raises:
        InvalidRequestError: A field is unknown, of another type, or can't be followed.
    """
    if not given:
        return config
    try:
        triton = json_format.ParseDict(dict(given), TritonConfig())
    except json_format.ParseError as error:
        raise InvalidRequestError(f"config: {str(error)[:1000]}") from None
    if triton.name not in ("", config.name):
        raise InvalidRequestError(f"config: name: is {triton.name[:255]!r}; leave it out, or write {config.name!r}")
    if not _files_named(triton) <= _files_named(triton_config(config)):
        raise InvalidRequestError(
            "config: a request can't name files of the server (op_library_filename, label_filename, data_file)"
        )
    refused, logged = problems_of(triton)
    made, faults = (None, refused) if refused else model_of(triton, config.name, config.path)
    if made is None or faults:
        raise InvalidRequestError(f"config: {faults[0].place}: {faults[0].text}")
    steps, own = ([step.model_dump() for step in one.ensemble] for one in (made, config))
    if steps not in ([], own):
        raise InvalidRequestError("config: ensemble_scheduling: its steps stand in the file; change them there")
    for one in logged:
        logger.warning("Model %r: config: %s: %s", config.name, one.place, one.text)
    replaced = TRITON_MADE if config.origin else made.model_fields_set & set(TRITON_MADE)
    options = {
        key: getattr(made.options, key) for key in ("engine", "precision") if config.origin or _is_set(made, key)
    }
    update = {key: getattr(made, key) for key in replaced}
    changed = config.model_copy(update={**update, OPTIONS: dataclasses.replace(config.options, **options)})
    changed.came_from(made.origin)
    return changed


def _files_named(config: TritonConfig) -> set[str]:
    """Return the files on the server that a configuration names: libraries, labels, and first values of state."""
    states = (first for state in config.sequence_batching.state for first in state.initial_state)
    labels = (one.label_filename for one in config.output)
    return {*config.model_operations.op_library_filename, *labels, *(one.data_file for one in states)} - {""}


def _is_set(model: ModelConfig, key: str) -> bool:
    return bool(getattr(model.options, key) != getattr(CompileOptions(), key))


def _read_json(text: str) -> dict[str, Any]:
    if len(text) > CONFIG_CHARACTERS:
        raise InvalidRequestError(f"the parameter 'config' has more than {CONFIG_CHARACTERS} characters")
    try:
        given = json.loads(text, parse_int=_whole_number)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the parameter 'config' is no JSON ({error})") from None
    if not isinstance(given, dict):
        raise InvalidRequestError("the parameter 'config' should be a JSON object")
    return given


def _settings(config: ModelConfig, given: Mapping[str, Any]) -> dict[str, object]:
    given = without_gone(CompileOptions, given, "config: {}".format)
    refused = sorted(set(given) - set(OVERRIDABLE))
    if refused:
        known = ", ".join(OVERRIDABLE)
        raise InvalidRequestError(
            f"config: {refused[0][:255]} can't be set by a request; {known} can, and fields of Triton's configuration"
        )
    try:
        read = ModelConfig.model_validate({"name": config.name, "path": config.path, **given})
    except pydantic.ValidationError as error:
        fault = error.errors()[0]
        located: Any = {**fault, "loc": written(("models", 0, *fault["loc"]))}
        place = ".".join(map(str, located["loc"][2:]))
        raise InvalidRequestError(f"config: {place}: {structure_text(located)}") from None
    for key, text in read.batching.problems() if read.batching else ():
        raise InvalidRequestError(f"config: batching.{key}: {text}")
    options = {key: getattr(read.options, key) for key in given if hasattr(read.options, key)}
    kept = {key: getattr(read, key) for key in given if key in ModelConfig.model_fields}
    return {**kept, OPTIONS: dataclasses.replace(config.options, **options)}


def _whole_number(digits: str) -> int:
    """Read a number of JSON. One that Python refuses to read for its length is too large for any key anyway."""
    return int(digits[:20])
