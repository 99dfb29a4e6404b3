"""Reads engine bytes: out of a compiled model, of a file beside it, and of the weights that they share with it."""

from __future__ import annotations

import pathlib

from trtnode.engines.errors import EngineRejectedError
from trtnode.partitioner.compiled.references import put_together, references_from_bytes
from trtnode.partitioner.compiled.trtnode import EmbeddedEngine
from trtnode.partitioner.model.regular_files import read_regular, without_links


def engine_bytes(segment: str, content: EmbeddedEngine, folder: pathlib.Path) -> bytes | memoryview:
    """Read an engine out of its TrtNode or its sidecar, unchecked, with the weights that it refers to.

    Returns:
        The bytes, in memory that may be written if nobody else reads it.

    Raises:
        EngineRejectedError: The sidecar is outside of the model's folder or can't be read, or a reference is damaged.
    """
    stored = _stored_bytes(segment, content, folder)
    if not content.references:
        return stored
    try:
        return put_together(stored, references_from_bytes(content.references), content.weights).data
    except (ValueError, MemoryError) as error:
        raise EngineRejectedError(segment, f"its bytes are damaged ({error}).") from error


def _stored_bytes(segment: str, content: EmbeddedEngine, folder: pathlib.Path) -> bytes | memoryview:
    if content.engine is not None:
        return content.engine
    assert content.engine_file is not None
    return sidecar_bytes(segment, content.engine_file, folder)


def sidecar_bytes(segment: str, name: str, folder: pathlib.Path) -> bytes | memoryview:
    """Read a file of engine bytes in a model's folder.

    Raises:
        EngineRejectedError: It is outside of the folder, or can't be read.
    """
    root = folder.resolve()
    try:
        target = without_links(root / name)
        if not target.is_relative_to(root):
            raise EngineRejectedError(segment, f"its sidecar {name!r} is outside the model's folder.")
        return read_regular(target)
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
        reason = error.strerror if isinstance(error, OSError) else error
        raise EngineRejectedError(segment, f"its sidecar {name!r} can't be read ({reason}).") from error
