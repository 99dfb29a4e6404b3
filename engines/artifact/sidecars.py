"""Reads engine bytes that stand in files beside a compiled model."""

from __future__ import annotations

import pathlib

from trtnode.engines.errors import EngineRejectedError
from trtnode.partitioner.compiled.trtnode import EmbeddedEngine
from trtnode.partitioner.model.regular_files import read_regular


def engine_bytes(segment: str, content: EmbeddedEngine, folder: pathlib.Path) -> bytes | memoryview:
    """Read an engine out of its TrtNode or its sidecar, unchecked.

    Raises:
        EngineRejectedError: The sidecar is outside of the model's folder, or can't be read.
    """
    if content.engine is not None:
        return content.engine
    assert content.engine_file is not None
    root = folder.resolve()
    try:
        target = (root / content.engine_file).resolve()
        if not target.is_relative_to(root):
            raise EngineRejectedError(segment, f"its sidecar {content.engine_file!r} is outside the model's folder.")
        return read_regular(target)
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
        reason = error.strerror if isinstance(error, OSError) else error
        raise EngineRejectedError(segment, f"its sidecar {content.engine_file!r} can't be read ({reason}).") from error
