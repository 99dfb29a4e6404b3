"""Runs of a model before its first request, so that no request pays for what libraries do once.

Batches are not padded. OpenVINO prepares itself for each new batch size once, but padding costs execution time in each
batch. So each likely size runs once at load: all sizes up to 16, above that the preferred ones or powers of two.
"""

from __future__ import annotations

import logging

import numpy as np

from engines import Executable
from engines.inputs.samples import read_given
from engines.inputs.signature import Signature
from serving.protocol.wire_signature import BYTES, WireSignature, WireTensor
from serving.schema.model import BatchingConfig, ModelConfig

logger = logging.getLogger(__name__)


def warm_up(
    executable: Executable, signature: WireSignature, config: ModelConfig, batching: BatchingConfig | None
) -> None:
    """Run a model as often as configured, on the configured inputs or on zeros, then once for each likely batch size.

    Args:
        executable: The model.
        signature: Its inputs and outputs.
        config: How it is served.
        batching: How its requests are joined; None if they run one by one.

    Raises:
        EngineError: The configured inputs can't be read, or the model fails on them. Zeros may fail: they need not make
            sense to every model.
    """
    names = [tensor.name for tensor in signature.outputs]
    if config.warmup_inputs is not None:
        given = read_given(config.warmup_inputs, Signature(executable.inputs, executable.outputs))
        for _ in range(config.warmup):
            executable.run(given, names)
    sizes = [1] * config.warmup if config.warmup_inputs is None else []
    if config.warmup and batching is not None:
        sizes += batching.warm_sizes()
    try:
        for size in sizes:
            executable.run({name: _zeros(signature.inputs[name], size) for name in signature.required}, names)
    except Exception as error:
        logger.warning("Model %r: the warm-up run on zeros failed: %s", config.name, error)


def _zeros(tensor: WireTensor, rows: int) -> np.ndarray:
    shape = [1 if size == -1 else size for size in tensor.shape or ()]
    if shape and rows > 1:
        shape[0] = rows
    if tensor.datatype is BYTES:
        return np.full(shape, "", object)
    return np.zeros(shape, tensor.datatype.numpy)
