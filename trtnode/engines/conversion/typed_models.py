"""Writes a model in a precision as plain ONNX, strongly typed: Casts, Q/DQ pairs or weights in blocks.

The whole model is one segment of a library whose engine bytes are the rewritten model. So the search for the precision
is that of a compilation, with its rules, its calibration and its budget.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import onnx

from trtnode.engines.artifact.files import check_output, write_model
from trtnode.engines.artifact.refusal import Refusal
from trtnode.engines.backends.names import TYPED_ONNX
from trtnode.engines.build.builder import BuiltPartition, EngineBuilder
from trtnode.engines.build.context import CompileContext, open_context
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.compile.custom_operators import custom_operators
from trtnode.engines.errors import PrecisionError
from trtnode.engines.inputs.source import cleaned
from trtnode.engines.precision.bfloat16 import with_float32_kernels
from trtnode.engines.tuning.compilation_record import CompilationRecord
from trtnode.engines.tuning.precision_stage import PrecisionStage
from trtnode.partitioner.cut.labels import SUPPORTED
from trtnode.partitioner.cut.partition import Partition
from trtnode.partitioner.cut.segments import Segment
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.passes.shape_sources import lacks_types

REPORT = "trtnode.precision"
"""Key of a typed file's property: the report of the search, as JSON."""


def convert_file(
    source: pathlib.Path, output: pathlib.Path, options: CompileOptions, *, worker: SubprocessWorker | None = None
) -> Mapping[str, Any]:
    """Write a model in the precision that is asked for, as far as its answers stay inside the accuracy budget.

    Inputs and outputs keep their names and types. Initializers that are also inputs become constants. Activations are
    quantized around zero, as TensorRT takes them.

    Args:
        source: The model.
        output: The file to write, with its weights beside it where it is too large for one.
        options: Precision, rules, calibration, budget, inputs to check with, and libraries of operators.
        worker: Child process that measures accuracy; None makes a temporary one.

    Returns:
        The report of the search, which the file holds as well: the precision in effect, the figures, trials, and nodes
        that are float32 after all.

    Raises:
        PartitionError: The file is no model, or an option doesn't fit it.
        AlreadyCompiledError: It is a compiled model.
        EngineError: ONNX Runtime refuses the model, it runs on no inputs, or calibration data can't be used.
        PrecisionError: No precision below float32 stays inside the budget. Nothing is written then.
        OutputFileError: The file can't be written.
    """
    check_output(output, source)
    opened = open_context(TYPED_ONNX, source, options, None, worker)
    with custom_operators(options.custom_op_libraries), opened as context:
        graph, builder = _typed(context), EngineBuilder(context)
        stage = PrecisionStage(context, builder, CompilationRecord())
        stage.prepare(graph)
        built = stage.rebuild(_in_float32(graph, builder, options), _evaluated)
        report = stage.figures or {}
        if report.get("effective") == "fp32":
            raise PrecisionError(_nothing_inside(source, report))
        _write(built, graph, report, output)
    return report


def _typed(context: CompileContext) -> Graph:
    graph = cleaned(context.source.path, (), freeze=True)
    return context.complete_natively(graph) if lacks_types(graph) else graph


def _in_float32(graph: Graph, builder: EngineBuilder, options: CompileOptions) -> BuiltPartition:
    """Return the whole model as one segment.

    Raises:
        PrecisionError: It runs on no inputs.
    """
    segment = Segment(name="typed", level=0, nodes=graph.nodes, inputs=graph.inputs, outputs=graph.outputs)
    partition = Partition(
        graph=graph,
        labels=dict.fromkeys(graph.names, SUPPORTED),
        segments=(segment,),
        groups=(),
        options=options.partition,
        supported_nodes=len(graph.nodes),
        minimum_segments=1,
        seconds={},
    )
    built = builder.find_or_build(graph, segment)
    if isinstance(built, Refusal):
        raise PrecisionError(built.detail)
    return BuiltPartition(partition=partition, engines={segment.name: built})


def _evaluated(built: BuiltPartition) -> onnx.ModelProto:
    """Return the typed model as ONNX Runtime runs it on a CPU, which has few kernels for bfloat16."""
    return with_float32_kernels(_model(built))


def _model(built: BuiltPartition) -> onnx.ModelProto:
    (engine,) = built.engines.values()
    return onnx.load(engine.path)


def _write(built: BuiltPartition, graph: Graph, report: Mapping[str, Any], output: pathlib.Path) -> None:
    model = _model(built)
    properties = {**graph.model.metadata_props, REPORT: json.dumps(report)}
    model.metadata_props.extend(onnx.StringStringEntryProto(key=k, value=v) for k, v in properties.items())
    write_model(model, output)


def _nothing_inside(source: pathlib.Path, report: Mapping[str, Any]) -> str:
    """Return the reason for which no typed model is written."""
    problem = next((trial["problem"] for trial in report["tried"] if "problem" in trial), None)
    if problem is None:
        return f"{source}: {report['asked']} changes no node, so nothing is written. Ask for another precision."
    return (
        f"{source}: nothing is written, because {report['asked']} breaks the accuracy budget: {problem.rstrip('.')}. "
        "Loosen the budget, or leave nodes in float32 with --precision-rules."
    )
