"""Bytes from clients to messages."""

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
