"""The compiled kernels: where they are, and why they may be missing."""

from __future__ import annotations

import ctypes
import functools
import pathlib

FOLDER = pathlib.Path(__file__).parent

LIBRARY = FOLDER / "kernels.so"
"""Made by the package's build hook where there is a C compiler."""

VERSION = "6"
"""Of the operators and their tensors, as the library has it. Engines of another version are refused."""


def missing_reason() -> str | None:
    """Return why there are no kernels of this version, and how to get them; None if they are here."""
    if not LIBRARY.is_file():
        return (
            "engine sparse: its kernels were not compiled when this package was installed. Install it again where "
            "there is a C compiler (gcc), or install a wheel that has them."
        )
    found = _told_by_library("trtnode_sparse_version")
    if found == VERSION:
        return None
    return (
        f"engine sparse: {LIBRARY} has kernels of version {found or 'unknown'}, and this package needs version "
        f"{VERSION}. Install the package again where there is a C compiler (gcc)."
    )


@functools.cache
def instructions() -> str:
    """Return the instruction set that the kernels use on this processor, such as ``AVX2``; empty without kernels."""
    return "" if missing_reason() is not None else _told_by_library("trtnode_sparse_instructions")


def _told_by_library(function: str) -> str:
    """Call a function of the library that returns a name; empty where there is none, or no library can be loaded."""
    try:
        tell = ctypes.CDLL(str(LIBRARY))[function]
    except (OSError, AttributeError):
        return ""
    tell.restype = ctypes.c_char_p
    name: bytes = tell()
    return name.decode()
