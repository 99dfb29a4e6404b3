"""A connection of the HTTP port that takes no more of the server than it may.

uvicorn with httptools bounds neither a header nor the time for it, and resets a connection whose client still sends
when the answer is there: the client then never reads it.
"""

from __future__ import annotations

import asyncio
import enum
import json
import logging
import re
from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from trtnode.serving.rest.body import CLIENT_TIMEOUT_S
from trtnode.serving.rest.bounds import HEADER_FIELDS, Bounds
from trtnode.serving.rest.connection_table import ConnectionTable, Phase
from trtnode.serving.telemetry.logs import OneASecond

logger = logging.getLogger(__name__)
logger.addFilter(OneASecond())

UNWANTED_BYTES = 128 << 20
"""Bytes that a client may go on to send once its answer is there. They are read and thrown away, for at most as long as
a client may let the server wait; beyond that, the connection is reset."""
PIPELINED = 64
"""Requests that may wait on one connection. What they send beyond is read in one piece, so reading can't bound them."""
OFFER = re.compile(rb"\r\nupgrade(?=:)", re.IGNORECASE)
"""A header field that offers to speak another protocol, as Java's client does; this server has none."""
IGNORED = b"\r\nIgnored"
BEGUN = re.compile(rb"\r(\n(\r|u|up|upg|upgr|upgra|upgrad|upgrade)?)?\Z", re.IGNORECASE)
"""The end of a piece of a header that may begin such a field, or end the header."""
LONGEST_BEGUN = len(b"\r\nupgrade")
HEADER_END = b"\r\n\r\n"
LATER_REQUEST = b"HTTP/1."
"""Bytes of the first line of every request; a piece without them has no header behind the one that it begins in."""
PROBE_S = 0.2
"""Time between the two lines that tell whether a client that sends no more still reads."""


class _Reading(enum.Enum):
    """The part of a request that the next byte belongs to."""

    NOTHING = enum.auto()
    HEADER = enum.auto()
    BODY = enum.auto()


class _BoundReachedError(Exception):
    """Ends the parsing of a request."""


class BoundedProtocol(HttpToolsProtocol):
    """A connection.

    Attributes:
        connecting: The task that makes it, which may be shaking hands.
        probes_only: Whether it may only ask the probes, and once.
    """

    def __init__(self, bounds: Bounds, table: ConnectionTable, *, probes_only: bool, **uvicorn_arguments: Any) -> None:
        super().__init__(**uvicorn_arguments)
        self.connecting: asyncio.Task[object] | None = None
        self.probes_only = probes_only
        self._bounds = bounds
        self._table = table
        self._reading = _Reading.HEADER
        self._is_ending = False
        self._fault: tuple[int, str] = (400, "")
        self._held = b""
        self._header_bytes = self._fields = self._bytes_without_body = self._unwanted_bytes = 0
        self._client_timer: asyncio.TimerHandle | None = None

    def abort(self) -> None:
        """Close the connection at once."""
        if self.transport is not None:
            self.transport.abort()
        elif self.connecting is not None:
            self.connecting.cancel()

    def end_after_answer(self) -> None:
        """Let the connection end with the answer to the request that runs, if one does."""
        if self.cycle is not None:
            self.cycle.keep_alive = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Wait for a header."""
        self._wire = transport
        super().connection_made(_Transport(transport, self))  # type: ignore[arg-type]  # uvicorn uses what is there
        self._begin_header()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._table.remove(self)
        self._set_client_timer(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has come, unless the connection is about to end."""
        if self._is_unwanted:
            self._unwanted_bytes += len(data)
            if self._unwanted_bytes > UNWANTED_BYTES:
                self.abort()
                return
        if self._is_ending or self.transport.is_closing():
            return
        if self._reading is _Reading.NOTHING:
            self._begin_header()
        self._parse_without_offers(self._held + data)

    def _parse_without_offers(self, data: bytes) -> None:
        """Parse bytes, in which offers of another protocol are fields of no meaning: no body would follow one.

        Only the parser knows whether what looks like an offer stands in a header, or in a body. So it gets what is
        before first. Bytes that more must come to tell about are held back.
        """
        self._held, position = b"", 0
        for offer in _offers(data, in_header=self._reading is _Reading.HEADER):
            self._parse(data[position : offer.start()])
            is_field = self._reading is _Reading.HEADER
            self._parse(IGNORED if is_field else offer[0])
            position = offer.end()
        begun = None if data.endswith(HEADER_END) else BEGUN.search(data, max(position, len(data) - LONGEST_BEGUN))
        end = begun.start() if begun else len(data)
        self._parse(data[position:end])
        if self._reading is _Reading.HEADER:
            self._held = data[end:]
        else:
            self._parse(data[end:])

    def _parse(self, data: bytes) -> None:
        if not data or self._is_ending or self.transport.is_closing():
            return
        self._bytes_without_body += len(data)
        super().data_received(data)
        if self._bytes_without_body > self._bounds.header_bytes:
            self._refuse(431, f"more than {self._bounds.header_bytes} bytes without an end (http_header_bytes)")

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer a client that only sends no more; leave one that is gone.

        The system tells both in the same way. A client that is gone resets the connection when something is written, so
        a line is that clients skip before an answer.

        Returns:
            Whether the connection stays open.
        """
        if self._answered or self._reading is not _Reading.NOTHING or self.scheme == "https":
            return False
        self.cycle.keep_alive = False
        self._probe_client()
        self.loop.call_later(PROBE_S, self._probe_client)
        return True

    def _probe_client(self) -> None:
        if not (self.cycle.response_started or self._wire.is_closing()):
            self._wire.write(STATUS_LINE[100] + b"\r\n")

    def on_message_begin(self) -> None:
        """Begin to count."""
        super().on_message_begin()
        self._reading = _Reading.HEADER
        self._header_bytes = self._fields = self._unwanted_bytes = 0
        self._unset_keepalive_if_required()
        if self._client_timer is None:  # the header begins in one piece with the end of the request before
            self._set_client_timer(self._bounds.header_timeout_s)

    def on_url(self, url: bytes) -> None:
        """Count a part of the first line, and keep it."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a field, which may also follow a body in chunks, and keep it."""
        self._fields += 1
        self._count(len(name) + len(value) + len(b": \r\n"))
        if self._fields > HEADER_FIELDS:
            self._fail(431, f"more than {HEADER_FIELDS} header fields")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin the request."""
        if len(self.pipeline) >= PIPELINED:
            self._fail(429, f"more than {PIPELINED} requests at a time on one connection")
        fault = self._bounds.callers.fault(self.parser.get_method(), self.parser.get_http_version(), self.headers)
        if fault:
            self._fail(*fault)
        self._reading = _Reading.BODY
        self._bytes_without_body = 0
        self._set_client_timer(None)
        super().on_headers_complete()
        if self.probes_only or self._table.is_closing:
            self.end_after_answer()
        self._settle()

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body."""
        self._bytes_without_body = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request; its answer may be there already."""
        self._reading = _Reading.NOTHING
        self._bytes_without_body = 0
        super().on_message_complete()
        if self._answered:
            self._wait_for_request()
        self._settle()

    def on_response_complete(self) -> None:
        """Go on with the next request; what still comes of this one isn't wanted."""
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self._is_unwanted:
            self._unset_keepalive_if_required()
            self._set_client_timer(CLIENT_TIMEOUT_S)
        self._settle()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that can't be parsed, or has reached a bound."""
        status, text = self._fault
        self._refuse(status, text or msg)

    def end(self) -> None:
        """Close the connection such that the client can read what was written.

        A socket that is closed with unread bytes is reset, and the client loses the answer. So they are read, up to a
        bound.
        """
        if self._wire.is_closing() or self._is_ending:
            return
        if self._reading is _Reading.NOTHING:
            self._wire.close()
            return
        self._is_ending = True
        if self._wire.can_write_eof():
            self._wire.write_eof()
        self.flow.resume_reading()
        self._set_client_timer(CLIENT_TIMEOUT_S)
        self._settle()

    @property
    def is_ending(self) -> bool:
        """True if nothing more may be written."""
        return self._is_ending

    def shutdown(self) -> None:
        """Close once what is written has left, and after the answer if a request runs."""
        if self.cycle is None or self.cycle.response_complete:
            self._wire.close()
        else:
            super().shutdown()

    @property
    def _answered(self) -> bool:
        """True if every request whose header is here has its answer."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def _is_unwanted(self) -> bool:
        """True if what comes belongs to a request that has its answer."""
        return self._is_ending or (self._reading is _Reading.BODY and self._answered)

    def _begin_header(self) -> None:
        self._reading = _Reading.HEADER
        self._bytes_without_body = self._unwanted_bytes = 0
        self._set_client_timer(self._bounds.header_timeout_s)
        self._settle()

    def _wait_for_request(self) -> None:
        self._set_client_timer(None)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _settle(self) -> None:
        """Tell the table what the connection waits for now."""
        if self._wire.is_closing():
            return
        if self._is_unwanted or self._reading is _Reading.HEADER:
            phase = Phase.HEADER
        elif self._reading is _Reading.BODY:
            phase = Phase.BODY
        else:
            phase = Phase.NEXT_REQUEST if self._answered else Phase.ANSWER
        self._table.put(self, phase)

    def _set_client_timer(self, seconds: float | None) -> None:
        if self._client_timer is not None:
            self._client_timer.cancel()
        self._client_timer = None if seconds is None else self.loop.call_later(seconds, self._client_is_late)

    def _client_is_late(self) -> None:
        if self._is_unwanted:
            self.abort()
        elif self._bytes_without_body:
            self._refuse(408, f"no whole header within {self._bounds.header_timeout_s:g} s (http_header_timeout_s)")
        else:
            self._wire.close()

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > self._bounds.header_bytes:
            self._fail(431, f"a header of more than {self._bounds.header_bytes} bytes (http_header_bytes)")

    def _fail(self, status: int, text: str) -> None:
        """End the parsing; ``send_400_response`` then gives the reason."""
        self._fault = status, text
        raise _BoundReachedError

    def _refuse(self, status: int, text: str) -> None:
        """Answer outside of a request, and end the connection."""
        if self.transport.is_closing():
            return
        logger.info("Closed the HTTP connection of %s:%s: %s", *(self.client or ("unknown", 0)), text)
        if not self._answered or self._is_unwanted:  # the client would take this for the answer to another request
            self.abort()
            return
        body = json.dumps({"error": text}).encode()
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self.end()


def _offers(data: bytes, *, in_header: bool) -> Iterable[re.Match[bytes]]:
    """Return what looks like offers of another protocol, where a piece may have headers: bodies would take long."""
    end = data.find(HEADER_END) if in_header else 0
    has_more = end < 0 or data.find(LATER_REQUEST, end) >= 0
    return OFFER.finditer(data, 0, len(data) if has_more else end)


class _Transport:
    """asyncio's transport, but for the end of the connection."""

    def __init__(self, wire: asyncio.Transport, connection: BoundedProtocol) -> None:
        self._wire = wire
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wire, name)

    def close(self) -> None:
        """Close the connection such that the client can read what was written."""
        self._connection.end()

    def is_closing(self) -> bool:
        """Return whether nothing more may be written."""
        return self._connection.is_ending or self._wire.is_closing()
