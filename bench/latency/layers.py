"""Times the layers of a model, in a process of its own."""

from __future__ import annotations

from trtnode.bench.latency.candidate_process import TIMEOUT_S, Recipe
from trtnode.bench.latency.subjects import LatencySubject
from trtnode.bench.latency_report.results import LayerRow
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.diagnostics.profiling import profile_layers


def time_layers(subject: LatencySubject, recipe: Recipe) -> list[LayerRow]:
    """Time the layers of a model in one setting.

    Returns:
        The slowest first.

    Raises:
        EngineError: A library tells no times of layers, or doesn't run the model.
    """
    with SubprocessWorker() as worker:
        stages = worker.call(profile_layers, TIMEOUT_S, recipe.model, subject.samples[0], recipe.threads)
    whole = sum(layer.us for stage in stages for layer in stage.layers)
    rows = [
        LayerRow(
            network=subject.name,
            setting=recipe.setting,
            batch=subject.batch,
            stage=stage.stage,
            engine=stage.engine,
            stage_us=stage.stage_us,
            layer=layer.name,
            nodes=layer.nodes,
            kind=layer.kind,
            precision=layer.precision,
            kernel=layer.kernel,
            us=layer.us,
            share=100 * layer.us / whole if whole else 0.0,
        )
        for stage in stages
        for layer in stage.layers
    ]
    return sorted(rows, key=lambda row: row.us, reverse=True)
