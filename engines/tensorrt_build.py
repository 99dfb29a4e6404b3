"""Builds a segment into TensorRT engine bytes.

There is one way for releases 10.3 to 11: a strongly typed network, so that the precision is the model's own. Written
against the documented Python API; the library is an argument.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from engines.errors import BuildError
from engines.tensorrt_parser import first_line, first_refusal, make_logger, new_network
from engines.tensorrt_rewrites import PASSES, prepare

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ShapeRange:
    """Shapes of one input that an engine runs on: ``low <= best <= high`` in each dimension."""

    low: Shape
    best: Shape
    """The shape that kernels are chosen for."""
    high: Shape


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """How TensorRT's builder searches for kernels, and for which shapes."""

    workspace_bytes: int | None = None
    """Most scratch memory of the GPU; None for all of it."""
    optimization_level: int = 3
    """From 0, a quick build, to 5, the longest search."""
    profiles: Sequence[Mapping[str, ShapeRange]] = ()
    """Shapes by input name, once a profile. None are needed where every input's shape is fixed."""
    timing_cache: bytes = b""
    """What earlier builds measured."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BuiltPlan:
    """Engine bytes, and what this build and those before it measured."""

    engine: bytes
    timing_cache: bytes


def build_plan(trt: Any, model: pathlib.Path, settings: BuildSettings) -> BuiltPlan:
    """Build an ONNX file.

    Args:
        trt: The tensorrt module.
        model: A segment as a standalone model.
        settings: How.

    Raises:
        BuildError: TensorRT refuses the model or a profile, or found no engine; in its own words.
    """
    proto = prepare(onnx.load(model), PASSES)
    logger = make_logger(trt)
    builder = trt.Builder(logger)
    network = new_network(trt, builder)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(proto.SerializeToString(), str(model)):
        raise BuildError(first_refusal(parser, logger).detail)
    _keep_row_major(trt, network)
    config = _configure(trt, builder, settings)
    cache = _set_timing_cache(config, settings.timing_cache)  # the config does not keep it alive
    _add_profiles(builder, network, config, settings.profiles)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise BuildError(f"TensorRT found no engine: {first_line(logger.last() or '')}")
    return BuiltPlan(engine=bytes(memoryview(plan)), timing_cache=bytes(memoryview(cache.serialize())))


def _keep_row_major(trt: Any, network: Any) -> None:
    """Keep the builder from choosing vectorized layouts for what crosses the boundary."""
    linear = 1 << int(trt.TensorFormat.LINEAR)
    for index in range(network.num_inputs):
        network.get_input(index).allowed_formats = linear
    for index in range(network.num_outputs):
        network.get_output(index).allowed_formats = linear


def _configure(trt: Any, builder: Any, settings: BuildSettings) -> Any:
    config = builder.create_builder_config()
    if settings.workspace_bytes is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, settings.workspace_bytes)
    config.builder_optimization_level = settings.optimization_level
    return config


def _set_timing_cache(config: Any, measured: bytes) -> Any:
    """Hand over what earlier builds measured; nothing, where another release or another GPU has measured it."""
    cache = config.create_timing_cache(measured)
    if not config.set_timing_cache(cache, False):
        cache = config.create_timing_cache(b"")
        config.set_timing_cache(cache, False)
    return cache


def _add_profiles(builder: Any, network: Any, config: Any, profiles: Sequence[Mapping[str, ShapeRange]]) -> None:
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    dynamic = [tensor.name for tensor in inputs if -1 in tuple(tensor.shape)]
    if dynamic and not profiles:
        raise BuildError(f"The shape of input {dynamic[0]!r} is not fixed, and no shapes are given for it.")
    for number, shapes in enumerate(profiles if dynamic else ()):
        profile = builder.create_optimization_profile()
        for name in dynamic:
            if name not in shapes:
                raise BuildError(f"Profile {number} has no shapes for input {name!r}.")
            _set_shape(profile, name, shapes[name], number)
        if config.add_optimization_profile(profile) < 0:
            raise BuildError(f"TensorRT refuses profile {number}.")


def _set_shape(profile: Any, name: str, shapes: ShapeRange, number: int) -> None:
    try:
        profile.set_shape(name, shapes.low, shapes.best, shapes.high)
    except ValueError as error:
        given = f"{shapes.low}, {shapes.best}, {shapes.high}"
        raise BuildError(f"Profile {number}, input {name!r}: the shapes {given} are not in order.") from error
