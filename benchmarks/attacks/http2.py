"""HTTP/2 frames as bytes (RFC 9113), and requests of gRPC made of them: what no client library would send."""

from __future__ import annotations

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4

CANCEL = 8
INITIAL_WINDOW_SIZE = 4


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """Return a frame."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def settings(**values: int) -> bytes:
    """Return the settings of a client, by the number of each after an underscore: ``_4=0``."""
    pairs = ((int(number[1:]), value) for number, value in values.items())
    payload = b"".join(key.to_bytes(2, "big") + value.to_bytes(4, "big") for key, value in pairs)
    return frame(SETTINGS, payload=payload)


def field(name: bytes, value: bytes) -> bytes:
    """Return a header field in HPACK, neither indexed nor compressed (RFC 7541, section 6.2.2)."""
    return b"\0" + _text(name) + _text(value)


def indexed_field(name: bytes, value: bytes) -> bytes:
    """Return a header field that the receiver is to keep in its table, of which it becomes number 62."""
    return b"\x40" + _text(name) + _text(value)


NEWEST = bytes((0x80 | 62,))
"""The newest field of the table."""


def call(path: bytes) -> bytes:
    """Return the header block of a call of gRPC."""
    fields = {b":method": b"POST", b":scheme": b"http", b":path": path, b":authority": b"x",
              b"content-type": b"application/grpc", b"te": b"trailers"}  # fmt: skip
    return b"".join(field(name, value) for name, value in fields.items())


def _text(text: bytes) -> bytes:
    """Return a string with its length in seven bits, and more where they don't do (RFC 7541, section 5)."""
    size = len(text)
    if size < 127:
        return bytes((size,)) + text
    size -= 127
    length = bytearray((127,))
    while size >= 128:
        length.append(size % 128 + 128)
        size //= 128
    length.append(size)
    return bytes(length) + text
