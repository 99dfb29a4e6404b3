"""The commands about models, from ``explain`` to ``sign``. Light: their work is imported when it runs."""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

from trtnode.engines.backends.names import (
    AUTO,
    CALIBRATION_METHODS,
    LIBRARY_NAMES,
    NAN_ANSWERS,
    NATIVE,
    PRECISION_NAMES,
    PRUNED_BLOCKS,
)
from trtnode.engines.backends.plugins import engine_problem
from trtnode.engines.precision.options import PrecisionOptions
from trtnode.partitioner.options import each_option
from trtnode.serving.cli.command import Command, lazy, number, positive
from trtnode.serving.cli.compile_flags import FLAGS, OPTIONS, add_compile_options

CUSTOM_OPERATORS = ("custom_op_library",)
"""The option of commands that open models and compile none."""

INPUTS_HELP = "an array for each input, or texts (.txt, .jsonl) where a tokenizer.json lies beside the model"

CACHE_HELP = "default: $XDG_CACHE_HOME/trtnode, or ~/.cache/trtnode"


def _configure_explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=pathlib.Path, help="an ONNX model")
    _add_cache_options(parser, without="ask the engine library about every operator anew and keep no answer")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    parser.add_argument("--html", type=pathlib.Path, metavar="FILE", help="write a page with the graph, for a browser")
    add_compile_options(parser)


def _add_cache_options(parser: argparse.ArgumentParser, *, without: str) -> None:
    parser.add_argument("--cache", type=pathlib.Path, metavar="DIR", help=f"engine cache; {CACHE_HELP}")
    parser.add_argument("--no-cache", action="store_true", help=without)


def _configure_compile(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=pathlib.Path, help="an ONNX model")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, metavar="OUT", help="the file to write")
    parser.add_argument(
        "--strip-fallback",
        action="store_true",
        help="leave out the nodes and weights that engines replace: smaller, of use on machines like this one",
    )
    parser.add_argument(
        "--fail-if-not-faster",
        action="store_true",
        help="exit with 1 where the measurement keeps no engine; the file is written all the same",
    )
    add_nan_option(parser, "native")
    _add_cache_options(parser, without="build every engine anew and keep none")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    add_compile_options(parser, only=FLAGS - {"engine"})
    parser.add_argument(
        "--engine",
        action=_Libraries,
        type=_libraries,
        default=argparse.SUPPRESS,
        metavar="NAME",
        help=f"{OPTIONS['engine'].option.help} Several, with commas between them, get engines each, with one cut",
    )
    parser.set_defaults(engines=(AUTO,))


class _Libraries(argparse.Action):
    """Takes the first of several libraries as the option, and notes them all."""

    def __call__(self, _parser: object, namespace: argparse.Namespace, values: Any, _option: object = None) -> None:
        namespace.engine, namespace.engines = values[0], values


def _libraries(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if problem := engine_problem(name):
            raise argparse.ArgumentTypeError(f"{name!r} {problem}")
        if len(names) > 1 and name in (AUTO, NATIVE):
            raise argparse.ArgumentTypeError(f"{name!r} can't be one of several; name libraries")
    return names


def _configure_calibrate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=pathlib.Path, help="an FP32 ONNX model")
    parser.add_argument(
        "--data",
        required=True,
        metavar="DATA",
        help="samples of its inputs: an .npz of arrays with a leading sample axis, a folder of .npz or .npy files, "
        "texts (.txt, .jsonl), or module:function that yields dictionaries",
    )
    parser.add_argument("--method", choices=CALIBRATION_METHODS, default="mean", help="default: mean")
    parser.add_argument(
        "--percentile",
        type=number(51, 100),
        default=99.99,
        metavar="P",
        help="values to keep, in percent; default: 99.99",
    )
    parser.add_argument("--samples", type=positive, metavar="N", help="the most samples to use; default: all")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, metavar="RANGES.json", help="file to write")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    add_compile_options(parser, only=CUSTOM_OPERATORS)


CONVERSION = {one.name for _, one in each_option(PrecisionOptions)} - {"precision"} | {
    *{"check_inputs", "custom_op_library"},
}
"""The options of compilations that ``convert`` has."""


def _configure_convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=pathlib.Path, help="an FP32 ONNX model")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, metavar="OUT", help="the file to write")
    parser.add_argument(
        "--precision",
        choices=[precision for precision in PRECISION_NAMES if precision != "fp32"],
        required=True,
        help="the precision of what it computes, as far as the accuracy budget allows",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    add_compile_options(parser, only=CONVERSION)


def _configure_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=pathlib.Path, help="a compiled model, or any ONNX model")
    parser.add_argument("--inputs", type=pathlib.Path, required=True, metavar="IN.npz", help=INPUTS_HELP)
    parser.add_argument("--outputs", type=pathlib.Path, required=True, metavar="OUT.npz", help="where to write results")
    parser.add_argument("--native", action="store_true", help="leave the engines alone")
    add_nan_option(parser, "as the model was compiled")
    add_compile_options(parser, only=CUSTOM_OPERATORS)
    _add_trust_options(parser)


def add_nan_option(parser: argparse._ActionsContainer, default: str) -> None:
    """Add ``--nan`` to a parser, with words about its default, which is None."""
    words = "who answers inputs with NaN or infinity; engines may lose NaN"
    parser.add_argument("--nan", choices=NAN_ANSWERS, help=f"{words}; default: {default}")


def _add_trust_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("trust options")
    group.add_argument(
        "--trust-key",
        type=pathlib.Path,
        action="append",
        default=[],
        metavar="KEY.pub",
        help="run only engines that this key signed, or that were built here; may be repeated",
    )
    group.add_argument(
        "--allow-unsigned",
        choices=LIBRARY_NAMES,
        action="append",
        help="run unsigned engines of this library as well; default without --trust-key: openvino; may be repeated",
    )
    group.add_argument(
        "--cache", type=pathlib.Path, metavar="DIR", help=f"engine cache, with this machine's key; {CACHE_HELP}"
    )


def _configure_keys(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("generate",), help="generate: make a key pair (Ed25519)")
    parser.add_argument(
        "-o", "--output", type=pathlib.Path, required=True, metavar="NAME", help="private key; the public is NAME.pub"
    )


def _configure_sign(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=pathlib.Path, help="a compiled model")
    parser.add_argument("--key", type=pathlib.Path, required=True, metavar="K", help="a private key of `trtnode keys`")
    parser.add_argument("-o", "--output", type=pathlib.Path, metavar="OUT", help="file to write; default: the model")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")


def _configure_merge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", type=pathlib.Path, nargs="+", help="compiled models of one source, the first first")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, metavar="OUT", help="the file to write")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")


def _configure_strip(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=pathlib.Path, help="a compiled model")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--keep", action="append", default=[], metavar="E", help="leave only engines of this library; may be repeated"
    )
    what.add_argument("--fallback", action="store_true", help="leave out the nodes and weights that engines replace")
    parser.add_argument("-o", "--output", type=pathlib.Path, metavar="OUT", help="file to write; default: the model")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")


def _configure_align(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=pathlib.Path, help="a compiled model")
    parser.add_argument(
        "--reference", type=pathlib.Path, required=True, metavar="REF.onnx", help="the model that it was made from"
    )
    parser.add_argument("--inputs", type=pathlib.Path, required=True, metavar="IN.npz", help=INPUTS_HELP)
    parser.add_argument(
        "--min-sqnr",
        type=number(),
        metavar="DB",
        help="signal-to-quantization-noise ratio, in decibels, below which a value has diverged; "
        "default: what the precision of the engines explains",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    add_compile_options(parser, only=CUSTOM_OPERATORS)
    _add_trust_options(parser)


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


EXPLAIN = Command(
    name="explain",
    help="show which nodes an engine takes, and why not the others",
    configure=_configure_explain,
    run=lazy("trtnode.serving.cli.explain:explain", reads=("model",), multiplies=False),
)

COMPILE = Command(
    name="compile",
    help="build engines for a model and embed them in it",
    configure=_configure_compile,
    run=lazy("trtnode.serving.cli.compile:compile_", reads=("model",)),
)

CALIBRATE = Command(
    name="calibrate",
    help="learn the ranges of a model's tensors, for int8 and fp8",
    configure=_configure_calibrate,
    run=lazy("trtnode.serving.cli.calibrate:calibrate_", reads=("model",)),
)

CONVERT = Command(
    name="convert",
    help="write a model in a lower precision, as plain ONNX for others",
    configure=_configure_convert,
    run=lazy("trtnode.serving.cli.convert:convert", reads=("model",)),
)

RUN = Command(
    name="run",
    help="run a model once on inputs from a file",
    configure=_configure_run,
    run=lazy("trtnode.serving.cli.run:run", reads=("model",)),
)

ALIGN = Command(
    name="align",
    help="find the first value of a compiled model that differs from its source",
    configure=_configure_align,
    run=lazy("trtnode.serving.cli.align:align_", reads=("model", "reference")),
)

KEYS = Command(
    name="keys",
    help="make a key pair to sign engines with",
    configure=_configure_keys,
    run=lazy("trtnode.serving.cli.trust:keys"),
)

SIGN = Command(
    name="sign",
    help="sign the engines of a compiled model",
    configure=_configure_sign,
    run=lazy("trtnode.serving.cli.trust:sign", reads=("model",)),
)

MERGE = Command(
    name="merge",
    help="write the engines of several compiled models into one",
    configure=_configure_merge,
    run=lazy("trtnode.serving.cli.trust:merge"),
)

STRIP = Command(
    name="strip",
    help="leave out engines of a compiled model, or what they replace",
    configure=_configure_strip,
    run=lazy("trtnode.serving.cli.trust:strip", reads=("model",)),
)

PRUNE = Command(
    name="prune",
    help="set the smallest weights of a model to zero, in blocks",
    configure=_configure_prune,
    run=lazy("trtnode.serving.cli.prune:prune", reads=("model",)),
)
