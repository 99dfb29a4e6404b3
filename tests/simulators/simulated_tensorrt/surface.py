"""The module object: the classes and enumerations that a release has, tied to one simulation."""

from __future__ import annotations

import types
from typing import Any

from simulated_tensorrt import builder, config, context, engine, network, parser, runtime_cache, values
from simulated_tensorrt.enums import Release, make_enums
from simulated_tensorrt.simulation import RTX, Bound, Simulation

CLASSES: tuple[type, ...] = (
    builder.Builder,
    config.IBuilderConfig,
    config.IOptimizationProfile,
    config.ITimingCache,
    context.IExecutionContext,
    engine.ICudaEngine,
    engine.Runtime,
    network.INetworkDefinition,
    network.ITensor,
    parser.OnnxParser,
    parser.ParserError,
    runtime_cache.IRuntimeCache,
    runtime_cache.IRuntimeConfig,
)
"""Tied to a simulation."""

PLAIN_CLASSES: tuple[type, ...] = (
    values.Dims,
    values.IHostMemory,
    values.ILogger,
    values.IOutputAllocator,
    values.IProgressMonitor,
)
"""The same in every module."""

FIRST: dict[str, Release] = {
    "IBuilderConfig.num_compute_capabilities": RTX,
    "IBuilderConfig.set_compute_capability": RTX,
    "ICudaEngine.create_runtime_config": (10, 13),
    "IRuntimeCache": RTX,
    "IRuntimeConfig": (10, 13),
    "IRuntimeConfig.create_runtime_cache": RTX,
    "IRuntimeConfig.get_runtime_cache": RTX,
    "IRuntimeConfig.set_runtime_cache": RTX,
    "OnnxParser.load_initializer": (10, 13),
    "OnnxParser.load_model_proto": (10, 13),
    "OnnxParser.parse_model_proto": (10, 13),
    "Runtime.get_engine_validity": RTX,
}
"""The first release, of those since 10.3, that has a class or member."""


class Absent:
    """A member that a release does not have."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, value: object, owner: type | None = None) -> Any:
        raise AttributeError(self._name)

    def __set__(self, value: object, setting: object) -> None:
        raise AttributeError(self._name)


def make_tensorrt(simulation: Simulation) -> Any:
    """A module that stands for ``tensorrt`` or ``tensorrt_rtx``. Its version says that it is simulated."""
    name = "tensorrt_rtx" if simulation.is_rtx else "tensorrt"
    module: Any = types.ModuleType(name, "Simulated: nothing here runs on a GPU.")
    module.__version__ = f"{simulation.version}+simulated"
    for name, enumeration in make_enums(simulation.release).items():
        setattr(module, name, enumeration)
    for kind in PLAIN_CLASSES:
        setattr(module, kind.__name__, kind)
    for kind in CLASSES:
        if simulation.release >= FIRST.get(kind.__name__, (0, 0)):
            setattr(module, kind.__name__, _tied(kind, module, simulation))
    return module


def _tied(kind: type[Any], module: Any, simulation: Simulation) -> type[Bound]:
    absent = {
        key.partition(".")[2]: Absent()
        for key, first in FIRST.items()
        if key.startswith(f"{kind.__name__}.") and simulation.release < first
    }
    return type(kind.__name__, (kind,), {"_sim": simulation, "_trt": module, **absent})
