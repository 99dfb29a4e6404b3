"""Models judged by the table of TensorRT for RTX, by its parser, and by its builder, which needs no GPU."""

from __future__ import annotations

import dataclasses
import enum
import functools
import pathlib
import re
from collections.abc import Collection, Mapping
from typing import Any

from streams import profile_of, samples_of
from trtnode.engines.backends import library_jobs
from trtnode.engines.backends.build_options import BuildOptions, TensorRtOptions
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.backends.shape_range import Profile
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.errors import BuildError, EngineError, WorkerError
from trtnode.engines.inputs.source import cleaned
from trtnode.engines.tensorrt.library import TENSORRT_RTX
from trtnode.partitioner.cut.function_expansion import expand_functions
from trtnode.partitioner.cut.labels import label_nodes
from trtnode.partitioner.cut.options import Allowance, PartitionOptions
from trtnode.partitioner.cut.report import Report
from trtnode.partitioner.graph.extraction import extract_model
from trtnode.partitioner.graph.view import Graph

ENGINE = "tensorrt-rtx"
TIMEOUT_S = 250.0
FOLDED = "It computes from constants alone"
"""Begins the reason of nodes that no engine has to compute."""


def asked(*targets: str) -> BuildOptions:
    """Return the options of builds for these GPUs; for every portable one if none is named."""
    return BuildOptions(tensorrt=TensorRtOptions(targets=targets))


class Outcome(enum.StrEnum):
    """Agreement of the table and the library about a whole model."""

    BUILT = "table yes, build yes"
    PARSER_REFUSES = "table yes, parser no"
    BUILDER_REFUSES = "table yes, build no"
    ALLOWED = "table only if allowed, build yes"
    GIVEN_AWAY = "table no, build yes"
    REFUSED = "table no, build no"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A model that was compiled for GPUs that are not here.

    Attributes:
        compiled: The compiled file; None where ONNX Runtime does not even load the model.
        outcome: Agreement of table and library.
        refusals: The nodes that the table refuses, else those that the library refuses: ``Operator: reason``.
        crashed: True if the worker process crashed while the library had the whole model.
    """

    compiled: pathlib.Path | None
    outcome: Outcome
    refusals: tuple[str, ...]
    crashed: bool = False


def judge(source: pathlib.Path, feeds: Mapping[str, Any], worker: SubprocessWorker, folder: pathlib.Path) -> Judgement:
    """Compile a model for the shapes of its inputs. What the table refuses of it, the library builds as a whole.

    Args:
        source: The model.
        feeds: Its inputs, for whose shapes and sizes engines are built.
        worker: Process in which the library is asked and builds.
        folder: Folder for files.
    """
    shapes = tuple(filter(None, [profile_of(source, [feeds])]))
    graph = expand_functions(cleaned(source, shapes), get_backend(ENGINE).label, PartitionOptions())
    refusals = _refused_by_table(graph, ())
    compiled = folder / "compiled.onnx"
    options = CompileOptions(engine=ENGINE, shapes=shapes, check_inputs=samples_of(feeds, folder))
    try:
        model = compile_model(source, options, worker=worker)
    except EngineError:
        return _judge_whole(graph, refusals, shapes, worker, folder)
    model.save(compiled)
    outcome, refusals_of_library = _outcome_of(model.report)
    if refusals and outcome != Outcome.BUILT:
        return dataclasses.replace(_judge_whole(graph, refusals, shapes, worker, folder), compiled=compiled)
    return Judgement(compiled=compiled, outcome=outcome, refusals=refusals_of_library)


def _refused_by_table(graph: Graph, allow: Collection[Allowance]) -> tuple[str, ...]:
    labels = label_nodes(graph, functools.partial(get_backend(ENGINE).label, allow=allow), PartitionOptions())
    return tuple(f"{n.op_type}: {v.detail}" for n in graph.nodes if not (v := labels[n.name]).supported)


def _outcome_of(report: Report) -> tuple[Outcome, tuple[str, ...]]:
    native = [node for node in report.native if not node.detail.startswith(FOLDED)]
    refusals = tuple(f"{node.op_type}: {node.detail}" for node in native)
    if not native:
        return Outcome.BUILT, refusals
    asked = any(re.match("TensorRT's parser|The library could not be asked", node.detail) for node in native)
    return (Outcome.PARSER_REFUSES if asked else Outcome.BUILDER_REFUSES), refusals


def _judge_whole(
    graph: Graph, refusals: tuple[str, ...], shapes: tuple[Profile, ...], worker: SubprocessWorker, folder: pathlib.Path
) -> Judgement:
    """Have the library build a whole model for each GPU of a portable engine.

    Where none is named, the library also takes what only some of them have, and the others refuse the engine.
    """
    portable = TensorRtOptions(targets=TENSORRT_RTX.portable)
    inputs = [value for value in graph.inputs if not value.is_initializer()]
    outputs = list(dict.fromkeys(graph.outputs))
    path = folder / "whole.onnx"
    path.write_bytes(extract_model(graph, graph.nodes, inputs=inputs, outputs=outputs).SerializeToString())
    try:
        options = BuildOptions(profiles=shapes, tensorrt=portable)
        worker.call(library_jobs.build, TIMEOUT_S, ENGINE, path, folder / "whole.engine", options)
    except (BuildError, WorkerError) as error:
        outcome = Outcome.REFUSED if refusals else Outcome.BUILDER_REFUSES
        crashed = isinstance(error, WorkerError) and "crashed" in str(error)
        return Judgement(compiled=None, outcome=outcome, refusals=refusals or (str(error),), crashed=crashed)
    if not refusals:
        return Judgement(compiled=None, outcome=Outcome.BUILT, refusals=refusals)
    outcome = Outcome.GIVEN_AWAY if _refused_by_table(graph, tuple(Allowance)) else Outcome.ALLOWED
    return Judgement(compiled=None, outcome=outcome, refusals=refusals)
