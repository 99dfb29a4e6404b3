"""The ``trtnode`` program: finds its commands, sets up logging, and turns errors into sentences and exit codes."""

from __future__ import annotations

import argparse
import difflib
import importlib.metadata
import itertools
import logging
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

from trtnode.engines.cores import usable_cores
from trtnode.engines.sparse.library import instructions, missing_reason
from trtnode.engines.system_limits import as_limit
from trtnode.partitioner.errors import ProjectError
from trtnode.serving.cli.command import Command, add_common_options
from trtnode.serving.errors import CommandLoadError
from trtnode.serving.telemetry.logs import StderrHandler, TextFormatter

GROUP = "trtnode.commands"
FAILED, USAGE, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141

LIBRARIES = (
    "onnxruntime",
    "openvino",
    "tensorrt",
    "tensorrt-rtx-cu12",
    "onnx",
    "onnx-ir",
    "numpy",
    "grpcio",
    "protobuf",
)
"""Distributions that ``--version --verbose`` tells of."""

EntryPoints = Mapping[str, importlib.metadata.EntryPoint]


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``trtnode`` with the arguments (of the process, if None); return the exit code."""
    # OpenBLAS reads this when numpy is imported. Its threads would spin for 0.1 s before they sleep: 2 ** 26 turns.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    if argv is None:
        os.environ["PYTHONSAFEPATH"] = "1"  # any Python that this one starts imports nothing from the current folder
    try:
        arguments, command = _parse(sys.argv[1:] if argv is None else argv)
    except SystemExit as exit_:  # argparse has printed help or a usage error
        return int(exit_.code or 0)
    except CommandLoadError as error:
        return _report(error, debug=False)
    _set_up_logging(arguments)
    try:
        code = command.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output is gone. Without this, the interpreter complains when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:
        return _report(as_limit(error) or error, debug=arguments.debug)
    return code


def serve_main() -> int:
    """Run ``trtnode serve``."""
    sys.argv.insert(1, "serve")
    return main()


def _parse(argv: Sequence[str]) -> tuple[argparse.Namespace, Command]:
    """Read the program's own options, load the one command that is asked for, and read its arguments.

    Raises:
        CommandLoadError: The command can't be imported.
        SystemExit: There is nothing to run.
    """
    program = _ProgramParser()
    options = program.parse_args(argv)
    if options.version:
        sys.stdout.write(f"trtnode {importlib.metadata.version('trtnode')}\n")
        if options.verbose:
            sys.stdout.writelines(f"{line}\n" for line in _parts())
        program.exit()
    if options.command is None:
        program.print_help(sys.stderr)
        program.exit(USAGE)
    entry_points = _own_commands()
    if options.command not in entry_points:
        entry_points = _all_commands()
    if options.command not in entry_points:
        nearest = difflib.get_close_matches(options.command, entry_points, n=1)
        advice = f"did you mean {nearest[0]!r}?" if nearest else f"there are {', '.join(sorted(entry_points))}"
        program.error(f"unknown command {options.command!r}; {advice}")
    command = _load(entry_points[options.command])
    parser = _Parser(prog=f"trtnode {command.name}", description=command.help)
    command.configure(parser)
    add_common_options(parser)
    given = argparse.Namespace(debug=options.debug, log_level=options.log_level)
    arguments, unknown = parser.parse_known_args(options.arguments, given)
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{_nearest(parser, unknown)}")
    return arguments, command


def _parts() -> Iterator[str]:
    """Tell what is here of that which answers depend on, and what is missing."""
    yield f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    for name in LIBRARIES:
        found = next(iter(importlib.metadata.distributions(name=name)), None)
        yield f"{name} {found.version if found else 'is not installed'}"
    yield f"threads follow {usable_cores()}"
    yield missing_reason() or f"engine sparse: kernels for {instructions()}"


def _nearest(parser: argparse.ArgumentParser, unknown: Sequence[str]) -> str:
    """Name the options nearest to unknown ones, if there are any."""
    options = re.findall(r"--[a-z][a-z0-9-]+", parser.format_help())
    typed = (argument.partition("=")[0] for argument in unknown if argument.startswith("-"))
    nearest = dict.fromkeys(name for one in typed for name in difflib.get_close_matches(one, options, n=1, cutoff=0.8))
    return f"; did you mean {', '.join(nearest)}?" if nearest else ""


class _Parser(argparse.ArgumentParser):
    """Tells a wrong argument in two lines, without all those that there are."""

    def error(self, message: str) -> NoReturn:
        """Print the fault and where the rest stands, and exit."""
        self.exit(USAGE, f"{self.prog}: {message}\n`{self.prog} --help` tells what it takes.\n")


class _ProgramParser(_Parser):
    """Reads the options in front of the command. Its help lists the commands, which imports them."""

    def __init__(self) -> None:
        super().__init__(
            prog="trtnode",
            usage="trtnode [-h] [--version [--verbose]] [--debug] [--log-level LEVEL] COMMAND ...",
            description="Runs ONNX models at engine speed without leaving any operator behind.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_common_options(self, default=None)
        self.add_argument("--version", action="store_true", help="show program's version number and exit")
        self.add_argument("--verbose", action="store_true", help="with --version: libraries, kernels and platform, too")
        self.add_argument("command", nargs="?", help="what to do; `trtnode COMMAND --help` tells more")
        self.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)

    def format_help(self) -> str:
        """Return the help text."""
        self.epilog = "\n".join(["commands:", *_command_lines(_all_commands())])
        return super().format_help()


def _command_lines(entry_points: EntryPoints) -> Iterator[str]:
    for name, point in sorted(entry_points.items()):
        try:
            yield f"  {name:<10} {_load(point).help}"
        except CommandLoadError as error:
            yield f"  {name:<10} ({error})"


def _own_commands() -> EntryPoints:
    """Return the commands of this package. Those of all installed ones take longer to read."""
    own = itertools.islice(importlib.metadata.distributions(name="trtnode"), 1)  # the one that is imported
    return {point.name: point for one in own for point in one.entry_points.select(group=GROUP)}


def _all_commands() -> EntryPoints:
    return {point.name: point for point in importlib.metadata.entry_points(group=GROUP)}


def _load(point: importlib.metadata.EntryPoint) -> Command:
    try:
        command: Command = point.load()
    except Exception as error:  # whatever importing a module can raise
        raise CommandLoadError(point.name, f"{type(error).__name__}: {error}.") from error
    return command


def _set_up_logging(arguments: argparse.Namespace) -> None:
    if arguments.debug and arguments.log_level is None:
        arguments.log_level = "debug"
    # gRPC's core writes lines of its own form, one for each handshake and header that it refuses, as often as clients
    # like; it reads this when it is imported.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    handler = StderrHandler()
    handler.setFormatter(TextFormatter())
    logging.basicConfig(handlers=[handler], level=(arguments.log_level or "warning").upper())


def _report(error: Exception, *, debug: bool) -> int:
    """Print an error and return its exit code."""
    if debug:
        logging.getLogger(__name__).error("%s", error, exc_info=error)
    elif isinstance(error, ProjectError):
        sys.stderr.write(f"trtnode: {error}\n")
    else:
        name = type(error).__name__
        sys.stderr.write(f"trtnode: unexpected {name}: {error}. Run again with --debug for its traceback.\n")
    return int(getattr(error, "exit_code", FAILED))
