"""The right to build: a file that its owner changes from time to time, for as long as it lives.

Creating the file is exclusive, so one of several builders has it. The others look whether it changes, by their own
clocks. One that hasn't changed for ``lease_s`` is overwritten; of several who do that, the last one has the right.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Protocol, TypeVar

from trtnode.engines.store.errors import StoreError
from trtnode.engines.store.places import Place

logger = logging.getLogger(__name__)

T = TypeVar("T")

POLLS = 30
"""Looks at a file during the time after which it expires."""

BEATS = 6
"""Changes of a file during that time."""


class Files(Place, Protocol):
    """The part of a store that claims need; methods of a place raise StoreError."""

    wait_s: float
    lease_s: float

    def count_wait(self) -> None:
        """Count a build of another process that is waited for."""
        ...


class BuildClaim:
    """Implements ``trtnode.engines.artifact.second_tier.Claim`` with a file.

    Where the store fails, everybody may build.
    """

    def __init__(self, files: Files, name: str) -> None:
        self._files = files
        self._name = f"{name}.lease"
        self._owner = f"{socket.gethostname()} {os.getpid()} {uuid.uuid4().hex}"
        self._settled = False
        self._seen: bytes | None = None
        self._seen_at = 0.0
        self._beating: threading.Thread | None = None
        self._over = threading.Event()

    def wait_for(self, find: Callable[[], T]) -> T:
        """Return what ``find`` finds, once that isn't None, or this machine has the right, or may wait no longer."""
        if self._settled:
            return find()
        deadline = time.monotonic() + self._files.wait_s
        told = False
        while not self._take() and time.monotonic() < deadline:
            if not told:
                self._files.count_wait()
                logger.info("Another process builds engines of this model; waiting for them")
                told = True
            time.sleep(self._files.lease_s / POLLS)
            found = find()
            if found is not None:
                return found
        self._settled = True
        return find()

    def close(self) -> None:
        """Give the right back."""
        self._over.set()
        if self._beating is None:
            return
        self._beating.join()
        with contextlib.suppress(StoreError):
            if self._is_mine(self._files.read(self._name)):
                self._files.remove(self._name)

    def _take(self) -> bool:
        """Return True if this process has the right now, or nobody can have it."""
        try:
            if self._files.create(self._name, self._content()) or (self._is_expired() and self._overwrites()):
                self._beating = threading.Thread(target=self._beat, name="build-claim", daemon=True)
                self._beating.start()
                return True
        except StoreError:
            return True
        return False

    def _is_expired(self) -> bool:
        content, now = self._files.read(self._name), time.monotonic()
        if content != self._seen:
            self._seen, self._seen_at = content, now
        return content is not None and now - self._seen_at > self._files.lease_s

    def _overwrites(self) -> bool:
        """Take the place of an owner who is gone, unless another one does."""
        self._files.write(self._name, self._content())
        time.sleep(self._files.lease_s / BEATS)
        return self._is_mine(self._files.read(self._name))

    def _beat(self) -> None:
        """Show that the owner lives, for as long as it is the owner."""
        while not self._over.wait(self._files.lease_s / BEATS):
            try:
                if not self._is_mine(self._files.read(self._name)):
                    return
                self._files.write(self._name, self._content())
            except StoreError:
                continue

    def _content(self) -> bytes:
        now = datetime.datetime.now(datetime.UTC).isoformat()
        return json.dumps({"owner": self._owner, "time": now}).encode()

    def _is_mine(self, content: bytes | None) -> bool:
        return content is not None and self._owner.encode() in content
