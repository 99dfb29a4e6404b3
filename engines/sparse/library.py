"""The compiled kernels: where they are, and why they may be missing."""

from __future__ import annotations

import ctypes
import functools
import pathlib

FOLDER = pathlib.Path(__file__).parent

LIBRARY = FOLDER / "kernels.so"
"""Made by the package's build hook where there is a C compiler."""

VERSION = "4"
"""Of the operators and their tensors. Engines of another version are refused."""


def missing_reason() -> str | None:
    """Return why there are no kernels, and how to get them; None if they are here."""
    if LIBRARY.is_file():
        return None
    return (
        "engine sparse: its kernels were not compiled when this package was installed. Install it again where there "
        "is a C compiler (gcc or clang), or install a wheel that has them."
    )


@functools.cache
def instructions() -> str:
    """Return the instruction set that the kernels use on this processor, such as ``AVX2``; empty without kernels."""
    if missing_reason() is not None:
        return ""
    library = ctypes.CDLL(str(LIBRARY))
    library.trtnode_sparse_instructions.restype = ctypes.c_char_p
    name: bytes = library.trtnode_sparse_instructions()
    return name.decode()
