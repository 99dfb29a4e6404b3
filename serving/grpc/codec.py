"""Bytes from clients to messages.

A parser that raises, or gives None, must not be given to gRPC: it then ends the call twice and never lets go of it.
Each such message would cost memory and one of the calls that its connection may have, and a traceback in the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from trtnode.serving.errors import ServingError
from trtnode.serving.protocol.packing import is_packed, unpack
from trtnode.serving.protocol.wire_format import is_bounded, layout_of

UNREADABLE: Any = object()
"""Stands for a message that can't be parsed, or whose objects would take too much memory."""
MOST_BYTES = 4 << 20
"""Bytes that a compressed message may stand for where nothing else says so."""


def parser_of(kind: Any, instead: Any = UNREADABLE) -> Callable[[bytes], Any]:
    """Return a parser of one kind of message.

    Args:
        kind: The class of the messages.
        instead: What it gives for bytes that are no such message.
    """
    layout = layout_of(kind.DESCRIPTOR)

    def parse(data: bytes) -> Any:
        try:
            message = unpack(data, MOST_BYTES) if is_packed(data) else data
            return kind.FromString(message) if is_bounded(message, layout) else instead
        except (DecodeError, ServingError):
            return instead

    return parse
