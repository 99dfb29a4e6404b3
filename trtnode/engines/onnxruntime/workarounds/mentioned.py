"""Finds whether a model has certain operators, without reading its weights."""

from __future__ import annotations

import mmap
import pathlib
from collections.abc import Sequence

import onnx
from google.protobuf.message import DecodeError

from trtnode.partitioner.errors import PartitionError
from trtnode.partitioner.model import protobuf_walk
from trtnode.partitioner.model.loading import read_proto
from trtnode.partitioner.model.mapped_weights import read_around_weights


def mentions(source: pathlib.Path | onnx.ModelProto, names: Sequence[str]) -> bool:
    """Return whether an operator has one of the names in its own. Files without large weights are searched as bytes."""
    if isinstance(source, onnx.ModelProto):
        return any(name in node.op_type for node in protobuf_walk.nodes(source) for name in names)
    try:
        if not source.is_file() or source.stat().st_size == 0:
            return False
        around = read_around_weights(source)
    except (DecodeError, OSError):
        return False  # ONNX Runtime says what is wrong
    if around is not None:
        return mentions(around[0], names)
    with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return any(data.find(name.encode()) >= 0 for name in names)


def model_with(source: pathlib.Path | onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto | None:
    """Return a model that ``mentions`` one of the names; None for others, and for a file that can't be read."""
    if not mentions(source, names):
        return None
    try:
        return source if isinstance(source, onnx.ModelProto) else read_proto(source)
    except (OSError, PartitionError):
        return None  # ONNX Runtime says what is wrong
