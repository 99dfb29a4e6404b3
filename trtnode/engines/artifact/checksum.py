"""The checksum of a compiled file: a damaged node or weight would answer wrongly without a word.

It covers what answers follow from: nodes, functions, initializers and envelopes, wherever their data stands. Engine
bytes have a hash of their own in the envelope, since nodes without their engine still run. Metadata may change.

The number of the file's format comes first: a reader of an earlier one doesn't know what later ones leave out.
"""

from __future__ import annotations

import hashlib
import pathlib
import re
from collections.abc import Iterator

import onnx
from google.protobuf.message import Message

from trtnode.partitioner.errors import ModelFileError
from trtnode.partitioner.graph.view import TRTNODE_DOMAIN
from trtnode.partitioner.model import protobuf_walk
from trtnode.partitioner.model.external_data import read_external_data
from trtnode.partitioner.model.mapped_weights import ENGINE_PARTS, data_outside, engine_part

FORMAT = "trtnode.format"
"""Key of the model's property with the number of its format. Files without it have the first one."""

FORMAT_NUMBER = 1
"""That of files that are written. It rises when readers of the number before would hash or read them otherwise."""

CHECKSUM = "trtnode.checksum"
"""Key of the model's property that holds it."""

WRITTEN_BY_US = "trtnode.report"
"""Key of a property that every compiled file has."""

CHECKSUM_OF_SEVERAL = "trtnode.checksum.2"
"""Its key where TrtNodes have several engines: readers that know one engine would hash the others with the nodes."""

KEYS = (CHECKSUM, CHECKSUM_OF_SEVERAL)
NUMBER = re.compile("[0-9]{1,9}")

UNHASHED = ENGINE_PARTS - {"envelope"}
"""Attributes of TrtNodes that the checksum leaves out."""


def stamp_checksum(model: onnx.ModelProto, path: pathlib.Path) -> None:
    """Write the checksum of a model into it.

    Args:
        model: The compiled model.
        path: Its file, beside which external data stands, if there is any.
    """
    kept = [entry for entry in model.metadata_props if entry.key not in (FORMAT, *KEYS)]
    several = any(a.name == "envelope.1" for node in protobuf_walk.nodes(model) for a in node.attribute)
    key = CHECKSUM_OF_SEVERAL if several else CHECKSUM
    del model.metadata_props[:]
    stamps = {FORMAT: str(FORMAT_NUMBER), key: _checksum(model, path)}
    model.metadata_props.extend((*kept, *(onnx.StringStringEntryProto(key=k, value=v) for k, v in stamps.items())))


def check_checksum(model: onnx.ModelProto, path: pathlib.Path) -> None:
    """Compare a model with its checksum. Without one, a model passes only if it isn't a whole compiled file.

    Args:
        model: As read from ``path``.
        path: Its file.

    Raises:
        ModelFileError: They differ, a compiled file has no checksum, or a later release has written it.
    """
    properties = {entry.key: entry.value for entry in model.metadata_props}
    written = properties.get(FORMAT, str(FORMAT_NUMBER))
    if not NUMBER.fullmatch(written) or int(written) > FORMAT_NUMBER:
        problem = f"it was written by a newer release (format {written[:40]!r}; this one reads {FORMAT_NUMBER})."
        raise ModelFileError(path, problem, "Update trtnode, or compile the model again with this release.")
    if stated := [properties[key] for key in KEYS if key in properties]:
        if set(stated) != {_checksum(model, path)}:
            problem = "its nodes or weights are damaged (they differ from its checksum)."
            raise ModelFileError(path, problem, "Copy the file again, or compile the model again.")
    elif WRITTEN_BY_US in properties:
        problem = "it has no checksum, as files from before any release, so damage can't be detected."
        raise ModelFileError(path, problem, "Compile the model again.")


def _checksum(model: onnx.ModelProto, path: pathlib.Path) -> str:
    digest = hashlib.sha256()
    for part in _parts(model, path):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return f"sha256:{digest.hexdigest()}"


def _parts(model: onnx.ModelProto, path: pathlib.Path) -> Iterator[bytes | memoryview]:
    """Yield what answers follow from, in pieces: a copy of the whole could be too large."""
    graph = model.graph
    yield _bytes_of(onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import))
    yield _bytes_of(onnx.GraphProto(input=graph.input, output=graph.output, value_info=graph.value_info))
    yield from map(_bytes_of, map(_without_engine, graph.node))
    for tensor in graph.initializer:
        yield from _tensor_parts(tensor, path)
    yield from map(_bytes_of, graph.sparse_initializer)
    yield from map(_bytes_of, model.functions)


def _bytes_of(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)


def _tensor_parts(tensor: onnx.TensorProto, path: pathlib.Path) -> Iterator[bytes | memoryview]:
    """Yield a tensor, its data apart: serializing that would cost more than hashing it."""
    outside = onnx.external_data_helper.uses_external_data(tensor)
    if outside or tensor.HasField("raw_data"):
        yield _bytes_of(onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims))
        placed = data_outside(tensor)
        yield (read_external_data(path, tensor) if outside else tensor.raw_data) if placed is None else placed
    else:
        yield _bytes_of(tensor)


def _without_engine(node: onnx.NodeProto) -> onnx.NodeProto:
    if node.domain != TRTNODE_DOMAIN:
        return node
    bare = onnx.NodeProto(name=node.name, op_type=node.op_type, overload=node.overload, input=node.input)
    bare.output.extend(node.output)
    bare.attribute.extend(attribute for attribute in node.attribute if engine_part(attribute.name)[0] not in UNHASHED)
    return bare
