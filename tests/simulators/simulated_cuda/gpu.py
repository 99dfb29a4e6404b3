"""The GPU: its memory, its streams, the context stack of each thread, and what is still alive."""

from __future__ import annotations

import bisect
import collections
import dataclasses
import threading
from typing import Any

import numpy as np

from simulated_cuda.errors import ILLEGAL_ADDRESS, INVALID_CONTEXT, INVALID_HANDLE, OUT_OF_MEMORY, CudaError
from simulated_cuda.streams import StreamQueue, Work

ALIGNMENT = 512
"""Bytes; what the driver aligns device memory to."""

POISON = 0xDB
"""Fills memory that nothing has been written to."""

FREED = 0xDD
"""Fills memory that was freed."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One allocation, of host memory."""

    address: int
    size: int
    memory: np.ndarray


class Memory:
    """Allocations by address."""

    def __init__(self) -> None:
        self._blocks: dict[int, Block] = {}
        self._addresses: list[int] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def size(self) -> int:
        """Bytes that are allocated."""
        with self._lock:
            return sum(block.size for block in self._blocks.values())

    def allocate(self, size: int) -> Block:
        """Take poisoned memory."""
        raw = np.full(size + ALIGNMENT, POISON, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        memory = raw[start : start + size]
        return self.add(memory)

    def add(self, memory: np.ndarray) -> Block:
        """Know memory that is there."""
        block = Block(memory.ctypes.data, memory.size, memory)
        with self._lock:
            self._blocks[block.address] = block
            bisect.insort(self._addresses, block.address)
        return block

    def free(self, block: Block) -> None:
        """Spoil memory, and forget it."""
        block.memory.fill(FREED)
        self.forget(block)

    def forget(self, block: Block) -> None:
        """Know memory no longer."""
        with self._lock:
            del self._blocks[block.address]
            self._addresses.remove(block.address)

    def view(self, address: int, size: int) -> np.ndarray | None:
        """``uint8[size]`` from an address; None where one live allocation does not hold all of it."""
        with self._lock:
            index = bisect.bisect_right(self._addresses, address) - 1
            block = self._blocks[self._addresses[index]] if index >= 0 else None
        if block is None or address + size > block.address + block.size:
            return None
        return block.memory[address - block.address :][:size]


class SimulatedGpu:
    """State that every thread of a process shares.

    Attributes:
        name: Of the device; it says that it is simulated.
        compute_capability: Major and minor.
        total_bytes: Of device memory; more than that can't be allocated.
        misuses: Mistakes of the project that a real driver or library need not notice. A test expects none.
        fails_kernel: Error code that the next kernel ends with; it then stays. None for no error.
        removed: True once its test is over. What is collected later, by any thread, has nothing left to free.
    """

    def __init__(
        self, *, compute_capability: tuple[int, int] = (9, 0), total_bytes: int = 1 << 34, name: str = "simulated GPU"
    ) -> None:
        self.name = name
        self.compute_capability = compute_capability
        self.total_bytes = total_bytes
        self.misuses: list[str] = []
        self.fails_kernel: int | None = None
        self.removed = False
        self.memory = Memory()
        self.page_locked = Memory()
        self.lock = threading.RLock()
        self.streams: dict[int, StreamQueue] = {}
        self.events: set[int] = set()
        self.primary_contexts = 0
        self.peak_bytes = 0
        self._pushed: collections.Counter[int] = collections.Counter()
        self._local = threading.local()
        self._error: int | None = None
        self._default = StreamQueue(self)
        self._claims: list[tuple[Work, int, int]] = []

    @property
    def stack(self) -> list[Any]:
        """Contexts that the calling thread has pushed."""
        if not hasattr(self._local, "stack"):
            self._local.stack = []
        stack: list[Any] = self._local.stack
        return stack

    def count_pushed(self, change: int) -> None:
        """Keep track of the contexts that all threads have pushed."""
        with self.lock:
            self._pushed[threading.get_ident()] += change

    def check(self) -> None:
        """Return whether a call of this thread can succeed.

        Raises:
            CudaError: It has no current context, or an earlier error stays.
        """
        if not self.stack:
            raise CudaError(INVALID_CONTEXT)
        if self._error is not None:
            raise CudaError(self._error)

    def fail(self, code: int) -> None:
        """Lose the context: from now on each call ends with this error."""
        self._error = code

    def allocate(self, size: int) -> Block:
        """Take device memory."""
        with self.lock:
            if self.memory.size + size > self.total_bytes:
                raise CudaError(OUT_OF_MEMORY)
            block = self.memory.allocate(size)
            self.peak_bytes = max(self.peak_bytes, self.memory.size)
            return block

    def view(self, address: int, size: int) -> np.ndarray:
        """``uint8[size]`` of device memory, as a kernel sees it.

        Raises:
            CudaError: It is not all there. The error stays.
        """
        found = self.memory.view(address, size)
        if found is None:
            self.fail(ILLEGAL_ADDRESS)
            raise CudaError(ILLEGAL_ADDRESS)
        return found

    def stream(self, handle: int) -> StreamQueue:
        """The queue behind a stream's handle; 0 is the default stream.

        Raises:
            CudaError: No such stream lives.
        """
        if handle == 0:
            return self._default
        if handle not in self.streams:
            raise CudaError(INVALID_HANDLE)
        return self.streams[handle]

    def drain(self) -> None:
        """Finish all work, as the default stream does before its own."""
        for stream in [*self.streams.values(), self._default]:
            stream.finish()

    def claim(self, work: Work, address: int, size: int) -> None:
        """Note that work uses scratch memory, and whether other work that nothing keeps apart does."""
        with self.lock:
            self._claims = [claim for claim in self._claims if not claim[0].done]
            for other, start, length in self._claims:
                if start < address + size and address < start + length and not work.stream.comes_after(other):
                    self.misuses.append("two streams use the same scratch memory at once")
            self._claims.append((work, address, size))

    def leaks(self) -> dict[str, int]:
        """Return the number of objects that still exist, by kind, without kinds that have none."""
        counts = {
            "device allocations": len(self.memory),
            "page-locked allocations": len(self.page_locked),
            "streams": len(self.streams),
            "events": len(self.events),
            "retained contexts": self.primary_contexts,
            "pushed contexts": sum(self._pushed.values()),
        }
        return {kind: count for kind, count in counts.items() if count}
