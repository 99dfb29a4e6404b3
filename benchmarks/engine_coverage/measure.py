"""Compiles one model in segments and builds it whole, and counts."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from benchmarks.engine_coverage.collection import Case
from benchmarks.engine_coverage.library_alone import TIMEOUT_S, WholeBuild, build_alone, start_library
from benchmarks.partition.labelled_graph import LabelledGraph
from benchmarks.partition.measure import GIVEN_UP
from benchmarks.partition.peer_ort import prepare
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.build import jobs
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.partitioning import partition_model
from trtnode.engines.errors import BuildError, EngineError, WorkerError
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.cut.partition import Partition
from trtnode.partitioner.cut.report import Report
from trtnode.partitioner.errors import PartitionError

P = ParamSpec("P")
R = TypeVar("R")

ENGINE = "tensorrt-rtx"

COMPILE_TIMEOUT_S = 1800.0

CACHE_BYTES = 2**33
"""More than the engines of one model take."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InSegments:
    """Outcome of one compilation.

    Attributes:
        nodes: Number of nodes after clean-up.
        labelled: Number of nodes that the engine can take, by the table and the parser.
        segments: Number of segments before any was built.
        engines: Number of engines in the compiled model.
        engine_nodes: Number of nodes in them.
        constant_nodes: Number of native nodes that compute from constants alone: once, when the model is loaded.
        build_calls: Number of builds, also of parts of refused segments.
        refused_builds: Number of builds that the library refused.
        crashes: Number of calls in which the library crashed or took too long.
        helper_segments: Number of segments, each a build call, that ONNX Runtime's partitioning helper makes of the
            same labels.
        build_s: CPU time of the builds that gave an engine.
        total_s: CPU time of the compilation and of its worker, without refused builds.
        reasons: The reasons of native nodes, each with the number of nodes, the most frequent first.
    """

    nodes: int
    labelled: int
    segments: int
    engines: int
    engine_nodes: int
    constant_nodes: int
    build_calls: int
    refused_builds: int
    crashes: int
    helper_segments: int
    build_s: float
    total_s: float
    reasons: tuple[tuple[str, int], ...]

    @property
    def is_one_engine(self) -> bool:
        """True if one engine has all nodes that a request computes."""
        return self.engines == 1 and self.engine_nodes + self.constant_nodes == self.nodes

    @property
    def added_s(self) -> float:
        """CPU time of everything but the builds: reading, labels, questions, checks, writing."""
        return self.total_s - self.build_s


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CoverageRow:
    """One model, in segments and whole.

    Attributes:
        name: Of the case.
        in_segments: None where there is no compiled model.
        problem: The reason for that; else empty.
        whole: The library alone on the model's file.
    """

    name: str
    in_segments: InSegments | None
    whole: WholeBuild
    problem: str = ""

    @property
    def ratio(self) -> float | None:
        """Time that the compilation adds to its builds, over that of the library alone; None without an engine."""
        if self.in_segments is None or not self.whole.built:
            return None
        return self.in_segments.added_s / self.whole.seconds


def measure_apart(case: Case, options: PartitionOptions) -> CoverageRow:
    """Measure a model in a process of its own, which no earlier model has warmed up and whose end ends nothing else."""
    with SubprocessWorker() as worker:
        try:
            return worker.call(measure, COMPILE_TIMEOUT_S + TIMEOUT_S, case, options)
        except WorkerError as error:
            lost = WholeBuild(seconds=0.0, built=False, problem="not asked")
            return CoverageRow(name=case.name, in_segments=None, whole=lost, problem=str(error))


def measure(case: Case, options: PartitionOptions) -> CoverageRow:
    """Build a model whole by the library alone, then compile it in segments."""
    with tempfile.TemporaryDirectory(prefix="trtnode-bench-") as name:
        model = case.unpacked(pathlib.Path(name))
        try:
            profile = case.profile(model)
        except PartitionError as error:
            whole = WholeBuild(seconds=0.0, built=False, problem="not asked")
            return CoverageRow(name=case.name, in_segments=None, whole=whole, problem=str(error))
        whole = build_alone(model, profile)
        wishes = CompileOptions(
            engine=ENGINE, partition=options, shapes=(profile,) if profile else (), all_engines=True
        )
        try:
            cache = EngineCache(pathlib.Path(name) / "cache", CACHE_BYTES)
            return CoverageRow(name=case.name, in_segments=compile_counted(model, wishes, cache), whole=whole)
        except (EngineError, PartitionError) as error:
            return CoverageRow(name=case.name, in_segments=None, whole=whole, problem=str(error))


def compile_counted(model: pathlib.Path, options: CompileOptions, cache: EngineCache) -> InSegments:
    """Compile a model with an empty cache, and count.

    Raises:
        EngineError: As ``compile_model``.
        PartitionError: As ``compile_model``.
    """
    worker = CountingWorker()
    with worker:
        worker.call(start_library, TIMEOUT_S)
        worker.seconds = 0.0
        start = time.process_time()
        report = compile_model(model, options, cache=cache, worker=worker).report
        total_s = time.process_time() - start + worker.seconds
    partition, _ = partition_model(model, options, cache=cache)
    constant = set(itertools.compress(partition.graph.names, partition.graph.constant))
    return InSegments(
        nodes=report.nodes,
        labelled=report.supported_nodes,
        segments=len(partition.segments),
        engines=len(report.segments),
        engine_nodes=sum(len(segment.nodes) for segment in report.segments),
        constant_nodes=sum(node.node in constant for node in report.native),
        build_calls=worker.build_calls,
        refused_builds=worker.refused_builds,
        crashes=worker.crashes,
        helper_segments=helper_segments(partition),
        build_s=worker.build_s,
        total_s=total_s,
        reasons=_reasons(report),
    )


class CountingWorker(SubprocessWorker):
    """A worker that counts and times builds.

    Attributes:
        build_calls: Number of builds.
        refused_builds: Number of builds that the library refused.
        crashes: Number of calls that ended the process.
        seconds: CPU time of the calls that returned.
        build_s: CPU time of the builds among them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.build_calls = self.refused_builds = self.crashes = 0
        self.seconds = self.build_s = 0.0

    def call(self, function: Callable[P, R], timeout_s: float, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call as ``SubprocessWorker`` does, and count."""
        builds = function is jobs.build
        self.build_calls += builds
        call: Callable[..., tuple[R, float]] = super().call
        try:
            result, seconds = call(timed, timeout_s, function, *args, **kwargs)
        except BuildError:
            self.refused_builds += builds
            raise
        except WorkerError:
            self.crashes += 1
            raise
        self.seconds += seconds
        self.build_s += seconds * builds
        return result


def timed(function: Callable[..., R], *args: Any, **kwargs: Any) -> tuple[R, float]:
    """Call a function; returns its result, and the CPU time of all threads of this process meanwhile."""
    start = time.process_time()
    result = function(*args, **kwargs)
    return result, time.process_time() - start


def helper_segments(partition: Partition) -> int:
    """Return the number of segments that ONNX Runtime's partitioning helper makes of a partition's labels."""
    labels = partition.labels.items()
    taken = {name for name, verdict in labels if verdict.supported or verdict.code in GIVEN_UP}
    return prepare(LabelledGraph.of(partition.graph, taken))().segments


def _reasons(report: Report) -> tuple[tuple[str, int], ...]:
    counts = collections.Counter(f"{node.code} {node.op_type}" for node in report.native)
    first = {f"{node.code} {node.op_type}": node.detail for node in reversed(report.native)}
    return tuple((f"{kind}: {first[kind]}", count) for kind, count in counts.most_common())
