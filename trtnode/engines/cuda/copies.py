"""Copies between the memory of the host and of the GPU. They and their places among the stages are planned at load."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from trtnode.engines.cuda.buffers import DeviceBuffer, PinnedBuffer
from trtnode.engines.cuda.streams import DeviceTensor, DeviceTensors, ExecutionStream, GpuStage, HostTensors
from trtnode.engines.errors import EMPTY_TENSOR, OutOfRangeError


@dataclasses.dataclass(frozen=True, slots=True)
class Copies:
    """The copies before a stage.

    Attributes:
        up: Names of tensors to bring to the GPU.
        down: Names of tensors to bring to the host.
    """

    up: tuple[str, ...]
    down: tuple[str, ...]


def plan_copies(stages: Sequence[GpuStage], inputs: Iterable[str], outputs: Sequence[str]) -> list[Copies]:
    """Plan the copies of a model: each tensor crosses at most once in a direction, and only where it is read.

    Args:
        stages: In order.
        inputs: Names of tensors that are on the host at first.
        outputs: Names of tensors that must be on the host at last.

    Returns:
        The copies before each stage, then those after the last stage.
    """
    on_host, on_device = set(inputs), set[str]()
    copies: list[Copies] = []
    for stage in stages:
        up = tuple(n for n in dict.fromkeys(stage.reads_device) if n not in on_device)
        down = tuple(n for n in dict.fromkeys(stage.reads_host) if n not in on_host and n in on_device)
        copies.append(Copies(up, down))
        on_host.update(down, stage.writes_host)
        on_device.update(up, stage.writes_device)
    copies.append(Copies((), tuple(n for n in dict.fromkeys(outputs) if n not in on_host)))
    return copies


class Upload:
    """Copies one tensor to the GPU, through page-locked memory and in the element type that engines take."""

    def __init__(self, stream: ExecutionStream, name: str, dtype: np.dtype) -> None:
        driver = stream.device.driver
        self._name = name
        self._copy = driver.memcpy_htod_async
        self._cuda_stream = stream.cuda_stream
        self._staging = PinnedBuffer(driver, dtype)
        self._buffer = DeviceBuffer(driver)
        self._shape: tuple[int, ...] | None = None
        self._entry: DeviceTensor = (0, ())
        self._array: np.ndarray = self._staging.array
        self._raw: np.ndarray = self._staging.raw

    def __call__(self, host: HostTensors, device: DeviceTensors) -> None:
        """Copy. The source may change as soon as this returns.

        Raises:
            OutOfRangeError: The tensor has no elements.
        """
        array = host[self._name]
        if array.shape != self._shape:
            self._fit(array.shape)
        np.copyto(self._array, array, casting="same_kind")
        self._copy(self._address, self._raw, self._cuda_stream)
        device[self._name] = self._entry

    def free(self) -> None:
        """Give memory back."""
        self._shape = None
        self._array, self._raw = np.empty(0), np.empty(0)
        self._staging.free()
        self._buffer.free()

    def _fit(self, shape: tuple[int, ...]) -> None:
        if 0 in shape:
            raise OutOfRangeError(EMPTY_TENSOR, f"{self._name!r} has no elements; engines need at least one.")
        self._shape = None
        self._staging.fit(shape)
        self._array, self._raw = self._staging.array, self._staging.raw
        self._address = self._buffer.fit(self._raw.nbytes)
        self._entry = (self._address, shape)
        self._shape = shape


class Download:
    """Copies tensors to the host, and waits for the stream."""

    def __init__(self, stream: ExecutionStream, tensors: Sequence[tuple[str, np.dtype, np.dtype]]) -> None:
        """Prepare.

        Args:
            stream: The stream that computes them.
            tensors: Name, element type on the GPU and on the host of each.
        """
        driver = stream.device.driver
        self._copy = driver.memcpy_dtoh_async
        self._cuda_stream = stream.cuda_stream
        self._synchronize = stream.cuda_stream.synchronize
        self._tensors = [(name, PinnedBuffer(driver, dtype)) for name, dtype, _ in tensors]
        self._shapes: list[tuple[int, ...] | None] = [None] * len(tensors)
        self._widened = [(name, declared) for name, dtype, declared in tensors if dtype != declared]

    def __call__(self, host: HostTensors, device: DeviceTensors) -> None:
        """Copy. The arrays are valid until the next run."""
        for index, (name, staging) in enumerate(self._tensors):
            address, shape = device[name]
            if shape != self._shapes[index]:
                staging.fit(shape)
                self._shapes[index] = shape
            if staging.raw.size:
                self._copy(staging.raw, address, self._cuda_stream)
            host[name] = staging.array
        self._synchronize()
        for name, dtype in self._widened:
            host[name] = host[name].astype(dtype)

    def free(self) -> None:
        """Give memory back."""
        self._shapes = [None] * len(self._tensors)
        for _, staging in self._tensors:
            staging.free()
