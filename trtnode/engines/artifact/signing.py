"""Signs the engines of a compiled model."""

from __future__ import annotations

import hashlib
import pathlib

import onnx
import onnx_ir as ir

from trtnode.engines.artifact.checksum import check_checksum, stamp_checksum
from trtnode.engines.artifact.envelope import Envelope
from trtnode.engines.artifact.files import write_atomically
from trtnode.engines.artifact.keys import read_private_key
from trtnode.engines.artifact.sidecars import engine_bytes
from trtnode.engines.artifact.trust import sign
from trtnode.engines.errors import EngineError, SigningError
from trtnode.partitioner.compiled.trtnode import EmbeddedEngine, embedded_engines, is_trtnode, replaced_hash
from trtnode.partitioner.model import protobuf_walk
from trtnode.partitioner.model.loading import load_model, read_proto
from trtnode.partitioner.model.mapped_weights import engine_part
from trtnode.partitioner.model.regular_files import without_links


def sign_model(source: pathlib.Path, target: pathlib.Path, key: pathlib.Path) -> int:
    """Sign every envelope of a compiled model, those in subgraphs included, in place of the signature that it had.

    Args:
        source: The compiled model.
        target: The file to write; may be the same. Files beside the model stay as they are.
        key: File of an Ed25519 private key.

    Returns:
        The number of engines in the model.

    Raises:
        PartitionError: The file is no model.
        KeyFileError: The key can't be used.
        SigningError: The model has no engine, an engine is not what its envelope says, or the target is in another
            folder than the files beside the model.
        OutputFileError: The target can't be written.
    """
    private = read_private_key(key)
    model = load_model(source, check=check_checksum)
    signed: dict[str, list[str]] = {}
    for op in filter(is_trtnode, ir.traversal.RecursiveGraphIterator(model.graph)):
        signed[op.overload] = [sign(one, private).to_json() for one in _checked(source, model, op)]
    if not signed:
        raise SigningError(source, "no node of it has an engine, so there is nothing to sign. Compile it first.")
    proto = read_proto(source)
    if without_links(target.parent) != without_links(source.parent) and _has_files_beside(proto):
        raise SigningError(target, "files beside the model hold a part of it. Write the signed model to its folder.")
    for node in protobuf_walk.nodes(proto):
        held = {attribute.name: attribute for attribute in node.attribute}
        for index, envelope in enumerate(signed.get(node.overload, ()) if "envelope" in held else ()):
            held[f"envelope.{index}" if index else "envelope"].s = envelope.encode()
    stamp_checksum(proto, source)
    write_atomically(target, proto.SerializeToString(deterministic=True))
    return sum(map(len, signed.values()))


def _checked(source: pathlib.Path, model: ir.Model, op: ir.Node) -> list[Envelope]:
    """Return the envelopes of a TrtNode."""
    return [_checked_one(source, model, op, content) for content in embedded_engines(op)]


def _checked_one(source: pathlib.Path, model: ir.Model, op: ir.Node, content: EmbeddedEngine) -> Envelope:
    """Return an envelope, which must describe its engine and nodes: a signature covers all of them."""
    try:
        envelope = Envelope.from_json(content.envelope, op.overload)
        engine = engine_bytes(op.overload, content, source.parent)
    except EngineError as error:
        raise SigningError(source, str(error)) from error
    if hashlib.sha256(engine).hexdigest() != envelope.engine_sha256:
        raise SigningError(source, f"the engine of {op.overload} is damaged (sha256 differs). Compile the model again.")
    if replaced_hash(model, op) not in (None, envelope.segment_sha256):
        problem = f"the nodes or weights of {op.overload} were changed since its engine was built."
        raise SigningError(source, f"{problem} Compile the model again.")
    return envelope


def _has_files_beside(proto: onnx.ModelProto) -> bool:
    if any(
        engine_part(attribute.name)[0] == "engine_file"
        for node in protobuf_walk.nodes(proto)
        for attribute in node.attribute
    ):
        return True
    return any(onnx.external_data_helper.uses_external_data(tensor) for tensor in protobuf_walk.tensors(proto))
