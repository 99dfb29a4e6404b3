"""Loads a configured model with the engines package."""

from engines import BuildOptions, CompileOptions, EngineCache, Executable, prepare_model
from partitioner import PartitionOptions
from serving.model_schema import ModelConfig
from serving.schema import ServableConfig
from serving.servable import Loader


def engine_loader(config: ServableConfig) -> Loader:
    """Return a loader that keeps built engines in the configured cache."""
    cache = EngineCache(config.cache.dir, int(config.cache.max_gb * 1e9))

    def load(model: ModelConfig) -> Executable:
        # The cores are always shared, with the threads that talk to clients if with nothing else.
        return prepare_model(model.path, compile_options(model), cache, threads=model.threads, shares_cores=True)

    return load


def compile_options(model: ModelConfig) -> CompileOptions:
    """Translate a model's configuration."""
    return CompileOptions(
        engine=model.engine,
        build=BuildOptions(precision=model.precision),
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
