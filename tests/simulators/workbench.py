"""Builds and runs engines on a simulated GPU, as a user of the library would by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from model_texts import parse
from simulated_cuda import make_driver
from simulated_tensorrt import Simulation, make_tensorrt

Profile = Mapping[str, Sequence[Sequence[int]]]


class Workbench:
    """One simulated machine, whose context is current in this thread."""

    def __init__(self) -> None:
        self.simulation = Simulation()
        self.gpu = self.simulation.gpu
        self.trt = make_tensorrt(self.simulation)
        self.cuda = make_driver(self.gpu)
        self.cuda.Device(0).retain_primary_context().push()
        self.stream = self.cuda.Stream()
        self.said: list[str] = []
        self.logger = self._make_logger()

    def _make_logger(self) -> Any:
        said = self.said

        class Logger(self.trt.ILogger):  # type: ignore[misc]
            def log(self, severity: Any, msg: str) -> None:
                said.append(msg)

        return Logger()

    def build(self, graph: str, profiles: Sequence[Profile] = ()) -> Any:
        """A plan, or None."""
        builder = self.trt.Builder(self.logger)
        network = builder.create_network(1 << int(self.trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
        assert self.trt.OnnxParser(network, self.logger).parse(parse(graph).SerializeToString()), self.said
        config = builder.create_builder_config()
        for shapes in profiles:
            profile = builder.create_optimization_profile()
            for name, triple in shapes.items():
                profile.set_shape(name, *triple)
            config.add_optimization_profile(profile)
        return builder.build_serialized_network(network, config)

    def read(self, plan: Any) -> Any:
        """An engine, or None."""
        return self.trt.Runtime(self.logger).deserialize_cuda_engine(plan)

    def context(self, graph: str, profiles: Sequence[Profile] = ()) -> BoundContext:
        """A context with memory for all that has a fixed or largest shape."""
        engine = self.read(self.build(graph, profiles))
        strategy = self.trt.ExecutionContextAllocationStrategy.USER_MANAGED
        return BoundContext(self, engine, engine.create_execution_context(strategy))


@dataclasses.dataclass
class BoundContext:
    """A context and its memory."""

    bench: Workbench
    engine: Any
    context: Any

    def __post_init__(self) -> None:
        self.arena = self.bench.cuda.mem_alloc(max(self.engine.device_memory_size_v2, 256))
        self.context.set_device_memory(int(self.arena), max(self.engine.device_memory_size_v2, 256))
        self.memory: dict[str, Any] = {}
        for name in self.names():
            location = self.engine.get_tensor_location(name)
            largest = [tuple(s) for s in self.engine.get_tensor_profile_shape(name, 0)][-1]
            if location == self.bench.trt.TensorLocation.DEVICE:
                size = np.prod([max(n, 8) for n in largest], dtype=int) * 8
                self.memory[name] = self.bench.cuda.mem_alloc(max(int(size), 256))
                self.context.set_tensor_address(name, int(self.memory[name]))

    def names(self) -> list[str]:
        return [self.engine.get_tensor_name(index) for index in range(self.engine.num_io_tensors)]

    def give(self, **inputs: np.ndarray) -> bool:
        """Set shapes and copy values; False where a shape is refused."""
        for name, array in inputs.items():
            if not self.context.set_input_shape(name, array.shape):
                return False
            self.bench.cuda.memcpy_htod_async(self.memory[name], array, self.bench.stream)
        return True

    def enqueue(self) -> bool:
        accepted: bool = self.context.execute_async_v3(self.bench.stream.handle)
        return accepted

    def take(self, name: str, dtype: Any) -> np.ndarray:
        """Wait, and read an output."""
        self.bench.stream.synchronize()
        result = np.empty(tuple(self.context.get_tensor_shape(name)), dtype)
        self.bench.cuda.memcpy_dtoh(result, self.memory[name])
        return result
