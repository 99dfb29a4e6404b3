"""Copies of model files that nobody else writes, so that their weights may stay mapped while a server runs.

The system ends a process that touches mapped bytes which were cut off their file. Bytes that are overwritten in place
change the answers, also through a hard link. A copy in the engine cache has neither fault. Its name is the hash of its
content, so processes and versions with equal files share one. Where the file system can, it shares blocks with the
source until that is written.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import pathlib
import shutil
import uuid
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import BinaryIO

import onnx
from google.protobuf.message import DecodeError

from trtnode.engines.artifact.cache_folder import PRIVATE, SOURCES
from trtnode.engines.artifact.files import sha256_of_file
from trtnode.partitioner.errors import PartitionError, ProjectError
from trtnode.partitioner.model import protobuf_walk
from trtnode.partitioner.model.declared_sizes import size_bytes
from trtnode.partitioner.model.loading import read_proto
from trtnode.partitioner.model.mapped_weights import LARGE_FILE_BYTES, engine_part, read_around_weights
from trtnode.partitioner.model.regular_files import open_regular, read_regular, without_links

logger = logging.getLogger(__name__)

CHANGED = "it changed while it was copied. Load it again when it is complete."
ROOM = "Free some in the engine cache or the folder for temporary files, or raise cache.max_gb."


class CopyError(PartitionError):
    """A model's files can't be copied."""

    def __init__(self, path: pathlib.Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


class SourceCopy:
    """The files of a model that stay as they are. It isn't removed before it is closed, or the process ends.

    Attributes:
        path: The model.
        files: The sha256 of each file, by its place beside the model.
    """

    def __init__(self, path: pathlib.Path, files: Mapping[str, str]) -> None:
        """Hold a folder.

        Raises:
            OSError: It isn't there.
        """
        self.path = path
        self.files = files
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._close = weakref.finalize(self, os.close, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        path.stat()  # raises where it was removed meanwhile
        os.utime(path.parent)  # its last use; the file keeps its time, at which others look that hold it

    def close(self) -> None:
        """Let go of it."""
        self._close()


@contextlib.contextmanager
def named_as(source: pathlib.Path, copy: pathlib.Path) -> Iterator[None]:
    """Let errors of a block name a file instead of its copy."""
    try:
        yield
    except ProjectError as error:
        folders = str(copy.parent), str(source.parent)
        error.args = tuple(one.replace(*folders) if isinstance(one, str) else one for one in error.args)
        raise


class SourceCopies:
    """The copies in a cache. Several processes may share it. It can be sent to another process."""

    def __init__(self, cache: pathlib.Path | None, max_bytes: int) -> None:
        """Copy nothing yet.

        Args:
            cache: The folder of the cache; None where there is none.
            max_bytes: Size of the cache. Copies take what engines leave of it.
        """
        self._folder = None if cache is None else cache / SOURCES
        self._max_bytes = max_bytes

    def find(self, model: pathlib.Path, files: Mapping[str, str]) -> SourceCopy | None:
        """Return a copy of a model whose files have these hashes; None where they changed, or there is no room for it.

        Raises:
            CopyError: They changed while they were copied.
        """
        if self._folder is not None:
            with contextlib.suppress(OSError):
                return SourceCopy(self._folder / _digest(files) / model.name, files)
        with contextlib.suppress(OSError):
            copy = self.take(model, files, None)
            return copy if copy.files == files else None
        return None

    def own(self, model: pathlib.Path, spare: pathlib.Path | None) -> tuple[pathlib.Path, Mapping[str, str]]:
        """Return a copy of a model as ``take`` does, with the hashes of its files; nobody holds it.

        It is the model itself where there is no room for a copy and nothing of the model would be mapped.

        Raises:
            PartitionError: It is no model, or changed meanwhile, or there is no room for a copy.
        """
        names = names_beside(model)
        try:
            copy = self.take(model, names, spare)
        except OSError as error:
            if names or model.stat().st_size >= LARGE_FILE_BYTES:
                raise CopyError(model, f"its files can't be copied ({error.strerror}). {ROOM}") from error
            return model, {model.name: sha256_of_file(model)}
        return copy.path, copy.files

    def take(self, model: pathlib.Path, names: Iterable[str], spare: pathlib.Path | None) -> SourceCopy:
        """Copy a model and the files beside it that it reads.

        Args:
            model: The model.
            names: Of these files, relative to its folder. Those that are missing or outside of it are left out.
            spare: Place of the copy where the cache has no room for it; None for none.

        Raises:
            CopyError: A file changed meanwhile.
            OSError: A file can't be read, or there is no room for the copy.
        """
        beside = sorted({*names} - {model.name})
        names = [model.name, *(name for name in beside if _is_beside(model, name))]
        size = sum((model.parent / name).stat().st_size for name in names)
        refusal = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        for place in (self._folder if self._has_room(size) else None, spare):
            if place is not None:
                try:
                    return _copy(model, names, place)
                except OSError as error:
                    refusal = error
        raise refusal

    def _has_room(self, size: int) -> bool:
        """Return whether a copy fits in, once the least recently used ones that nobody holds are gone."""
        if self._folder is None:
            return False
        try:
            self._folder.mkdir(PRIVATE, parents=True, exist_ok=True)
            engines = sum(file.stat().st_size for file in self._folder.parent.glob("*.engine"))
            copies = [(copy.stat().st_mtime, copy, _size(copy)) for copy in self._folder.iterdir()]
        except OSError:
            return False
        free = self._max_bytes - engines - sum(one for *_, one in copies)
        for _, copy, freed in sorted(copies):
            if free >= size and not copy.name.startswith("."):
                break
            free += freed if _remove_unheld(copy) else 0
        return free >= size


def names_beside(model: pathlib.Path) -> set[str]:
    """Return the files that a model says it reads, relative to its folder.

    Raises:
        PartitionError: It is no model, or one of its data files can't be used.
    """
    return set(_bytes_beside(model, read_proto(model, around_weights=True)))


def needed_beside(model: pathlib.Path) -> dict[str, int]:
    """Return how many bytes a model needs of each file in its folder, whether it is there or not; 0 of sidecars.

    Nothing is checked. A file that is no model needs nothing.
    """
    with contextlib.suppress(OSError, DecodeError):
        read = read_around_weights(model)
        proto = onnx.ModelProto.FromString(read_regular(model)) if read is None else read[0]
        return {name: size for name, size in _bytes_beside(model, proto).items() if _stays_inside(name)}
    return {}


def _bytes_beside(model: pathlib.Path, proto: onnx.ModelProto) -> dict[str, int]:
    attributes = (attribute for node in protobuf_walk.nodes(proto) for attribute in node.attribute)
    needed = {one.s.decode(errors="replace"): 0 for one in attributes if engine_part(one.name)[0] == "engine_file"}
    for tensor in filter(onnx.external_data_helper.uses_external_data, protobuf_walk.tensors(proto)):
        info = {entry.key: entry.value for entry in tensor.external_data}
        name, offset = info.get("location", ""), info.get("offset", "0")
        end = (int(offset) if offset.isdecimal() else 0) + size_bytes(tensor.data_type, tensor.dims)
        needed[name] = max(end, needed.get(name, 0))
    return {name: size for name, size in needed.items() if name not in (model.name, "")}


def held(model: pathlib.Path, source: pathlib.Path, files: Mapping[str, str]) -> SourceCopy | None:
    """Hold the copy that ``SourceCopies.own`` has returned in another process; None where it isn't one.

    Raises:
        CopyError: It was removed meanwhile.
    """
    if not files or source == model:
        return None
    try:
        return SourceCopy(source, files)
    except OSError as error:
        raise CopyError(model, f"its copy is gone ({error.strerror}). {ROOM}") from error


def _is_beside(model: pathlib.Path, name: str) -> bool:
    """Return whether a name is that of a file in the model's folder, or in that of its own link."""
    if not _stays_inside(name):
        return False
    file = without_links(model.parent / name)
    folders = (model.parent.resolve(), model.resolve().parent)
    return file.is_file() and any(file.is_relative_to(folder) for folder in folders)


def _stays_inside(name: str) -> bool:
    return "\0" not in name and pathlib.Path(os.path.normpath(name)).parts[:1] not in (("..",), ("/",))


def _copy(model: pathlib.Path, names: Iterable[str], place: pathlib.Path) -> SourceCopy:
    """Copy files into a folder below a place, which gets its name when they are complete."""
    place.mkdir(PRIVATE, parents=True, exist_ok=True)
    begun = place / f".{uuid.uuid4().hex}"
    begun.mkdir(PRIVATE)
    lock = os.open(begun, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        files = {name: _copy_file(model.parent / name, begun / os.path.normpath(name)) for name in names}
        final = place / _digest(files)
        with contextlib.suppress(OSError):  # another process was first
            begun.rename(final)
        return SourceCopy(final / model.name, files)
    finally:
        shutil.rmtree(begun, ignore_errors=True)
        os.close(lock)


def _copy_file(source: pathlib.Path, target: pathlib.Path) -> str:
    """Copy a file to disk; return its sha256.

    Raises:
        CopyError: It changed meanwhile.
        OSError: It can't be read, or the copy can't be written.
    """
    target.parent.mkdir(PRIVATE, parents=True, exist_ok=True)
    with open_regular(source) as read, open(target, "xb", opener=_open_private) as write:
        before = os.fstat(read.fileno())
        _transfer(read, write)
        write.flush()
        os.fsync(write.fileno())
        after = os.fstat(read.fileno())
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise CopyError(source, CHANGED)
    return sha256_of_file(target)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _transfer(read: BinaryIO, write: BinaryIO) -> None:
    """Copy within the system, which shares blocks where the file system can; else through memory."""
    try:
        while os.copy_file_range(read.fileno(), write.fileno(), 1 << 30):
            pass
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        shutil.copyfileobj(read, write, 1 << 20)


def _digest(files: Mapping[str, str]) -> str:
    text = "".join(f"{name}\0{digest}\n" for name, digest in sorted(files.items()))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _size(copy: pathlib.Path) -> int:
    return sum(file.stat().st_size for file in copy.rglob("*"))


def _remove_unheld(copy: pathlib.Path) -> bool:
    """Remove a copy; return False if a process holds it."""
    try:
        descriptor = os.open(copy, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(copy, ignore_errors=True)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    logger.debug("Removed the copy %s", copy)
    return True
