"""Shared memory of this machine that clients register, so that tensors needn't travel.

Clients and server map the same pages. So a client that may use it is trusted: it can change an input while the model
reads it, and the system ends a process that reads pages which the client has cut off its object in that moment.
"""

from __future__ import annotations

import dataclasses
import logging
import mmap
import os
import pathlib
import stat
import threading

from trtnode.serving.errors import (
    AlreadyExistsError,
    InvalidRequestError,
    NotFoundError,
    SharedMemoryError,
    UnavailableError,
    UnsupportedError,
)

logger = logging.getLogger(__name__)

OBJECTS = pathlib.Path("/dev/shm")  # noqa: S108  (nothing is created there)
"""The folder of the objects of POSIX shm_open. Python's SharedMemory class would delete them when the server ends."""

MAX_NAME = 255
"""Characters of a region's name, and of a key (the system's own limit)."""
MAX_REGIONS = 256
"""Regions at a time; each holds a file descriptor."""


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """The place of a tensor in shared memory.

    Attributes:
        region: Name of the region.
        offset: First byte, counted from the region's start.
        byte_size: Bytes of an input, or bytes that there are for an output.
    """

    region: str
    offset: int
    byte_size: int


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """A place that is open; it stays valid when its region is unregistered.

    Attributes:
        place: Where it is.
        view: Its bytes, writable.
        region: What it is a part of.
    """

    place: Place
    view: memoryview
    region: Region

    def check(self) -> None:
        """Look again, before a use that comes late, whether the object still has these bytes.

        Raises:
            InvalidRequestError: It has shrunk.
        """
        self.region.check(self.place)


@dataclasses.dataclass(frozen=True, slots=True)
class Region:
    """A part of a shared memory object.

    Attributes:
        name: What requests call it.
        key: Name of the object.
        offset: First byte of the object.
        byte_size: Its size.
        mapping: The object from the start of a page on; pages are unmapped with the last view of them.
        start: Where the region starts in ``mapping``.
    """

    name: str
    key: str
    offset: int
    byte_size: int
    mapping: mmap.mmap = dataclasses.field(repr=False)
    start: int

    def open(self, place: Place) -> Window:
        """Return a part of the region.

        Raises:
            InvalidRequestError: The region, or what is left of its object, ends before the part does.
        """
        self.check(place)
        begin = self.start + place.offset
        return Window(place, memoryview(self.mapping)[begin : begin + place.byte_size], self)

    def check(self, place: Place) -> None:
        """Check that a part is inside the region, and that its object hasn't shrunk.

        Raises:
            InvalidRequestError: It isn't, or it has.
        """
        end = place.offset + place.byte_size
        if place.offset < 0 or place.byte_size < 0 or end > self.byte_size:
            raise InvalidRequestError(
                f"{place.byte_size} bytes from {place.offset} on are not inside the shared memory region "
                f"{self.name!r}, which has {self.byte_size} bytes"
            )
        if self.mapping.size() < self.offset + end:
            raise InvalidRequestError(
                f"the object of the shared memory region {self.name!r} is smaller than when it was registered; "
                "unregister the region"
            )


class SharedMemory:
    """The regions that clients have registered. Thread-safe.

    Attributes:
        allowed: Whether clients may use shared memory at all.
    """

    def __init__(self, *, allowed: bool, max_bytes: int) -> None:
        self.allowed = allowed
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._regions: dict[str, Region] = {}

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Map a part of a shared memory object.

        Args:
            name: What requests will call it.
            key: Name of the object, with or without its leading slash.
            offset: First byte of the object.
            byte_size: Size of the part.

        Raises:
            InvalidRequestError: The name, the key or the size can't be, or the object is smaller.
            AlreadyExistsError: There is a region of that name.
            UnavailableError: The regions would take more memory than they may.
            SharedMemoryError: The object can't be opened.
        """
        if not 0 < len(name) <= MAX_NAME:
            raise InvalidRequestError(f"a shared memory region needs a name of 1 to {MAX_NAME} characters")
        if byte_size < 1:
            raise InvalidRequestError(f"the shared memory region {name!r} should have a byte_size of 1 or more")
        with self._lock:
            if name in self._regions:
                raise AlreadyExistsError(f"shared memory region {name!r} already in manager; unregister it first")
            self._check_room(byte_size)
            self._regions[name] = _map(name, key, offset, byte_size)
        logger.info("Registered shared memory %r: %d bytes from %d on of object %r", name, byte_size, offset, key)

    def unregister(self, name: str) -> None:
        """Forget a region, or all if ``name`` is empty. Requests that use it keep it; unknown ones are no error."""
        with self._lock:
            gone = [name] if name else list(self._regions)
            for one in gone:
                self._regions.pop(one, None)

    def regions(self, name: str) -> list[Region]:
        """Return a region, or all if ``name`` is empty.

        Raises:
            NotFoundError: There is no such region.
        """
        with self._lock:
            return [self._find(name)] if name else list(self._regions.values())

    def open(self, place: Place) -> Window:
        """Return the memory of a tensor.

        Raises:
            UnsupportedError: Shared memory is off.
            NotFoundError: There is no such region.
            InvalidRequestError: The place isn't inside its region.
        """
        if not self.allowed:
            raise UnsupportedError("shared memory is off; server.admin.shared_memory allows it, or send tensors raw")
        return self._find(place.region).open(place)

    def _find(self, name: str) -> Region:
        try:
            return self._regions[name]
        except KeyError:
            raise NotFoundError(
                f"Unable to find shared memory region: {name[:MAX_NAME]!r}; register it first"
            ) from None

    def _check_room(self, byte_size: int) -> None:
        if byte_size > self._max_bytes:
            raise InvalidRequestError(
                f"{byte_size} bytes of shared memory are more than the {self._max_bytes} that clients may register; "
                "ask for less, or raise server.limits.shared_memory_mb"
            )
        used = sum(region.byte_size for region in self._regions.values())
        if used + byte_size > self._max_bytes:
            raise UnavailableError(
                f"{byte_size} bytes more of shared memory, beside {used} in use, are more than the {self._max_bytes} "
                "that clients may register (server.limits.shared_memory_mb); unregister a region"
            )
        if len(self._regions) >= MAX_REGIONS:
            raise UnavailableError(f"there are {MAX_REGIONS} shared memory regions, the most; unregister one")


def _map(name: str, key: str, offset: int, byte_size: int) -> Region:
    """Return the region, mapped.

    Raises:
        InvalidRequestError: The key is no object's name, or the object is smaller.
        SharedMemoryError: The object can't be opened.
    """
    descriptor = _open(key)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise SharedMemoryError(f"{key!r} is no shared memory object")
        if offset + byte_size > status.st_size:
            raise InvalidRequestError(
                f"the shared memory object {key!r} has {status.st_size} bytes, so {byte_size} bytes from {offset} on "
                "are not inside it"
            )
        start = offset % mmap.ALLOCATIONGRANULARITY
        mapping = mmap.mmap(descriptor, start + byte_size, offset=offset - start)
    except OSError as error:
        raise SharedMemoryError(f"the shared memory object {key!r} can't be mapped: {error.strerror}") from error
    finally:
        os.close(descriptor)
    return Region(name, key, offset, byte_size, mapping, start)


def _open(key: str) -> int:
    """Return a descriptor of an object.

    Raises:
        InvalidRequestError: The key is no object's name.
        SharedMemoryError: It can't be opened.
    """
    base = key.removeprefix("/")
    if base in ("", ".", "..") or "/" in base or "\0" in base or len(os.fsencode(base)) > MAX_NAME:
        raise InvalidRequestError(f"{key[:MAX_NAME]!r} is no key of a shared memory object, such as '/name'")
    try:
        # No link is followed out of the folder, and a pipe put there can't keep the thread waiting.
        return os.open(OBJECTS / base, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise SharedMemoryError(f"Unable to open shared memory region: {key!r}: {error.strerror}") from error
