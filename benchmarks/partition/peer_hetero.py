"""Drives OpenVINO's HETERO plugin over two CPU plugins, one of which stands for the engine.

It returns the number of submodels, native ones included, but not their nodes. It also compiles each of them, so its
time is more than that of a cut.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import openvino as ov
from openvino import opset13 as ops

from benchmarks.partition.labelled_graph import LabelledGraph
from benchmarks.partition.peers import PeerCut

ENGINE, NATIVE = "CPU", "CPU_NATIVE"
SHAPE = [1, 8]


def prepare(labelled: LabelledGraph) -> Callable[[], PeerCut]:
    """Write the graph as OpenVINO operators with an affinity each."""
    core = ov.Core()
    core.register_plugin("openvino_intel_cpu_plugin", NATIVE)
    model = _model(labelled)

    def run() -> PeerCut:
        start = time.perf_counter()
        submodels = core.compile_model(model, f"HETERO:{ENGINE},{NATIVE}").get_property("HETERO_NUMBER_OF_SUBMODELS")
        return PeerCut(segments=int(submodels), groups=None, seconds=time.perf_counter() - start)

    return run


def _model(labelled: LabelledGraph) -> ov.Model:
    """Return the model; inputs, constants and results have the affinity of their node, so that they add no submodel."""
    values: dict[str, ov.Node] = {}
    parameters = []
    for node, reads in labelled.reads.items():
        device = ENGINE if node in labelled.supported else NATIVE
        for value in reads:
            if value not in values:
                parameters.append(_placed(ops.parameter(SHAPE), device))
                values[value] = parameters[-1]
        total = values[reads[0]] if reads else _placed(ops.constant([[1.0] * SHAPE[1]], dtype="float32"), device)
        for value in reads[1:]:
            total = _placed(ops.add(total, values[value]), device)
        result = total if len(reads) > 1 else _placed(ops.relu(total), device)
        values.update(dict.fromkeys(labelled.writes[node], result))
    read = {value for reads in labelled.reads.values() for value in reads}
    results = []
    for node, written in labelled.writes.items():
        if not read.intersection(written):
            device = ENGINE if node in labelled.supported else NATIVE
            results.append(_placed(ops.result(values[written[0]]), device))
    return ov.Model(results, parameters)


def _placed(op: ov.Node, device: str) -> ov.Node:
    op.get_rt_info()["affinity"] = device
    return op
