"""OpenVINO's HETERO plugin over two CPU plugins, one of which stands for the engine.

It tells how many submodels it makes, native ones included, not which nodes they hold; and it compiles each of them, so
its time is no time of a cut alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import openvino as ov
from openvino import opset13 as ops

from benchmarks.partition.peers import Outcome
from benchmarks.partition.wiring import Wiring

ENGINE, NATIVE = "CPU", "CPU_NATIVE"
SHAPE = [1, 8]


def prepare(wiring: Wiring) -> Callable[[], Outcome]:
    """Write the graph as OpenVINO operators with an affinity each."""
    core = ov.Core()
    core.register_plugin("openvino_intel_cpu_plugin", NATIVE)
    model = _model(wiring)

    def run() -> Outcome:
        start = time.perf_counter()
        submodels = core.compile_model(model, f"HETERO:{ENGINE},{NATIVE}").get_property("HETERO_NUMBER_OF_SUBMODELS")
        return Outcome(segments=int(submodels), groups=None, seconds=time.perf_counter() - start)

    return run


def _model(wiring: Wiring) -> ov.Model:
    """Inputs, constants and results go with the node that they belong to, so that they add no submodel."""
    values: dict[str, ov.Node] = {}
    parameters = []
    for node, reads in wiring.reads.items():
        device = ENGINE if node in wiring.supported else NATIVE
        for value in reads:
            if value not in values:
                parameters.append(_placed(ops.parameter(SHAPE), device))
                values[value] = parameters[-1]
        total = values[reads[0]] if reads else _placed(ops.constant([[1.0] * SHAPE[1]], dtype="float32"), device)
        for value in reads[1:]:
            total = _placed(ops.add(total, values[value]), device)
        result = total if len(reads) > 1 else _placed(ops.relu(total), device)
        values.update(dict.fromkeys(wiring.writes[node], result))
    read = {value for reads in wiring.reads.values() for value in reads}
    results = []
    for node, written in wiring.writes.items():
        if not read.intersection(written):
            device = ENGINE if node in wiring.supported else NATIVE
            results.append(_placed(ops.result(values[written[0]]), device))
    return ov.Model(results, parameters)


def _placed(op: ov.Node, device: str) -> ov.Node:
    op.get_rt_info()["affinity"] = device
    return op
