"""Compressed requests: inflated piece by piece, no further than their bound, and other threads run meanwhile."""

from __future__ import annotations

import io
import zlib

from trtnode.serving.errors import InvalidRequestError, TooLargeError

_ZLIB_OR_GZIP = zlib.MAX_WBITS | 32
_TAKEN_BYTES = 16 << 10
_GIVEN_BYTES = 1 << 20


def is_packed(message: bytes) -> bool:
    """Return whether a protocol message begins as gzip (RFC 1952) or zlib (RFC 1950) does.

    No message of ours begins so: 0x1f isn't the head of a field, and none has a number as its field 15.
    """
    head = message[:2]
    return head == b"\x1f\x8b" or (head[:1] == b"\x78" and int.from_bytes(head, "big") % 31 == 0)


def unpack(packed: bytes, most: int) -> bytes:
    """Return what was compressed with gzip or zlib.

    Args:
        packed: All of it.
        most: How many bytes it may stand for.

    Raises:
        InvalidRequestError: It isn't so compressed, is cut short, or something follows it.
        TooLargeError: It stands for more bytes.
    """
    unpacking, whole = zlib.decompressobj(_ZLIB_OR_GZIP), io.BytesIO()
    try:
        for start in range(0, len(packed), _TAKEN_BYTES):
            rest = packed[start : start + _TAKEN_BYTES]
            while rest and not unpacking.unused_data:
                whole.write(unpacking.decompress(rest, _GIVEN_BYTES))
                rest = unpacking.unconsumed_tail
                if whole.tell() > most:
                    raise TooLargeError(most)
    except zlib.error as error:
        raise InvalidRequestError(f"the request can't be unpacked: {error}") from None
    if not unpacking.eof or unpacking.unused_data:
        raise InvalidRequestError("the compressed request is cut short, or something follows it")
    return whole.getvalue()
