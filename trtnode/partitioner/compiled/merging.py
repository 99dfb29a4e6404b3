"""Several engines a TrtNode: merges compiled models of equal segments, and lists or drops their engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import onnx

from trtnode.partitioner.errors import MergeError
from trtnode.partitioner.graph.view import TRTNODE_DOMAIN
from trtnode.partitioner.model import protobuf_walk
from trtnode.partitioner.model.mapped_weights import ENGINE_PARTS, engine_part

Attributes = Mapping[str, onnx.AttributeProto]
"""The attributes of a TrtNode that belong to one engine, by part."""

SOURCE = "trtnode.source_sha256"

ALIKE = "Compile both with --no-optimize and otherwise equal options"

MOST_NAMED = 5
"""Messages name at most so many nodes."""


def merge_engines(model: onnx.ModelProto, other: onnx.ModelProto) -> int:
    """Add the engines of a compiled model to another of the same source, in place; return how many it lacked.

    Raises:
        MergeError: Nodes, weights or segments differ.
    """
    _check_segments(model, other)
    theirs = {node.overload: engines_of(node) for node in trtnodes(other)}
    added = 0
    for node in trtnodes(model):
        mine = engines_of(node)
        known = {engine["envelope"].s for engine in mine}
        new = [engine for engine in theirs[node.overload] if engine["envelope"].s not in known]
        _set_engines(node, [*mine, *new])
        added += len(new)
    return added


def keep_engines(model: onnx.ModelProto, keeps: Callable[[bytes], bool]) -> Iterator[str]:
    """Drop engines by their envelopes, in place; yield the TrtNodes that would have none left, which stay."""
    for node in trtnodes(model):
        if kept := [engine for engine in engines_of(node) if keeps(engine["envelope"].s)]:
            _set_engines(node, kept)
        else:
            yield node.name


def engines_of(node: onnx.NodeProto) -> list[Attributes]:
    """Return the engines of a TrtNode, in order."""
    found: dict[str, dict[str, onnx.AttributeProto]] = {}
    for attribute in node.attribute:
        part, suffix = engine_part(attribute.name)
        if part in ENGINE_PARTS:
            found.setdefault(suffix, {})[part] = attribute
    order = sorted(found, key=lambda suffix: int(suffix[1:]) if suffix[1:].isdecimal() else 0)
    return [found[suffix] for suffix in order if "envelope" in found[suffix]]


def _set_engines(node: onnx.NodeProto, engines: list[Attributes]) -> None:
    attributes = [a for a in node.attribute if engine_part(a.name)[0] not in ENGINE_PARTS]
    for index, engine in enumerate(engines):
        for part, attribute in engine.items():
            copy = onnx.AttributeProto()
            copy.CopyFrom(attribute)
            copy.name = f"{part}.{index}" if index else part
            attributes.append(copy)
    del node.attribute[:]
    node.attribute.extend(attributes)


def trtnodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Return the TrtNodes of a model, those in subgraphs included."""
    return [node for node in protobuf_walk.nodes(model) if node.domain == TRTNODE_DOMAIN]


def _check_segments(model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    mine, theirs = _inside(model), _inside(other)
    if not mine or not theirs:
        raise MergeError("the files", "one of them has no engine. Compile it with --all-engines")
    sources = [{p.key: p.value for p in one.metadata_props}.get(SOURCE) for one in (model, other)]
    if sources[0] != sources[1]:
        raise MergeError("the files", "they were compiled from two sources. Compile the same file for each")
    if differing := sorted(mine ^ theirs):
        named = ", ".join(differing[:MOST_NAMED])
        more = f" and {len(differing) - MOST_NAMED} more" if len(differing) > MOST_NAMED else ""
        options = " ".join(f"--native-nodes '{name}'" for name in differing[:MOST_NAMED])
        problem = f"only one of them has these nodes in engines: {named}{more}. Compile both with {options}"
        raise MergeError("the files", problem, differing)
    if _segments(model) != _segments(other):
        raise MergeError("the files", f"their segments have other nodes. {ALIKE}")
    if _weights(model) != _weights(other) or _native(model) != _native(other):
        raise MergeError("the files", f"their weights or native nodes differ. {ALIKE}")


def _functions(model: onnx.ModelProto) -> list[onnx.FunctionProto]:
    return [function for function in model.functions if function.domain == TRTNODE_DOMAIN]


def _inside(model: onnx.ModelProto) -> set[str]:
    """Return the identities of the nodes that engines replaced."""
    nodes = [node for function in _functions(model) for node in function.node]
    return {node.name or f"{node.op_type}:{next(iter(node.output), '')}" for node in nodes}


def _segments(model: onnx.ModelProto) -> tuple[object, ...]:
    functions = sorted(function.SerializeToString(deterministic=True) for function in _functions(model))
    nodes = sorted((node.overload, *node.input, "", *node.output) for node in trtnodes(model))
    return functions, nodes


def _weights(model: onnx.ModelProto) -> dict[str, bytes]:
    tensors = (tensor for graph in protobuf_walk.graphs(model) for tensor in graph.initializer)
    return {tensor.name: tensor.SerializeToString(deterministic=True) for tensor in tensors}


def _native(model: onnx.ModelProto) -> list[bytes]:
    nodes = (node for node in model.graph.node if node.domain != TRTNODE_DOMAIN)
    return sorted(node.SerializeToString(deterministic=True) for node in nodes)
