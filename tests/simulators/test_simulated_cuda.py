"""The simulated driver keeps the rules of the real one: what is early, wrong or left over is seen."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest

from simulated_cuda import POISON, SimulatedGpu, make_driver
from simulated_cuda.errors import ILLEGAL_ADDRESS, LAUNCH_FAILED

ONES = np.ones(4, np.float32)


@pytest.fixture
def gpu() -> SimulatedGpu:
    return SimulatedGpu(total_bytes=4096)


@pytest.fixture
def cuda(gpu: SimulatedGpu) -> Iterator[ModuleType]:
    """A driver, in a thread with a current context."""
    driver = make_driver(gpu)
    context = driver.Device(0).retain_primary_context()
    context.push()
    yield driver
    gpu.stack.clear()


def test_device_memory_is_aligned_and_holds_poison(cuda: ModuleType) -> None:
    memory, host = cuda.mem_alloc(16), np.empty(16, np.uint8)

    cuda.memcpy_dtoh(host, memory)

    assert int(memory) % 512 == 0
    assert host.tolist() == [POISON] * 16


def test_a_copy_to_page_locked_memory_comes_late(cuda: ModuleType) -> None:
    memory, stream = cuda.mem_alloc(16), cuda.Stream()
    host = cuda.pagelocked_empty(4, np.float32)
    cuda.memcpy_htod(memory, ONES)

    cuda.memcpy_dtoh_async(host, memory, stream)
    early = host.copy()
    stream.synchronize()

    assert not np.array_equal(early, ONES)
    np.testing.assert_array_equal(host, ONES)


def test_page_locked_memory_is_read_when_the_stream_gets_there(cuda: ModuleType) -> None:
    memory, stream, result = cuda.mem_alloc(16), cuda.Stream(), np.empty(4, np.float32)
    host = cuda.pagelocked_empty(4, np.float32)
    host.fill(1)

    cuda.memcpy_htod_async(memory, host, stream)
    host.fill(2)  # too early: the copy has not run
    cuda.memcpy_dtoh(result, memory)

    assert result.tolist() == [2] * 4


def test_other_host_memory_is_read_before_the_call_returns(cuda: ModuleType) -> None:
    memory, stream, result = cuda.mem_alloc(16), cuda.Stream(), np.empty(4, np.float32)
    host = ONES.copy()

    cuda.memcpy_htod_async(memory, host, stream)
    host.fill(2)
    cuda.memcpy_dtoh(result, memory)

    np.testing.assert_array_equal(result, ONES)


def test_an_event_waits_for_what_was_recorded_and_no_more(cuda: ModuleType) -> None:
    memory, stream, event = cuda.mem_alloc(16), cuda.Stream(), cuda.Event()
    host = cuda.pagelocked_empty(4, np.float32)
    host.fill(0)

    cuda.memcpy_htod_async(memory, ONES, stream)
    cuda.memcpy_dtoh_async(host, memory, stream)
    event.record(stream)
    cuda.memset_d8_async(memory, 0, 16, stream)
    assert not event.query()
    event.synchronize()

    assert event.query()
    np.testing.assert_array_equal(host, ONES)
    assert not stream.is_done()


def test_a_stream_waits_for_an_event_of_another(cuda: ModuleType) -> None:
    memory, first, second, event = cuda.mem_alloc(16), cuda.Stream(), cuda.Stream(), cuda.Event()
    host = cuda.pagelocked_empty(4, np.float32)
    cuda.memcpy_htod_async(memory, ONES, first)
    event.record(first)

    second.wait_for_event(event)
    cuda.memcpy_dtoh_async(host, memory, second)
    second.synchronize()

    np.testing.assert_array_equal(host, ONES)


def test_more_memory_than_there_is_can_not_be_allocated(cuda: ModuleType) -> None:
    with pytest.raises(cuda.MemoryError, match="cuMemAlloc failed: out of memory"):
        cuda.mem_alloc(8192)


def test_an_address_outside_of_device_memory_is_refused_at_once(cuda: ModuleType) -> None:
    with pytest.raises(cuda.LogicError, match="cuMemcpyHtoD failed: invalid argument"):
        cuda.memcpy_htod(ONES.ctypes.data, ONES)


def test_memory_that_is_freed_before_its_work_has_run_loses_the_context(cuda: ModuleType) -> None:
    memory, stream = cuda.mem_alloc(16), cuda.Stream()
    cuda.memset_d8_async(memory, 0, 16, stream)
    memory.free()

    with pytest.raises(cuda.LogicError, match="cuStreamSynchronize failed: an illegal memory access"):
        stream.synchronize()
    with pytest.raises(cuda.LogicError, match="cuMemAlloc failed: an illegal memory access"):
        cuda.mem_alloc(16)


def test_a_lost_context_stays_lost(gpu: SimulatedGpu, cuda: ModuleType) -> None:
    gpu.fail(LAUNCH_FAILED)

    for _ in range(2):
        with pytest.raises(cuda.LaunchError, match="unspecified launch failure"):
            cuda.Stream()


def test_a_thread_without_a_context_can_do_nothing(cuda: ModuleType) -> None:
    errors: list[Exception] = []

    def work() -> None:
        try:
            cuda.mem_alloc(16)
        except cuda.Error as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert [str(error) for error in errors] == ["cuMemAlloc failed: invalid device context"]


def test_popping_an_empty_stack_is_an_error(cuda: ModuleType) -> None:
    cuda.Context.pop()

    with pytest.raises(cuda.LogicError, match="context::pop failed"):
        cuda.Context.pop()


def test_memory_freed_by_a_thread_that_has_not_its_context_is_lost(gpu: SimulatedGpu, cuda: ModuleType) -> None:
    memory = cuda.mem_alloc(16)
    warned: list[str] = []

    def work() -> None:
        with pytest.warns(UserWarning, match="could not be cleaned up") as record:
            memory.free()
        warned.extend(str(warning.message) for warning in record)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert warned == ["DeviceAllocation in out-of-thread context could not be cleaned up"]
    assert gpu.leaks()["device allocations"] == 1


def test_memory_that_is_freed_twice_is_told(cuda: ModuleType) -> None:
    memory = cuda.mem_alloc(16)
    memory.free()

    with pytest.raises(cuda.LogicError, match="invalid resource handle"):
        memory.free()


def test_what_is_left_over_is_counted(gpu: SimulatedGpu) -> None:
    cuda = make_driver(gpu)
    context = cuda.Device(0).retain_primary_context()
    context.push()
    memory, stream, event, host = cuda.mem_alloc(16), cuda.Stream(), cuda.Event(), cuda.pagelocked_empty(4, np.int8)

    kinds = "device allocations page-locked allocations streams events retained contexts pushed contexts"
    assert " ".join(gpu.leaks()) == kinds

    memory.free()
    host.base.free()
    del stream, event
    cuda.Context.pop()
    context.detach()
    assert gpu.leaks() == {}


def test_a_stream_that_goes_with_work_to_do_is_a_misuse(gpu: SimulatedGpu, cuda: ModuleType) -> None:
    memory, stream = cuda.mem_alloc(16), cuda.Stream()
    cuda.memset_d8_async(memory, 0, 16, stream)

    del stream

    assert gpu.misuses == ["a stream was destroyed before its work was done"]


def test_a_read_beyond_an_allocation_is_illegal(gpu: SimulatedGpu, cuda: ModuleType) -> None:
    memory = cuda.mem_alloc(16)

    with pytest.raises(Exception, match="illegal memory access") as caught:
        gpu.view(int(memory) + 8, 16)

    assert caught.value.code == ILLEGAL_ADDRESS
