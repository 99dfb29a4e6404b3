"""Weighs an engine that leaves zeros of weights out against the best dense one, by measurement."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable

from engines.artifact.cache import engine_key
from engines.artifact.compiled_model import CompiledModel
from engines.artifact.files import sha256_of_file
from engines.backends.build_environment import measuring_environment
from engines.backends.names import AUTO, SPARSE
from engines.backends.registry import get_backend
from engines.build.context import CompileContext
from engines.errors import EngineError
from engines.onnxruntime.limits import native_version
from engines.sparse.survey import has_sparse_layers
from engines.tuning import timing
from engines.tuning.candidates import is_faster
from engines.tuning.memory_plan import keeps_memory_pattern
from partitioner import TensorSpec, load_model

logger = logging.getLogger(__name__)

TIMEOUT_S, SECONDS = 120.0, 4.0
"""Limit of the measurement, and about how long it takes."""


def with_faster_zeros(
    context: CompileContext, dense: CompiledModel, compile_sparse: Callable[[CompileContext], CompiledModel]
) -> CompiledModel:
    """Return the model with sparse engines where these are faster on this machine, else with dense ones.

    Args:
        context: Of the dense compilation.
        dense: Its outcome.
        compile_sparse: Compiles the same model with another context.
    """
    if not _may_gain(context):
        return dense
    backend = get_backend(SPARSE)
    key = engine_key(
        purpose="sparse choice",
        source=sha256_of_file(context.source.path),
        options=json.dumps(dataclasses.asdict(context.options), sort_keys=True, default=str),
        **measuring_environment(backend, native_version()),
    )
    record = context.cache.get_record(key) if context.cache is not None else None
    if record is not None and not record.get("gains"):
        return dense
    sparse = compile_sparse(dataclasses.replace(context, engine=SPARSE))
    if record is not None or not sparse.report.segments:
        return sparse if sparse.report.segments else dense
    try:
        gains = _is_faster(context, dense, sparse)
    except EngineError as error:
        logger.warning("%s keeps its dense engines, because they can't be timed: %s", context.source.origin, error)
        return dense
    if context.cache is not None:
        context.cache.put_record(key, {"gains": gains})
    return sparse if gains else dense


def _may_gain(context: CompileContext) -> bool:
    options = context.options
    is_open = options.engine == AUTO and options.sparse_weights and options.measures
    if not is_open or not context.backend.on_cpu or options.precision.asked != "fp32":
        return False
    if get_backend(SPARSE).unavailable_reason() is not None or not context.source.runs_natively:
        return False
    return has_sparse_layers(load_model(context.source.path).graph)


def _is_faster(context: CompileContext, dense: CompiledModel, sparse: CompiledModel) -> bool:
    files = {name: context.folder / f"{name}.onnx" for name in ("dense", "sparse")}
    dense.save(files["dense"])
    sparse.save(files["sparse"])
    subject = timing.Subject(
        compiled=files["dense"],
        source=context.source.path,
        native=files["dense"],
        inputs=[TensorSpec.of(value) for value in load_model(context.source.path).graph.inputs],
        given=context.options.samples,
        threads=context.options.threads,
        shares_cores=context.options.shares_cores,
        memory_pattern=keeps_memory_pattern(dense.report.memory),
    )
    turns = context.worker.call(timing.measure_files, TIMEOUT_S, subject, files, SECONDS)
    return turns is not None and is_faster(turns["sparse"], turns["dense"])
