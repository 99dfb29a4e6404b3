"""Bounds on the elements of a request and of its answer, by their shapes, before any of them is made."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from trtnode.serving.errors import TooManyElementsError
from trtnode.serving.protocol.wire_signature import MOST_RANK, MOST_STRINGS, WireSignature, WireTensor


def check_elements(
    signature: WireSignature, feeds: Mapping[str, np.ndarray], tensor: WireTensor, shape: tuple[int, ...]
) -> None:
    """Refuse an input whose bytes don't bound what it takes: one of strings, or one that has a dimension of 0.

    A model may compute with the other dimensions of a tensor without elements, so a 0 counts as 1.

    Args:
        signature: The model's.
        feeds: The inputs that were read before it.
        tensor: The input.
        shape: Of the input, which fits it.

    Raises:
        TooManyElementsError: There are more elements than a request may have.
    """
    if tensor.datatype.numpy.hasobject:
        before = sum(array.size for array in feeds.values() if array.dtype.hasobject)
        if before + spanned(shape) > MOST_STRINGS:
            problem = f"{tensor.label} has {_shown(shape)} elements of BYTES"
            others = f", beside {before} in other inputs" if before else ""
            raise TooManyElementsError(f"{problem}{others}; a request may have {MOST_STRINGS}, send less at a time")
    elif 0 in shape and spanned(shape) * tensor.datatype.numpy.itemsize > signature.message_bytes:
        raise TooManyElementsError(
            f"{tensor.label} has shape {_shown(shape)}, whose other dimensions span more elements than the "
            f"{signature.message_bytes} bytes of a message could hold (server.grpc.max_message_mb)"
        )


def check_answer(signature: WireSignature, size: int) -> None:
    """Refuse an answer that gRPC wouldn't send, before its bytes are copied into a message.

    Raises:
        TooManyElementsError: It has more bytes than a message may have.
    """
    if size > signature.message_bytes:
        raise TooManyElementsError(
            f"the answer of model {signature.model!r} has {size} bytes, and a message at most "
            f"{signature.message_bytes} (server.grpc.max_message_mb); ask for fewer outputs, or send less at a time"
        )


def spanned(shape: tuple[int, ...]) -> int:
    """Return the number of elements of a shape, with each 0 counted as 1."""
    return math.prod(size or 1 for size in shape)


def _shown(shape: tuple[int, ...]) -> str:
    return str(list(shape[:MOST_RANK]))
