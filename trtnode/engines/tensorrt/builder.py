"""Builds a segment into TensorRT engine bytes.

Releases 10.3 to 11 are built for in one way: a strongly typed network, whose precision is the model's own. The code
follows the documented Python API; the library is an argument.
"""

from __future__ import annotations

import logging
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from trtnode.engines.artifact.cache_folder import PRIVATE
from trtnode.engines.artifact.files import write_atomically
from trtnode.engines.backends.build_options import BuildOptions, TensorRtOptions
from trtnode.engines.backends.progress import Progress, report
from trtnode.engines.backends.shape_range import Profile, ShapeRange
from trtnode.engines.errors import BuildError, OutputFileError
from trtnode.engines.tensorrt.labelling.parser import first_line, first_refusal, make_logger, new_builder, new_network
from trtnode.engines.tensorrt.labelling.rewrites import PASSES, prepare
from trtnode.engines.tensorrt.parsed_tensors import check_tensors
from trtnode.engines.tensorrt.targets import set_targets

logger = logging.getLogger(__name__)

HANDED_OVER_BYTES = 1 << 20
"""Weights from this size on are handed over in place, rather than inside the model."""

Weights = Mapping[str, npt.NDArray[np.uint8]]
"""Bytes by initializer. The library reads them in place, so they must live until it has done its work."""


def properties(options: TensorRtOptions) -> dict[str, str]:
    """Return settings by TensorRT's names, without those that are off or left to TensorRT."""
    flags = {
        "VERSION_COMPATIBLE": options.version_compatible,
        "EXCLUDE_LEAN_RUNTIME": options.version_compatible,  # it would be code inside the engine
        "SPARSE_WEIGHTS": options.sparse,
        "CUDA_GRAPHS": options.cuda_graphs,
    }
    settings = {"STRONGLY_TYPED": "1", "OPTIMIZATION_LEVEL": str(options.optimization_level)}
    settings |= {name: "1" for name, is_on in flags.items() if is_on}
    if options.hardware_compatible:
        settings["HARDWARE_COMPATIBILITY_LEVEL"] = "AMPERE_PLUS"
    if options.workspace_mb is not None:
        settings["WORKSPACE"] = str(options.workspace_mb << 20)
    return settings


def build_engine(trt: Any, model: pathlib.Path, options: BuildOptions) -> bytes:
    """Build an ONNX file with the timing cache that builds on this machine share.

    Concurrent builds each add to the cache that they read, and the last one's file stays: lost measurements are made
    again.

    Args:
        trt: The tensorrt module.
        model: A segment as a standalone model.
        options: Of the build, with its shapes.

    Raises:
        BuildError: As ``build_plan``.
    """
    file = options.timing_cache
    measured = None if file is None else file.read_bytes() if file.exists() else b""
    engine, timing_cache = build_plan(trt, model, options, measured)
    if file is not None and timing_cache != measured:
        try:
            file.parent.mkdir(PRIVATE, parents=True, exist_ok=True)
            write_atomically(file, timing_cache, mode=0o600)
        except (OSError, OutputFileError) as error:
            logger.warning("TensorRT's timing cache can't be written: %s", error)
    return engine


def build_plan(
    trt: Any, model: pathlib.Path, options: BuildOptions, measured: bytes | None = b""
) -> tuple[bytes, bytes]:
    """Build an ONNX file.

    Args:
        trt: The tensorrt module.
        model: A segment as a standalone model.
        options: Of the build, with its shapes.
        measured: Measurements of earlier builds; None where none are to be kept.

    Returns:
        Engine bytes, and the measurements of this build and those before it.

    Raises:
        BackendMissingError: TensorRT does not start.
        BuildError: It refuses the model or a profile, or found no engine; in its own words.
    """
    proto = prepare(onnx.load(model), PASSES)
    log = make_logger(trt)
    builder = new_builder(trt, log)
    network = new_network(trt, builder)
    parser = trt.OnnxParser(network, log)
    weights = take_weights(parser, proto)  # the parser reads them where they are, until the build ends
    if not parse(parser, proto, weights, model):
        raise BuildError(first_refusal(parser, log).detail)
    check_tensors(network, proto)
    _keep_row_major(trt, network)
    config = _configure(trt, builder, options.tensorrt)
    # The config does not keep it alive.
    cache = None if measured is None else _set_timing_cache(config, measured)
    _add_profiles(builder, network, config, options.profiles)
    config.progress_monitor = make_monitor(trt)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise BuildError(f"TensorRT found no engine: {first_line(log.last() or '')}")
    return bytes(memoryview(plan)), b"" if cache is None else bytes(memoryview(cache.serialize()))


def take_weights(parser: Any, proto: onnx.ModelProto) -> Weights:
    """Take large weights out of a model, if they can be handed over: a message holds 2 GiB at most.

    Args:
        parser: A ``trt.OnnxParser``; from release 10.13 on, weights can be handed to it.
        proto: The model.
    """
    taken: dict[str, npt.NDArray[np.uint8]] = {}
    for tensor in proto.graph.initializer if hasattr(parser, "load_initializer") else ():
        if len(tensor.raw_data) >= HANDED_OVER_BYTES:
            taken[tensor.name] = np.frombuffer(tensor.raw_data, np.uint8)
            tensor.ClearField("raw_data")
    return taken


def parse(parser: Any, proto: onnx.ModelProto, weights: Weights, path: pathlib.Path) -> bool:
    """Have a parser read a model with its weights; returns whether it takes all of it.

    Args:
        parser: A ``trt.OnnxParser``.
        proto: The model, without the weights that were taken out of it.
        weights: From ``take_weights``.
        path: Where the model comes from.
    """
    if not weights:
        return bool(parser.parse(proto.SerializeToString(), str(path)))
    loaded = parser.load_model_proto(proto.SerializeToString())
    given = (parser.load_initializer(name, data.ctypes.data, data.nbytes) for name, data in weights.items())
    return loaded and all(given) and bool(parser.parse_model_proto())


def make_monitor(trt: Any) -> Any:
    """Make a ``trt.IProgressMonitor`` that reports each phase and step. TensorRT calls it from several threads.

    Args:
        trt: The tensorrt module.
    """

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self._steps: dict[str, int] = {}

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:  # noqa: ARG002
            self._steps[phase_name] = num_steps
            report(Progress(phase_name, 0, num_steps))

        def step_complete(self, phase_name: str, step: int) -> bool:
            report(Progress(phase_name, step + 1, self._steps.get(phase_name, 0)))
            return True

        def phase_finish(self, phase_name: str) -> None:
            steps = self._steps.pop(phase_name, 0)
            report(Progress(phase_name, steps, steps))

    return Monitor()


def _keep_row_major(trt: Any, network: Any) -> None:
    """Keep the builder from choosing vectorized layouts for inputs and outputs."""
    linear = 1 << int(trt.TensorFormat.LINEAR)
    for index in range(network.num_inputs):
        network.get_input(index).allowed_formats = linear
    for index in range(network.num_outputs):
        network.get_output(index).allowed_formats = linear


def _configure(trt: Any, builder: Any, options: TensorRtOptions) -> Any:
    config = builder.create_builder_config()
    if options.workspace_mb is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, options.workspace_mb << 20)
    config.builder_optimization_level = options.optimization_level
    if options.hardware_compatible:
        config.hardware_compatibility_level = trt.HardwareCompatibilityLevel.AMPERE_PLUS
    if options.version_compatible:
        config.set_flag(trt.BuilderFlag.VERSION_COMPATIBLE)
        config.set_flag(trt.BuilderFlag.EXCLUDE_LEAN_RUNTIME)
    if options.sparse:
        config.set_flag(trt.BuilderFlag.SPARSE_WEIGHTS)
    set_targets(trt, config, options.targets)
    return config


def _set_timing_cache(config: Any, measured: bytes) -> Any:
    """Give the builder the measurements of earlier builds; none, where another release or GPU made them."""
    cache = config.create_timing_cache(measured)
    if cache is None or not config.set_timing_cache(cache, False):
        cache = config.create_timing_cache(b"")
        config.set_timing_cache(cache, False)
    return cache


def _add_profiles(builder: Any, network: Any, config: Any, profiles: Sequence[Profile]) -> None:
    """Give each input of varying shape its range of shapes, and each shape tensor its range of values.

    A dimension is -1 where it varies.
    """
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    dynamic = [tensor.name for tensor in inputs if -1 in tuple(tensor.shape)]
    sizes = [tensor.name for tensor in inputs if tensor.is_shape_tensor]
    if not (dynamic or sizes):
        return
    if not profiles:
        raise BuildError(f"The shape of input {(dynamic or sizes)[0]!r} is not fixed, and no shapes are given for it.")
    for number, given in enumerate(profiles):
        profile = builder.create_optimization_profile()
        for name in dict.fromkeys((*dynamic, *sizes)):
            setter = profile.set_shape_input if name in sizes else profile.set_shape
            _set_range(setter, name, given.get(name), number)
        if config.add_optimization_profile(profile) < 0:
            raise BuildError(f"TensorRT refuses profile {number}.")


def _set_range(setter: Any, name: str, given: ShapeRange | None, number: int) -> None:
    if given is None:
        raise BuildError(f"Profile {number} has no shapes for input {name!r}.")
    try:
        setter(name, given.min, given.opt, given.max)
    except (RuntimeError, ValueError) as error:
        shown = f"{given.min}, {given.opt}, {given.max}"
        raise BuildError(f"Profile {number}, input {name!r}: TensorRT refuses the shapes {shown}.") from error
