"""The command ``bench``. Light: its work is imported when it runs."""

from __future__ import annotations

import argparse
import pathlib

from serving.command import Command, lazy


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("model",), help="model: measure one model file")
    parser.add_argument("model", type=pathlib.Path, help="an ONNX model that isn't compiled yet")
    parser.add_argument("--inputs", type=pathlib.Path, metavar="IN.npz", help="inputs; generated ones without this")
    parser.add_argument("--batch", type=int, default=1, metavar="N", help="samples a request; default: 1")
    parser.add_argument("--threads", type=int, metavar="N", help="threads of each engine; default: the library's own")
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="turns of each candidate; default: 15")
    parser.add_argument("--via", choices=("process", "grpc", "both"), default="both", help="default: both")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")


BENCH = Command(
    name="bench",
    help="measure a model natively against compiled",
    configure=_configure,
    run=lazy("benchmarks.model_bench:bench"),
)
