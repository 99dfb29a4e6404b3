"""Loads a configured model with the engines package."""

from collections.abc import Mapping

from engines import (
    AccuracyBudget,
    BuildOptions,
    Calibration,
    CompileOptions,
    EngineCache,
    Executable,
    PrecisionOptions,
    PrecisionRule,
    Trust,
    prepare_model,
)
from engines.options import TensorRtOptions
from engines.profiles import Profile, ShapeRange
from engines.registry import resolve_engine
from partitioner import PartitionOptions
from serving.model_schema import BudgetConfig, CalibrationConfig, ModelConfig, ProfileConfig
from serving.schema import ServableConfig
from serving.servable import Loader


def engine_loader(config: ServableConfig) -> Loader:
    """Return a loader that keeps built engines in the configured cache.

    Raises:
        KeyFileError: A file of ``trust.keys`` is no public key any more.
    """
    trust = Trust.of(config.trust.keys, config.trust.allow_unsigned)
    cache = EngineCache(config.cache.dir, int(config.cache.max_gb * 1e9), trust=trust)

    def load(model: ModelConfig) -> Executable:
        # The cores are always shared, with the threads that talk to clients if with nothing else.
        return prepare_model(model.path, compile_options(model), cache, threads=model.threads, shares_cores=True)

    return load


def compile_options(model: ModelConfig) -> CompileOptions:
    """Translate a model's configuration."""
    return CompileOptions(
        engine=model.engine,
        precision=_precision_options(model),
        partition=PartitionOptions(
            native_ops=model.partition.native_ops,
            native_nodes=model.partition.native_nodes,
            engine_ops=model.partition.engine_ops or None,
            min_segment_nodes=model.partition.min_segment_nodes,
            max_segments=model.partition.max_segments,
            connected=model.partition.connected,
        ),
        tune=model.tune,
        shapes=tuple(map(_profile, model.shapes)),
        build=BuildOptions(tensorrt=TensorRtOptions(**model.tensorrt.model_dump(exclude={"build_timeout_s"}))),
        build_timeout_s=_build_timeout_s(model),
    )


def _profile(shapes: Mapping[str, ProfileConfig]) -> Profile:
    return {name: ShapeRange(low=one.min, best=one.opt, high=one.max) for name, one in shapes.items()}


def _build_timeout_s(model: ModelConfig) -> float:
    on_tensorrt = resolve_engine(model.engine) == "tensorrt"
    return model.tensorrt.build_timeout_s if on_tensorrt else CompileOptions().build_timeout_s


def _precision_options(model: ModelConfig) -> PrecisionOptions:
    calibration, budget = model.calibration or CalibrationConfig(), model.budget or BudgetConfig()
    return PrecisionOptions(
        asked=model.precision,
        rules=tuple(PrecisionRule(**rule.model_dump()) for rule in model.precision_rules),
        calibration=Calibration(
            data=calibration.data,
            ranges=calibration.ranges,
            method=calibration.method,
            samples=calibration.samples,
        ),
        budget=AccuracyBudget.of(**budget.model_dump()),
    )
