"""The runtime, which reads plans, and the engine that it makes of one."""

from __future__ import annotations

from typing import Any

import onnx

from simulated_cuda import CudaError
from simulated_tensorrt.context import IExecutionContext
from simulated_tensorrt.executable import Executable
from simulated_tensorrt.graphs import Tensor, by_name
from simulated_tensorrt.plan import Plan, PlanError
from simulated_tensorrt.runtime_cache import IRuntimeConfig
from simulated_tensorrt.values import Dims, ILogger, ShowsLogger, Speaks


class Runtime(ShowsLogger):
    """Gives None for whatever it can't read; why is in the log."""

    def __init__(self, logger: ILogger) -> None:
        super().__init__(logger)
        if self._sim.faults.builder_missing:
            raise TypeError("pybind11::init(): factory function returned nullptr")

    def deserialize_cuda_engine(self, serialized_engine: Any) -> ICudaEngine | None:
        problem = self._sim.faults.deserialize_fails
        if not self._sim.gpu.stack:
            problem = "CUDA initialization failure with error: 201. There is no current context in this thread."
        try:
            plan = Plan.from_bytes(bytes(memoryview(serialized_engine)))
            problem = problem or self._mismatch(plan)
        except PlanError as error:
            problem = problem or f"Serialization assertion failed: {error}"
        if problem:
            self._error(problem)
            return None
        engine: ICudaEngine = self._trt.ICudaEngine(self._logger, plan)
        return engine

    def get_engine_validity(self, buffer: Any) -> tuple[Any, int]:
        """Return a verdict and the diagnostics as bits."""
        bits, verdicts = self._trt.EngineInvalidityDiagnostics, self._trt.EngineValidity
        try:
            plan = Plan.from_bytes(bytes(memoryview(buffer)))
        except PlanError:
            return verdicts.INVALID, int(bits.MALFORMED_ENGINE)
        found = int(bits.VERSION_MISMATCH) * (plan.version != self._sim.version)
        found |= int(bits.UNSUPPORTED_CC) * (self._sim.target not in plan.settings["targets"])
        return (verdicts.INVALID if found else verdicts.VALID), found

    def _mismatch(self, plan: Plan) -> str:
        """Return the obstacle to a plan's use here; empty if there is none."""
        if self._sim.is_rtx:
            verdict, found = self.get_engine_validity(plan.to_bytes())
            return "" if verdict == self._trt.EngineValidity.VALID else f"The engine is not valid here ({found})."
        if plan.version == self._sim.version:
            return ""
        return f"The engine plan file is of TensorRT {plan.version}, this is {self._sim.version}; please rebuild."


class ICudaEngine(Speaks):
    """Read-only. Several threads may ask it at once."""

    def __init__(self, logger: ILogger, plan: Plan) -> None:
        super().__init__(logger)
        self._plan = plan
        self._tensors: dict[str, Tensor] = by_name(plan.tensors)
        self._model = onnx.ModelProto.FromString(plan.model)
        self._loaded: Executable | None = None

    @property
    def _executable(self) -> Executable:
        """Return the executable of the engine, which is made once."""
        with self._sim.lock:
            if self._loaded is None:
                self._loaded = Executable(self._plan.model, self._plan.tensors)
            return self._loaded

    @property
    def name(self) -> str:
        return self._model.graph.name

    @property
    def num_io_tensors(self) -> int:
        return len(self._plan.tensors)

    @property
    def num_optimization_profiles(self) -> int:
        return max(len(self._plan.profiles), 1)

    @property
    def num_layers(self) -> int:
        return len(self._plan.layers)

    @property
    def device_memory_size_v2(self) -> int:
        return max(self._plan.scratch)

    def get_device_memory_size_for_profile_v2(self, profile_index: int) -> int:
        return self._plan.scratch[profile_index]

    def get_tensor_name(self, index: int) -> str:
        return self._plan.tensors[index].name

    def get_tensor_mode(self, name: str) -> Any:
        modes = self._trt.TensorIOMode
        if name not in self._tensors:
            return modes.NONE
        return modes.INPUT if self._tensors[name].is_input else modes.OUTPUT

    def get_tensor_shape(self, name: str) -> Dims:
        return Dims(self._tensors[name].shape)

    def get_tensor_dtype(self, name: str) -> Any:
        return self._trt.DataType[self._tensors[name].dtype]

    def get_tensor_location(self, name: str) -> Any:
        locations = self._trt.TensorLocation
        return locations.HOST if self._tensors[name].on_host else locations.DEVICE

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[Dims]:
        shapes = self._profile(profile_index)["shapes"].get(name)
        return [Dims(shape) for shape in shapes or [self._tensors[name].shape] * 3]

    def get_tensor_profile_values(self, name: int, profile_index: str) -> list[list[int]]:
        """The bindings have the names of the arguments swapped: the profile comes first."""
        values: list[list[int]] = self._profile(name)["values"].get(profile_index, [])
        return values

    def _profile(self, index: int) -> dict[str, Any]:
        """Shapes and values; none where the engine has no profile of its own."""
        return self._plan.profiles[index] if self._plan.profiles else {"shapes": {}, "values": {}}

    def create_execution_context(self, strategy: Any = None) -> IExecutionContext | None:
        config = strategy if isinstance(strategy, IRuntimeConfig) else None
        if config is not None:
            strategy = config.get_execution_context_allocation_strategy()
        problem = self._sim.faults.context_fails
        if not self._sim.gpu.stack:
            problem = "CUDA initialization failure with error: 201. There is no current context in this thread."
        if problem:
            self._error(problem)
            return None
        try:
            strategy = strategy or self._trt.ExecutionContextAllocationStrategy.STATIC
            context: IExecutionContext = self._trt.IExecutionContext(self, self._logger, strategy)
        except CudaError as error:
            self._error(f"Cuda Runtime ({error})")
            return None
        if self._sim.is_rtx:
            (config or self._trt.IRuntimeConfig())._compile([f"{self.name}/{layer}" for layer in self._plan.layers])
        return context

    def create_runtime_config(self) -> IRuntimeConfig:
        config: IRuntimeConfig = self._trt.IRuntimeConfig()
        return config
