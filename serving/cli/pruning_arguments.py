"""The command ``prune``. Light: its work is imported when it runs."""

from __future__ import annotations

import argparse
import pathlib

from trtnode.engines.backends.names import PRUNED_BLOCKS
from trtnode.serving.cli.arguments import CUSTOM_OPERATORS
from trtnode.serving.cli.command import Command, lazy, number
from trtnode.serving.cli.compile_flags import add_compile_options


def _configure_prune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=pathlib.Path, help="an ONNX model with float32 weights")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, metavar="OUT", help="the file to write")
    parser.add_argument(
        "--sparsity", type=_share, required=True, metavar="S", help="share of weights that become zero: 0.9 is 90 %%"
    )
    parser.add_argument(
        "--block", type=int, choices=PRUNED_BLOCKS, default=4, help="output channels pruned together; default: 4"
    )
    parser.add_argument("--all-layers", action="store_true", help="prune the first and the last layer too")
    parser.add_argument(
        "--dense", action="append", default=[], metavar="GLOB", help="nodes that keep their weights; may be repeated"
    )
    parser.add_argument(
        "--data", metavar="DATA", help="samples of the inputs to compare answers on, as for `trtnode calibrate`"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    add_compile_options(parser, only=CUSTOM_OPERATORS)


def _share(text: str) -> float:
    share: float = number(0, 1)(text)
    if share in (0, 1):
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and below 1")
    return share


PRUNE = Command(
    name="prune",
    help="set the smallest weights of a model to zero, in blocks",
    configure=_configure_prune,
    run=lazy("trtnode.serving.cli.prune:prune", reads=("model",)),
)
