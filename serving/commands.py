"""The commands ``explain``, ``compile`` and ``run``. Light: their work is imported when they run."""

from __future__ import annotations

import argparse
import pathlib

from serving.command import Command, lazy

ENGINES = ("auto", "tensorrt", "openvino", "native")
ALLOWANCES = ("data-dependent", "narrow-double")
PRECISIONS = ("fp32", "fp16", "bf16", "int8", "auto")
DEFAULT_CACHE = pathlib.Path("~/.cache/trtnode")


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


def add_partition_options(parser: argparse.ArgumentParser) -> None:
    """Add what a user can say about where nodes run."""
    group = parser.add_argument_group("partition options")
    group.add_argument("--engine", choices=ENGINES, default="auto", help="native builds no engine; default: auto")
    group.add_argument("--native-ops", type=_names, default=(), metavar="A,B", help="operators that run natively")
    group.add_argument(
        "--native-nodes", action="append", default=[], metavar="GLOB", help="nodes that run natively; may be repeated"
    )
    group.add_argument("--engine-ops", type=_names, metavar="A,B", help="the only operators that may run in an engine")
    group.add_argument(
        "--min-segment-nodes", type=_positive, default=1, metavar="N", help="smaller segments run natively; default: 1"
    )
    group.add_argument(
        "--max-segments", type=_positive, metavar="N", help="keep the segments with the greatest estimated benefit"
    )
    group.add_argument(
        "--allow",
        action="append",
        choices=ALLOWANCES,
        default=[],
        help="let TensorRT engines run operators whose results depend on values in size, or compute float64 in float32",
    )
    group.add_argument(
        "--connected", action="store_true", help="segments without unrelated branches, though there are more of them"
    )


def _configure_explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=pathlib.Path, help="an ONNX model")
    _add_cache_options(parser, without="ask the engine library about every operator anew and keep no answer")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    parser.add_argument("--html", type=pathlib.Path, metavar="FILE", help="write a page with the graph, for a browser")
    add_partition_options(parser)


def _add_cache_options(parser: argparse.ArgumentParser, *, without: str) -> None:
    parser.add_argument("--cache", type=pathlib.Path, default=DEFAULT_CACHE, metavar="DIR", help="engine cache")
    parser.add_argument("--no-cache", action="store_true", help=without)


def _configure_compile(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=pathlib.Path, help="an ONNX model")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, metavar="OUT", help="the file to write")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32", help="default: fp32")
    parser.add_argument(
        "--inputs", type=pathlib.Path, metavar="IN.npz", help="inputs to check the engines with, instead of random ones"
    )
    parser.add_argument(
        "--tune", action="store_true", help="measure here, and keep an engine only where the model is faster with it"
    )
    _add_cache_options(parser, without="build every engine anew and keep none")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    add_partition_options(parser)


def _configure_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=pathlib.Path, help="a compiled model, or any ONNX model")
    parser.add_argument("--inputs", type=pathlib.Path, required=True, metavar="IN.npz", help="an array for each input")
    parser.add_argument("--outputs", type=pathlib.Path, required=True, metavar="OUT.npz", help="where to write results")
    parser.add_argument("--native", action="store_true", help="leave the engines alone")


EXPLAIN = Command(
    name="explain",
    help="tell which nodes an engine takes, and why not the others",
    configure=_configure_explain,
    run=lazy("serving.explain_command:explain"),
)

COMPILE = Command(
    name="compile",
    help="build engines for a model and embed them in it",
    configure=_configure_compile,
    run=lazy("serving.compile_command:compile_"),
)

RUN = Command(
    name="run",
    help="run a model once on inputs from a file",
    configure=_configure_run,
    run=lazy("serving.run_command:run"),
)
