"""Native stages of a model on a GPU: ONNX Runtime on the engines' stream and memory, or on the host."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import onnx

from trtnode.engines.cuda.buffers import DEVICE_ALIGNMENT, DeviceBuffer
from trtnode.engines.cuda.streams import DeviceTensor, DeviceTensors, ExecutionStream, HostTensors
from trtnode.engines.errors import ExecutionError
from trtnode.engines.onnxruntime.cuda_session import asynchronous_run, open_cuda_session
from trtnode.engines.onnxruntime.session import NativeSession, clean_message
from trtnode.engines.runtime.plan import PlanStage
from trtnode.partitioner.graph.view import TensorSpec, specs


class NativeOnHost:
    """A native stage on the CPU, between copies from and to the GPU."""

    reads_device: tuple[str, ...] = ()
    writes_device: tuple[str, ...] = ()

    def __init__(self, session: NativeSession) -> None:
        self.reads_host = session.inputs
        self.writes_host = session.outputs
        self._session = session

    def attach(self) -> None:
        """Nothing to do: it uses no arena."""

    def __call__(self, host: HostTensors, device: DeviceTensors) -> None:  # noqa: ARG002
        """Run on the host's tensors."""
        feeds = {name: host[name] for name in self.reads_host if name in host}  # optionals may be absent
        host.update(zip(self.writes_host, self._session.run(feeds), strict=True))

    def free(self) -> None:
        """Nothing to do: the session belongs to the model."""


class NativeOnGpu:
    """A native stage on the GPU: bound to device pointers, and enqueued on the stream.

    Tensors that engines hold in another type than the declared one pass through the host.
    """

    def __init__(
        self, stream: ExecutionStream, model: onnx.ModelProto, stage: PlanStage, through_host: Container[str]
    ) -> None:
        """Load the stage for a stream. The CUDA context must be current.

        Args:
            stream: The stream that it runs on.
            model: The stage as a model.
            stage: Its inputs and outputs.
            through_host: Names of tensors that it reads and writes on the host.

        Raises:
            ModelLoadError: ONNX Runtime refuses the model.
        """
        inputs, outputs = specs(stage.inputs), specs(stage.outputs)
        self.reads_device = tuple(s.name for s in inputs if s.name not in through_host)
        self.reads_host = tuple(s.name for s in inputs if s.name in through_host)
        self.writes_device = tuple(s.name for s in outputs if s.name not in through_host)
        self.writes_host = tuple(s.name for s in outputs if s.name in through_host)
        self._stream = stream
        self._types = {s.name: _type_of(s) for s in inputs}
        self._session = open_cuda_session(model, stream=stream.handle, name=stage.name)
        self._binding = self._session.io_binding()
        self._options = asynchronous_run()
        self._bound: list[DeviceTensor] | None = None
        self._buffers = {name: DeviceBuffer(stream.device.driver) for name in self.writes_device}
        self._fixed = {
            s.name: self._bind_fixed(s) for s in outputs if s.name in self._buffers and s.static_shape is not None
        }
        self._revealed = tuple(s.name for s in outputs if s.name not in self._fixed)
        self._order = (*self._fixed, *self._revealed)  # in the order in which they are bound and listed
        self._held: dict[str, Any] = {}

    def attach(self) -> None:
        """Nothing to do: ONNX Runtime has an arena of its own."""

    def __call__(self, host: HostTensors, device: DeviceTensors) -> None:
        """Enqueue a run.

        Raises:
            ExecutionError: ONNX Runtime failed.
        """
        bound = [device[name] for name in self.reads_device]
        try:
            if bound != self._bound:
                self._bind(bound)
            for name in self.reads_host:
                self._binding.bind_cpu_input(name, host[name])
            for name in self._revealed:  # for each run: the memory of the last one may not fit
                self._binding.bind_output(name, "cuda" if name in self._buffers else "cpu", 0)
            self._session.run_with_iobinding(self._binding, self._options)
        except Exception as error:  # the binding has a class of its own for each status code
            self._bound = None
            raise ExecutionError(f"onnxruntime: {clean_message(error)}") from error
        device.update(self._fixed)
        if self._revealed:
            self._reveal(host, device)

    def free(self) -> None:
        """Free the session and its memory."""
        self._held = {}
        self._binding = self._session = None
        for buffer in self._buffers.values():
            buffer.free()

    def _bind(self, bound: list[DeviceTensor]) -> None:
        self._bound = None
        for name, (address, shape) in zip(self.reads_device, bound, strict=True):
            self._binding.bind_input(name, "cuda", 0, self._types[name], shape, address)
        self._bound = bound

    def _bind_fixed(self, spec: TensorSpec) -> DeviceTensor:
        """Give an output of known shape one address for life, so that its readers are bound once."""
        shape = spec.static_shape
        assert shape is not None
        address = self._buffers[spec.name].fit(spec.size_bytes)
        self._binding.bind_output(spec.name, "cuda", 0, _type_of(spec), shape, address)
        return address, shape

    def _reveal(self, host: HostTensors, device: DeviceTensors) -> None:
        """Take the results that ONNX Runtime has allocated. Their memory must live until the run is over."""
        self._held = dict(zip(self._order, self._binding.get_outputs(), strict=True))
        if self.writes_host:
            self._stream.cuda_stream.synchronize()
        for name in self._revealed:
            if name in self._buffers:
                device[name] = self._aligned(name, self._held[name])
            else:
                host[name] = self._held[name].numpy()

    def _aligned(self, name: str, value: Any) -> DeviceTensor:
        """Return a result in place, or a copy where its address has not the alignment that engines need."""
        address, shape = value.data_ptr(), tuple(value.shape())
        size = value.tensor_size_in_bytes()
        if address % DEVICE_ALIGNMENT and size:
            target = self._buffers[name].fit(size)
            self._stream.device.driver.memcpy_dtod_async(target, address, size, self._stream.cuda_stream)
            address = target
        return address, shape


def _type_of(spec: TensorSpec) -> Any:
    """Return an element type as ONNX Runtime's binding takes it."""
    assert spec.dtype is not None
    dtype = spec.dtype.numpy()
    return dtype if dtype.isbuiltin == 1 else int(spec.dtype)
