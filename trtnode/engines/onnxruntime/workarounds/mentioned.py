"""Finds whether a model has certain operators, without reading its weights."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Sequence

import onnx
from google.protobuf.message import DecodeError

from trtnode.partitioner.errors import PartitionError
from trtnode.partitioner.model import protobuf_walk
from trtnode.partitioner.model.loading import read_proto
from trtnode.partitioner.model.mapped_weights import read_around_weights
from trtnode.partitioner.model.regular_files import file_version, read_regular


def mentions(source: pathlib.Path | onnx.ModelProto, names: Sequence[str]) -> bool:
    """Return whether an operator has one of the names in its own."""
    if isinstance(source, onnx.ModelProto):
        operators = _operators_of(source)
    else:
        try:
            operators = _operators_in(source, file_version(source))
        except (DecodeError, OSError):
            return False  # ONNX Runtime says what is wrong
    return any(name in operator for operator in operators for name in names)


def _operators_of(model: onnx.ModelProto) -> frozenset[str]:
    return frozenset(node.op_type for node in protobuf_walk.nodes(model))


@functools.lru_cache(maxsize=64)  # each session asks several times
def _operators_in(file: pathlib.Path, _: tuple[int, ...]) -> frozenset[str]:
    around = read_around_weights(file, least_bytes=0)
    return _operators_of(onnx.ModelProto.FromString(read_regular(file)) if around is None else around[0])


def model_with(source: pathlib.Path | onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto | None:
    """Return a model that ``mentions`` one of the names; None for others, and for a file that can't be read."""
    if not mentions(source, names):
        return None
    try:
        return source if isinstance(source, onnx.ModelProto) else read_proto(source)
    except (OSError, PartitionError):
        return None  # ONNX Runtime says what is wrong
