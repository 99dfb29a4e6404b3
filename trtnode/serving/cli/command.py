"""A command of the ``trtnode`` program."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import pathlib
import pkgutil
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from trtnode.partitioner.errors import ModelFileError
from trtnode.partitioner.model.garbage import without_collections
from trtnode.partitioner.options import Option, bounds_text, lower, upper
from trtnode.partitioner.start import import_onnx_ir


class Command(NamedTuple):
    """One command. Packages offer theirs under the entry-point group ``trtnode.commands``.

    Attributes:
        name: What the user types.
        help: One line for the list of commands.
        configure: Adds the command's arguments to its parser.
        run: Does the work and returns the exit code. Errors of this project become one sentence on stderr.
    """

    name: str
    help: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


CUSTOM_OPERATORS = "trtnode.engines.compile.custom_operators:custom_operators"
"""Lets all models that a command opens use the libraries that are given."""

ENSEMBLES = "trtnode.serving.config.triton_repository:ensemble_file"
"""Merges the ensemble of a folder into a file."""

TEXT_SAMPLES = "trtnode.serving.text.samples:tokenized_arguments"
"""Lets arguments that name files of texts name arrays instead."""

SAMPLES = ("calibration", "check_inputs", "data", "inputs")
"""Arguments that may name files of texts, by their suffix."""

LOG_LEVELS = ("debug", "info", "warning", "error")


def add_common_options(parser: argparse.ArgumentParser, *, default: object = argparse.SUPPRESS) -> None:
    """Add what every command takes. With the default, options in front of the command are not overwritten."""
    parser.add_argument("--debug", action="store_true", default=default, help="show tracebacks, and log at level debug")
    parser.add_argument("--log-level", choices=LOG_LEVELS, default=default, help="lowest level to log (on stderr)")


def flag(name: str) -> str:
    """Return the flag of a name."""
    return f"--{name.replace('_', '-')}"


def number(low: float | None = None, high: float | None = None, *, whole: bool = False) -> Callable[[str], Any]:
    """Return what reads a finite number between two bounds, both included: a ``type`` of an argument."""
    option = Option("", least=low, most=high)

    def read(text: str) -> float:
        try:
            value = int(text) if whole else float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and lower(option) <= value <= upper(option)):
            raise argparse.ArgumentTypeError(f"{text[:40]} is no {bounds_text(int if whole else float, option)}")
        return value

    return read


positive = number(1, 10**9, whole=True)
"""Reads a whole number from 1: a ``type`` of an argument."""


def lazy(target: str, *, reads: Sequence[str] = (), multiplies: bool = True) -> Callable[[argparse.Namespace], int]:
    """Return a ``run`` that imports ``module:function`` when it is called.

    A module that defines commands is imported for the list of commands too, so what it needs to run them (OpenVINO,
    gRPC, ...) stays in another module, named by this.

    Args:
        target: The function that does the work.
        reads: Names of the arguments that are files of models. A missing one is reported before anything is imported.
        multiplies: False if numpy multiplies no matrices for it: threads that wait for some would spin in vain.
    """

    def run(arguments: argparse.Namespace) -> int:
        for name in reads:
            _check_readable(getattr(arguments, name))
        if not multiplies:
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's import reads it
        work = imported(target)
        with contextlib.ExitStack() as using:
            if any(str(getattr(arguments, name, "")).endswith((".txt", ".jsonl")) for name in SAMPLES):
                using.enter_context(imported(TEXT_SAMPLES)(arguments))
            if libraries := getattr(arguments, "custom_op_library", None):
                using.enter_context(imported(CUSTOM_OPERATORS)(libraries))
            for name in reads:
                if getattr(arguments, name).is_dir():
                    setattr(arguments, name, using.enter_context(imported(ENSEMBLES)(getattr(arguments, name))))
            code: int = work(arguments)
        return code

    return run


@without_collections()  # what is imported stays
def imported(target: str) -> Callable[..., Any]:
    """Return the function ``module:function`` that does the work of a command."""
    import_onnx_ir()
    function: Callable[..., Any] = pkgutil.resolve_name(target)
    return function


def _check_readable(path: pathlib.Path) -> None:
    """Refuse a file that nobody can read.

    Raises:
        ModelFileError: It is missing, or this user may not see it.
    """
    try:
        path.stat()
    except OSError as error:
        problem = f"can't be read ({error.strerror})."
        raise ModelFileError(path, problem, "Check the path and its permissions.") from None
