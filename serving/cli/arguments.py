"""The commands about models, from ``explain`` to ``sign``. Light: their work is imported when it runs."""

from __future__ import annotations

import argparse
import pathlib

from trtnode.engines.backends.names import (
    ALLOWANCES,
    ASKED_PRECISIONS,
    CALIBRATION_METHODS,
    ENGINE_NAMES,
    LIBRARY_NAMES,
    NAN_ANSWERS,
    TARGET_NAMES,
    target_problem,
)
from trtnode.serving.cli.command import Command, add_optimize_option, lazy, number, positive

CACHE_HELP = "default: $XDG_CACHE_HOME/trtnode, or ~/.cache/trtnode"


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _targets(text: str) -> tuple[str, ...]:
    if not _names(text):
        raise argparse.ArgumentTypeError(f"names none; there are {', '.join(TARGET_NAMES)}")
    for name in _names(text):
        if problem := target_problem(name):
            raise argparse.ArgumentTypeError(f"{name!r} {problem}")
    return _names(text)


def _percent(text: str) -> float:
    number = float(text)
    if not 50 < number <= 100:
        raise argparse.ArgumentTypeError(f"{text} is not above 50 and up to 100")
    return number


def add_partition_options(parser: argparse.ArgumentParser) -> None:
    """Add what a user can say about where nodes run."""
    group = parser.add_argument_group("partition options")
    group.add_argument("--engine", choices=ENGINE_NAMES, default="auto", help="native builds no engine; default: auto")
    add_optimize_option(group)
    group.add_argument(
        "--sparse-weights",
        choices=("auto", "off"),
        default="auto",
        help="auto weighs an engine that leaves zeros of weights out; default: auto",
    )
    group.add_argument("--native-ops", type=_names, default=(), metavar="A,B", help="operators that run natively")
    group.add_argument(
        "--native-nodes", action="append", default=[], metavar="GLOB", help="nodes that run natively; may be repeated"
    )
    group.add_argument("--engine-ops", type=_names, metavar="A,B", help="the only operators that may run in an engine")
    group.add_argument(
        "--min-segment-nodes", type=positive, default=1, metavar="N", help="smaller segments run natively; default: 1"
    )
    group.add_argument(
        "--max-segments", type=positive, metavar="N", help="keep the segments with the greatest estimated benefit"
    )
    group.add_argument(
        "--allow",
        action="append",
        choices=ALLOWANCES,
        default=[],
        help="let TensorRT engines run operators whose results depend on values in size, or compute float64 in float32",
    )
    group.add_argument(
        "--freeze-initializers",
        action="store_true",
        help="make constants of initializers that are also graph inputs: more is computed once, and a request that "
        "sends one is refused instead of answered natively",
    )
    group.add_argument(
        "--connected", action="store_true", help="segments without unrelated branches, though there are more of them"
    )


def _configure_explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=pathlib.Path, help="an ONNX model")
    _add_cache_options(parser, without="ask the engine library about every operator anew and keep no answer")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    parser.add_argument("--html", type=pathlib.Path, metavar="FILE", help="write a page with the graph, for a browser")
    _add_shape_option(parser, purpose="explain the model as if an input had this shape")
    _add_target_option(parser)
    add_partition_options(parser)


def _add_shape_option(parser: argparse.ArgumentParser, *, purpose: str) -> None:
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME:MIN,OPT,MAX",
        help=f"{purpose}: NAME:1x3x224x224, or three shapes; once for each input, and again for each further profile. "
        "NAME:=1x64,4x64,8x64 gives the values of an input that holds sizes, such as the shape of a Reshape",
    )


def _add_cache_options(parser: argparse.ArgumentParser, *, without: str) -> None:
    parser.add_argument("--cache", type=pathlib.Path, metavar="DIR", help=f"engine cache; {CACHE_HELP}")
    parser.add_argument("--no-cache", action="store_true", help=without)


def _configure_compile(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=pathlib.Path, help="an ONNX model")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, metavar="OUT", help="the file to write")
    parser.add_argument(
        "--inputs", type=pathlib.Path, metavar="IN.npz", help="inputs to check the engines with, instead of random ones"
    )
    _add_choice_options(parser)
    parser.add_argument(
        "--strip-fallback",
        action="store_true",
        help="leave out the nodes and weights that engines replace: smaller, of use on machines like this one",
    )
    add_nan_option(parser, "native")
    _add_cache_options(parser, without="build every engine anew and keep none")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    _add_shape_option(parser, purpose="shapes that TensorRT builds for")
    _add_precision_options(parser)
    add_partition_options(parser)
    _add_tensorrt_options(parser)


def _add_choice_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of which engines stay; without one, a brief measurement decides."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--tune", action="store_true", help="measure more choices of engines, and longer")
    group.add_argument(
        "--no-measure",
        action="store_true",
        help="keep the engines that the estimate doesn't call slower; by default, up to 10 s of measuring here choose "
        "those that make the model faster",
    )
    group.add_argument("--all-engines", action="store_true", help="keep engines that make the model slower, too")


def _add_tensorrt_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("TensorRT options")
    group.add_argument("--workspace-mb", type=positive, metavar="N", help="scratch memory in MiB; default: all of it")
    group.add_argument(
        "--optimization-level", type=int, choices=range(6), default=3, help="how long the builder searches; default: 3"
    )
    group.add_argument("--hardware-compatible", action="store_true", help="build for other GPU generations too")
    group.add_argument("--version-compatible", action="store_true", help="build for later TensorRT releases too")
    _add_target_option(group)
    group.add_argument("--sparse", action="store_true", help="use structured sparsity, where weights have it")
    group.add_argument("--no-cuda-graphs", action="store_true", help="run without CUDA graphs")
    group.add_argument(
        "--strip-plan",
        action="store_true",
        help="build engines without weights; they get those of the nodes that they replace when they are loaded",
    )
    group.add_argument(
        "--build-timeout", type=positive, metavar="S", help="seconds for one engine of any library; default: 600"
    )


def _add_target_option(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--target",
        type=_targets,
        default=(),
        metavar="SM,SM",
        help=f"GPUs that tensorrt-rtx builds for: {', '.join(TARGET_NAMES)}; default: every one from Ampere on",
    )


def _add_precision_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("precision options")
    group.add_argument(
        "--approximate",
        action="store_true",
        help="approximate GELU, SiLU and sigmoid where that is measured to pay, inside the accuracy budget",
    )
    group.add_argument(
        "--precision",
        choices=ASKED_PRECISIONS,
        default="fp32",
        help="what engines compute in; auto: the fastest inside the accuracy budget; default: fp32",
    )
    group.add_argument(
        "--precision-rule",
        action="append",
        default=[],
        metavar="RULE",
        help="another one for some nodes: node=GLOB:PRECISION or op=TYPE:PRECISION; may be repeated, the first that "
        "fits counts",
    )
    group.add_argument(
        "--calibration",
        metavar="DATA",
        help="samples of the inputs (.npz, a folder, or module:function), or the ranges.json of `trtnode calibrate`",
    )
    group.add_argument(
        "--calibration-method",
        default="mean",
        metavar="M",
        help=f"how ranges follow from samples: {', '.join(CALIBRATION_METHODS)}, or an installed one; default: mean",
    )
    group.add_argument(
        "--allow-few-samples",
        action="store_true",
        help="quantize by ranges from fewer than 8 samples, although the accuracy budget then says little",
    )
    group.add_argument(
        "--min-cosine",
        type=number(-1, 1),
        metavar="X",
        help="of any output; default: 0.99 without other limits, 0.995 for a classifier",
    )
    group.add_argument(
        "--min-top1-agreement", type=number(0, 1), metavar="X", help="share of best classes that must stay"
    )
    group.add_argument("--max-abs", type=number(0), metavar="X", help="largest difference of any element")
    group.add_argument("--metric", metavar="MODULE:FUNCTION", help="a measure of your own; at least 0 is good enough")


def _configure_calibrate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=pathlib.Path, help="an FP32 ONNX model")
    parser.add_argument(
        "--data",
        required=True,
        metavar="DATA",
        help="samples of its inputs: an .npz of arrays with a leading sample axis, a folder of .npz or .npy files, or "
        "module:function that yields dictionaries",
    )
    parser.add_argument(
        "--method",
        default="mean",
        metavar="M",
        help=f"{', '.join(CALIBRATION_METHODS)}, or an installed one; default: mean",
    )
    parser.add_argument(
        "--percentile", type=_percent, default=99.99, metavar="P", help="values to keep, in percent; default: 99.99"
    )
    parser.add_argument("--samples", type=positive, metavar="N", help="the most samples to use; default: all")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, metavar="RANGES.json", help="file to write")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")


def _configure_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=pathlib.Path, help="a compiled model, or any ONNX model")
    parser.add_argument("--inputs", type=pathlib.Path, required=True, metavar="IN.npz", help="an array for each input")
    parser.add_argument("--outputs", type=pathlib.Path, required=True, metavar="OUT.npz", help="where to write results")
    parser.add_argument("--native", action="store_true", help="leave the engines alone")
    add_nan_option(parser, "as the model was compiled")
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


def _configure_align(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=pathlib.Path, help="a compiled model")
    parser.add_argument(
        "--reference", type=pathlib.Path, required=True, metavar="REF.onnx", help="the model that it was made from"
    )
    parser.add_argument("--inputs", type=pathlib.Path, required=True, metavar="IN.npz", help="an array for each input")
    parser.add_argument("--deep", action="store_true", help="compare the result of every node, inside engines as well")
    parser.add_argument(
        "--min-sqnr",
        type=number(),
        metavar="DB",
        help="signal-to-quantization-noise ratio, in decibels, below which a value has diverged; "
        "default: what the precision of the engines explains",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    _add_trust_options(parser)


EXPLAIN = Command(
    name="explain",
    help="tell which nodes an engine takes, and why not the others",
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
