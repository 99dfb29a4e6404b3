"""The libraries of custom operators that models may use: what ``register_custom_ops_library`` of ONNX Runtime takes.

Whoever opens a model names them for a block. Sessions register them, child processes get them with each call, and keys
of caches hold what is in them. No model file names any, and no request: a library is code that runs here.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import json
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar

from trtnode.engines.artifact.files import sha256_of_file
from trtnode.partitioner.model.regular_files import file_version

P = ParamSpec("P")
R = TypeVar("R")

_in_use: contextvars.ContextVar[tuple[pathlib.Path, ...]] = contextvars.ContextVar("custom operators", default=())


def libraries_in_use() -> tuple[pathlib.Path, ...]:
    """Return the libraries whose operators a model may use that is opened now, in this thread."""
    return _in_use.get()


@contextlib.contextmanager
def using(libraries: Iterable[pathlib.Path]) -> Iterator[None]:
    """Let the models that a block opens use the operators of these libraries, which are known to load."""
    token = _in_use.set(tuple(libraries))
    try:
        yield
    finally:
        _in_use.reset(token)


def keeping_libraries(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that opens models with the libraries of now, in whichever thread it is called."""
    libraries = libraries_in_use()

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with using(libraries):
            return function(*args, **kwargs)

    return call


def register(session_options: Any) -> None:
    """Give the operators to a session of ONNX Runtime, by its ``SessionOptions``."""
    for library in libraries_in_use():
        session_options.register_custom_ops_library(str(library))


def library_parts() -> dict[str, str]:
    """Return the named part of a key that changes with the content of the libraries; none where there are none."""
    digests = [_digest(library, file_version(library)) for library in libraries_in_use()]
    return {"custom_operators": json.dumps(digests)} if digests else {}


@functools.lru_cache(maxsize=64)
def _digest(library: pathlib.Path, _: tuple[int, ...]) -> str:
    return sha256_of_file(library)
