"""Writes files and models of any size so that a reader sees the old file or the new one, never half of one."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pathlib
import shutil
import uuid
from collections.abc import Callable

import onnx

from trtnode.engines.errors import OutputFileError, OverwriteError
from trtnode.partitioner.model import protobuf_walk
from trtnode.partitioner.model.loading import read_proto
from trtnode.partitioner.model.mapped_weights import data_outside, engine_part, place_outside, serialized
from trtnode.partitioner.model.regular_files import open_regular

INLINE_LIMIT_BYTES = 3 * 2**29
"""1.5 GiB. protobuf's own limit is 2 GiB; beyond this, engines and weights go to files beside the model."""


def check_output(path: pathlib.Path, *sources: pathlib.Path) -> None:
    """Refuse an output path before any work is done for it.

    Args:
        path: The output.
        sources: The files that it is made from.

    Raises:
        OutputFileError: There is no such folder.
        OverwriteError: It is one of the sources.
    """
    if not path.parent.is_dir():
        raise OutputFileError(path, "there is no such folder")
    if path.exists() and any(source.exists() and path.samefile(source) for source in sources):
        raise OverwriteError(path)


def write_atomically(path: pathlib.Path, *pieces: bytes | memoryview, flush: bool = True, mode: int = 0o666) -> None:
    """Write a file under a temporary name, flush it to disk, and rename it into place.

    Args:
        path: The file.
        *pieces: Its content, one after the other.
        flush: False for a file that may be lost when the machine stops, which is written sooner.
        mode: Its permissions, from which those of the process's mask are taken.

    Raises:
        OutputFileError: The folder is missing or not writable, or the disk is full.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with open(temporary, "xb", opener=functools.partial(os.open, mode=mode)) as file:
            file.writelines(pieces)
            if flush:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise OutputFileError(path, error.strerror or str(error)) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def write_temporary(model: onnx.ModelProto, path: pathlib.Path, *, link: bool = False) -> None:
    """Write a model for this process and its children alone, as ``write_model`` does, but don't wait for the disk."""
    write_model(model, path, link=link, flush=False)


def write_model(
    model: onnx.ModelProto,
    path: pathlib.Path,
    *,
    inline_limit_bytes: int = INLINE_LIMIT_BYTES,
    link: bool = False,
    flush: bool = True,
) -> None:
    """Write a model; where it is too large for one file, engines and weights go beside it. The model comes last.

    Args:
        model: The model. It is the same afterwards.
        path: The file.
        inline_limit_bytes: The largest file.
        link: True if weights that lie in other files stay there, and this folder gets links to those files.
        flush: As of ``write_atomically``.

    Raises:
        OutputFileError: A file can't be written.
    """
    with contextlib.ExitStack() as put_back:  # copying the model instead would take its size in memory once more
        if link:
            _link_weights(model, path.parent, put_back)
        if _content_bytes(model) > inline_limit_bytes:
            write = functools.partial(write_atomically, flush=flush)
            _move_engines_out(model, path, put_back, write)
            _move_weights_out(model, path, put_back, write)
        write_atomically(path, *serialized(model), flush=flush)


def sha256_of_file(path: pathlib.Path) -> str:
    """Hash a file without reading it whole."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_unchanged(path: pathlib.Path) -> str:
    """Hash a file, unless that was done and nobody has written to it since."""
    stat = path.stat()
    return _sha256_at(path, (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))


@functools.lru_cache
def _sha256_at(path: pathlib.Path, _stamp: tuple[int, ...]) -> str:
    return sha256_of_file(path)


def sha256_of_model(path: pathlib.Path) -> str:
    """Hash an ONNX file together with the files that hold its external data; without any, as ``sha256_of_file``.

    Raises:
        ModelFileError: It can't be read.
        ExternalDataError: A file beside it is missing.
    """
    outside = hashes_outside(path)
    if not outside:
        return sha256_of_file(path)
    digests = [sha256_of_file(path), *(digest for _, digest in sorted(outside.items()))]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def hashes_outside(path: pathlib.Path) -> dict[str, str]:
    """Hash the files that hold external data of an ONNX file, by their place beside it.

    Raises:
        ModelFileError: It can't be read.
        ExternalDataError: A file beside it is missing.
    """
    outside = filter(onnx.external_data_helper.uses_external_data, protobuf_walk.tensors(read_proto(path)))
    places = {entry.value for tensor in outside for entry in tensor.external_data if entry.key == "location"}
    return {place: sha256_of_file(path.parent / place) for place in places}


def _link_weights(model: onnx.ModelProto, folder: pathlib.Path, put_back: contextlib.ExitStack) -> None:
    links: dict[str, str] = {}
    for tensor in filter(onnx.external_data_helper.uses_external_data, model.graph.initializer):
        entry = next(entry for entry in tensor.external_data if entry.key == "location")
        if pathlib.Path(entry.value).is_absolute():
            put_back.callback(setattr, entry, "value", entry.value)
            if entry.value not in links:
                links[entry.value] = _linked(entry.value, folder)
            entry.value = links[entry.value]


def _linked(file: str, folder: pathlib.Path) -> str:
    """Return the name of a link to a file, or of its copy where the folder is on another file system."""
    link = folder / f"{hashlib.sha256(os.fsencode(file)).hexdigest()[:32]}.weights"
    try:
        with contextlib.suppress(FileExistsError):
            os.link(file, link)
    except OSError:
        try:
            shutil.copyfile(file, link)
        except OSError as error:
            raise OutputFileError(link, error.strerror or str(error)) from error
    return link.name


def _content_bytes(model: onnx.ModelProto) -> int:
    engines = (a.t for n in protobuf_walk.nodes(model) for a in n.attribute if _is_engine(a))
    return sum(len(_data_of(t)) or t.ByteSize() for t in (*engines, *model.graph.initializer))


def _is_engine(attribute: onnx.AttributeProto) -> bool:
    return engine_part(attribute.name)[0] == "engine" and attribute.HasField("t")


def _data_of(tensor: onnx.TensorProto) -> bytes | memoryview:
    placed = data_outside(tensor)
    return tensor.raw_data if placed is None else placed


def _move_engines_out(
    model: onnx.ModelProto, path: pathlib.Path, put_back: contextlib.ExitStack, write: Callable[..., None]
) -> None:
    for node in protobuf_walk.nodes(model):
        for attribute in node.attribute:
            if _is_engine(attribute):
                data = _data_of(attribute.t)
                sidecar = f"{path.name}.{hashlib.sha256(data).hexdigest()[:32]}.engine"
                write(path.parent / sidecar, data)
                put_back.callback(attribute.CopyFrom, onnx.AttributeProto.FromString(attribute.SerializeToString()))
                attribute.CopyFrom(onnx.helper.make_attribute(f"engine_file{engine_part(attribute.name)[1]}", sidecar))


def _move_weights_out(
    model: onnx.ModelProto, path: pathlib.Path, put_back: contextlib.ExitStack, write: Callable[..., None]
) -> None:
    digest = hashlib.sha256()
    chunks: list[bytes | memoryview] = []
    offset = 0
    moved = [t for t in model.graph.initializer if len(_data_of(t)) >= 1024]
    for tensor in moved:
        data = _data_of(tensor)
        digest.update(data)
        chunks.append(data)
        before = onnx.TensorProto()
        before.CopyFrom(tensor)
        put_back.callback(tensor.CopyFrom, before)
        tensor.ClearField("external_data")
        place_outside(tensor, "", offset)
        offset += len(data)
    location = f"{path.name}.{digest.hexdigest()[:32]}.data"
    for tensor in moved:
        tensor.external_data[0].value = location
    if chunks:
        write(path.parent / location, *chunks)
