"""The commands ``serve`` and ``config``. Light: their work is imported when they run."""

from __future__ import annotations

import argparse
import importlib.util
import os
import pathlib

from trtnode.serving.cli.command import Command, imported, lazy, number
from trtnode.serving.cli.compile_flags import add_compile_options, given_options
from trtnode.serving.errors import InvalidOptionError, MissingExtraError
from trtnode.serving.threads.grpc_event_engine import read_sockets_directly

LAST_PORT = 65535


def _configure_serve(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "model",
        nargs="?",
        type=pathlib.Path,
        help="an ONNX file, or a folder: of versions, or of a model of text",
    )
    parser.add_argument(
        "--config",
        type=pathlib.Path,
        metavar="FILE",
        help="a servable.yaml; with MODEL or --model-repository, one without models, for all else",
    )
    what.add_argument("--model-repository", type=pathlib.Path, metavar="DIR", help="a folder of models, as of Triton")
    parser.add_argument(
        "--model-control-mode",
        choices=("none", "explicit"),
        default="none",
        help="explicit: load only models that --load-model or requests name, which may load and unload them",
    )
    parser.add_argument(
        "--load-model", action="append", default=[], metavar="N", help="with explicit: load it at the start; * for all"
    )
    parser.add_argument("--on", choices=("ray",), help="serve FILE on a Ray cluster; default: in this process")
    port = number(0, LAST_PORT, whole=True)
    ports = parser.add_argument_group("ports, instead of those of servable.yaml")
    ports.add_argument("--host", metavar="H", help="address to listen on; default: 127.0.0.1")
    ports.add_argument("--port", type=port, metavar="P", help="gRPC port, 0 for any free one; default: 8001")
    ports.add_argument("--http-port", type=port, metavar="P", help="HTTP port; default: 8002")
    one = parser.add_argument_group("options of MODEL")
    one.add_argument(
        "--name", metavar="N", help="its name in requests, or that of a repository's only model; default: of the file"
    )
    add_compile_options(parser)


def _serve(arguments: argparse.Namespace) -> int:
    read_sockets_directly()
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "true")  # the search opens a file of each installed package
    if arguments.on is not None and (arguments.config is None or arguments.model or arguments.model_repository):
        raise InvalidOptionError("--on", "serves a servable.yaml; name one with --config")
    if arguments.on == "ray" and importlib.util.find_spec("ray") is None:
        raise MissingExtraError("--on ray", "Ray", "ray")
    # Before the server is imported, so that faults are reported at once.
    config = imported("trtnode.serving.config.command_line:config_from")(arguments, given_options(arguments))
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
