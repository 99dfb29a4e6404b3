"""Inputs and outputs in POSIX shared memory, by the system shared memory extension of KServe V2.

Messages name regions of memory instead of carrying elements. Concurrent requests read the same inputs and write to the
same outputs; nobody reads the results.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from multiprocessing.shared_memory import SharedMemory

import grpc

from trtnode.bench.load.errors import NoSharedMemoryError
from trtnode.bench.load.target import Target
from trtnode.protos import (
    ModelInferRequest,
    ModelInferResponse,
    SystemSharedMemoryRegisterRequest,
    SystemSharedMemoryUnregisterRequest,
)

ALIGNMENT = 64
"""Bytes; a cache line, so that no two tensors share one."""


@contextlib.contextmanager
def in_shared_memory(
    target: Target, request: ModelInferRequest, response: ModelInferResponse, timeout_s: float
) -> Iterator[ModelInferRequest]:
    """Keep the tensors of a request and of its answer in shared memory while the context lasts.

    Args:
        target: The server that the memory is registered at.
        request: A request with raw inputs.
        response: The server's answer to it, which gives the size of each output.
        timeout_s: Time limit of the answer.

    Yields:
        The same request without data. The server has answered it once.

    Raises:
        NoSharedMemoryError: The server refuses the memory or the request.
    """
    sizes = [len(data) for data in (*request.raw_input_contents, *response.raw_output_contents)]
    offsets = _offsets(sizes)
    memory = SharedMemory(create=True, size=max(1, offsets[-1]))
    try:
        assert memory.buf is not None
        for offset, data in zip(offsets, request.raw_input_contents, strict=False):
            memory.buf[offset : offset + len(data)] = data
        moved = _moved(request, response, memory.name, list(zip(offsets, sizes, strict=False)))
        with _registered(target, memory):
            _try(target, "ModelInfer", moved, timeout_s)
            yield moved
    finally:
        memory.close()
        memory.unlink()


@contextlib.contextmanager
def _registered(target: Target, memory: SharedMemory) -> Iterator[None]:
    _try(
        target,
        "SystemSharedMemoryRegister",
        SystemSharedMemoryRegisterRequest(name=memory.name, key=f"/{memory.name}", byte_size=memory.size),
    )
    try:
        yield
    finally:
        with contextlib.suppress(grpc.RpcError):  # a server that has ended has nothing registered
            target.call("SystemSharedMemoryUnregister", SystemSharedMemoryUnregisterRequest(name=memory.name))


def _try(target: Target, rpc: str, request: object, *timeout_s: float) -> None:
    try:
        target.call(rpc, request, *timeout_s)
    except grpc.RpcError as error:
        raise NoSharedMemoryError(target.address, f"{error.code().name}: {error.details()}") from error


def _offsets(sizes: Sequence[int]) -> list[int]:
    """Return the offset of each tensor, and of the end of the last one."""
    offsets = [0]
    for size in sizes:
        offsets.append(offsets[-1] + -(-size // ALIGNMENT) * ALIGNMENT)
    return offsets


def _moved(
    request: ModelInferRequest, response: ModelInferResponse, region: str, places: Sequence[tuple[int, int]]
) -> ModelInferRequest:
    """Return the request with offset and size in bytes, for each input and then each output."""
    moved = ModelInferRequest(model_name=request.model_name, inputs=request.inputs)
    moved.outputs.extend(ModelInferRequest.InferRequestedOutputTensor(name=output.name) for output in response.outputs)
    parameters = [tensor.parameters for tensor in moved.inputs] + [tensor.parameters for tensor in moved.outputs]
    for fields, (offset, size) in zip(parameters, places, strict=True):
        fields["shared_memory_region"].string_param = region
        fields["shared_memory_offset"].int64_param = offset
        fields["shared_memory_byte_size"].int64_param = size
    return moved
