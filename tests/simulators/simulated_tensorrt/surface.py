"""The module object: the classes and enumerations that a release has, tied to one simulation."""

from __future__ import annotations

import types
from typing import Any

from simulated_tensorrt import builder, config, context, engine, network, parser, reader, refit, values
from simulated_tensorrt.enums import Release, make_enums
from simulated_tensorrt.simulation import Bound, Simulation

CLASSES: tuple[type, ...] = (
    builder.Builder,
    config.IBuilderConfig,
    config.IOptimizationProfile,
    config.ITimingCache,
    context.IExecutionContext,
    engine.EngineInspector,
    engine.ICudaEngine,
    engine.IRuntimeConfig,
    engine.ISerializationConfig,
    engine.Runtime,
    network.ILayer,
    network.INetworkDefinition,
    network.ITensor,
    parser.OnnxParser,
    reader.ParserError,
    refit.OnnxParserRefitter,
    refit.Refitter,
)
"""Tied to a simulation."""

PLAIN_CLASSES: tuple[type, ...] = (
    values.Dims,
    values.IErrorRecorder,
    values.IGpuAllocator,
    values.IHostMemory,
    values.ILogger,
    values.IOutputAllocator,
    values.IProfiler,
    values.IProgressMonitor,
    values.Logger,
)
"""The same in every module."""

FIRST: dict[str, Release] = {
    "Builder.build_engine_with_config": (10, 9),
    "IBuilderConfig.max_num_tactics": (10, 9),
    "ICudaEngine.create_runtime_config": (10, 13),
    "ICudaEngine.get_engine_stat": (10, 16),
    "ILayer.num_ranks": (10, 16),
    "IRuntimeConfig": (10, 13),
    "OnnxParser.load_initializer": (10, 13),
    "OnnxParser.load_model_proto": (10, 13),
    "OnnxParser.parse_model_proto": (10, 13),
    "OnnxParserRefitter.load_initializer": (10, 13),
    "OnnxParserRefitter.load_model_proto": (10, 13),
    "OnnxParserRefitter.refit_model_proto": (10, 13),
}
"""The first release, of those since 10.3, that has a class or member."""


class Absent:
    """A member that a release does not have."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, value: object, owner: type | None = None) -> Any:
        raise AttributeError(self._name)


def make_tensorrt(simulation: Simulation) -> Any:
    """A module that stands for ``tensorrt``. Its version says that it is simulated."""
    module: Any = types.ModuleType("tensorrt", "Simulated: nothing here runs on a GPU.")
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
