"""A TensorRT engine on one stream: an execution context for each optimization profile, bound by name.

A stage compares the addresses and shapes of a request with those of the last one, and binds nothing anew where they are
equal.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from trtnode.engines.cuda.buffers import DeviceBuffer
from trtnode.engines.cuda.graphs import GraphCapture
from trtnode.engines.cuda.streams import DeviceTensor, DeviceTensors, ExecutionStream, HostTensors
from trtnode.engines.errors import EMPTY_TENSOR, ExecutionError, OutOfRangeError
from trtnode.engines.tensorrt.labelling.parser import make_logger
from trtnode.engines.tensorrt.loaded_engine import LoadedEngine, Shape


class TensorRtStage:
    """Enqueues an engine's work on a stream. Work that depends on shapes is done once, until they change.

    Attributes:
        reads_host: Inputs that are shapes.
        reads_device: All other inputs.
        writes_host: Outputs that are shapes.
        writes_device: All other outputs.
    """

    def __init__(
        self, loaded: LoadedEngine, stream: ExecutionStream, inputs: Sequence[str], outputs: Sequence[str]
    ) -> None:
        """Create the execution contexts. The CUDA context must be current.

        Args:
            loaded: The engine.
            stream: The stream that it runs on.
            inputs: The model's names for its inputs.
            outputs: The model's names for its outputs.

        Raises:
            ExecutionError: TensorRT creates none.
        """
        self._loaded, self._stream, self._handle = loaded, stream, stream.handle
        self._logger = make_logger(loaded.trt)
        inputs_by_name = tuple(zip(inputs, loaded.inputs, strict=True))
        self._outputs = tuple(zip(outputs, loaded.outputs, strict=True))
        self._data = tuple((name, binding.name) for name, binding in inputs_by_name if not binding.on_host)
        self._shapes = tuple((name, binding) for name, binding in inputs_by_name if binding.on_host)
        self.reads_host = tuple(name for name, _ in self._shapes)
        self.reads_device = tuple(name for name, _ in self._data)
        self.writes_host = tuple(name for name, binding in self._outputs if binding.on_host)
        self.writes_device = tuple(name for name, binding in self._outputs if not binding.on_host)
        self._buffers = {name: DeviceBuffer(stream.device.driver) for name in self.writes_device}
        self._allocators = {name: new_allocator(loaded.trt, buffer) for name, buffer in self._buffers.items()}
        self._contexts = [self._new_context() for _ in loaded.profiles]
        self._execute = self._contexts[0].execute_async_v3
        self._graph_capture = GraphCapture(stream, wanted=loaded.uses_graphs)
        self._bound: list[DeviceTensor] | None = None
        self._shapes_read: dict[str, np.ndarray] = {}
        self._shapes_written: dict[str, np.ndarray] = {}
        self._entries: dict[str, DeviceTensor] = {}
        self._revealed: list[str] = []

    def attach(self) -> None:
        """Take scratch memory of the stream's arena, and give each context its profile.

        Raises:
            ExecutionError: TensorRT failed.
        """
        for index, context in enumerate(self._contexts):
            place = functools.partial(self._set_scratch, context)
            self._stream.arena.attach((id(self), index), self._loaded.scratch_bytes[index], place)
            if index:  # a new context has the first one
                with self._guarded():
                    self._check(context.set_optimization_profile_async(index, self._handle), f"profile {index}")
        self._stream.cuda_stream.synchronize()

    def __call__(self, host: HostTensors, device: DeviceTensors) -> None:
        """Enqueue one execution.

        Raises:
            OutOfRangeError: The inputs are outside all profiles, or one has no elements.
            ExecutionError: TensorRT failed, in its own words.
        """
        bound = [device[name] for name in self.reads_device]
        if bound != self._bound or (self._shapes and self._shapes_changed(host)):
            self._bind(bound, host)
        if not self._execute(self._handle):
            self._bound = None
            self._fail("an execution could not be enqueued")
        device.update(self._entries)
        if self._revealed:
            self._reveal(device)
        if self._shapes_written:
            self._stream.cuda_stream.synchronize()
            host.update((name, array.copy()) for name, array in self._shapes_written.items())

    def free(self) -> None:
        """Free contexts and memory."""
        for index in range(len(self._loaded.profiles)):
            self._stream.arena.detach((id(self), index))
        self._bound = None
        self._graph_capture.drop()
        self._execute = None
        self._contexts.clear()
        self._allocators.clear()
        for buffer in self._buffers.values():
            buffer.free()

    def _new_context(self) -> Any:
        with self._guarded():
            context = self._loaded.new_context()
        self._check(context, "an execution context could not be created")
        return context

    def _shapes_changed(self, host: HostTensors) -> bool:
        """Return whether an input that is a shape has other elements than the last time."""
        return any(not np.array_equal(self._shapes_read[name], host[name]) for name, _ in self._shapes)

    def _bind(self, bound: list[DeviceTensor], host: HostTensors) -> None:
        """Choose the profile, and give its context all shapes and addresses."""
        self._bound = None
        self._graph_capture.drop()
        context = self._contexts[self._choose_profile(bound, host)]
        with self._guarded():
            for (_, name), (address, shape) in zip(self._data, bound, strict=True):
                self._check(context.set_input_shape(name, shape), f"input {name!r} can't have the shape {shape}")
                self._check(context.set_tensor_address(name, address), f"input {name!r} could not be bound")
            self._bind_shapes(context, host)
            missing = context.infer_shapes()
            self._check(not missing, f"shapes are missing for {', '.join(missing)}")
            self._bind_outputs(context)
        varies = self._revealed or self._shapes or self._shapes_written
        enqueue = context.execute_async_v3
        self._execute = enqueue if varies else self._graph_capture.wrap(enqueue, self._is_capturable(context))
        self._bound = bound

    def _is_capturable(self, context: Any) -> Callable[[], bool]:
        """Return a question: a library that compiles kernels at run time can't be captured until it has them all."""
        asked = getattr(context, "is_stream_capturable", None)
        return functools.partial(asked, self._handle) if asked else lambda: True

    def _choose_profile(self, bound: Sequence[DeviceTensor], host: HostTensors) -> int:
        shapes = {name: shape for (_, name), (_, shape) in zip(self._data, bound, strict=True)}
        empty = next((name for name, shape in shapes.items() if 0 in shape), None)
        if empty is not None:
            raise OutOfRangeError(EMPTY_TENSOR, f"{empty!r} has no elements; engines need at least one.")
        chosen = self._loaded.choose_profile(shapes, {binding.name: host[name] for name, binding in self._shapes})
        if chosen is None:
            given = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
            raise OutOfRangeError("outside_profiles", f"The engine was built for other shapes than {given}.")
        return chosen

    def _bind_shapes(self, context: Any, host: HostTensors) -> None:
        """Bind inputs that are shapes. TensorRT reads them while it enqueues, so their memory stays."""
        for name, binding in self._shapes:
            array = np.array(host[name], binding.dtype, order="C")
            self._check(context.set_tensor_address(binding.name, array.ctypes.data), f"{name!r} could not be bound")
            self._shapes_read[name] = array

    def _bind_outputs(self, context: Any) -> None:
        self._entries, self._revealed = {}, []
        for name, binding in self._outputs:
            shape: Shape = tuple(context.get_tensor_shape(binding.name))
            if binding.on_host:
                array = self._shapes_written[name] = np.empty(shape, binding.dtype)
                ok = context.set_tensor_address(binding.name, array.ctypes.data)
            elif -1 in shape:
                self._revealed.append(name)
                ok = context.set_output_allocator(binding.name, self._allocators[name])
            else:
                address = self._buffers[name].fit(math.prod(shape) * binding.dtype.itemsize)
                self._entries[name] = (address, shape)
                ok = context.set_tensor_address(binding.name, address)
            self._check(ok, f"output {binding.name!r} could not be bound")

    def _reveal(self, device: DeviceTensors) -> None:
        """Take the shapes that the run has given to the allocators."""
        for name in self._revealed:
            allocator = self._allocators[name]
            shape, allocator.shape = allocator.shape, None
            self._check(shape is not None, f"the shape of output {name!r} was not told")
            device[name] = (self._buffers[name].address, shape)

    def _set_scratch(self, context: Any, address: int, size: int) -> None:
        context.set_device_memory(address, size)
        self._bound = None  # a captured graph has the old address

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Turn exceptions of the library into this package's."""
        self._logger.take()
        try:
            yield
        except (RuntimeError, TypeError, ValueError) as error:
            raise ExecutionError(f"TensorRT: {self._logger.told(str(error))}") from error

    def _check(self, result: object, problem: str) -> None:
        """Fail where a call of the library has returned False or None."""
        if not result:
            self._fail(problem)

    def _fail(self, problem: str) -> NoReturn:
        for allocator in self._allocators.values():
            error, allocator.error = allocator.error, None
            if error is not None:
                raise error
        raise ExecutionError(f"TensorRT: {problem}: {self._logger.told()}")


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
