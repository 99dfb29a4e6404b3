"""Temporary folders that a killed process does not leave for ever.

The owner holds a lock on its folder, which the system lets go of when the process ends, however it ends. So a folder
without a lock belongs to nobody, in whatever container its owner was.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import pathlib
import shutil
import tempfile
import weakref

PREFIX = "trtnode-tmp-"
UNLOCKED_PREFIX = ".trtnode-new-"
"""Of a folder that has no lock yet."""


class TemporaryFolder:
    """A folder that is removed on ``close``, with the last reference to it, or when the process ends.

    Attributes:
        path: The folder.
    """

    def __init__(self) -> None:
        """Make it. The first one of a process removes what killed processes have left."""
        remove_abandoned()
        self.path, lock = _make()
        self._close = weakref.finalize(self, _remove, self.path, lock)

    def __enter__(self) -> pathlib.Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove it, unless that is done."""
        self._close()


@functools.cache
def remove_abandoned() -> None:
    """Remove this user's temporary folders whose owners have ended, once a process."""
    with contextlib.suppress(OSError):
        for folder in pathlib.Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):
                _remove_unowned(folder)


def _make() -> tuple[pathlib.Path, int]:
    unlocked = pathlib.Path(tempfile.mkdtemp(prefix=UNLOCKED_PREFIX))
    path = unlocked.with_name(PREFIX + unlocked.name.removeprefix(UNLOCKED_PREFIX))
    lock = _open(unlocked)
    fcntl.flock(lock, fcntl.LOCK_EX)
    unlocked.rename(path)  # under a name that others look at only once it is locked
    return path, lock


def _open(folder: pathlib.Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _remove_unowned(folder: pathlib.Path) -> None:
    """Remove a folder of this user that nobody has locked.

    Raises:
        OSError: Somebody has, or it can't be opened.
    """
    lock = _open(folder)
    try:
        if os.fstat(lock).st_uid == os.geteuid():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _remove(folder: pathlib.Path, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)
