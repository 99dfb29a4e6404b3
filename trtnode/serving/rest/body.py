"""The body of an HTTP request: read within limits, unpacked, and cut where tensors begin."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

from starlette.requests import Request

from trtnode.serving.errors import InvalidRequestError, TooLargeError, UnsupportedError
from trtnode.serving.protocol.packing import unpack
from trtnode.serving.protocol.wire_signature import MOST_BYTES, STRING_BYTES

JSON_LENGTH = "inference-header-content-length"
"""The header that says how many bytes of the body are JSON; raw tensors follow."""

CLIENT_TIMEOUT_S = 10
"""The longest time that a client may let the server wait for more of a request."""

LONG_BYTES = 1 << 20
"""JSON up to this size can't hold enough values to cost much."""
_COSTS = {b"[": 96, b"{": 224, b",": 32, b'"': (STRING_BYTES - 32) // 2}
"""Memory of a list, an object, a value and either end of a text, by what stands at each of them."""

_ALIGNMENT = 16


@dataclasses.dataclass(frozen=True, slots=True)
class Body:
    """A body as it came.

    Attributes:
        chunks: Its parts.
        packed: Whether it is compressed.
        json_bytes: How many bytes are JSON, once it is unpacked; None for all.
        most: How many bytes it may have, once it is unpacked.
    """

    chunks: Sequence[bytes]
    packed: bool
    json_bytes: int | None
    most: int

    def unpacked(self) -> bytes:
        """Return the whole body.

        Raises:
            InvalidRequestError: It isn't compressed as it says.
            TooLargeError: It has more bytes than it may.
        """
        whole = b"".join(self.chunks)
        return unpack(whole, self.most) if self.packed else whole

    def split(self) -> tuple[bytes, memoryview]:
        """Return the JSON and what follows it. That begins at an address where every datatype may stand.

        Raises:
            InvalidRequestError: It is shorter than it says, or not compressed as it says.
            TooLargeError: It has more bytes than it may.
        """
        size = self.json_bytes
        if size is None:
            return self.unpacked(), memoryview(b"")
        chunks = [self.unpacked()] if self.packed else self.chunks
        padding = -size % _ALIGNMENT
        whole = b"".join((bytes(padding), *chunks))
        if len(whole) < padding + size:
            raise InvalidRequestError(f"the body has {len(whole) - padding} bytes, but {JSON_LENGTH} is {size}")
        return whole[padding : padding + size], memoryview(whole)[padding + size :]


def check_json(text: bytes, elements: int = 0) -> None:
    """Refuse JSON whose objects would take more than ``MOST_BYTES``, before any is made.

    Three bytes may stand for a list.

    Args:
        text: The JSON.
        elements: Numbers that belong there, such as those of a tensor of fixed shape.

    Raises:
        InvalidRequestError: There are too many lists, objects and values in it.
    """
    if len(text) <= LONG_BYTES:
        return
    left = MOST_BYTES + elements * (_COSTS[b"["] + _COSTS[b","])
    for start in range(0, len(text), LONG_BYTES):  # in pieces, between which other threads run
        left -= sum(text.count(sign, start, start + LONG_BYTES) * size for sign, size in _COSTS.items())
        if left < 0:
            raise InvalidRequestError(
                "the body has more lists, objects and values in its JSON than are read; send less, or tensors as raw "
                f"bytes behind the JSON ({JSON_LENGTH})"
            )


async def read_body(request: Request, most: int) -> Body:
    """Read the body of a request.

    Args:
        request: Its headers are there already.
        most: How many bytes it may have.

    Raises:
        InvalidRequestError: A header isn't a number, or the rest of the body doesn't come.
        TooLargeError: It has more bytes than it may.
        UnsupportedError: It is compressed in a way that this server doesn't know.
    """
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding not in ("identity", "gzip", "deflate"):
        raise UnsupportedError(f"the content-encoding {encoding[:100]!r} is unknown here; use gzip or deflate, or none")
    json_bytes = _count(request, JSON_LENGTH)
    if (_count(request, "content-length") or 0) > most:
        raise TooLargeError(most)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(CLIENT_TIMEOUT_S) as patience:
            async for chunk in request.stream():
                chunks.append(chunk)
                size += len(chunk)
                if size > most:
                    raise TooLargeError(most)
                patience.reschedule(asyncio.get_running_loop().time() + CLIENT_TIMEOUT_S)
    except TimeoutError:
        raise InvalidRequestError(f"no more of the body came for {CLIENT_TIMEOUT_S} s") from None
    return Body(chunks, encoding != "identity", json_bytes, most)


def _count(request: Request, header: str) -> int | None:
    text = request.headers.get(header)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise InvalidRequestError(f"the header {header} should be a number of bytes, not {text[:100]!r}")
    return int(text)
