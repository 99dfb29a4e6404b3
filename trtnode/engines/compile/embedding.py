"""Writes the compiled model of a partition: engines, report and properties in one ONNX model."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import onnx

from trtnode.engines.artifact.cache import builder_version
from trtnode.engines.artifact.compiled_model import NATIVE_FALLBACK, REFERENCE_NODES, REPORT, SHAPES, CompiledModel
from trtnode.engines.backends.names import NATIVE
from trtnode.engines.backends.shape_range import Profile, profile_as_json
from trtnode.engines.build import jobs
from trtnode.engines.build.builder import BuiltPartition
from trtnode.engines.build.context import TIMEOUT_S, CompileContext
from trtnode.engines.compile.last_resort import native_reference_nodes, with_reference_labels
from trtnode.engines.errors import ReferenceNeededError
from trtnode.engines.inputs.shape_profiles import with_best_shapes
from trtnode.engines.inputs.source import SourceModel, cleaned
from trtnode.engines.runtime.reference_nodes import count_operators
from trtnode.engines.tuning.memory_plan import plan_memory
from trtnode.engines.tuning.native_form import NativeForm, native_form
from trtnode.engines.tuning.precision_search import effective_precision
from trtnode.partitioner.compiled.trtnode import embed_engines
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.cut.partition import Partition
from trtnode.partitioner.cut.report import Report
from trtnode.partitioner.model.external_data import leave_weights_outside
from trtnode.partitioner.model.loading import read_proto
from trtnode.partitioner.passes.clean_up import FIRST_IR_WITH_DEFAULTS


def embed(
    context: CompileContext, built: BuiltPartition, *, precision: Mapping[str, Any] | None, built_now: int
) -> CompiledModel:
    """Write a model with its engines.

    Args:
        context: The compilation.
        built: The model's partition, with the engines.
        precision: Figures of the precision stage, for the report.
        built_now: Number of engines that this compilation has built so far.

    Raises:
        ReferenceNeededError: Nothing but onnx.reference runs a node that is in no engine, and it must not.
    """
    source = context.source
    nodes = context.reference_nodes(built.partition.graph)
    if context.options.reference is False:
        left = native_reference_nodes(built.partition, nodes)
        if left:
            raise ReferenceNeededError(str(source.origin), count_operators(node.op_type for node in left))
        nodes = {}
    partition = with_reference_labels(built.partition, nodes)
    report = partition.report(model=source.origin.name, engine=context.engine)
    engines = built.engines.values()
    engine_bytes = sum(engine.path.stat().st_size for engine in engines)
    report = dataclasses.replace(
        report,
        precision=precision,
        unchecked=context.unchecked,
        memory=plan_memory(partition.graph, engine_bytes=engine_bytes),
        sizes=context.related_shapes(partition.graph),
    )
    model = built.embed()
    if context.unchecked and context.options.shapes:
        profiles = json.dumps([profile_as_json(profile) for profile in context.options.shapes])
        model.metadata_props.append(onnx.StringStringEntryProto(key=SHAPES, value=profiles))
    return CompiledModel(
        model=_stamped(model, source, report, nodes),
        report=report,
        engine=context.engine,
        precision_effective=effective_precision(engines),
        engines_built=built_now,
        engines_cached=sum(engine.cached for engine in engines),
        engine_bytes=engine_bytes,
        native_fallback=source.runs_natively or bool(nodes),
        place=context.place,
        reference_nodes=tuple(node.op_type for node in native_reference_nodes(partition, nodes)),
    )


def with_sizes(compiled: CompiledModel, partition: Partition, profile: Profile) -> CompiledModel:
    """Report the sizes that tensors have in the best shapes of a profile, as an explanation does.

    Args:
        compiled: The outcome of a compilation.
        partition: Its partition, which gets these shapes in place. So no engine may be built of it afterwards.
        profile: Shapes of the model's inputs.
    """
    sized = dataclasses.replace(partition, graph=with_best_shapes(partition.graph, profile))
    report = sized.report(model=compiled.report.model, engine=compiled.report.engine)
    report = dataclasses.replace(
        compiled.report,
        estimates=report.estimates,
        boundary_bytes=report.boundary_bytes,
        memory=plan_memory(sized.graph, engine_bytes=compiled.engine_bytes),
    )
    return dataclasses.replace(compiled, report=report)


def without_engines(context: CompileContext, partition: Partition, *, built_now: int) -> CompiledModel:
    """Write a model without engines, with the report of a partition that has no segments.

    Args:
        context: The compilation.
        partition: Labels of the model's nodes.
        built_now: Number of engines that this compilation has built.

    Raises:
        ModelLoadError: ONNX Runtime refuses the model, and onnx.reference is of no help.
        ReferenceNeededError: onnx.reference would help, and must not run.
    """
    source, freeze = context.source, context.options.partition.freeze_initializers
    # The partition's graph may hold shapes and defaults of inputs as constants, for engines.
    graph = partition.graph if source.runs_natively else cleaned(source.path, (), freeze=freeze)
    nodes = context.reference_nodes(graph)
    if nodes and context.options.reference is False:
        raise ReferenceNeededError(str(source.origin), count_operators(nodes.values()))
    if not nodes and source.path not in context.loaded:
        context.worker.call(jobs.check_loads, TIMEOUT_S, source.path)
    form = NativeForm(path=source.path) if nodes else native_form(context, partition.graph)
    model = embed_engines(graph, (), {}, outside=True) if nodes else _as_it_is(form.path, context.options.partition)
    report = with_reference_labels(partition, nodes).report(model=source.origin.name, engine=context.engine)
    report = dataclasses.replace(report, rewrites=form.rewrites, memory=plan_memory(partition.graph, engine_bytes=0))
    return CompiledModel(
        model=_stamped(model, source, report, nodes),
        report=report,
        engine=NATIVE,
        precision_effective="fp32",
        engines_built=built_now,
        engines_cached=0,
        engine_bytes=0,
        rewritten=bool(form.rewrites),
        place=context.place,
        reference_nodes=tuple(nodes.values()),
    )


def _as_it_is(path: pathlib.Path, options: PartitionOptions) -> onnx.ModelProto:
    model = read_proto(path)
    leave_weights_outside(path, model)
    if options.freeze_initializers:
        _freeze(model)
    return model


def _freeze(model: onnx.ModelProto) -> None:
    """Take initializers out of the graph's inputs. Before IR version 4 they must be there, and are none."""
    if model.ir_version >= FIRST_IR_WITH_DEFAULTS:
        graph = model.graph
        constant = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
        inputs = [value for value in graph.input if value.name not in constant]
        del graph.input[:]
        graph.input.extend(inputs)


def with_report(compiled: CompiledModel, **changes: Any) -> CompiledModel:
    """Change fields of the report of a compiled model, and the property that holds it."""
    report = dataclasses.replace(compiled.report, **changes)
    for prop in compiled.model.metadata_props:
        if prop.key == REPORT:
            prop.value = _as_property(report)
    return dataclasses.replace(compiled, report=report)


def _as_property(report: Report) -> str:
    return json.dumps(report.as_json(), separators=(",", ":"))


def _stamped(
    model: onnx.ModelProto, source: SourceModel, report: Report, nodes: Mapping[str, str] | None = None
) -> onnx.ModelProto:
    properties = {p.key: p.value for p in model.metadata_props}
    properties["trtnode.version"] = builder_version()
    properties["trtnode.source_sha256"] = source.sha256
    if not source.runs_natively:
        properties[NATIVE_FALLBACK] = "reference" if nodes else "none"
    if nodes:
        properties[REFERENCE_NODES] = json.dumps(nodes)
    properties[REPORT] = _as_property(report)
    del model.metadata_props[:]
    model.metadata_props.extend(onnx.StringStringEntryProto(key=k, value=v) for k, v in properties.items())
    return model
