"""Places of shared files: a folder, and whatever fsspec opens."""

from __future__ import annotations

import pathlib
from typing import Any, Protocol

from trtnode.engines.artifact.files import write_atomically


class Place(Protocol):
    """Files by name. What its methods raise depends on the place."""

    def read(self, name: str) -> bytes | None:
        """Return a file's content; None where there is none."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Write or replace a file."""
        ...


class Folder:
    """A folder, which may be mounted from elsewhere. Readers see whole files."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    def read(self, name: str) -> bytes | None:
        """See ``Place``."""
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """See ``Place``."""
        self._path.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path / name, content)


class Filesystem:
    """A folder of a filesystem of fsspec."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opened: tuple[Any, str] | None = None

    def __reduce__(self) -> tuple[type[Filesystem], tuple[str]]:
        """Cross to another process without connections."""
        return Filesystem, (self._url,)

    def read(self, name: str) -> bytes | None:
        """See ``Place``."""
        files, root = self._open()
        try:
            content: bytes = files.cat_file(f"{root}/{name}")
        except FileNotFoundError:
            return None
        return content

    def write(self, name: str, content: bytes) -> None:
        """See ``Place``."""
        files, root = self._open()
        try:
            files.pipe_file(f"{root}/{name}", content)
        except FileNotFoundError:  # object stores have no folders, and need none
            files.makedirs(root, exist_ok=True)
            files.pipe_file(f"{root}/{name}", content)

    def _open(self) -> tuple[Any, str]:
        if self._opened is None:
            from fsspec.core import url_to_fs

            files, root = url_to_fs(self._url)
            self._opened = files, root.rstrip("/")
        return self._opened


def is_url(address: str) -> bool:
    """Return whether an address is one for fsspec, such as ``s3://bucket/engines``."""
    return "://" in address


def place_of(address: str) -> Place:
    """Return the place of a path or URL. Nothing is opened yet."""
    return Filesystem(address) if is_url(address) else Folder(pathlib.Path(address))
