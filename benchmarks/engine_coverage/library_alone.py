"""The library by itself: its parser and its builder on a whole model file, in a process that may crash."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from typing import Any

from trtnode.engines.backends.shape_range import Profile
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.errors import WorkerError
from trtnode.engines.tensorrt.labelling.parser import first_line, make_logger, new_builder, new_network
from trtnode.engines.tensorrt.library import TENSORRT_RTX

TIMEOUT_S = 600.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WholeBuild:
    """Outcome of one model.

    Attributes:
        seconds: CPU time of the parse and of the build, as far as it came.
        built: True if there is an engine.
        crashed: True if the process ended, or took too long.
        problem: The library's words; empty if there is an engine.
    """

    seconds: float
    built: bool
    crashed: bool = False
    problem: str = ""


def build_alone(model: pathlib.Path, profile: Profile) -> WholeBuild:
    """Parse and build a model in a new process, whose start is not counted."""
    with SubprocessWorker() as worker:
        try:
            worker.call(start_library, TIMEOUT_S)
            return worker.call(parse_and_build, TIMEOUT_S, model, profile)
        except WorkerError as error:
            return WholeBuild(seconds=0.0, built=False, crashed=True, problem=str(error))


def start_library() -> None:
    """Import the library and make a builder, which takes longer the first time."""
    module = TENSORRT_RTX.find().module
    new_builder(module, make_logger(module))


def parse_and_build(model: pathlib.Path, profile: Profile) -> WholeBuild:
    """Parse and build the model in a file as it is."""
    trt = TENSORRT_RTX.find().module
    log = make_logger(trt)
    log.take()
    start = time.process_time()
    builder = new_builder(trt, log)
    network = new_network(trt, builder)
    parser = trt.OnnxParser(network, log)
    plan = None
    if parser.parse_from_file(str(model)):
        config = builder.create_builder_config()
        _add_profile(builder, network, config, profile)
        plan = builder.build_serialized_network(network, config)
    seconds = time.process_time() - start
    return WholeBuild(seconds=seconds, built=plan is not None, problem="" if plan else _reason(parser, log))


def _add_profile(builder: Any, network: Any, config: Any, profile: Profile) -> None:
    """Give inputs of varying shape their shapes. Where one has none, the builder says so itself."""
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    given = [tensor.name for tensor in inputs if -1 in tuple(tensor.shape) and tensor.name in profile]
    if given:
        shapes = builder.create_optimization_profile()
        for name in given:
            shapes.set_shape(name, profile[name].min, profile[name].opt, profile[name].max)
        config.add_optimization_profile(shapes)


def _reason(parser: Any, log: Any) -> str:
    if parser.num_errors:
        error = parser.get_error(0)
        return f"{error.node_operator()}: {first_line(error.desc())}"
    return str(log.told("it gives no reason"))
