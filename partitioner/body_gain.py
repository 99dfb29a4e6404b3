"""Estimates whether engines inside a body are worth running its control flow ourselves."""

from __future__ import annotations

from partitioner.cost import CostModel, Machine
from partitioner.graph import Node, TensorSpec
from partitioner.labels import ReasonCode, Verdict
from partitioner.partition import Partition
from partitioner.report import estimate_segments
from partitioner.values import dimensions, is_constant

LOOP_TRIPS = 8
"""Expected iterations of a Loop or Scan whose number is not a constant."""

ITERATION_S = 50e-6
"""What running a body ourselves costs beside its nodes and the copies of its inputs: evaluating the operator, calling
its native parts."""

MARGIN_S = 100e-6
"""Least estimated gain of a run of the model: what giving up buffers that are bound once may cost it."""


def expected_trips(node: Node) -> int:
    """How often a body of a node runs in a run of the model: once for If, else as often as constants or shapes say."""
    if node.op_type == "If":
        return 1
    if node.op_type == "Scan":
        scanned = None if node.op.inputs[-1] is None else dimensions(node.op.inputs[-1])
        return scanned[0] if scanned and isinstance(scanned[0], int) else LOOP_TRIPS
    trips = node.op.inputs[0]
    if trips is None or not is_constant(trips) or trips.const_value is None:
        return LOOP_TRIPS
    return max(0, int(trips.const_value.numpy().reshape(-1)[0]))


def expected_gain_s(partition: Partition, trips: int) -> float:
    """Estimated time that the engines of a body save in a run of the model, what they cost subtracted."""
    graph = partition.graph
    estimates = estimate_segments(graph, partition.segments, CostModel(graph)).values()
    saved_s = sum(estimate.native_ms - estimate.engine_ms for estimate in estimates) / 1e3
    copied = 2 * sum(TensorSpec.of(value).size_bytes for value in graph.inputs)  # read and written, each time
    return trips * (saved_s - ITERATION_S - copied / Machine().bytes_per_s)


def refuse_unless_pays(partition: Partition, trips: int) -> dict[str, Verdict]:
    """Refuse every engine of a body, unless they are expected to make the model faster."""
    if expected_gain_s(partition, trips) > MARGIN_S:
        return {}
    detail = f"The engines of its body, which is expected to run {trips} times, would not save enough."
    verdict = Verdict(ReasonCode.TOO_SMALL, detail)
    return {node.name: verdict for segment in partition.segments for node in segment.nodes}
