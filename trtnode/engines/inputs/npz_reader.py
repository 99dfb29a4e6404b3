"""Reads .npy and .npz files a few rows at a time, so that a file may be larger than memory."""

from __future__ import annotations

import contextlib
import io
import math
import pathlib
import zipfile
from collections.abc import Iterator
from typing import IO

import numpy as np

from trtnode.partitioner.model.regular_files import open_regular

READ_ERRORS = (OSError, ValueError, EOFError, zipfile.BadZipFile)
"""Exceptions of reading a damaged file."""


class ArrayStream:
    """An array in a file, read from its first row to its last. One in Fortran order is held as a whole.

    Attributes:
        shape: Of the whole array.
        dtype: Of its elements.
    """

    def __init__(self, file: IO[bytes]) -> None:
        """Read the header.

        Raises:
            ValueError: The file holds no plain array.
        """
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        self.shape, columns_first, self.dtype = read(file)
        if self.dtype.hasobject:
            raise ValueError("an array of Python objects can't be read")
        self._file = file
        if columns_first:
            values = np.frombuffer(self._bytes(math.prod(self.shape)), self.dtype)
            self._file = io.BytesIO(values.reshape(self.shape, order="F").tobytes())

    def read(self, rows: int) -> np.ndarray:
        """Read the next rows, ``dtype[rows, ...]``; a scalar as a whole.

        Raises:
            EOFError: The file ends before.
        """
        shape = (rows, *self.shape[1:]) if self.shape else ()
        return np.frombuffer(self._bytes(math.prod(shape)), self.dtype).reshape(shape)

    def _bytes(self, elements: int) -> bytes:
        wanted = elements * self.dtype.itemsize
        data = self._file.read(wanted)
        if len(data) < wanted:
            raise EOFError("the file is cut short")
        return data


@contextlib.contextmanager
def open_arrays(path: pathlib.Path) -> Iterator[dict[str, ArrayStream]]:
    """Open the arrays of an .npz by name, or the one of an .npy under the name of the file.

    Raises:
        OSError, ValueError, EOFError, BadZipFile: The file is missing, or no such file.
    """
    with contextlib.ExitStack() as stack:
        if path.suffix == ".npy":
            yield {path.stem: ArrayStream(stack.enter_context(open_regular(path)))}
            return
        archive = stack.enter_context(zipfile.ZipFile(stack.enter_context(open_regular(path))))
        members = [name for name in archive.namelist() if name.endswith(".npy")]
        yield {name.removesuffix(".npy"): ArrayStream(stack.enter_context(archive.open(name))) for name in members}
