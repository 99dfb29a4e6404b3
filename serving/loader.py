"""Loads a configured model with the engines package."""

from engines import (
    AccuracyBudget,
    Calibration,
    CompileOptions,
    EngineCache,
    Executable,
    PrecisionOptions,
    PrecisionRule,
    Trust,
    prepare_model,
)
from partitioner import PartitionOptions
from serving.model_schema import BudgetConfig, CalibrationConfig, ModelConfig
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
    )


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
