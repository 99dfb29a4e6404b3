"""The arguments of ``trtnode bench networks`` and ``bench model``; their work is imported when they run."""

from __future__ import annotations

import argparse
import pathlib

from trtnode.engines.artifact.cache_folder import default_cache_folder
from trtnode.engines.backends.names import ASKED_PRECISIONS
from trtnode.engines.backends.plugins import engine_names
from trtnode.engines.build.options import CompileOptions
from trtnode.serving.cli.arguments import add_nan_option
from trtnode.serving.cli.command import Command, lazy, positive
from trtnode.serving.cli.compile_flags import add_compile_options

VIAS = ("process", "grpc")


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise argparse.ArgumentTypeError("it names nothing")
    return names


def _sizes(text: str) -> list[int]:
    return [positive(size) for size in _names(text)]


def _vias(text: str) -> list[str]:
    return [_choice(name, VIAS) for name in _names(text)]


def _precisions(text: str) -> list[str]:
    return [_choice(name, ASKED_PRECISIONS) for name in _names(text)]


def _choice(name: str, choices: tuple[str, ...]) -> str:
    if name not in choices:
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(choices)}")
    return name


def _configure_networks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", type=_names, metavar="A,B", help="measure these networks; default: all nine")
    parser.add_argument(
        "--cache", type=pathlib.Path, default=default_cache_folder(), metavar="DIR", help="keeps the networks"
    )
    _add_plan(parser)
    _add_reports(parser)


def _configure_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", type=pathlib.Path, nargs="+", metavar="MODEL", help="ONNX models, not compiled yet")
    parser.add_argument(
        "--inputs", type=pathlib.Path, metavar="IN.npz", help="inputs, or texts (.txt, .jsonl); generated without this"
    )
    _add_plan(parser)
    _add_reports(parser)


def _add_plan(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to measure")
    group.add_argument("--engine", choices=engine_names(), default="auto", help="default: auto")
    group.add_argument("--precision", type=_precisions, default=["fp32"], metavar="A,B", help="default: fp32")
    add_nan_option(group, "native")
    add_compile_options(parser, only=("no_optimize", "custom_op_library", *CompileOptions.gone))
    group.add_argument("--batch", type=_sizes, default=[1], metavar="N,N", help="samples a request; default: 1")
    group.add_argument("--threads", type=positive, metavar="N", help="threads of each engine; default: the library's")
    group.add_argument("--via", type=_vias, default=["process"], metavar="A,B", help="process,grpc; default: process")
    group.add_argument("--rounds", type=positive, default=15, metavar="N", help="turns of each setting; default: 15")


def _add_reports(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("reports beside the table on stdout")
    group.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all figures as one JSON object")
    group.add_argument("--html", type=pathlib.Path, metavar="FILE", help="write a page with charts, for a browser")
    group.add_argument(
        "--compare",
        type=pathlib.Path,
        metavar="OLD.json",
        help="exit with 1 if a ratio is worse than in this run",
    )


NETWORKS = Command(
    name="networks",
    help="measure nine well-known networks: ONNX Runtime against this project and other systems",
    configure=_configure_networks,
    run=lazy("trtnode.bench.latency.command:bench_networks"),
)

MODEL = Command(
    name="model",
    help="measure your own models the same way",
    configure=_configure_model,
    run=lazy("trtnode.bench.latency.command:bench_models"),
)
