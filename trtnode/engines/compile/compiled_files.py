"""Compiled files as a whole: merges those of one source, leaves engines or replaced nodes out, and lists engines."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import pathlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.checksum import check_checksum, stamp_checksum
from trtnode.engines.artifact.compiled_model import CompiledModel, without_replaced_nodes
from trtnode.engines.artifact.envelope import TARGETS, Envelope
from trtnode.engines.artifact.files import check_output, write_model
from trtnode.engines.artifact.sidecars import sidecar_bytes
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.backends.names import ALL_REWRITES
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.errors import EngineError
from trtnode.engines.runtime.engine_loading import check_fits
from trtnode.engines.runtime.options import SHARED
from trtnode.partitioner.compiled.merging import engines_of, keep_engines, merge_engines, trtnodes
from trtnode.partitioner.compiled.trtnode import embedded_engines, is_trtnode
from trtnode.partitioner.errors import MergeError
from trtnode.partitioner.model import protobuf_walk
from trtnode.partitioner.model.external_data import take_data_inside
from trtnode.partitioner.model.loading import read_proto
from trtnode.partitioner.model.mapped_weights import engine_part

SUMMED = ("engines_built", "engines_cached", "engine_bytes")
"""Facts about a compiled model that count its engines."""


def compile_for_each(
    source: pathlib.Path, options: CompileOptions, engines: Sequence[str], *, cache: EngineCache | None = None
) -> list[CompiledModel]:
    """Compile for several libraries with one cut: a node that one of them leaves native is native for all.

    All engines stay, since machines differ in which of them pay. Where rewrites differ by library, none is done.

    Args:
        source: The model.
        options: Options of each compilation.
        engines: Names of the libraries.
        cache: As of ``compile_model``.

    Returns:
        The model for each library. The first has the engines of all; the others hold files that it needs to be saved.

    Raises:
        PartitionError: As of ``compile_model``; or one of them takes no node that all others take.
        EngineError: As of ``compile_model``.
    """
    if len(engines) == 1:
        return [compile_model(source, dataclasses.replace(options, engine=engines[0]), cache=cache)]
    options = dataclasses.replace(options, all_engines=True)
    while True:
        each = [compile_model(source, dataclasses.replace(options, engine=one), cache=cache) for one in engines]
        try:
            for other in each[1:]:
                merge_engines(each[0].model, other.model)
            sums = {name: sum(getattr(one, name) for one in each) for name in SUMMED}
            return [dataclasses.replace(each[0], **sums), *each[1:]]
        except MergeError as error:
            native = tuple(dict.fromkeys((*options.partition.native_nodes, *map(glob.escape, error.nodes))))
            rewrites = options.no_optimize if error.nodes else (ALL_REWRITES,)
            alike = dataclasses.replace(options.partition, native_nodes=native)
            changed = dataclasses.replace(options, partition=alike, no_optimize=rewrites)
            if changed == options:
                raise
            options = changed


def merge_files(sources: Sequence[pathlib.Path], output: pathlib.Path) -> int:
    """Write the engines of several compiled files into one.

    Args:
        sources: Files of the same source and the same segments. The first gives nodes, weights and report.
        output: The file to write.

    Returns:
        The number of engines in it.

    Raises:
        PartitionError: A file can't be read, or they differ.
        EngineError: A sidecar can't be read, or the output can't be written.
    """
    check_output(output, *sources)
    merged = _read(sources[0])
    for source in sources[1:]:
        try:
            merge_engines(merged, _read(source))
        except MergeError as error:
            raise MergeError(f"{sources[0].name} and {source.name}", error.problem) from error
    _write(merged, output)
    return _count(merged)


def strip_file(source: pathlib.Path, output: pathlib.Path, *, keep: Collection[str], fallback: bool) -> int:
    """Write a compiled file without some of its engines, or without the nodes that they replace.

    Args:
        source: The file.
        output: The file to write; may be the same.
        keep: Libraries whose engines stay; empty keeps all.
        fallback: True leaves out the replaced nodes and their weights.

    Returns:
        The number of engines that are left.

    Raises:
        PartitionError: The file can't be read.
        EngineError: It has no engine of these libraries.
    """
    model = _read(source)
    if not _count(model):
        raise EngineError(f"{source}: no node of it has an engine. Compile it first.")
    if keep:
        bare = list(keep_engines(model, lambda text: Envelope.from_json(text.decode(), "a segment").backend in keep))
        if bare:
            raise EngineError(f"{source}: {bare[0]} has no engine of {', '.join(sorted(keep))}. Keep one that it has.")
    if fallback:
        without_replaced_nodes(model)
    _write(model, output)
    return _count(model)


def listed_engines(model: ir.Model, trust: Trust) -> Iterator[dict[str, Any]]:
    """Yield facts about every engine of a compiled model, and why it doesn't run here: None if it does."""
    for op in filter(is_trtnode, ir.traversal.RecursiveGraphIterator(model.graph)):
        for content in embedded_engines(op):
            fields: dict[str, Any] = {"segment": op.name}
            with contextlib.suppress(EngineError):
                envelope = Envelope.from_json(content.envelope, op.name or "")
                fields |= {
                    "backend": envelope.backend,
                    "version": envelope.backend_version,
                    "built_for": envelope.options.get(TARGETS) or envelope.device.features,
                    "precision": envelope.precision_effective,
                }
            yield {**fields, "problem": _problem(op.name or "", content.envelope, trust)}


def _problem(segment: str, text: str, trust: Trust) -> str | None:
    try:
        check_fits(segment, Envelope.from_json(text, segment), dataclasses.replace(SHARED, trust=trust))
    except EngineError as error:
        return str(error)
    return None


def _read(path: pathlib.Path) -> onnx.ModelProto:
    """Read a file, with all that stands beside it."""
    model = read_proto(path)
    check_checksum(model, path)
    take_data_inside(path, protobuf_walk.tensors(model))
    for node in trtnodes(model):
        for attribute in node.attribute:
            part, suffix = engine_part(attribute.name)
            if part == "engine_file":
                engine = np.frombuffer(sidecar_bytes(node.name, attribute.s.decode(), path.parent), np.uint8)
                tensor = onnx.numpy_helper.from_array(engine, "engine")
                attribute.CopyFrom(onnx.helper.make_attribute(f"engine{suffix}", tensor))
    return model


def _write(model: onnx.ModelProto, path: pathlib.Path) -> None:
    stamp_checksum(model, path)
    write_model(model, path)


def _count(model: onnx.ModelProto) -> int:
    return sum(len(engines_of(node)) for node in trtnodes(model))
