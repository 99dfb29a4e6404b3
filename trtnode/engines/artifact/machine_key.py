"""The secret by which a machine knows its own engines, and the files of keys."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import logging
import os
import pathlib
import secrets
import stat

from trtnode.engines.artifact.cache_folder import OTHERS, PRIVATE
from trtnode.engines.errors import KeyFileError

logger = logging.getLogger(__name__)

SECRET_BYTES = 32
LARGEST_KEY = 65536
"""Bytes that are read of a key's file."""


class MachineKey:
    """A secret that stays on its machine. An engine with its mark was built there."""

    def __init__(self, file: pathlib.Path) -> None:
        """Use a key file, which is made when something is marked for the first time; its folder, too."""
        self._file = file

    def mark(self, data: bytes) -> str | None:
        """Return the HMAC-SHA256 of some bytes in hexadecimal; None, with a warning, where there is no usable key."""
        try:
            self.make()
            return self.tag(data)
        except (OSError, KeyFileError) as error:
            logger.warning("Engines built here aren't signed with this machine's key: %s", error)
            return None

    def accepts(self, data: bytes, mark: str) -> bool:
        """Return whether a mark was made with this key, over the same bytes."""
        try:
            return hmac.compare_digest(self.tag(data).encode(), mark.encode("utf-8", "surrogatepass"))
        except KeyFileError as error:
            logger.warning("The signature of an engine by this machine's key can't be checked: %s", error)
            return False

    def tag(self, data: bytes) -> str:
        """Return the HMAC-SHA256 of some bytes in hexadecimal.

        Raises:
            KeyFileError: There is no secret, it belongs to or is open to others, or it is no secret.
        """
        return hmac.new(self._secret(), data, hashlib.sha256).hexdigest()

    def make(self) -> None:
        """Write a secret, unless there is one. It gets its name when it is complete, so nobody reads half of it.

        Raises:
            OSError: The folder can't be written.
            KeyFileError: Likewise.
        """
        if self._file.exists():
            return
        self._file.parent.mkdir(PRIVATE, parents=True, exist_ok=True)
        temporary = self._file.with_name(f".{self._file.name}.{secrets.token_hex(8)}")
        try:
            write_key_file(temporary, secrets.token_bytes(SECRET_BYTES), 0o600)
            with contextlib.suppress(FileExistsError):  # another process has written its secret first
                self._file.hardlink_to(temporary)
        finally:
            temporary.unlink(missing_ok=True)

    def _secret(self) -> bytes:
        """Read the secret; see ``tag``."""
        secret, facts = read_key_file(self._file, os.O_NOFOLLOW)
        if facts.st_uid != os.geteuid() or facts.st_mode & OTHERS:
            raise KeyFileError(self._file, "others can read or change it, so it proves nothing; delete it")
        if len(secret) != SECRET_BYTES:
            raise KeyFileError(self._file, f"should have {SECRET_BYTES} bytes, not {len(secret)}; delete it")
        return secret


def read_key_file(path: pathlib.Path, flags: int = 0) -> tuple[bytes, os.stat_result]:
    """Read a key, with the owner and permissions of the very file that was read: its name may change hands meanwhile.

    Args:
        path: The file.
        flags: Further flags of ``os.open``.

    Raises:
        KeyFileError: The file can't be read, or is no regular file.
    """
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags), "rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise KeyFileError(path, "is no regular file; check the path")
            return file.read(LARGEST_KEY), facts
    except OSError as error:
        if error.errno == errno.ELOOP and flags & os.O_NOFOLLOW:
            raise KeyFileError(path, "is a link; put the key itself there") from None
        raise KeyFileError(path, f"can't be read ({error.strerror}); check the path and its permissions") from None


def write_key_file(path: pathlib.Path, data: bytes, mode: int) -> None:
    """Write a file that must not be there yet, never readable by more than ``mode`` says.

    Raises:
        KeyFileError: It is there already, or can't be written.
    """
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise KeyFileError(path, "is there already, and keys are never overwritten; choose another name") from None
    except OSError as error:
        raise KeyFileError(path, f"can't be written ({error.strerror}); check the folder") from None
