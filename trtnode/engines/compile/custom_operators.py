"""Opens libraries of custom operators: finds them, and loads each once in a child process, which may crash of it."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import pathlib
from collections.abc import Iterable, Iterator

from trtnode.engines.backends.custom_operators import libraries_in_use, using
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.errors import CustomOperatorsError, WorkerError
from trtnode.engines.onnxruntime.session import try_custom_operators
from trtnode.partitioner.model.regular_files import file_version

EXTENSIONS = "onnxruntime-extensions"
"""The package whose library is meant by its name."""

TIMEOUT_S = 120.0

MACHINE = slice(18, 20)
"""The bytes of a library's header that name its processor (ELF, ``e_machine``)."""


@contextlib.contextmanager
def custom_operators(libraries: Iterable[pathlib.Path]) -> Iterator[None]:
    """Let the models that a block opens use the operators of libraries, beside those in use already.

    Args:
        libraries: Their files, or ``onnxruntime-extensions`` for that of the installed package.

    Raises:
        CustomOperatorsError: One is missing, can't be loaded here, or crashes when it is loaded.
    """
    known = libraries_in_use()
    new = [library for library in dict.fromkeys(map(_file, libraries)) if library not in known]
    for library in new:
        try:
            _try(library, file_version(library))
        except OSError as error:
            raise CustomOperatorsError(library, f"can't be read ({error.strerror})") from None
    with using((*known, *new)):
        yield


def _file(library: pathlib.Path) -> pathlib.Path:
    if library.name != EXTENSIONS or library.exists():
        return library.absolute()
    try:
        files = importlib.metadata.files(EXTENSIONS) or ()
    except importlib.metadata.PackageNotFoundError:
        files = ()
    found = [pathlib.Path(str(file.locate())) for file in files if file.suffix == ".so"]
    if not found:
        raise CustomOperatorsError(library.name, f"is not installed; run `pip install {EXTENSIONS}`")
    return found[0]


@functools.lru_cache(maxsize=64)
def _try(library: pathlib.Path, _: tuple[int, ...]) -> None:
    if not library.is_file():
        raise CustomOperatorsError(library, "is no file")
    mine, its = (_machine(path) for path in (pathlib.Path("/proc/self/exe"), library))
    if its != mine:
        raise CustomOperatorsError(library, "is no shared library for this machine's processor")
    with SubprocessWorker() as worker, using(()):
        try:
            problem = worker.call(try_custom_operators, TIMEOUT_S, library)
        except WorkerError as error:
            raise CustomOperatorsError(library, f"ends the process that loads it ({error})") from error
    if problem:
        raise CustomOperatorsError(library, f"can't be loaded: {problem}".rstrip("."))


def _machine(file: pathlib.Path) -> bytes | None:
    """Return the processor that a program or library is for; None if the file is neither."""
    with file.open("rb") as opened:
        header = opened.read(MACHINE.stop)
    return header[MACHINE] if header.startswith(b"\x7fELF") else None
