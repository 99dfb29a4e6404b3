"""Finds models whose native run takes hardly longer than the call of an engine. Nothing is built for them.

A compilation runs such a model natively for a moment, and keeps the time for the next one.
"""

from __future__ import annotations

import json
import logging

from trtnode.engines.artifact.cache import engine_key, recall
from trtnode.engines.artifact.files import sha256_of_file
from trtnode.engines.backends.build_environment import measuring_environment
from trtnode.engines.backends.names import AUTO
from trtnode.engines.build.context import CompileContext
from trtnode.engines.errors import EngineError
from trtnode.engines.onnxruntime.limits import native_version
from trtnode.engines.runtime.options import RunOptions
from trtnode.engines.tuning import timing
from trtnode.engines.tuning.timing_inputs import Subject
from trtnode.partitioner.cut.cost_model import CostModel
from trtnode.partitioner.cut.labels import ReasonCode, Verdict
from trtnode.partitioner.graph.view import Graph

logger = logging.getLogger(__name__)

CALL_MS, NEAR = 0.02, 1.25
"""Time of an engine's call beside its work, about, and how many times as long models run natively that no engine made
faster: docs/measured.md tells what this was calibrated on."""

MOST_ESTIMATED_S = 5e-4
"""Models that take longer by estimate aren't run to find out."""

TIMEOUT_S = 60.0


def quick_verdict(context: CompileContext, graph: Graph, *, measure: bool = True) -> Verdict | None:
    """Return the reason for which all nodes of a model run natively at once; None where engines may gain.

    Args:
        context: The compilation. Asked engines are built in any case.
        graph: The cleaned model.
        measure: Run the model, unless the time of a run is known.
    """
    options = context.options
    may_gain_nothing = options.engine == AUTO and options.measures and context.builds and not context.unchecked
    if not may_gain_nothing or not context.source.runs_natively or not context.backend.on_cpu:
        return None
    if CostModel(graph).native_s(range(len(graph.nodes))) > MOST_ESTIMATED_S:
        return None
    time_ms = _native_ms(context, graph, measure=measure)
    if time_ms is None or time_ms > NEAR * CALL_MS:
        return None
    detail = f"The model takes {time_ms * 1e3:.2g} us natively; a call of an engine takes about {CALL_MS * 1e3:.2g} us."
    logger.info("%s runs natively: %s", context.source.origin, detail)
    return Verdict(ReasonCode.TOO_FAST, detail)


def _native_ms(context: CompileContext, graph: Graph, *, measure: bool) -> float | None:
    options, cache = context.options, context.cache
    samples = options.check_inputs
    key = engine_key(
        purpose="native time",
        source=context.source.key,
        samples=sha256_of_file(samples) if samples else "",
        options=json.dumps([options.threads, options.shares_cores, str(options.shapes), str(options.partition)]),
        **measuring_environment(context.backend, native_version()),
    )
    known = recall(cache, key, lambda record: float(record["ms"]))
    if not measure or (known is not None and not options.measure_again):
        return known
    try:
        path, inputs = context.source.path, context.sampled_inputs(graph)
        subject = Subject(
            compiled=path,
            source=path,
            native=path,
            inputs=inputs,
            given=samples,
            run=RunOptions(threads=options.threads, shares_cores=options.shares_cores),
        )
        time_ms = context.worker.call(timing.measure_native, TIMEOUT_S, subject)
    except EngineError as error:
        logger.debug("%s isn't run to see how long it takes: %s", context.source.origin, error)
        return None
    context.loaded.add(path)
    if cache is not None and time_ms is not None:
        cache.put_record(key, {"ms": time_ms})
    return time_ms
