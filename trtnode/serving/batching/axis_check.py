"""The check that requests to a model may be joined along axis 0, by its signature and by its answers."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np

from trtnode.engines.errors import EngineError
from trtnode.serving.executables.interface import Run
from trtnode.serving.protocol.wire_signature import BYTES, WireSignature, WireTensor

logger = logging.getLogger(__name__)

SEED = 20240229
ROWS = 3
RELATIVE, ABSOLUTE = 1e-2, 1e-3
"""The distance that a row may move when others stand beside it: libraries choose other kernels for other sizes."""


def no_batch_axis(signature: WireSignature) -> str | None:
    """Return why a model has no batch axis, None if it has one: a first dimension of any size everywhere."""
    required = (tensor for name, tensor in signature.inputs.items() if name in signature.required)
    for tensor in (*required, *signature.outputs):
        if not tensor.shape or tensor.shape[0] != -1:
            return f"the first dimension of {tensor.label} is fixed"
    return None


def dependent_rows(run: Run, signature: WireSignature, *, unless_proved: bool = False) -> str | None:
    """Return why rows of different requests must not stand in one batch, though the signature would allow it.

    Where the model doesn't run on generated inputs, that is no reason, unless there has to be a proof.
    """
    try:
        if _rows_differ_in_batches(run, signature):
            return "a row's results change when other rows stand beside it, so axis 0 is no batch axis"
    except EngineError as error:
        if unless_proved:
            return f"it fails on generated rows ({error})"
        logger.warning("Model %r: the check that axis 0 is a batch axis failed: %s", signature.model, error)
    return None


def _rows_differ_in_batches(run: Run, signature: WireSignature) -> bool:
    """Return whether a model answers a row otherwise when other rows stand beside it, or gives another number of rows.

    A first dimension of any size need not be a batch axis: it may be a length. So the model runs on three rows at once
    and on each by itself.

    Raises:
        EngineError: The model doesn't run on generated inputs, so nothing is known.
    """
    rng = np.random.default_rng(SEED)
    feeds = {name: _samples(signature.inputs[name], rng) for name in sorted(signature.required)}
    names = [tensor.name for tensor in signature.outputs]
    together = run(feeds, names, None)
    return any(
        not _same_row(run({name: rows[[index]] for name, rows in feeds.items()}, names, None), together, index)
        for index in range(ROWS)
    )


def _same_row(alone: Mapping[str, np.ndarray], together: Mapping[str, np.ndarray], index: int) -> bool:
    return all(
        len(one) == 1 and len(together[name]) == ROWS and _close(one[0], together[name][index])
        for name, one in alone.items()
    )


def _close(one: np.ndarray, other: np.ndarray) -> bool:
    if np.asarray(one).dtype.kind in "Ob":
        return np.array_equal(one, other)
    return np.allclose(one.astype(np.float64), other.astype(np.float64), RELATIVE, ABSOLUTE, equal_nan=True)


def _samples(tensor: WireTensor, rng: np.random.Generator) -> np.ndarray:
    shape = [ROWS, *(1 if size == -1 else size for size in (tensor.shape or (-1,))[1:])]
    if tensor.datatype is BYTES:
        return np.full(shape, "", object)
    if tensor.datatype.numpy.kind in "fV":  # V: bfloat16
        return rng.standard_normal(shape).astype(tensor.datatype.numpy)
    return rng.integers(0, 2, shape).astype(tensor.datatype.numpy)
