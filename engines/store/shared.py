"""The store that machines share: entries of the engine cache, by the same keys, with a mark of the store's key.

An entry is two files. ``<key>.json`` has the entry's fields, the sha256 of its bytes, and an HMAC over both and the
key; ``<sha256>.bytes`` has the bytes, and is written first. Keys hold the kind of machine, so an entry fits wherever
its key is asked for. Nothing of an entry is used before its mark is verified.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import hmac
import json
import logging
import math
import pathlib
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Literal, Self, TypeVar

from trtnode.engines.artifact.cache import Entry
from trtnode.engines.artifact.machine_key import MachineKey
from trtnode.engines.errors import KeyFileError
from trtnode.engines.store.places import is_url, place_of


class StoreError(Exception):
    """The store fails, which the log says already."""


logger = logging.getLogger(__name__)

T = TypeVar("T")
Access = Literal["read", "write"]

KEY_FILE = "store.key"

PATIENCE_S = 10.0
"""Longest time of one access, for a small file."""

BYTES_A_SECOND = 10_000_000
"""The speed below which a store is too slow for large files."""

PAUSE_S = 60.0
"""Time for which a store that failed is left alone, and between two warnings."""


@dataclasses.dataclass(slots=True)
class StoreState:
    """What has happened to a store. Times are those of ``time.monotonic``, which all processes of a machine share.

    Attributes:
        events: How often files were ``taken`` and ``published``, and accesses ``failed``.
        paused_until: The time until which it isn't tried again, by access.
        quiet_until: The time until which failures are not worth a warning.
    """

    events: Counter[str] = dataclasses.field(
        default_factory=lambda: Counter(dict.fromkeys(("taken", "published", "failed"), 0))
    )
    paused_until: dict[Access, float] = dataclasses.field(default_factory=dict)
    quiet_until: float = -math.inf


class SharedStore:
    """A second tier of the engine cache. It can be sent to another process.

    Attributes:
        state: What has happened to it.
    """

    def __init__(self, address: str, key_file: pathlib.Path | None = None) -> None:
        """Name a store, without access to it.

        Args:
            address: A folder, or a URL for fsspec.
            key_file: File of the store's secret, which proves who has published an entry. None takes a file in the
                folder, which is made when it is first needed; a URL needs another one.

        Raises:
            KeyFileError: ``key_file`` can't be used.
        """
        assert key_file is not None or not is_url(address), "only a folder's owner is known"
        self.state = StoreState()
        self._address = address
        self._place = place_of(address)
        self._makes_key = key_file is None
        self._key = MachineKey(key_file or pathlib.Path(address) / KEY_FILE)
        self._hung: threading.Thread | None = None
        if key_file is not None:
            self._key.tag(b"")
        _OPEN.add(self)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the thread of an access that hangs."""
        return {**self.__dict__, "_hung": None}

    def fetch(self, key: str) -> Entry | None:
        """Return an entry that somebody with the store's key has published; None where there is none."""
        try:
            found = self._read(f"{key}.json")
            if found is None:
                return None
            entry = self._opened(key, json.loads(found))
        except StoreError:
            return None
        except (ValueError, KeyError, TypeError, RecursionError, KeyFileError) as error:
            self._report(f"its entry {key}.json is ignored: {error}")
            return None
        self.state.events["taken"] += entry.content is not None
        return entry

    def publish(self, key: str, entry: Entry) -> None:
        """Store an entry for others; its bytes first, so that nobody sees half of it."""
        size = len(entry.content or b"")
        content = None if entry.content is None else hashlib.sha256(entry.content).hexdigest()
        covered = {"fields": entry.fields, "content": content, "size": size}
        try:
            if self._makes_key:
                self._access("write", self._key.make)
            record = json.dumps({**covered, "mark": self._mark(key, covered)})
            if entry.content is not None:
                self._write(f"{content}.bytes", entry.content)
            self._write(f"{key}.json", record.encode())
        except StoreError:
            return
        except KeyFileError as error:
            self._report(str(error))
            return
        self.state.events["published"] += entry.content is not None

    def follow(self, copy: Self) -> None:
        """Take over what has happened to a copy that comes back from another process."""
        self.state = copy.state

    def _read(self, name: str, size: int = 0) -> bytes | None:
        return self._access("read", functools.partial(self._place.read, name), size)

    def _write(self, name: str, content: bytes) -> None:
        self._access("write", functools.partial(self._place.write, name, content), len(content))

    def _opened(self, key: str, record: Mapping[str, Any]) -> Entry:
        """Check an entry and read its bytes.

        Raises:
            StoreError: The store fails.
            KeyFileError: The store's key can't be used.
            ValueError: Nobody with the store's key has written it, or it isn't whole.
            KeyError: It isn't whole.
            TypeError: It isn't whole.
        """
        covered = {name: record[name] for name in ("fields", "content", "size")}
        if not hmac.compare_digest(self._mark(key, covered), record["mark"]):
            raise ValueError("it has no mark of this store's key")
        if covered["content"] is None:
            return Entry(fields=covered["fields"], content=None)
        content = self._read(f"{covered['content']}.bytes", covered["size"])
        if content is None or hashlib.sha256(content).hexdigest() != covered["content"]:
            raise ValueError("its bytes are missing or damaged")
        return Entry(fields=covered["fields"], content=content)

    def _mark(self, key: str, covered: Mapping[str, Any]) -> str:
        return self._key.tag(json.dumps([key, covered], sort_keys=True).encode())

    def _access(self, access: Access, work: Callable[[], T], size: int = 0) -> T:
        """Do something with the store, which may take only so long.

        Raises:
            StoreError: It fails, or failed a moment ago.
        """
        if time.monotonic() < self.state.paused_until.get(access, -math.inf):
            raise StoreError
        if self._hung is not None and self._hung.is_alive():
            raise StoreError
        patience_s = PATIENCE_S + size / BYTES_A_SECOND
        outcome: Future[T] = Future()
        thread = threading.Thread(target=_finish, args=(outcome, work), name="shared-store", daemon=True)
        thread.start()
        try:
            return outcome.result(patience_s)
        except Exception as error:
            problem = str(error) or type(error).__name__
            if not outcome.done():
                self._hung, problem = thread, f"no answer within {patience_s:.0f} s"
            self.state.paused_until[access] = time.monotonic() + PAUSE_S
            self._report(f"{access} failed, so it is left alone for {PAUSE_S:.0f} s: {problem}")
            raise StoreError from error

    def _report(self, problem: str) -> None:
        now = time.monotonic()
        self.state.events["failed"] += 1
        level = logging.DEBUG if now < self.state.quiet_until else logging.WARNING
        if level == logging.WARNING:
            self.state.quiet_until = now + PAUSE_S
        logger.log(level, "Shared engine cache %s: %s", self._address, problem)


_OPEN: weakref.WeakSet[SharedStore] = weakref.WeakSet()


def store_events() -> Mapping[str, int]:
    """Return what has happened to the stores of this process; see ``StoreState``."""
    events: Counter[str] = Counter()
    for store in list(_OPEN):
        events.update(store.state.events)
    return events


def _finish(outcome: Future[T], work: Callable[[], T]) -> None:
    try:
        outcome.set_result(work())
    except BaseException as error:
        outcome.set_exception(error)
