"""Shared memory of this machine that clients register, so that tensors needn't travel.

A region belongs to the caller who registered it. The server reads and writes the objects and maps none: the system ends
a process that touches a mapped page which a client has cut off, and a client could change an input after its check.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import stat
import threading
import weakref

import numpy as np

from trtnode.serving.errors import (
    AlreadyExistsError,
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    SharedMemoryError,
    UnavailableError,
    UnsupportedError,
)

OBJECTS = pathlib.Path("/dev/shm")  # noqa: S108  (nothing is created there)
"""The folder of the objects of POSIX shm_open. Python's SharedMemory class would delete them when the server ends."""

MAX_NAME = 255
"""Characters of a region's name, and of a key (the system's own limit)."""
MAX_REGIONS = 256
"""Regions at a time; each holds a file descriptor."""
COUNTED_BYTES = 64 << 10
"""Smaller copies of inputs are not counted: as many as there may be requests take little."""


@dataclasses.dataclass(frozen=True, slots=True)
class MemorySlice:
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
    """A place for an output; it stays valid when its region is unregistered.

    Attributes:
        place: Where it is.
        region: What it is a part of.
    """

    place: MemorySlice
    region: Region

    def write(self, array: np.ndarray) -> None:
        """Write an array, which is no larger than the place.

        Raises:
            InvalidRequestError: The region's object has shrunk.
            SharedMemoryError: The system refuses.
        """
        self.region.check(self.place)  # clients have had the time of a run to shrink it
        self.region.write(self.place.offset, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


@dataclasses.dataclass(frozen=True, slots=True, weakref_slot=True)
class Region:
    """A part of a shared memory object.

    Attributes:
        name: What requests call it.
        key: Name of the object.
        offset: First byte of the object.
        byte_size: Its size.
        descriptor: Of the object; it is closed with the last use of the region.
    """

    name: str
    key: str
    offset: int
    byte_size: int
    descriptor: int

    def __post_init__(self) -> None:
        weakref.finalize(self, os.close, self.descriptor).atexit = False

    def check(self, place: MemorySlice) -> None:
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
        if os.fstat(self.descriptor).st_size < self.offset + end:
            raise self._shrunk()

    def read(self, place: MemorySlice) -> np.ndarray:
        """Return a copy of a part, as bytes that nobody writes.

        Raises:
            InvalidRequestError: The region, or what is left of its object, ends before the part does.
        """
        self.check(place)
        copy, done = np.empty(place.byte_size, np.uint8), 0
        while done < place.byte_size:
            count = os.preadv(self.descriptor, [copy[done:].data], self.offset + place.offset + done)
            if not count:
                raise self._shrunk()
            done += count
        copy.flags.writeable = False
        return copy

    def write(self, offset: int, data: memoryview) -> None:
        """Write bytes into the region's object.

        Raises:
            SharedMemoryError: The system refuses.
        """
        try:
            while data:
                count = os.pwrite(self.descriptor, data, self.offset + offset)
                offset, data = offset + count, data[count:]
        except OSError as error:
            raise SharedMemoryError(f"shared memory region {self.name!r} can't be written: {error.strerror}") from error

    def _shrunk(self) -> InvalidRequestError:
        return InvalidRequestError(
            f"the object of the shared memory region {self.name!r} is smaller than when it was registered; "
            "unregister the region"
        )


class RegionTable:
    """The regions that all callers have registered. Thread-safe."""

    def __init__(self, *, allowed: bool, max_bytes: int) -> None:
        """Begin without any.

        Args:
            allowed: Whether callers may use shared memory at all.
            max_bytes: Size of all regions, and of the copies of inputs that requests have read from them.
        """
        self._allowed = allowed
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._regions: dict[tuple[bytes, str], Region] = {}
        self._copied = 0

    def of(self, owner: bytes | None) -> SharedMemory:
        """Return what one caller has of it; None stands for callers without the right."""
        return SharedMemory(self, owner)

    def register(self, owner: bytes, name: str, key: str, offset: int, byte_size: int) -> None:
        """Keep a part of a shared memory object; see ``SharedMemory.register``."""
        with self._lock:
            if (owner, name) in self._regions:
                raise AlreadyExistsError(f"shared memory region {name!r} already in manager; unregister it first")
            self._check_room(byte_size)
            self._regions[owner, name] = _open_region(name, key, offset, byte_size)

    def unregister(self, owner: bytes, name: str) -> None:
        """Forget a region of a caller, or all of them; see ``SharedMemory.unregister``."""
        with self._lock:
            gone = [key for key in self._regions if key[0] == owner and name in ("", key[1])]
            for key in gone:
                del self._regions[key]

    def regions(self, owner: bytes) -> list[Region]:
        """Return all regions of a caller."""
        with self._lock:
            return [region for (one, _), region in self._regions.items() if one == owner]

    def find(self, owner: bytes, name: str) -> Region:
        """Return a region of a caller; see ``SharedMemory.regions``."""
        try:
            return self._regions[owner, name]
        except KeyError:
            raise NotFoundError(
                f"Unable to find shared memory region: {name[:MAX_NAME]!r}; register it first"
            ) from None

    def check_allowed(self) -> None:
        """Check that callers may use shared memory.

        Raises:
            UnsupportedError: It is off.
        """
        if not self._allowed:
            raise UnsupportedError("shared memory is off; server.admin.shared_memory allows it, or send tensors raw")

    def count_copy(self, size: int) -> None:
        """Count a copy of an input before it is made.

        Raises:
            UnavailableError: The copies would take more memory than they may.
        """
        with self._lock:
            if size > self._max_bytes - self._copied:
                raise UnavailableError(
                    f"requests hold {self._copied} bytes of inputs from shared memory, and {size} more pass "
                    "server.limits.shared_memory_mb; try later"
                )
            self._copied += size

    def forget_copy(self, size: int) -> None:
        """Count a copy no longer."""
        with self._lock:
            self._copied -= size

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


class SharedMemory:
    """The regions of one caller. Nobody else lists, uses or unregisters them."""

    __slots__ = ("_owner", "_table")

    def __init__(self, table: RegionTable, owner: bytes | None) -> None:
        self._table = table
        self._owner = owner

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Open a part of a shared memory object, and reserve its memory.

        Args:
            name: What requests will call it.
            key: Name of the object, with or without its leading slash.
            offset: First byte of the object.
            byte_size: Size of the part.

        Raises:
            InvalidRequestError: The name, the key or the size can't be, or the object is smaller.
            AlreadyExistsError: The caller has a region of that name.
            UnavailableError: The regions would take more memory than they may, or than the system has.
            SharedMemoryError: The object can't be opened.
            ForbiddenError: The caller has no right to it.
        """
        if not 0 < len(name) <= MAX_NAME:
            raise InvalidRequestError(f"a shared memory region needs a name of 1 to {MAX_NAME} characters")
        if byte_size < 1:
            raise InvalidRequestError(f"the shared memory region {name!r} should have a byte_size of 1 or more")
        self._table.register(self._known_owner(), name, key, offset, byte_size)

    def unregister(self, name: str) -> None:
        """Forget a region, or all if ``name`` is empty. Requests that use it keep it; unknown ones are no error."""
        self._table.unregister(self._known_owner(), name)

    def regions(self, name: str) -> list[Region]:
        """Return a region, or all if ``name`` is empty.

        Raises:
            NotFoundError: There is no such region.
        """
        owner = self._known_owner()
        return [self._table.find(owner, name)] if name else self._table.regions(owner)

    def read(self, place: MemorySlice) -> memoryview:
        """Return a copy of an input's bytes.

        Raises:
            UnsupportedError: Shared memory is off.
            ForbiddenError: The caller has no right to it.
            NotFoundError: There is no such region.
            InvalidRequestError: The place isn't inside its region, or the region's object has shrunk.
            UnavailableError: Requests hold too many such copies.
        """
        region, size = self._find(place), place.byte_size
        if size < COUNTED_BYTES:
            return region.read(place).data
        self._table.count_copy(size)
        try:
            copy = region.read(place)
        except BaseException:
            self._table.forget_copy(size)
            raise
        weakref.finalize(copy, self._table.forget_copy, size)
        return copy.data

    def open(self, place: MemorySlice) -> Window:
        """Return the place of an output.

        Raises:
            UnsupportedError: Shared memory is off.
            ForbiddenError: The caller has no right to it.
            NotFoundError: There is no such region.
            InvalidRequestError: The place isn't inside its region.
        """
        return Window(place, self._find(place))

    def _find(self, place: MemorySlice) -> Region:
        self._table.check_allowed()
        region = self._table.find(self._known_owner(), place.region)
        region.check(place)
        return region

    def _known_owner(self) -> bytes:
        if self._owner is None:
            raise ForbiddenError("this token has no right to shared memory; 'admin: [shared_memory]' gives it")
        return self._owner


def _open_region(name: str, key: str, offset: int, byte_size: int) -> Region:
    """Return a region whose memory is reserved.

    Raises:
        InvalidRequestError: The key is no object's name, or the object is smaller.
        UnavailableError: There is no memory for all of the region.
        SharedMemoryError: The object can't be opened.
    """
    region = Region(name, key, offset, byte_size, _open(key))
    status = os.fstat(region.descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise SharedMemoryError(f"{key!r} is no shared memory object")
    if offset + byte_size > status.st_size:
        raise InvalidRequestError(
            f"the shared memory object {key!r} has {status.st_size} bytes, so {byte_size} bytes from {offset} on "
            "are not inside it"
        )
    try:
        os.posix_fallocate(region.descriptor, offset, byte_size)
    except OSError as error:
        raise UnavailableError(
            f"there is no memory for {byte_size} bytes of the shared memory object {key!r}: {error.strerror}; "
            f"free some in {OBJECTS}, or register less"
        ) from error
    return region


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
