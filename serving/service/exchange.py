"""One inference request with its response, in the form of a transport."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from serving.protocol.request_cache import ParsedRequest, RequestCache
from serving.protocol.shared_memory import SharedMemory


class Exchange(Protocol):
    """An inference request that reads itself and takes its response.

    Attributes:
        model_name: As the client names it.
        model_version: Decimal; empty for the preferred one.
        id: As the client chose it; known at the latest once the request is read.
        size: Bytes of the request's message; 0 where a client may choose them freely for the same request.
    """

    model_name: str
    model_version: str
    id: str
    size: int

    def read(self, cache: RequestCache, memory: SharedMemory) -> ParsedRequest:
        """Return the request as arrays that fit the model.

        Args:
            cache: Of the model.
            memory: The regions that clients have registered.

        Raises:
            ServingError: The request is at fault.
        """
        ...

    def write(self, cache: RequestCache, request: ParsedRequest, arrays: Sequence[np.ndarray]) -> None:
        """Make the response.

        Args:
            cache: Of the model.
            request: What ``read`` returned.
            arrays: Of each output that the request asks for.

        Raises:
            InvalidOutputError: An array isn't of its tensor's type.
            ServingError: An array can't be written where the client wants it.
        """
        ...
