"""Files of texts as samples of a model: .txt with a text a line, .jsonl with a text, a pair or an object a line."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import json
import pathlib
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from trtnode.engines.artifact.temporary_folder import TemporaryFolder
from trtnode.engines.build.options import CompileOptions
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.partitioner.model.loading import load_model
from trtnode.partitioner.model.regular_files import read_regular
from trtnode.serving.errors import InvalidRequestError, TextModelError
from trtnode.serving.schema.model import ModelConfig
from trtnode.serving.schema.pipeline import PreprocessConfig
from trtnode.serving.schema.text import TokenizeConfig
from trtnode.serving.text.sentence_folder import CONFIG, as_folder_says
from trtnode.serving.text.text_model import TEXT, load_tokenizer, tokenizing

SUFFIXES = (".txt", ".jsonl")

SETS, BATCHES = ("calibration", "data"), ("inputs", "check_inputs")
"""Arguments of commands that name many samples, and those that name one of many rows."""

ONE = "all.npz"
UNBOUNDED = {"max_texts": 1_000_000, "max_characters": 1 << 30}


def are_texts(source: object) -> bool:
    """Return whether an argument names a file of texts."""
    return isinstance(source, str | pathlib.Path) and str(source).endswith(SUFFIXES)


@contextlib.contextmanager
def tokenized_arguments(arguments: argparse.Namespace) -> Iterator[None]:
    """Let the arguments of a command name files of arrays where they name files of texts.

    Raises:
        TextModelError: A file can't be used, or there is no tokenizer for the model.
        PartitionError: The model can't be read.
    """
    models = getattr(arguments, "models", None) or [arguments.model]
    with TemporaryFolder() as folder:
        for name in (*SETS, *BATCHES):
            source = getattr(arguments, name, None)
            if not are_texts(source):
                continue
            path, target = pathlib.Path(str(source)), folder / name
            if isinstance(models[0], pathlib.Path):
                _write(_beside(models[0]), models[0], path, target, as_one=name in BATCHES)
            else:  # the name of a model on a server, which tokenizes itself
                target.mkdir()
                _save(target / ONE, {TEXT: np.array(read_texts(path))})
            setattr(arguments, name, str(target) if name in SETS else target / ONE)
        yield


def with_arrays(
    config: ModelConfig, model: pathlib.Path, options: CompileOptions, folder: pathlib.Path
) -> CompileOptions:
    """Return the options of a model's compilation with arrays for samples that are texts.

    Args:
        config: How the model is served.
        model: Its file, with all of its other stages.
        options: Those that may name texts.
        folder: Gets the arrays.

    Raises:
        TextModelError: A file can't be used, or the model takes no texts.
    """
    calibration, checked = options.calibration, options.check_inputs
    if are_texts(calibration.data):
        source = pathlib.Path(str(calibration.data))
        target = folder / f"texts-{hashlib.sha256(repr((read_texts(source), config.preprocess)).encode()).hexdigest()}"
        _write(config, model, source, target, as_one=False)
        calibration = dataclasses.replace(calibration, data=str(target))
    if checked is not None and are_texts(checked):
        _write(config, model, checked, folder / "checked", as_one=True)
        checked = folder / "checked" / ONE
    return dataclasses.replace(options, calibration=calibration, check_inputs=checked)


def read_texts(path: pathlib.Path) -> list[Any]:
    """Return the texts or pairs of a file; empty lines are left out.

    Raises:
        TextModelError: It can't be read, has no text, or a line of another form.
    """
    try:
        lines = [line.rstrip("\r") for line in read_regular(path).decode("utf-8-sig").split("\n")]
    except OSError as error:
        raise TextModelError(path, f"it can't be read ({error.strerror}); correct the path") from None
    except UnicodeDecodeError:
        raise TextModelError(path, "it is not UTF-8; save the file as UTF-8") from None
    found = {number: line for number, line in enumerate(lines, 1) if line.strip()}
    if not found:
        raise TextModelError(path, "it has no texts; write one a line")
    if path.suffix == ".txt":
        return list(found.values())
    texts = [_parsed(path, number, line) for number, line in found.items()]
    if len({type(text) for text in texts}) > 1:
        raise TextModelError(path, "it has texts and pairs; write one kind")
    return texts


def _parsed(path: pathlib.Path, number: int, line: str) -> str | list[str]:
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(line)
        if isinstance(found, dict):
            found = [found["query"], found.get("document")] if "query" in found else found.get("text")
        if isinstance(found, str) or (isinstance(found, list) and [*map(type, found)] == [str, str]):
            return found
    known = '"text", ["text", "other"], {"text": ...} or {"query": ..., "document": ...}'
    raise TextModelError(path, f"line {number} is none of {known}")


def _beside(model: pathlib.Path) -> ModelConfig:
    """Return how a file is served that lies in the folder of a model of text, or beside a tokenizer."""
    if model.is_dir():
        raise TextModelError(model, "it is a folder; name its .onnx file for samples of text")
    for folder in (model.parent, model.parent.parent):
        if (folder / CONFIG).is_file():
            file = str(model.relative_to(folder))
            return as_folder_says(ModelConfig(name="m", path=model, file=file))[0]
    path = model.parent / "tokenizer.json"
    if not path.is_file():
        problem = f"there is no such file; put that of {model.name} there for samples of text, or give arrays (.npz)"
        raise TextModelError(path, problem)
    return ModelConfig(name="m", path=model, preprocess=(PreprocessConfig(tokenize=TokenizeConfig(file=path)),))


def _write(
    config: ModelConfig, model: pathlib.Path, source: pathlib.Path, folder: pathlib.Path, *, as_one: bool
) -> None:
    """Write the texts of a file as the inputs of a model: a file each, or one of all."""
    texts, stage, asked = read_texts(source), tokenizing(config), config.text
    if stage is None:
        raise TextModelError(source, "it has texts, and the model takes none; add tokenize to preprocess")
    stage = stage.model_copy(update={"pair": not isinstance(texts[0], str), **UNBOUNDED})
    tokenizer = load_tokenizer(model, stage, [TensorSpec.of(value) for value in load_model(model).graph.inputs])
    prompt = asked.prompts[asked.default_prompt] if asked is not None and asked.default_prompt is not None else ""
    folder.mkdir()
    try:
        for number, one in enumerate([texts] if as_one else ([text] for text in texts)):
            arrays = tokenizer.encode("sample", one, prompt=prompt)
            _save(folder / (ONE if as_one else f"{number:06}.npz"), arrays)
    except InvalidRequestError as error:
        raise TextModelError(source, str(error)) from None


def _save(path: pathlib.Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an .npz that is equal for equal arrays, whenever it is written."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
