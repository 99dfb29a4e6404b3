"""Bytes from clients to messages.

A parser that raises, or gives None, must not be given to gRPC: it then ends the call twice and never lets go of it.
Each such message would cost memory and one of the calls that its connection may have, and a traceback in the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from trtnode.serving.protocol.wire_format import is_bounded, layout_of

UNREADABLE: Any = object()
"""Stands for a message that can't be parsed, or whose objects would take too much memory."""


def parser_of(kind: Any, instead: Any = UNREADABLE) -> Callable[[bytes], Any]:
    """Return a parser of one kind of message.

    Args:
        kind: The class of the messages.
        instead: What it gives for bytes that are no such message.
    """
    layout = layout_of(kind.DESCRIPTOR)

    def parse(data: bytes) -> Any:
        try:
            return kind.FromString(data) if is_bounded(data, layout) else instead
        except DecodeError:
            return instead

    return parse
