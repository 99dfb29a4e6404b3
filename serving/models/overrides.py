"""Changes by a request to load a model: settings, and files that it brings along."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import pydantic

from trtnode.engines.artifact.temporary_folder import TemporaryFolder
from trtnode.serving.errors import InvalidRequestError, ModelChangeError
from trtnode.serving.schema.model import OPTIONS, ModelConfig
from trtnode.serving.schema.options import RENAMED_KEYS
from trtnode.serving.schema.problems import structure_text, written

OVERRIDABLE = (
    "versions", "engine", "precision", "measure", "tune", "no_optimize", "optimize", "nan", "partition", "batching",
    "instances", "threads", "warmup",
)  # fmt: skip
"""Keys of a model in servable.yaml that a request may set. None of them is a path on the server."""

CONFIG_CHARACTERS = 1 << 20
"""Longest text of settings in a request; a longer one would make objects of many times its size."""
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
    files: UploadedFiles | None = None


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
        settings: A JSON object with keys of the model's section in servable.yaml, see ``OVERRIDABLE``.
        contents: Bytes by ``file:<version>/<path>``; if there are any, they are all that is served.

    Raises:
        ModelChangeError: The files can't be written.
        InvalidRequestError: The settings or the name of a file are at fault.
    """
    changed = config.model_copy(update=_settings(config, settings))
    if not contents:
        return Override(changed)
    try:
        files = UploadedFiles(contents)
    except OSError as error:
        raise ModelChangeError(config.name, f"its files can't be written ({error.strerror})") from error
    return Override(changed.model_copy(update={"path": files.path, "variants": ()}), files)


def _settings(config: ModelConfig, text: str) -> dict[str, object]:
    if len(text) > CONFIG_CHARACTERS:
        raise InvalidRequestError(f"the parameter 'config' has more than {CONFIG_CHARACTERS} characters")
    try:
        given = json.loads(text, parse_int=_whole_number)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the parameter 'config' is no JSON ({error})") from None
    if not isinstance(given, dict):
        raise InvalidRequestError("the parameter 'config' should be a JSON object")
    refused = sorted(set(given) - set(OVERRIDABLE))
    if refused:
        known = ", ".join(OVERRIDABLE)
        raise InvalidRequestError(f"config: {refused[0][:255]} can't be set by a request; {known} can")
    try:
        read = ModelConfig.model_validate({"name": config.name, "path": config.path, **given})
    except pydantic.ValidationError as error:
        fault = error.errors()[0]
        located: Any = {**fault, "loc": written(("models", 0, *fault["loc"]))}
        place = ".".join(map(str, located["loc"][2:]))
        raise InvalidRequestError(f"config: {place}: {structure_text(located)}") from None
    for key, text in read.batching.problems() if read.batching else ():
        raise InvalidRequestError(f"config: batching.{key}: {text}")
    names = {RENAMED_KEYS.get(key) or key for key in given}
    options = {name: getattr(read.options, name) for name in names if hasattr(read.options, name)}
    kept = {key: getattr(read, key) for key in given if key in ModelConfig.model_fields}
    return {**kept, OPTIONS: dataclasses.replace(config.options, **options)}


def _whole_number(digits: str) -> int:
    """Read a number of JSON. One that Python refuses to read for its length is too large for any key anyway."""
    return int(digits[:20])
