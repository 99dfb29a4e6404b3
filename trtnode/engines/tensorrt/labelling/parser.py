"""Asks TensorRT's own parser about nodes. The code follows the documented Python API; the library is an argument.

The parser imports the model into a network, and stops at the first node that it can't import. So it is asked about
kinds of nodes that stand apart, and about halves of a model that it refuses
(``trtnode.engines.build.library_verdicts``). It holds Python's lock the whole time: ask in the worker process alone.
"""

from __future__ import annotations

import functools
import pathlib
import threading
from typing import Any

import onnx

from trtnode.engines.errors import BackendMissingError, BuildError
from trtnode.engines.tensorrt.labelling.rewrites import PASSES, prepare
from trtnode.partitioner.cut.labels import SUPPORTED, ReasonCode, Verdict

FIRST_STRONGLY_TYPED = 11
"""TensorRT's major release from which every network is strongly typed; before, a flag says so."""

ALWAYS_STRONGLY_TYPED = "ComputeCapability"
"""A class of TensorRT for RTX alone, whose networks are strongly typed in every release."""

CODES = {
    "UNSUPPORTED_NODE_ATTR": ReasonCode.UNSUPPORTED_ATTRIBUTE,
    "UNSUPPORTED_NODE_INPUT": ReasonCode.UNSUPPORTED_INPUT,
    "UNSUPPORTED_NODE_DATATYPE": ReasonCode.UNSUPPORTED_DTYPE,
    "UNSUPPORTED_NODE_DYNAMIC": ReasonCode.DYNAMIC_SHAPE,
    "UNSUPPORTED_NODE_SHAPE": ReasonCode.UNSUPPORTED_RANK,
}
"""Reason codes by the parser's error codes, where they are more exact than a missing operator."""

KEPT_MESSAGES = 20
"""Number of the library's log lines that are kept for each thread. The last ones tell why a call returned None."""


def ask_parser(trt: Any, model: pathlib.Path) -> Verdict:
    """Ask TensorRT's parser whether it takes every node of a model, rewritten as for a build.

    The parser uses its network as long as it lives, and its errors die with it; nothing but this call keeps either.

    Args:
        trt: The tensorrt module.
        model: An ONNX file whose nodes the tables let through.

    Returns:
        The parser's first refusal in its own words, with the reason code that is nearest to its error code.

    Raises:
        BackendMissingError: TensorRT does not start.
    """
    try:
        proto = prepare(onnx.load(model), PASSES)
    except BuildError as error:
        return Verdict(ReasonCode.UNSUPPORTED_DTYPE, str(error))
    logger = make_logger(trt)
    builder = new_builder(trt, logger)
    network = new_network(trt, builder)
    parser = trt.OnnxParser(network, logger)
    if parser.supports_model_v2(proto.SerializeToString(), str(model)):
        return SUPPORTED
    return first_refusal(parser, logger)


def first_refusal(parser: Any, logger: Any) -> Verdict:
    """Return the first error of a parser that has refused a model, in its own words; else the last line of its log.

    Args:
        parser: A ``trt.OnnxParser``.
        logger: From ``make_logger``.
    """
    if not parser.num_errors:
        said = logger.last() or "it gives no reason"
        return Verdict(ReasonCode.UNSUPPORTED_OP, f"TensorRT's parser refuses it: {first_line(said)}")
    error = parser.get_error(0)
    code = CODES.get(error.code().name, ReasonCode.UNSUPPORTED_OP)
    return Verdict(code, f"TensorRT's parser ({error.code().name}): {first_line(error.desc())}")


def new_builder(trt: Any, logger: Any) -> Any:
    """Make a ``trt.Builder``, with which the library starts.

    Args:
        trt: The tensorrt module.
        logger: From ``make_logger``.

    Raises:
        BackendMissingError: It does not start: it finds no GPU that it can use, or the driver is too old for it.
    """
    logger.take()
    try:
        return trt.Builder(logger)
    except TypeError as error:  # the library returned no builder
        raise BackendMissingError(
            f"TensorRT {trt.__version__} does not start: {logger.told(str(error))} Run nvidia-smi: it must list a GPU "
            "and a driver that is new enough for its release of CUDA (580 for CUDA 13)."
        ) from error


def new_network(trt: Any, builder: Any) -> Any:
    """Make an empty, strongly typed network.

    Args:
        trt: The tensorrt module.
        builder: A ``trt.Builder``.
    """
    flags = 0
    if not hasattr(trt, ALWAYS_STRONGLY_TYPED) and int(trt.__version__.split(".")[0]) < FIRST_STRONGLY_TYPED:
        flags = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    return builder.create_network(flags)


@functools.cache
def make_logger(trt: Any) -> Any:
    """Make the one logger of the process, which the library keeps for ever.

    Args:
        trt: The tensorrt module.

    Returns:
        A ``trt.ILogger``. Its ``last()`` is the last warning or error that the calling thread caused, or None.
        ``take()`` returns and clears all of them; ``told(otherwise)`` does so as one text for an error message.
    """

    class Logger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self._said = threading.local()

        def log(self, severity: Any, msg: str) -> None:
            if int(severity) <= int(trt.ILogger.Severity.WARNING):
                self._said.messages = [*getattr(self._said, "messages", []), msg][-KEPT_MESSAGES:]

        def last(self) -> str | None:
            messages: list[str] = getattr(self._said, "messages", [])
            return messages[-1] if messages else None

        def take(self) -> list[str]:
            messages: list[str] = getattr(self._said, "messages", [])
            self._said.messages = []
            return messages

        def told(self, otherwise: str = "") -> str:
            lines = dict.fromkeys(map(first_line, self.take()))
            return " ".join(lines) or first_line(otherwise)

    return Logger()


def first_line(text: str) -> str:
    """Return the first line of a library's message that isn't empty, as a sentence."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    return line[:300].rstrip(".") + "."
