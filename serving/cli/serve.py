"""The commands ``serve`` and ``config``. Light: their work is imported when they run."""

from __future__ import annotations

import argparse
import importlib.util
import os
import pathlib

from trtnode.engines.backends.names import ASKED_PRECISIONS, ENGINE_NAMES
from trtnode.serving.cli.command import Command, add_optimize_option, imported, lazy
from trtnode.serving.errors import InvalidOptionError, MissingExtraError
from trtnode.serving.threads.grpc_event_engine import read_sockets_directly

LAST_PORT = 65535


def _configure_serve(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument("model", nargs="?", type=pathlib.Path, help="an ONNX file, or a folder of version folders")
    what.add_argument("--config", type=pathlib.Path, metavar="FILE", help="a servable.yaml")
    what.add_argument("--model-repository", type=pathlib.Path, metavar="DIR", help="a folder of models, as of Triton")
    parser.add_argument("--on", choices=("ray",), help="serve FILE on a Ray cluster; default: in this process")
    ports = parser.add_argument_group("ports, instead of those of servable.yaml")
    ports.add_argument("--host", metavar="H", help="address to listen on; default: 127.0.0.1")
    ports.add_argument("--port", type=_port, metavar="P", help="gRPC port, 0 for any free one; default: 8001")
    ports.add_argument("--http-port", type=_port, metavar="P", help="HTTP port; default: 8002")
    one = parser.add_argument_group("options of MODEL")
    one.add_argument("--name", metavar="N", help="its name in requests; default: of the file's name")
    one.add_argument("--engine", choices=ENGINE_NAMES, help="native builds no engine; default: auto")
    one.add_argument("--precision", choices=ASKED_PRECISIONS, help="what engines compute in; default: fp32")
    add_optimize_option(one)
    one.add_argument("--calibration", metavar="DATA", help="for int8: samples of its inputs, or a ranges.json")


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > LAST_PORT:
        raise argparse.ArgumentTypeError(f"{text} is no port; give a number from 0 to {LAST_PORT}")
    return int(text)


def _serve(arguments: argparse.Namespace) -> int:
    read_sockets_directly()
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "true")  # the search opens a file of each installed package
    if arguments.on is not None and arguments.config is None:
        raise InvalidOptionError("--on", "serves a servable.yaml; name one with --config")
    if arguments.on == "ray" and importlib.util.find_spec("ray") is None:
        raise MissingExtraError("--on ray", "Ray", "ray")
    # Before the server is imported, so that faults are told at once.
    config = imported("trtnode.serving.config.command_line:config_from")(arguments)
    server = "ray_serve.program" if arguments.on == "ray" else "process.signals"
    code: int = imported(f"trtnode.serving.{server}:serve")(config, arguments.log_level)
    return code


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
    run=lazy("trtnode.serving.schema.json_schema:print_schema"),
)
