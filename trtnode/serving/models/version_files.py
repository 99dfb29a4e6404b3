"""The files of a model: one ONNX file, or a folder that holds a numbered folder for each version."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Iterator, Mapping

from trtnode.serving.errors import IncompleteFilesError, TextModelError
from trtnode.serving.schema.fields import Section
from trtnode.serving.schema.model import LatestVersions, ModelConfig, StepConfig
from trtnode.serving.text.sentence_folder import CONFIG, model_file

ONLY_VERSION = 1
"""The version of a model that is a single file."""

DEFAULT_FILE = "model.onnx"
"""The file of a version folder that holds more than one."""

ENSEMBLE_FILE = "ensemble.onnx"
"""The name of the file that the models of an ensemble are merged into."""

Fact = tuple[str, int, int, int]
"""Name, inode, size and time of change of a file."""
Stamp = tuple[Fact, ...]
"""Facts of each file of a version: equal as long as nobody writes to them."""

_beside: dict[pathlib.Path, tuple[str, ...]] = {}
"""The files beside a model that its last load has read, by the model's file."""
_noted: dict[str, frozenset[Fact]] = {}
"""Facts of these files as of then."""
_fitting: set[pathlib.Path] = set()
"""Models whose files once fitted each other to the byte."""

_NUMBER = re.compile(r"[1-9][0-9]{0,17}")


@dataclasses.dataclass(frozen=True, slots=True)
class VersionFile:
    """One version on disk.

    Attributes:
        path: Its ONNX file.
        stamp: Tells whether it, or a file that lies beside it in its version folder, has changed.
        variants: The files of all variants, in the order of the configuration; ``path`` is the first.
        file: Its place in the folder of a model of text; None for all others.
    """

    path: pathlib.Path
    stamp: Stamp
    variants: tuple[pathlib.Path, ...] = ()
    file: str | None = None

    def is_part_of(self, later: VersionFile | None) -> bool:
        """Return whether all that was seen of it is the same later, when more of its files may be known."""
        return later is not None and later.path == self.path and set(self.stamp) <= set(later.stamp)

    def configured(self, config: ModelConfig) -> ModelConfig:
        """Return the configuration of a model with the files of this version."""
        variants = tuple(
            one.model_copy(update={"path": path, "name": one.label})
            for one, path in zip(config.variants, self.variants, strict=True)
        )
        return config.model_copy(update={"path": self.path, "variants": variants, "file": self.file})


def find_files(config: ModelConfig) -> dict[int, VersionFile]:
    """Return what is on disk of a model by version, in rising order. A version counts if every variant has it.

    An ensemble has the versions of its folder, or one, if there is a file for each of its steps.
    """
    found, named = _find_files(config), tuple(fact for file in _files_of_stages(config) for fact in _stamp([file]))
    return {n: dataclasses.replace(file, stamp=file.stamp + named) for n, file in found.items()} if named else found


def _files_of_stages(config: ModelConfig) -> Iterator[pathlib.Path]:
    for stage in (*config.preprocess, *config.postprocess):
        setting = stage if isinstance(stage, pathlib.Path) else getattr(stage, stage.kind)
        parts = dict(setting).values() if isinstance(setting, Section) else (setting,)
        yield from (part for part in parts if isinstance(part, pathlib.Path))


def _find_files(config: ModelConfig) -> dict[int, VersionFile]:
    if config.ensemble:
        return _find_ensemble(config)
    if not config.variants:
        return find_versions(config.path) or _text_version(config)
    found = [find_versions(one.path) for one in config.variants]
    return {
        number: VersionFile(
            file.path,
            tuple(fact for one in found for fact in one[number].stamp),
            tuple(one[number].path for one in found),
        )
        for number, file in found[0].items()
        if all(number in one for one in found)
    }


def _find_ensemble(config: ModelConfig) -> dict[int, VersionFile]:
    files = [file_of_step(step) for step in config.ensemble]
    stamp = tuple(fact for file in files if file is not None for fact in file.stamp)
    numbers = sorted(int(name) for name in _names(config.path) if _NUMBER.fullmatch(name)) or [ONLY_VERSION]
    found = {number: VersionFile(config.path / str(number) / ENSEMBLE_FILE, stamp) for number in numbers}
    return {} if None in files else found


def file_of_step(step: StepConfig) -> VersionFile | None:
    """Return the version that a step of an ensemble runs; None where it isn't on disk."""
    if step.member is None:
        return None
    found = find_files(step.member)
    newest = next(reversed(choose_versions(step.member, found)), 0)
    return found.get(step.version if step.version > 0 else newest)


def find_versions(path: pathlib.Path) -> dict[int, VersionFile]:
    """Return what is on disk by version, in rising order; nothing where ``path`` is missing.

    A version folder counts if it has a ``model.onnx``, or exactly one file that ends in ``.onnx``.
    """
    try:
        is_file = not path.is_dir()
    except OSError:  # such as that of a network file system that is away
        return {}
    if is_file:
        stamp = _stamp([path])
        return {ONLY_VERSION: _version(path, stamp)} if stamp else {}
    numbers = sorted(int(name) for name in _names(path) if _NUMBER.fullmatch(name))
    found = {number: _version_in(path / str(number)) for number in numbers}
    return {number: file for number, file in found.items() if file is not None}


def note_needed(found: Mapping[pathlib.Path, Mapping[str, int]]) -> None:
    """Note the files beside models that a load is about to read, by model, with the bytes that it needs of each, or 0.

    Raises:
        IncompleteFilesError: They fitted each other to the byte before, and don't any more: some are still to come.
    """
    for path, needed in found.items():
        _beside[path] = tuple(sorted(needed))
        facts = _facts_beside(path)
        _noted[str(path)] = frozenset(facts)
        sizes = zip(_beside[path], (size for _, _, size, _ in facts), strict=True)
        misfits = [(name, needed[name], size) for name, size in sizes if needed[name] not in (0, size)]
        if misfits and path in _fitting:
            raise IncompleteFilesError(path, *misfits[0])
        _fitting.update(() if misfits else (path,))


def with_noted(stamp: Stamp) -> frozenset[Fact]:
    """Return the facts of a version's files, and of those beside them as they were when its load began to read."""
    return frozenset(stamp).union(*(_noted.get(name, ()) for name, *_ in stamp))


def _version(path: pathlib.Path, stamp: Stamp) -> VersionFile:
    """Return a version with the stamp of the files that were found, and of all others that its load has read."""
    return VersionFile(path, stamp + tuple(fact for fact in _facts_beside(path) if fact not in stamp))


def _facts_beside(path: pathlib.Path) -> Stamp:
    return tuple(fact for name in _beside.get(path, ()) for fact in _stamp([path.parent / name]) or ((name, 0, -1, 0),))


def choose_versions(config: ModelConfig, found: Mapping[int, VersionFile]) -> dict[int, VersionFile]:
    """Return those of the versions on disk that the configuration asks for, in rising order."""
    if config.versions == "all":
        chosen = list(found)
    elif isinstance(config.versions, LatestVersions):
        chosen = sorted(found)[-config.versions.latest :]
    else:
        chosen = [number for number in found if number in config.versions]
    return {number: found[number] for number in chosen}


def source_problem(config: ModelConfig) -> tuple[tuple[str | int, ...], str] | None:
    """Return the place and the fault if there is nothing to serve where the configuration says, else None.

    What a model that isn't required lacks may come later, and is no fault.
    """
    if config.ensemble:
        found = find_files(config)  # none where a step lacks its file, which is told of the step
        text = f"has none of them; an ensemble without version folders has {ONLY_VERSION}"
        return None if not found or choose_versions(config, found) else (("versions",), text)
    for index, one in enumerate(config.variants):
        problem = _file_problem(config.of_variant(one))
        if problem is not None:
            place = ("variants", index, "path") if problem[0] == "path" else ("versions",)
            return place, problem[1]
    if config.variants and config.required and not choose_versions(config, find_files(config)):
        return ("variants",), "have no version in common; put one into the folder of each"
    problem = None if config.variants else _file_problem(config)
    return None if problem is None else ((problem[0],), problem[1])


def _file_problem(config: ModelConfig) -> tuple[str, str] | None:
    path, versions, required = config.path, config.versions, config.required
    try:
        if not path.exists():
            return ("path", f"there is no file {path}; correct the path") if required else None
    except OSError as error:
        problem = f"{path} can't be looked at ({error.strerror}); correct the path, or its folders' permissions"
        return ("path", problem) if required else None
    if not path.is_dir():
        if config.file is not None:
            return "file", f"{path} is a single file; leave the key out, or name a folder with {CONFIG}"
        if versions != LatestVersions():
            return "versions", f"{path} is a single file; leave the key out, or name a folder of version folders"
        return None
    found = find_files(config)
    if isinstance(versions, tuple):
        missing = [str(number) for number in versions if number not in found and required]
        if missing or not versions:
            what = f"no version {', '.join(missing)}" if missing else "to be served in some version"
            return "versions", f"{path} has {what}; it has {', '.join(map(str, found)) or 'none'}"
    try:
        model_file(path, config.file)
    except TextModelError as error:
        return "path", str(error).removesuffix(".")
    if not found and required:
        return "path", f"{path} has no version folder, such as 1/{DEFAULT_FILE}; add one, or name a file"
    return None


def _text_version(config: ModelConfig) -> dict[int, VersionFile]:
    """Return the only version of the folder of a model of text; nothing of any other folder."""
    folder = config.path
    try:
        name = model_file(folder, config.file)
        if name is None:
            return {}
        beside = (
            path for pattern in ("*.json", "*/*.json", "*/*.safetensors", f"{name}*") for path in folder.glob(pattern)
        )
        stamp = _stamp(sorted(set(beside)))
    except (OSError, TextModelError):  # a check of the configuration, or the load of what was changed, tells of it
        return {}
    return {ONLY_VERSION: dataclasses.replace(_version(folder / name, stamp), file=name)} if stamp else {}


def _version_in(folder: pathlib.Path) -> VersionFile | None:
    models = [name for name in _names(folder) if name.endswith(".onnx")]
    name = DEFAULT_FILE if DEFAULT_FILE in models else models[0] if len(models) == 1 else None
    if name is None:
        return None
    try:
        stamp = _stamp(sorted(folder.rglob("*")))
    except OSError:  # it has just gone
        return None
    return _version(folder / name, stamp) if stamp else None


def _stamp(files: list[pathlib.Path]) -> Stamp:
    """Return the stamp of files, empty where one has just gone."""
    try:
        facts = [(str(file), file.stat()) for file in files if not file.is_dir()]
    except OSError:
        return ()
    return tuple((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in facts)


def _names(folder: pathlib.Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []
