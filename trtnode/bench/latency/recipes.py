"""Makes the recipes of a model: native, compiled for each precision, and other systems."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Callable, Mapping

from trtnode.bench.latency.candidate_process import Recipe
from trtnode.bench.latency.openers import Opener, open_compiled, open_onnxruntime, open_openvino
from trtnode.bench.latency.plan import Plan
from trtnode.bench.latency_report.results import NATIVE
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.backends.names import PRECISION_NAMES
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.precision.options import AccuracyBudget, Calibration
from trtnode.serving.cli.terminal.report import measured, sentences

WITHOUT_BUDGET = AccuracyBudget(min_cosine=-1)

PRECISIONS: Mapping[str, CompileOptions] = {
    "fp32": CompileOptions(),
    **{name: CompileOptions(precision=name, budget=WITHOUT_BUDGET) for name in PRECISION_NAMES if name != "fp32"},
    "auto": CompileOptions(precision="auto"),
}
"""Options of the compilation for each precision. Only ``auto`` keeps to a budget of accuracy: random weights have thin
margins, so the other precisions are measured whatever their accuracy."""

PEERS: Mapping[str, Opener] = {"openvino": open_openvino}
"""Other systems that run a whole model, by the name of their setting."""

CACHE_BYTES = 10**11
"""Size of the cache, enough for one model's engines."""


def native_recipe(source: pathlib.Path, plan: Plan) -> Recipe:
    """Return the recipe of the baseline."""
    return Recipe(setting=NATIVE, engine=NATIVE, open=open_onnxruntime, model=source, threads=plan.threads)


def peer_recipes(source: pathlib.Path, plan: Plan) -> list[Recipe]:
    """Return the recipes of other systems, which may refuse the model when they load it."""
    return [Recipe(setting=n, engine=n, open=PEERS[n], model=source, threads=plan.threads) for n in plan.peers]


def compile_recipes(
    source: pathlib.Path, samples: pathlib.Path, calibration: pathlib.Path, plan: Plan, step: Callable[[str], None]
) -> list[Recipe]:
    """Compile for each precision, into files beside the source.

    Engines are built and measured anew, because results of an earlier run may be stale. Their process ends here, so it
    disturbs no measurement.

    Args:
        source: The model.
        samples: An .npz with inputs to check and measure engines with.
        calibration: An .npz with inputs to learn ranges from.
        plan: Precisions, engine and threads.
        step: Called with the name of each setting before its turn.

    Raises:
        PartitionError: The model can't be read.
        EngineError: It can't be compiled.
    """
    cache = EngineCache(source.with_name("cache"), CACHE_BYTES)
    recipes = []
    with SubprocessWorker() as worker:
        for name in plan.precisions:
            step(name)
            preset = PRECISIONS[name]
            options = dataclasses.replace(
                preset,
                engine=plan.engine,
                check_inputs=samples,
                no_optimize=plan.without_rewrites,
                threads=plan.threads,
                calibration=Calibration(data=str(calibration)),
            )
            start = time.perf_counter()
            compiled = compile_model(source, options, cache=cache, worker=worker)
            seconds = time.perf_counter() - start
            model = source.with_name(f"{name}.onnx")
            if plan.nan is not None:
                compiled.answer_nan_by(plan.nan)
            compiled.save(model)
            recipe = Recipe(
                setting=name,
                engine=compiled.engine,
                open=open_compiled,
                model=model,
                threads=plan.threads,
                engine_bytes=compiled.engine_bytes,
                precision=compiled.precision_effective,
                compile_s=round(seconds, 3),
                about=" ".join([sentences(compiled.report), *measured(compiled.report)]),
            )
            recipes.append(recipe)
    return recipes
