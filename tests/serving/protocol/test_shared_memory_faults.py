"""Regions of shared memory that are wrong, shrink or vanish, and what the server holds of them."""

from __future__ import annotations

import os
import pathlib
import queue
import struct
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc as triton

from tests.serving.conftest import FakeExecutable, Running, StartFake, given, refusal
from tests.serving.protocol.conftest import Memory, X, output, tensor
from trtnode.serving.errors import InvalidRequestError, UnavailableError
from trtnode.serving.protocol.shared_memory import MemorySlice, Region, RegionTable

ON = "admin: {shared_memory: true}, limits: {shared_memory_mb: 1}"


@pytest.mark.parametrize(
    ("region", "size", "offset", "code", "text"),
    [
        pytest.param("other", 12, 0, "NOT_FOUND", "Unable to find shared memory region: 'other'", id="unknown-region"),
        pytest.param("r", 12, 90, "INVALID_ARGUMENT", "not inside the shared memory region", id="beyond-the-region"),
        pytest.param("r", 12, 2**62, "INVALID_ARGUMENT", "not inside", id="huge-offset"),
        pytest.param("r", 2**62, 0, "INVALID_ARGUMENT", "not inside", id="huge-size"),
        pytest.param("r", 12, -4, "INVALID_ARGUMENT", "'shared_memory_offset' should be", id="negative-offset"),
        pytest.param("r", -12, 0, "INVALID_ARGUMENT", "'shared_memory_byte_size' should be", id="negative-size"),
        pytest.param("r", 8, 0, "INVALID_ARGUMENT", "takes 12", id="wrong-size"),
        pytest.param("", 12, 0, "INVALID_ARGUMENT", "'shared_memory_region'", id="no-region"),
    ],
)
def test_an_input_at_the_wrong_place_is_refused(
    client: triton.InferenceServerClient, memory: Memory, region: str, size: int, offset: int, code: str, text: str
) -> None:
    client.register_system_shared_memory("r", memory.key, 100)

    status, message = refusal(lambda: client.infer("FLOAT", [tensor("x", (1, 3), "FP32", region, size, offset)]))

    assert (status, text in message) == (code, True), message


@pytest.mark.parametrize(
    ("region", "size", "offset", "code", "text"),
    [
        pytest.param("other", 12, 0, "NOT_FOUND", "Unable to find shared memory region: 'other'", id="unknown-region"),
        pytest.param("r", 12, 90, "INVALID_ARGUMENT", "not inside the shared memory region", id="beyond-the-region"),
        pytest.param("r", 8, 0, "INTERNAL", "has 12 bytes, but 8 are there", id="too-small"),
    ],
)
def test_an_output_at_the_wrong_place_is_refused(
    client: triton.InferenceServerClient, memory: Memory, region: str, size: int, offset: int, code: str, text: str
) -> None:
    memory.write(b"\7" * 100)
    client.register_system_shared_memory("r", memory.key, 100)
    x = given("x", X.astype(np.float32))

    status, message = refusal(lambda: client.infer("FLOAT", [x], outputs=[output(region, size, offset)]))

    assert (status, text in message) == (code, True), message
    assert memory.read(100) == b"\7" * 100


def test_the_parameters_of_a_tensor_in_memory_belong_together(
    client: triton.InferenceServerClient, memory: Memory
) -> None:
    client.register_system_shared_memory("r", memory.key, 100)
    x = given("x", X.astype(np.float32))
    x._get_tensor().parameters["shared_memory_offset"].int64_param = 4

    code, message = refusal(lambda: client.infer("FLOAT", [x]))

    assert (code, "'shared_memory_byte_size'" in message) == ("INVALID_ARGUMENT", True)


def test_texts_that_lie_about_their_length_are_refused(client: triton.InferenceServerClient, memory: Memory) -> None:
    memory.write(struct.pack("<I", 1000) + b"abc")
    client.register_system_shared_memory("r", memory.key, memory.byte_size)

    code, message = refusal(lambda: client.infer("STRING", [tensor("x", (1, 1), "BYTES", "r", 7)]))

    assert (code, "ends inside element 0" in message) == ("INVALID_ARGUMENT", True)


def test_an_object_that_shrank_is_refused_and_the_server_lives(
    client: triton.InferenceServerClient, memory: Memory
) -> None:
    client.register_system_shared_memory("r", memory.key, memory.byte_size)
    os.truncate(memory.path, 0)

    code, message = refusal(lambda: client.infer("FLOAT", [tensor("x", (1, 3), "FP32", "r", 12)]))

    assert (code, "smaller than when it was registered" in message) == ("INVALID_ARGUMENT", True)
    assert client.is_server_live()
    os.truncate(memory.path, memory.byte_size)


def test_an_object_that_shrinks_while_the_model_runs_is_not_written_to(
    start_fake: StartFake, fake: FakeExecutable, memory: Memory
) -> None:
    running = start_fake(server=ON)
    running.client.register_system_shared_memory("r", memory.key, memory.byte_size)
    x = given("x", np.zeros(1, np.float32))
    fake.gate.clear()

    with ThreadPoolExecutor(1) as pool, triton.InferenceServerClient(running.address) as other:
        answer = pool.submit(refusal, lambda: other.infer("fake", [x], outputs=[output("r", 4)]))
        assert fake.started.acquire(timeout=120)
        os.truncate(memory.path, 0)
        fake.gate.set()
        code, message = answer.result(120)

    assert (code, "smaller than when it was registered" in message) == ("INVALID_ARGUMENT", True)
    assert running.client.is_server_live()
    os.truncate(memory.path, memory.byte_size)


@pytest.fixture
def sparse() -> Iterator[str]:
    """An object that stands for more memory than the system has, and takes none."""
    path = pathlib.Path("/dev/shm", f"trtnode-test-{uuid.uuid4().hex}")
    path.touch()
    filesystem = os.statvfs(path)
    os.truncate(path, filesystem.f_blocks * filesystem.f_frsize + (64 << 20))
    yield path.name
    path.unlink()


def test_a_sparse_object_that_does_not_fit_is_refused(sparse: str) -> None:
    size = pathlib.Path("/dev/shm", sparse).stat().st_size
    memory = RegionTable(allowed=True, max_bytes=1 << 50).of(b"")

    with pytest.raises(UnavailableError, match="there is no memory for"):
        memory.register("r", sparse, 0, size)

    assert not memory.regions("")


def test_the_memory_of_a_region_is_reserved_when_it_is_registered(sparse: str) -> None:
    path = pathlib.Path("/dev/shm", sparse)
    before = path.stat().st_blocks

    RegionTable(allowed=True, max_bytes=1 << 20).of(b"").register("r", sparse, 4096, 8192)

    assert (before, path.stat().st_blocks) == (0, 16)


def test_a_region_that_shrinks_after_its_check_is_no_end(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    regions = RegionTable(allowed=True, max_bytes=1 << 20).of(b"")
    regions.register("r", memory.key, 0, memory.byte_size)
    monkeypatch.setattr(Region, "check", lambda _region, _place: os.truncate(memory.path, 0))

    with pytest.raises(InvalidRequestError, match="smaller than when it was registered"):
        regions.read(MemorySlice("r", 0, 12))

    os.truncate(memory.path, memory.byte_size)


def test_copies_of_inputs_are_bounded_and_counted_down(make_memory: Callable[..., Memory]) -> None:
    size = 96 << 10
    memory = make_memory(size)
    regions = RegionTable(allowed=True, max_bytes=2 * size).of(b"")
    regions.register("r", memory.key, 0, size)
    copies = [regions.read(MemorySlice("r", 0, size)) for _ in range(2)]

    with pytest.raises(UnavailableError, match=r"pass server\.limits\.shared_memory_mb; try later"):
        regions.read(MemorySlice("r", 0, size))

    copies.clear()
    assert len(regions.read(MemorySlice("r", 0, size))) == size


def test_an_input_does_not_change_after_it_was_read(memory: Memory) -> None:
    regions = RegionTable(allowed=True, max_bytes=1 << 20).of(b"")
    regions.register("r", memory.key, 0, memory.byte_size)
    memory.write(b"before")

    copy = regions.read(MemorySlice("r", 0, 6))
    memory.write(b"behind")

    assert bytes(copy) == b"before"


def test_an_object_that_the_client_deleted_stays_usable(
    client: triton.InferenceServerClient, make_memory: Iterator
) -> None:
    x = X.astype(np.float32)
    memory = Memory(4096)
    memory.write(x.tobytes())
    client.register_system_shared_memory("r", memory.key, memory.byte_size)
    memory.close()

    assert client.infer("FLOAT", [tensor("x", (1, 3), "FP32", "r", 12)]).as_numpy("y").tolist() == x.tolist()


def test_a_request_keeps_a_region_that_is_unregistered_meanwhile(
    start_fake: StartFake, fake: FakeExecutable, memory: Memory
) -> None:
    running = start_fake(server=ON)
    memory.write(np.float32(4).tobytes())
    running.client.register_system_shared_memory("r", memory.key, memory.byte_size)
    fake.gate.clear()
    with triton.InferenceServerClient(running.address) as other:
        errors: queue.Queue = queue.Queue()
        other.async_infer(
            "fake",
            [tensor("x", (1,), "FP32", "r", 4)],
            lambda result, error: errors.put(error),
            outputs=[output("r", 4, 16)],
        )
        assert fake.started.acquire(timeout=120)

        running.client.unregister_system_shared_memory("r")
        status = running.client.get_system_shared_memory_status()
        fake.gate.set()
        error = errors.get(timeout=120)

    assert error is None
    assert not status.regions
    assert memory.read(4, 16) == np.float32(5).tobytes()


def open_files() -> int:
    return len(list(pathlib.Path("/proc/self/fd").iterdir()))


def test_the_server_holds_no_memory_after_unregistering(client: triton.InferenceServerClient, memory: Memory) -> None:
    before = open_files()
    for _ in range(50):
        client.register_system_shared_memory("r", memory.key, memory.byte_size)
        client.infer("FLOAT", [tensor("x", (1, 3), "FP32", "r", 12)], outputs=[output("r", 12, 64)])
        client.unregister_system_shared_memory("r")

    assert open_files() <= before + 5


def test_the_server_deletes_no_object_when_it_ends(start_fake: StartFake, memory: Memory) -> None:
    running = start_fake(server=ON)
    running.client.register_system_shared_memory("r", memory.key, memory.byte_size)

    running.server.stop(5)

    assert memory.path.exists()


def test_regions_can_not_be_registered_where_shared_memory_is_off(shared: Running, memory: Memory) -> None:
    client = shared.client

    assert refusal(lambda: client.register_system_shared_memory("r", memory.key, 10))[0] == "PERMISSION_DENIED"
    assert refusal(lambda: client.unregister_system_shared_memory())[0] == "PERMISSION_DENIED"
    assert not client.get_system_shared_memory_status().regions
    code, message = refusal(lambda: client.infer("FLOAT", [tensor("x", (1, 3), "FP32", "r", 12)]))
    assert (code, "server.admin.shared_memory" in message) == ("UNIMPLEMENTED", True)


def test_there_is_no_cuda_shared_memory(client: triton.InferenceServerClient) -> None:
    assert not client.get_cuda_shared_memory_status().regions
    client.unregister_cuda_shared_memory()
    code, message = refusal(lambda: client.register_cuda_shared_memory("r", b"aGFuZGxl", 0, 10))
    assert (code, "on a GPU" in message) == ("UNIMPLEMENTED", True)
    assert refusal(lambda: client.get_cuda_shared_memory_status("r"))[0] == "NOT_FOUND"


def test_shared_memory_is_announced_where_it_is_on(client: triton.InferenceServerClient, shared: Running) -> None:
    extensions = client.get_server_metadata().extensions

    assert "system_shared_memory" in extensions
    assert "cuda_shared_memory" not in extensions
    assert "system_shared_memory" not in shared.client.get_server_metadata().extensions
