"""The command ``trtnode bench``, a table of sub-commands; their work is imported when they run."""

from __future__ import annotations

import argparse
import signal

from trtnode.bench.latency.arguments import MODEL, NETWORKS
from trtnode.bench.load.arguments import SERVER
from trtnode.serving.cli.command import Command, add_common_options

SUBCOMMANDS = (NETWORKS, MODEL, SERVER)


def _configure(parser: argparse.ArgumentParser) -> None:
    subparsers = parser.add_subparsers(metavar="WHAT", required=True)
    for command in SUBCOMMANDS:
        subparser = subparsers.add_parser(command.name, help=command.help, description=command.help)
        command.configure(subparser)
        add_common_options(subparser)
        subparser.set_defaults(run=command.run)


def _run(arguments: argparse.Namespace) -> int:
    """Run a sub-command. SIGTERM ends it as Ctrl-C does: it prints what it has measured."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code: int = arguments.run(arguments)
    finally:
        signal.signal(signal.SIGTERM, before)
    return code


BENCH = Command(name="bench", help="measure models and servers", configure=_configure, run=_run)
