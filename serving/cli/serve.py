"""The commands ``serve`` and ``config``. Light: their work is imported when they run."""

from __future__ import annotations

import argparse
import pathlib

from serving.cli.command import Command, lazy
from serving.threads.grpc_event_engine import read_sockets_directly


def _configure_serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=pathlib.Path, required=True, metavar="FILE", help="the servable.yaml to serve")


def _serve(arguments: argparse.Namespace) -> int:
    read_sockets_directly()
    return lazy("serving.process.signals:serve")(arguments)


def _configure_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("schema",), help="schema: print the JSON Schema of servable.yaml")


SERVE = Command(
    name="serve",
    help="serve models over gRPC (KServe V2)",
    configure=_configure_serve,
    run=_serve,
)

CONFIG = Command(
    name="config",
    help="print the JSON Schema of servable.yaml",
    configure=_configure_config,
    run=lazy("serving.schema.json_schema:print_schema"),
)
