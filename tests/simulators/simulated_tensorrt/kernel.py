"""One run of an engine, as work on a stream: reads and writes the memory behind the addresses."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnxruntime import OrtValue

from simulated_cuda import POISON, CudaError, SimulatedGpu
from simulated_cuda.errors import LAUNCH_FAILED
from simulated_cuda.streams import StreamQueue
from simulated_tensorrt.executable import Executable, bytes_of, storage
from simulated_tensorrt.graphs import Shape, Tensor
from simulated_tensorrt.simulation import swallow
from simulated_tensorrt.values import Dims

OUTPUT_ALIGNMENT = 256


@dataclasses.dataclass(kw_only=True)
class Kernel:
    """The work of one enqueue. Scratch memory and outputs are poisoned before anything is read.

    Attributes:
        gpu: The GPU with its memory.
        executable: Of the engine.
        tensors: Inputs and outputs.
        shapes: Of the inputs.
        results: Shapes of the outputs, -1 where only this run tells.
        host: Values of inputs on the host.
        addresses: Of the others, and of outputs.
        arena: Address and size of the scratch memory.
    """

    gpu: SimulatedGpu
    executable: Executable
    tensors: tuple[Tensor, ...]
    shapes: Mapping[str, Shape]
    results: Mapping[str, Shape]
    host: Mapping[str, np.ndarray]
    addresses: dict[str, int]
    arena: tuple[int, int]

    def __call__(self) -> None:
        """Run.

        Raises:
            CudaError: An address is not, or no longer, in device memory; or a test asked for it.
        """
        for tensor in self._outputs():
            shape = self.results[tensor.name]
            if -1 not in shape and self.addresses.get(tensor.name):
                self._view(tensor, shape).fill(POISON)
        for name, value in self._compute().items():
            data = bytes_of(value)
            if data:
                self.gpu.view(self.addresses[name], len(data))[:] = np.frombuffer(data, np.uint8)

    def run_with(
        self,
        allocators: Mapping[str, Any],
        stream: StreamQueue,
        handle: int,
        complain: Callable[[str], None],
    ) -> bool:
        """Run now, after all work before it, and ask allocators where to put outputs."""
        stream.finish()
        self.gpu.check()
        try:
            values = self._compute()
        except CudaError as error:
            complain(str(error))
            return False
        for name, value in values.items():
            if name in allocators and not self._place(allocators[name], name, value, handle):
                complain(f"The output allocator gives no memory for {name}.")
                return False
        for name, value in values.items():
            data = bytes_of(value)
            self.gpu.view(self.addresses[name], len(data))[:] = np.frombuffer(data, np.uint8)
            if name in allocators:
                swallow(allocators[name].notify_shape, name, Dims(value.shape()))
        return True

    def _place(self, allocator: Any, name: str, value: OrtValue, handle: int) -> bool:
        size, current = max(value.tensor_size_in_bytes(), 1), self.addresses.get(name, 0)
        if hasattr(allocator, "reallocate_output_async"):
            address = swallow(allocator.reallocate_output_async, name, current, size, OUTPUT_ALIGNMENT, handle)
        else:
            address = swallow(allocator.reallocate_output, name, current, size, OUTPUT_ALIGNMENT)
        self.addresses[name] = address or 0
        return bool(address)

    def _compute(self) -> dict[str, OrtValue]:
        if self.gpu.fails_kernel is not None:
            code, self.gpu.fails_kernel = self.gpu.fails_kernel, None
            raise CudaError(code)
        if self.arena[1]:
            self.gpu.view(*self.arena).fill(POISON)
        inputs = {t.name: self._input(t) for t in self.tensors if t.is_input}
        try:
            return self.executable.run(inputs)
        except Exception as error:  # whatever ONNX Runtime says; the GPU would compute something
            self.gpu.misuses.append(f"the simulated kernel fails: {error}")
            raise CudaError(LAUNCH_FAILED) from error

    def _input(self, tensor: Tensor) -> np.ndarray:
        if tensor.on_host:
            return self.host[tensor.name]
        shape = self.shapes[tensor.name]
        return self._view(tensor, shape).copy().view(storage(tensor)).reshape(shape)

    def _outputs(self) -> list[Tensor]:
        return [t for t in self.tensors if not t.is_input]

    def _view(self, tensor: Tensor, shape: Shape) -> np.ndarray:
        size = math.prod(shape) * tensor.item_bytes
        return self.gpu.view(self.addresses[tensor.name], size)
