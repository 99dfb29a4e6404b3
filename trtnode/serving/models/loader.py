"""Loads a configured model with the engines package."""

from __future__ import annotations

import contextlib
import pathlib

from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.cache_folder import default_cache_folder
from trtnode.engines.artifact.files import sha256_of_file
from trtnode.engines.artifact.temporary_folder import remove_abandoned
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.backends.build_environment import measuring_environment
from trtnode.engines.backends.names import NATIVE
from trtnode.engines.backends.registry import get_backend, resolve_engine
from trtnode.engines.compile.custom_operators import custom_operators
from trtnode.engines.cores import usable_cores
from trtnode.engines.onnxruntime.limits import native_version
from trtnode.engines.onnxruntime.memory_limit import limit_memory
from trtnode.engines.runtime.executor import Executable
from trtnode.serving.executables.interface import ServedExecutable
from trtnode.serving.executables.tiled import TiledExecutable
from trtnode.serving.executables.variants import Variant, check_interfaces, choose, measure
from trtnode.serving.models.isolation import MIB, IsolatedLoading, half_of_memory_mb
from trtnode.serving.models.pipelines import tiles_of
from trtnode.serving.models.servable import CheckingLoader, Loader
from trtnode.serving.models.warmup import measuring_feeds
from trtnode.serving.schema.model import ModelConfig
from trtnode.serving.schema.server import ServableConfig


def engine_loader(config: ServableConfig) -> Loader:
    """Return a loader that keeps built engines in the configured cache.

    Raises:
        KeyFileError: A file of ``trust.keys`` is no public key any more.
    """
    remove_abandoned()
    cache = engine_cache(config)
    usual_threads = threads_a_worker(config.server.grpc.workers, usable_cores().count)
    loading = IsolatedLoading(config.server.limits, cache)
    limit_memory((config.server.limits.model_memory_mb or half_of_memory_mb()) * MIB)

    def load_file(model: ModelConfig) -> ServedExecutable:
        executable = loading.load(model, model.threads or usual_threads)
        return _in_tiles(model, executable)

    def load(model: ModelConfig) -> ServedExecutable:
        with custom_operators((*config.server.custom_op_libraries, *model.options.custom_op_libraries)):
            return _best_variant(model, load_file, cache) if model.variants else load_file(model)

    def problem(model: ModelConfig) -> str:
        return loading.problem(model, model.threads or usual_threads)

    return CheckingLoader(load, problem)


def _in_tiles(model: ModelConfig, executable: Executable) -> ServedExecutable:
    """Return an executable that takes images of any size, where the pipeline makes tiles of them."""
    found = tiles_of(model) if model.preprocess else None
    if found is None:
        return executable
    try:
        return TiledExecutable(executable, found.config, found.layout, found.place)
    except BaseException:
        executable.close()
        raise


def _best_variant(model: ModelConfig, load_file: Loader, cache: EngineCache) -> ServedExecutable:
    """Load every variant of a model and measure them; return the one that answers, and free the others."""
    with contextlib.ExitStack() as opened:
        variants = []
        for one in sorted(model.variants, key=lambda one: -one.quality):
            executable = load_file(model.of_variant(one))
            opened.callback(executable.close)
            variants.append(Variant(one.label, one.quality, executable))
        check_interfaces(model.name, variants)
        feeds = measuring_feeds(variants[0].executable, model)
        several = len(variants) > 1
        measured = measure(cache, _timing_parts(model), variants, feeds, model.instances) if several else {}
        assert model.latency_target_ms is not None, "the configuration was checked"
        chosen = choose(model.name, variants, measured, model.latency_target_ms)
        opened.pop_all()
    for other in variants:
        if other is not chosen:
            other.executable.close()
    return chosen.executable


def _timing_parts(model: ModelConfig) -> dict[str, str]:
    """Return the named parts of the key of what was measured of variants."""
    engine = resolve_engine(model.options.engine, model.options.build)
    backend = get_backend("onnxruntime" if engine == NATIVE else engine)
    stages = (*model.preprocess, *model.postprocess)
    files = [sha256_of_file(stage) for stage in stages if isinstance(stage, pathlib.Path)]
    return {
        "files": repr([(one.label, sha256_of_file(one.path)) for one in model.variants]),
        "stages": repr((stages, files)),
        "options": repr((model.options, model.threads)),
        **measuring_environment(backend, native_version(), model.options.build),
    }


def threads_a_worker(workers: int, cores: int) -> int | None:
    """Return the threads of an execution where none are configured: the cores are divided among the workers.

    None leaves it to the libraries, which take all cores.
    """
    return None if workers == 1 else max(1, cores // workers)


def engine_cache(config: ServableConfig) -> EngineCache:
    """Return the configured cache, which also says whose engines may run.

    Raises:
        KeyFileError: A file of ``trust.keys`` is no public key any more.
    """
    trust = Trust.of(config.trust.keys, config.trust.allow_unsigned)
    return EngineCache(config.cache.dir or default_cache_folder(), int(config.cache.max_gb * 1e9), trust=trust)
