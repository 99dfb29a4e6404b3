"""The sub-commands of ``bench`` that measure latency. Light: their work is imported when they run."""

from __future__ import annotations

import argparse
import pathlib

from serving.command import Command, lazy, positive


def _configure_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=pathlib.Path, help="an ONNX model that isn't compiled yet")
    parser.add_argument("--inputs", type=pathlib.Path, metavar="IN.npz", help="inputs; generated ones without this")
    parser.add_argument("--batch", type=positive, default=1, metavar="N", help="samples a request; default: 1")
    parser.add_argument("--threads", type=positive, metavar="N", help="threads of each engine; default: the library's")
    parser.add_argument("--rounds", type=positive, default=15, metavar="N", help="turns of each candidate; default: 15")
    parser.add_argument("--via", choices=("process", "grpc", "both"), default="both", help="default: both")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")


MODEL = Command(
    name="model",
    help="measure a model natively against compiled",
    configure=_configure_model,
    run=lazy("benchmarks.model_bench:bench"),
)
