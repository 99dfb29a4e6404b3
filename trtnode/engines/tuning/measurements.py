"""Measures the noise and the time of a model's parts in several precisions, in the worker process."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from trtnode.engines.artifact.files import write_temporary
from trtnode.engines.build.builder import BuiltEngine
from trtnode.engines.build.context import CompileContext
from trtnode.engines.precision.rewriting import Setting, transform
from trtnode.engines.quantization.table import CalibrationTable
from trtnode.engines.tuning import accuracy_jobs, timing
from trtnode.engines.tuning.measuring_turn import measuring
from trtnode.partitioner.cut.partition import Partition
from trtnode.partitioner.cut.segments import Segment, values_leaving, values_read
from trtnode.partitioner.graph.extraction import extract_model
from trtnode.partitioner.graph.view import Graph, Node

TIMEOUT_S = 1800.0

MEASURING_S = 2.0
"""Seconds that measuring the settings of all segments takes, about."""

PrecisionPlan = Mapping[str, str]
"""Precision of each node that an engine runs, by node identity."""


class Measurements:
    """Measurements of one compilation."""

    def __init__(
        self, context: CompileContext, evaluation: accuracy_jobs.EvaluationData, table: CalibrationTable | None
    ) -> None:
        """Prepare measurements.

        Args:
            context: The compilation.
            evaluation: Samples to measure on.
            table: Ranges of tensors, for INT8.
        """
        self._context = context
        self._evaluation = evaluation
        self._table = table

    def noise_of_nodes(self, partition: Partition, plan: PrecisionPlan) -> dict[str, float]:
        """Measure the signal-to-noise ratio of each node that a plan reduces, in dB, by node identity.

        Returns:
            Nothing where the library takes no precision for single nodes.

        Raises:
            EngineError: The nodes can't be measured.
        """
        graph = partition.graph
        models = {n.name: m for s in partition.segments for n in s.nodes if (m := self._reduced(graph, s, n, plan))}
        if not models:
            return {}
        path = self._write_observed(
            graph, [v for n in graph.nodes if n.name in models for v in (*n.reads, n.op.outputs[0])]
        )
        return self._context.worker.call(accuracy_jobs.measure_noise, TIMEOUT_S, path, self._evaluation, models)

    def times(
        self, partition: Partition, engines: Mapping[str, Mapping[str, BuiltEngine]]
    ) -> dict[str, dict[str, list[float]]]:
        """Time the engines of each segment in turn.

        Args:
            partition: The segments.
            engines: Engines by precision and segment name.

        Returns:
            Turns in ms by segment name and precision; empty where the model runs on no known input.
        """
        boundary = [v for s in partition.segments for v in (*s.inputs, *s.outputs)]
        path, evaluation = self._write_observed(partition.graph, boundary), self._evaluation
        samples = evaluation.given, self._context.data_to_time_on
        files = {
            segment.name: {p: (built[segment.name].path, built[segment.name].envelope) for p, built in engines.items()}
            for segment in partition.segments
        }
        with measuring():
            times = self._context.worker.call(
                timing.measure_engines, TIMEOUT_S, path, evaluation.inputs, samples, files, MEASURING_S
            )
        return times or {}

    def _reduced(self, graph: Graph, segment: Segment, node: Node, plan: PrecisionPlan) -> bytes | None:
        """Write a model of one node as a plan says; None where it computes in float32 anyway."""
        alone = dataclasses.replace(
            segment, nodes=(node,), inputs=values_read((node,)), outputs=values_leaving(graph, (node,))[:1]
        )
        model = extract_model(graph, (node,), inputs=alone.inputs, outputs=alone.outputs)
        setting = Setting(nodes=(plan[node.name],), table=self._table)
        reduced = transform(model, alone, setting, self._context.backend).model
        return None if reduced is model or not alone.inputs else reduced.SerializeToString()

    def _write_observed(self, graph: Graph, values: Sequence[ir.Value]) -> pathlib.Path:
        """Write the float32 model with some of its values as its outputs."""
        outputs = [v for v in dict.fromkeys(values) if v not in graph.inputs]
        path = self._context.folder / "observed.onnx"
        model = extract_model(graph, graph.nodes, inputs=graph.inputs, outputs=outputs, keep_defaults=True)
        write_temporary(model, path)
        return path
