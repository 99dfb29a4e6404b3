"""Finds a backend by name, and imports its library when it is asked for."""

from __future__ import annotations

import dataclasses
import functools
import logging
import pkgutil
from collections.abc import Callable, Iterator
from typing import TypeVar

from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.names import AUTO, NATIVE
from trtnode.engines.backends.plugins import engine_names, find_library, libraries_by_place
from trtnode.engines.backends.protocols import Backend
from trtnode.engines.errors import BackendMissingError, UnknownBackendError
from trtnode.engines.system_limits import raise_limit

logger = logging.getLogger(__name__)

R = TypeVar("R")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """The abilities of an engine's library on this machine. Native execution lacks none.

    Attributes:
        missing: The reason for which nothing can be built, and how to mend that; empty if it can.
        idle: The reason, in a few words, for which engines are built but don't run; empty if they run.
    """

    missing: str = ""
    idle: str = ""


def abilities_of(engine: str, options: BuildOptions) -> Abilities:
    """Decide what a library can do here. Whatever depends on that takes the value.

    Args:
        engine: Name of a backend, or ``native``.
        options: Of the builds.

    Raises:
        UnknownBackendError: The name is no backend's.
        BackendMissingError: Its code can't be imported.
    """
    if engine == NATIVE:
        return Abilities()
    backend = get_backend(engine)
    if missing := backend.unavailable_reason():
        return Abilities(missing=missing)
    return Abilities(idle=backend.cannot_run_reason(options) or "")


def resolve_engine(name: str, options: BuildOptions | None = None) -> str:
    """Turn ``auto`` into the name of the best backend whose engines run here.

    Args:
        name: The name that the user gave.
        options: Of the builds; None for the defaults.

    Raises:
        UnknownBackendError: The name is no backend's.
    """
    if name == AUTO:
        return next(_engines_here(options), NATIVE)
    if name != NATIVE and find_library(name) is None:
        raise UnknownBackendError(name, ", ".join(engine_names()))
    return name


def with_next_engine(asked: str, run: Callable[[str], R], options: BuildOptions | None = None) -> R:
    """Run with the backend that a name stands for; where ``auto`` chose one that does not start, with the next one.

    Args:
        asked: The name that the user gave.
        run: Takes the name of a backend.
        options: As ``resolve_engine``.

    Raises:
        UnknownBackendError: The name is no backend's.
        BackendMissingError: The backend does not start, and there is no other to take its place.
    """
    engines = _engines_here(options) if asked == AUTO else iter([resolve_engine(asked)])
    engine = next(engines, NATIVE)
    while True:
        try:
            return run(engine)
        except BackendMissingError as problem:
            other = next(engines, None)
            if other is None:
                raise
            logger.warning("%s Until then, %s is used.", problem, other)
            engine = other


def _engines_here(options: BuildOptions | None) -> Iterator[str]:
    """Yield the engines of ``auto`` that run here, the best first."""
    for name, library in libraries_by_place().items():
        if library.needs_gpu and pkgutil.resolve_name("trtnode.engines.cuda.devices:find_gpu")() is None:
            continue  # without importing the backend, which takes longer than the others
        try:
            found = abilities_of(name, options or BuildOptions())
        except BackendMissingError as problem:
            logger.warning("%s", problem)
            continue
        if found.missing and not library.needs_gpu:
            _warn_once(found.missing)
        if found == Abilities():
            yield name


@functools.cache
def _warn_once(reason: str) -> None:
    logger.warning("%s Engine auto does without it.", reason)


@functools.cache
def get_backend(name: str) -> Backend:
    """Import and make a backend; one instance a process.

    Raises:
        UnknownBackendError: The name is no backend's.
        BackendMissingError: Its code can't be imported.
    """
    library = find_library(name)
    if library is None:
        raise UnknownBackendError(name, ", ".join(engine_names()))
    try:
        backend: Backend = pkgutil.resolve_name(library.backend)()
    except Exception as error:  # whatever importing a module can raise
        raise_limit(error)
        raise BackendMissingError(f"Engine {name} can't be imported ({type(error).__name__}: {error}).") from error
    return backend


def build_options_of(engine: str) -> frozenset[str]:
    """Names of the ``TensorRtOptions`` that an engine takes; none of ``native``."""
    return frozenset() if engine == NATIVE else get_backend(engine).build_options


def warn_of_idle_options(engine: str, options: BuildOptions) -> None:
    """Name the options that an engine's library lacks in a warning."""
    taken = build_options_of(engine)
    idle = [name for name in options.tensorrt.chosen() if name not in taken]
    if idle:
        logger.warning("Engine %s lacks these options, so they have no effect: %s", engine, ", ".join(idle))
