"""An execution context: what it is told, and the enqueue that checks it all."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from simulated_cuda import CudaError
from simulated_cuda.streams import StreamQueue, Work
from simulated_tensorrt.bindings import ALIGNMENT, Bindings
from simulated_tensorrt.kernel import Kernel
from simulated_tensorrt.simulation import UsageError
from simulated_tensorrt.values import Dims, ILogger, IOutputAllocator, Speaks, started


class IExecutionContext(Speaks):
    """One thread at a time."""

    name = ""

    def __init__(self, engine: Any, logger: ILogger, strategy: Any) -> None:
        super().__init__(logger)
        self._engine = engine
        self._bound = Bindings(engine)
        self._allocators: dict[str, IOutputAllocator] = {}
        self._manages_memory = strategy.name != "USER_MANAGED"
        self._arena = (0, 0)
        self._running: Work | None = None
        self._user: int | None = None
        self._own_arena: Any = None
        if self._manages_memory and engine.device_memory_size_v2:
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
        return self._bound.profile

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        with self._alone():
            known = 0 <= profile_index < self._engine.num_optimization_profiles
            if not known or self._sim.faults.profile_switch_fails:
                self._error(f"Profile {profile_index} can't be selected.")
                raise RuntimeError("Error in set optimization profile async.")
            self._sim.gpu.stream(stream_handle).add(lambda: None)
            self._bound.select(profile_index)
            return True

    def set_input_shape(self, name: str, shape: Sequence[int]) -> bool:
        with self._alone():
            sizes = tuple(Dims(shape))
            problem = self._bound.misfit(name, sizes)
            if problem:
                self._error(f"IExecutionContext::setInputShape: {name}: {problem}")
                return False
            self._bound.shapes[name] = sizes
            return True

    def set_tensor_address(self, name: str, memory: int) -> bool:
        with self._alone():
            if name not in self._engine._tensors:
                self._error(f"IExecutionContext::setTensorAddress: there is no tensor {name}")
                return False
            self._bound.addresses[name] = int(memory)
            return True

    def set_output_allocator(self, name: str, output_allocator: IOutputAllocator | None) -> bool:
        if name not in self._engine._tensors or self._engine._tensors[name].is_input:
            return False
        if output_allocator is None:
            self._allocators.pop(name, None)
        else:
            self._allocators[name] = started(output_allocator, IOutputAllocator)
        return True

    def set_device_memory(self, memory: int, size: int) -> None:
        with self._alone():
            if self._manages_memory or memory % ALIGNMENT:
                self._error("IExecutionContext::setDeviceMemoryV2: it manages its own memory, or this is not aligned")
                return
            self._arena = (int(memory), int(size))

    def get_tensor_shape(self, name: str) -> Dims:
        tensor = self._engine._tensors[name]
        if tensor.is_input:
            return Dims(self._bound.shapes.get(name, tensor.shape))
        with self._alone():
            return Dims(tensor.shape if self._bound.missing() else self._bound.output_shapes()[name])

    def infer_shapes(self) -> list[str]:
        with self._alone():
            missing = self._bound.missing()
            try:
                if not missing:
                    self._bound.output_shapes()
            except UsageError as error:
                self._error(f"IExecutionContext::inferShapes: {error}")
                raise RuntimeError("Error in inferring shapes.") from None
            return missing

    def execute_async_v3(self, stream_handle: int) -> bool:
        with self._alone():
            try:
                stream = self._check(stream_handle)
                kernel = self._kernel()
            except (UsageError, CudaError) as error:
                self._error(f"IExecutionContext::enqueueV3: {error}")
                return False
            if self._allocators:
                return kernel.run_with(self._allocators, stream, stream_handle, self._error)
            self._enqueue(kernel, stream, stream_handle)
            return True

    def _check(self, stream_handle: int) -> StreamQueue:
        """Refuse what the library refuses.

        Raises:
            UsageError: Something is missing or wrong, or a test asked for it.
            CudaError: The thread has no current context, the handle is none, or an earlier error stays.
        """
        self._sim.gpu.check()
        stream = self._sim.gpu.stream(stream_handle)
        self._sim.count_enqueue()
        missing = self._bound.missing()
        if missing:
            raise UsageError(f"shapes or values of {missing} are not set")
        for tensor in self._engine._plan.tensors:
            self._bound.check_address(tensor, has_allocator=tensor.name in self._allocators)
        needed = self._engine._plan.scratch[self._bound.profile]
        if needed > self._arena[1]:
            raise UsageError(f"{self._arena[1]} bytes of device memory are less than {needed}")
        return stream

    def _kernel(self) -> Kernel:
        return Kernel(
            gpu=self._sim.gpu,
            executable=self._engine._executable,
            tensors=self._engine._plan.tensors,
            shapes=self._bound.input_shapes(),
            results=self._bound.output_shapes(),
            host=self._bound.host_values(),
            addresses=dict(self._bound.addresses),
            arena=self._arena,
        )

    def _enqueue(self, kernel: Kernel, stream: StreamQueue, handle: int) -> None:
        gpu = self._sim.gpu
        if self._running is not None and not stream.comes_after(self._running):
            gpu.misuses.append("one context runs on two streams at once")
        self._running = stream.add(kernel)
        gpu.claim(self._running, *self._arena)
        if handle == 0:
            self._warn("Using default stream in enqueueV3() may lead to performance issues.")
            gpu.drain()

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
