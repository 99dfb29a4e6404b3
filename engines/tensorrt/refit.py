"""Gives a model's weights to TensorRT: to its parser before a build, and to an engine that was built without them.

The code follows the documented Python API; the library is an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from trtnode.engines.errors import EngineRejectedError
from trtnode.engines.tensorrt.labelling.parser import first_refusal, make_logger
from trtnode.engines.tensorrt.labelling.rewrites import PASSES, prepare

HANDED_OVER_BYTES = 1 << 20
"""Weights from this size on are handed over in place, rather than inside the model."""

Weights = Mapping[str, npt.NDArray[np.uint8]]
"""Bytes by initializer. The library reads them in place, so they must live until it has done its work."""


def take_weights(reader: Any, proto: onnx.ModelProto) -> Weights:
    """Take large weights out of a model, if they can be handed over: a message holds 2 GiB at most.

    Args:
        reader: A ``trt.OnnxParser`` or ``trt.OnnxParserRefitter``; from release 10.13 on, weights can be handed to it.
        proto: The model.
    """
    taken: dict[str, npt.NDArray[np.uint8]] = {}
    for tensor in proto.graph.initializer if hasattr(reader, "load_initializer") else ():
        if len(tensor.raw_data) >= HANDED_OVER_BYTES:
            taken[tensor.name] = np.frombuffer(tensor.raw_data, np.uint8)
            tensor.ClearField("raw_data")
    return taken


def hand_over(reader: Any, proto: onnx.ModelProto, weights: Weights) -> bool:
    """Load a model and the weights that were taken out of it; False where the library refuses."""
    loaded = reader.load_model_proto(proto.SerializeToString())
    given = (reader.load_initializer(name, data.ctypes.data, data.nbytes) for name, data in weights.items())
    return loaded and all(given)


def refit(trt: Any, engine: Any, model: onnx.ModelProto) -> None:
    """Give an engine that was built without weights those of its model. A CUDA context must be current.

    Args:
        trt: The tensorrt module.
        engine: A deserialized engine that nothing runs yet.
        model: The model that it was built from, before the rewrites of ``trtnode.engines.tensorrt.labelling.rewrites``.

    Raises:
        BuildError: The model can't be rewritten any more.
        EngineRejectedError: TensorRT refuses the weights, or some are missing; in its own words.
    """
    proto = prepare(model, PASSES)
    logger = make_logger(trt)
    logger.take()
    try:
        refitter = trt.Refitter(engine, logger)
        reader = trt.OnnxParserRefitter(refitter, logger)
    except (RuntimeError, TypeError) as error:  # TypeError: the library gave no refitter
        raise _rejected(logger.told(str(error))) from error
    weights = take_weights(reader, proto)
    if not _read(reader, proto, weights):
        raise _rejected(first_refusal(reader, logger).detail)
    missing = refitter.get_missing_weights()
    if missing:
        raise _rejected(f"its model lacks {', '.join(missing)}.")
    if not refitter.refit_cuda_engine():
        raise _rejected(logger.told())


def _read(reader: Any, proto: onnx.ModelProto, weights: Weights) -> bool:
    if not weights:
        return bool(reader.refit_from_bytes(proto.SerializeToString()))
    return hand_over(reader, proto, weights) and bool(reader.refit_model_proto())


def _rejected(reason: str) -> EngineRejectedError:
    return EngineRejectedError("TensorRT", f"it can't be given its weights: {reason}")
