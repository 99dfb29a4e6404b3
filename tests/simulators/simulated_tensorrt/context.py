"""An execution context: shapes, addresses, and the enqueue that checks them all."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from simulated_cuda import CudaError
from simulated_cuda.streams import StreamQueue, Work
from simulated_tensorrt.executable import storage
from simulated_tensorrt.graphs import Shape, Tensor
from simulated_tensorrt.kernel import Kernel
from simulated_tensorrt.values import Dims, ILogger, IOutputAllocator, Speaks, started

ALIGNMENT = 256


class IExecutionContext(Speaks):
    """One thread at a time."""

    def __init__(self, engine: Any, logger: ILogger, strategy: Any) -> None:
        super().__init__(logger)
        self._engine = engine
        self._strategy = strategy.name
        self._profile = 0
        self._shapes: dict[str, Shape] = {}
        self._addresses: dict[str, int] = {}
        self._allocators: dict[str, IOutputAllocator] = {}
        self._arena = (0, 0)
        self._own_arena: Any = None
        self._running: Work | None = None
        self._user: int | None = None
        self.name = ""
        self.profiler: Any = None
        self.enqueue_emits_profile = True
        self.debug_sync = False
        self.persistent_cache_limit = 0
        self.error_recorder = None
        if self._strategy != "USER_MANAGED" and engine.device_memory_size_v2:
            self._own_arena = self._sim.gpu.allocate(engine.device_memory_size_v2)
            self._arena = (self._own_arena.address, self._own_arena.size)

    def __del__(self) -> None:
        if getattr(self, "_own_arena", None) is not None:
            self._sim.gpu.memory.free(self._own_arena)

    @property
    def engine(self) -> Any:
        return self._engine

    @property
    def active_optimization_profile(self) -> int:
        return self._profile

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        with self._alone():
            known = 0 <= profile_index < self._engine.num_optimization_profiles
            if not known or self._sim.faults.profile_switch_fails:
                self._error(f"Profile {profile_index} can't be selected.")
                raise RuntimeError("Error in set optimization profile async.")
            self._sim.gpu.stream(stream_handle).add(lambda: None)
            if profile_index != self._profile:
                self._shapes.clear()
            self._profile = profile_index
            return True

    def set_input_shape(self, name: str, shape: Sequence[int]) -> bool:
        with self._alone():
            tensor = self._engine._tensors.get(name)
            sizes = tuple(Dims(shape))
            problem = self._misfit(tensor, sizes)
            if problem:
                self._error(f"setInputShape: {name}: {problem}")
                return False
            self._shapes[name] = sizes
            return True

    def _misfit(self, tensor: Tensor | None, sizes: Shape) -> str:
        if tensor is None or not tensor.is_input:
            return "there is no such input"
        low, _, high = (tuple(s) for s in self._engine.get_tensor_profile_shape(tensor.name, self._profile))
        if len(sizes) != len(tensor.shape):
            return f"the rank is {len(tensor.shape)}"
        inside = all(a <= size <= b for a, size, b in zip(low, sizes, high, strict=True))
        return "" if inside else f"{sizes} is outside of profile {self._profile}, {low} to {high}"

    def set_tensor_address(self, name: str, memory: int) -> bool:
        with self._alone():
            if name not in self._engine._tensors:
                self._error(f"setTensorAddress: there is no tensor {name}")
                return False
            self._addresses[name] = int(memory)
            return True

    def get_tensor_address(self, name: str) -> int:
        return self._addresses.get(name, 0)

    def set_output_allocator(self, name: str, output_allocator: IOutputAllocator | None) -> bool:
        if name not in self._engine._tensors or self._engine._tensors[name].is_input:
            return False
        if output_allocator is None:
            self._allocators.pop(name, None)
        else:
            self._allocators[name] = started(output_allocator, IOutputAllocator)
        return True

    def get_output_allocator(self, name: str) -> IOutputAllocator | None:
        return self._allocators.get(name)

    def set_device_memory(self, memory: int, size: int) -> None:
        with self._alone():
            if self._strategy != "USER_MANAGED" or memory % ALIGNMENT:
                self._error("setDeviceMemoryV2: the context manages its memory itself, or the memory is not aligned.")
                return
            self._arena = (int(memory), int(size))

    def get_tensor_shape(self, name: str) -> Dims:
        tensor = self._engine._tensors[name]
        if tensor.is_input:
            return Dims(self._shapes.get(name, tensor.shape))
        with self._alone():
            return Dims(tensor.shape if self._missing() else self._output_shapes()[name])

    def get_max_output_size(self, name: str) -> int:
        """Bytes for the largest shapes of the profile; -1 where they are not known."""
        tensor = self._engine._tensors[name]
        inputs = [t for t in self._engine._plan.tensors if t.is_input]
        if tensor.data_dependent or any(t.on_host for t in inputs):
            return -1
        largest = {t.name: tuple(self._engine.get_tensor_profile_shape(t.name, self._profile)[2]) for t in inputs}
        shape = self._engine._executable.output_shapes(largest, {})[name]
        return int(np.prod(shape)) * tensor.item_bytes

    @property
    def all_binding_shapes_specified(self) -> bool:
        return all(t.name in self._shapes for t in self._engine._plan.tensors if t.is_input and -1 in t.shape)

    def infer_shapes(self) -> list[str]:
        with self._alone():
            missing = self._missing()
            if not missing:
                try:
                    self._output_shapes()
                except ValueError as error:
                    self._error(str(error))
                    raise RuntimeError("Error in inferring shapes.") from None
            return missing

    def execute_async_v3(self, stream_handle: int) -> bool:
        with self._alone():
            try:
                stream = self._check(stream_handle)
            except (ValueError, CudaError) as error:
                self._error(f"IExecutionContext::enqueueV3: {error}")
                return False
            if not self._sim.gpu.computes:
                return True
            return self._enqueue(stream, stream_handle)

    def report_to_profiler(self) -> bool:
        if self.profiler is None:
            return False
        for layer in self._engine._plan.layers:
            self.profiler.report_layer_time(layer, 0.0)
        return True

    def _check(self, stream_handle: int) -> StreamQueue:
        """Refuse what the library refuses.

        Raises:
            ValueError: An API usage error.
            CudaError: The thread has no current context, the handle is none, or an earlier error stays.
        """
        gpu, faults = self._sim.gpu, self._sim.faults
        gpu.check()
        stream = gpu.stream(stream_handle)
        with self._sim.lock:
            self._sim.enqueues += 1
            if faults.enqueue_fails_after is not None:
                faults.enqueue_fails_after -= 1
                if faults.enqueue_fails_after < 0:
                    faults.enqueue_fails_after = None
                    raise ValueError(faults.enqueue_fails)
        missing = self._missing()
        if missing:
            raise ValueError(f"shapes of {missing} are not set")
        for tensor in self._engine._plan.tensors:
            self._check_address(tensor)
        need = self._engine._plan.scratch[self._profile]
        if need > self._arena[1]:
            raise ValueError(f"device memory of {self._arena[1]} bytes is too small: {need} are needed")
        self._check_order(stream)
        return stream

    def _check_address(self, tensor: Tensor) -> None:
        address = self._addresses.get(tensor.name, 0)
        if not address and tensor.name not in self._allocators:
            raise ValueError(f"the address of {tensor.name} is not set")
        if address % ALIGNMENT and not tensor.on_host:
            raise ValueError(f"the address of {tensor.name} is not aligned to {ALIGNMENT} bytes")

    def _check_order(self, stream: StreamQueue) -> None:
        """Notice two runs of one context that nothing keeps apart."""
        if self._running is not None and not stream.comes_after(self._running):
            self._sim.gpu.misuses.append("one context runs on two streams at once")

    def _missing(self) -> list[str]:
        """Inputs whose shape, or value on the host, is not known."""
        inputs = [t for t in self._engine._plan.tensors if t.is_input]
        shapeless = [t.name for t in inputs if -1 in t.shape and t.name not in self._shapes]
        return shapeless + [t.name for t in inputs if t.on_host and not self._addresses.get(t.name)]

    def _input_shapes(self) -> dict[str, Shape]:
        inputs = [t for t in self._engine._plan.tensors if t.is_input]
        shapes = {t.name: self._shapes.get(t.name, t.shape) for t in inputs}
        sizes: dict[str, tuple[str, int]] = {}
        for tensor in inputs:
            for symbol, size in zip(tensor.symbols, shapes[tensor.name], strict=True):
                other, known = sizes.setdefault(symbol, (tensor.name, size))
                if symbol and known != size:
                    raise ValueError(f"dimension {symbol} is {known} in {other} and {size} in {tensor.name}")
        return shapes

    def _host_values(self) -> dict[str, np.ndarray]:
        """Values of inputs on the host, read now."""
        values, profile = {}, self._engine._profile(self._profile)["values"]
        for tensor in self._engine._plan.tensors:
            if tensor.on_host:
                shape = self._shapes.get(tensor.name, tensor.shape)
                count = int(np.prod(shape))
                data = ctypes.string_at(self._addresses[tensor.name], count * tensor.item_bytes)
                values[tensor.name] = np.frombuffer(data, storage(tensor)).reshape(shape)
                low, _, high = profile.get(tensor.name, [[-(1 << 62)] * count, (), [1 << 62] * count])
                if not all(a <= v <= b for a, v, b in zip(low, values[tensor.name].ravel(), high, strict=True)):
                    raise ValueError(f"the value of {tensor.name} is outside of profile {self._profile}")
        return values

    def _output_shapes(self) -> dict[str, Shape]:
        shapes: dict[str, Shape] = self._engine._executable.output_shapes(self._input_shapes(), self._host_values())
        return shapes

    def _enqueue(self, stream: StreamQueue, handle: int) -> bool:
        try:
            kernel = Kernel(
                gpu=self._sim.gpu,
                executable=self._engine._executable,
                tensors=self._engine._plan.tensors,
                shapes=self._input_shapes(),
                results=self._output_shapes(),
                host=self._host_values(),
                addresses=dict(self._addresses),
                arena=self._arena,
            )
        except ValueError as error:
            self._error(f"IExecutionContext::enqueueV3: {error}")
            return False
        if self._allocators:
            return kernel.run_with(self._allocators, stream, handle, self._error)
        self._running = stream.add(kernel)
        if handle == 0:
            self._warn("Using default stream in enqueueV3() may lead to performance issues.")
            self._sim.gpu.drain()
        if self.profiler is not None and self.enqueue_emits_profile:
            stream.finish()
            self.report_to_profiler()
        return True

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Notice two threads in one context."""
        before, thread = self._user, threading.get_ident()
        if before not in (None, thread):
            self._sim.gpu.misuses.append("two threads use one context at once")
        self._user = thread
        try:
            yield
        finally:
            self._user = before
