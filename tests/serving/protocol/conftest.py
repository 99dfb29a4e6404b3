"""Objects of shared memory, and a client of a server that allows them."""

from __future__ import annotations

import contextlib
import importlib
import importlib.resources
import pathlib
import sys
import types
import uuid
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import tritonclient.grpc as triton

from tests.serving.conftest import Running

X = np.array([[1, 0, 1]])


def import_shm() -> types.ModuleType:
    """Import tritonclient's module, which looks for its library with a part of setuptools that is no longer there."""
    finder = types.ModuleType("pkg_resources")
    finder.resource_filename = lambda package, name: str(importlib.resources.files(package) / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pkg_resources", finder)
        return importlib.import_module("tritonclient.utils.shared_memory")


shm = import_shm()


class Memory:
    """A shared memory object, made by tritonclient, that a test reads and writes."""

    def __init__(self, byte_size: int) -> None:
        self.key = f"/trtnode-test-{uuid.uuid4().hex}"
        self.byte_size = byte_size
        self._handle = shm.create_shared_memory_region(self.key, self.key, byte_size)
        self.path = pathlib.Path("/dev/shm", self.key[1:])

    def write(self, data: bytes, offset: int = 0) -> None:
        shm.set_shared_memory_region(self._handle, [np.frombuffer(data, np.uint8)], offset)

    def read(self, byte_size: int, offset: int = 0) -> bytes:
        return self.path.read_bytes()[offset : offset + byte_size]

    def texts(self, count: int, offset: int) -> list[bytes]:
        return list(shm.get_contents_as_numpy(self._handle, np.object_, [count], offset))

    def close(self) -> None:
        shm.destroy_shared_memory_region(self._handle)


@pytest.fixture
def make_memory() -> Iterator:
    with contextlib.ExitStack() as stack:

        def make(byte_size: int = 4096) -> Memory:
            memory = Memory(byte_size)
            stack.callback(memory.close)
            return memory

        yield make


@pytest.fixture
def memory(make_memory: Callable[..., Memory]) -> Memory:
    return make_memory()


@pytest.fixture
def client(with_memory: Running) -> Iterator[triton.InferenceServerClient]:
    yield with_memory.client
    with_memory.client.unregister_system_shared_memory()


def tensor(name: str, shape: tuple[int, ...], datatype: str, region: str, size: int, offset: int = 0):
    one = triton.InferInput(name, list(shape), datatype)
    one.set_shared_memory(region, size, offset)
    return one


def output(region: str, size: int, offset: int = 0, name: str = "y"):
    one = triton.InferRequestedOutput(name)
    one.set_shared_memory(region, size, offset)
    return one
