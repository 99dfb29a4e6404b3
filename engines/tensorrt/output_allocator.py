"""Memory for outputs of TensorRT engines whose shapes only a run reveals."""

from __future__ import annotations

import functools
from typing import Any

from trtnode.engines.cuda.buffers import DeviceBuffer


def new_allocator(trt: Any, buffer: DeviceBuffer) -> Any:
    """Make a ``trt.IOutputAllocator`` over the memory of one output.

    Args:
        trt: The tensorrt module.
        buffer: Grows as the engine asks.

    Returns:
        An allocator with the ``shape`` of the last run, and the ``error`` that kept it from allocating, else None.
    """
    return _allocator_class(trt)(buffer)


@functools.cache
def _allocator_class(trt: Any) -> Any:
    class OutputAllocator(trt.IOutputAllocator):  # type: ignore[misc]
        def __init__(self, buffer: DeviceBuffer) -> None:
            trt.IOutputAllocator.__init__(self)
            self.shape: tuple[int, ...] | None = None
            self.error: Exception | None = None
            self._buffer = buffer

        def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:  # noqa: ARG002
            try:
                return self._buffer.fit(size)
            except Exception as error:  # the library would print it and lose it
                self.error = error
                return 0

        def reallocate_output_async(
            self,
            tensor_name: str,
            memory: int,
            size: int,
            alignment: int,
            stream: int,  # noqa: ARG002
        ) -> int:
            return self.reallocate_output(tensor_name, memory, size, alignment)

        def notify_shape(self, tensor_name: str, dims: Any) -> None:  # noqa: ARG002
            self.shape = tuple(dims)

    return OutputAllocator
