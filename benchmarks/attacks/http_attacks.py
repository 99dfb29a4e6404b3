"""Attacks on the HTTP port. Each takes its address and the end of the attack on the monotonic clock."""

from __future__ import annotations

import itertools
import time

from benchmarks.attacks.sockets import Address, is_open, keep_open, sent, sent_only, until_closed

CONNECTIONS = 400
FIELDS = 10_000_000
FIELDS_AT_ONCE = 10_000
PIECE = 1 << 16
GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: localhost\r\n"


def nothing(_address: Address, deadline: float) -> None:
    """Wait."""
    time.sleep(max(0.0, deadline - time.monotonic()))


def many_fields(address: Address, deadline: float) -> None:
    """Ten million small header fields on one connection, then again on others."""
    while time.monotonic() < deadline:
        fields = (
            b"".join(b"a%d: b\r\n" % (first + number) for number in range(FIELDS_AT_ONCE))
            for first in range(0, FIELDS, FIELDS_AT_ONCE)
        )
        until_closed(address, itertools.chain([GET], fields), deadline)


def endless_field(address: Address, deadline: float) -> None:
    """One header field without an end."""
    while time.monotonic() < deadline:
        until_closed(address, itertools.chain([GET + b"a: "], itertools.repeat(b"b" * PIECE)), deadline)


def half_headers(address: Address, deadline: float) -> None:
    """400 connections with half a header, and a byte now and then."""
    keep_open(address, CONNECTIONS, deadline, lambda one, is_new: sent(one, GET + b"a: " if is_new else b"b"))


def silent_connections(address: Address, deadline: float) -> None:
    """400 connections that send nothing."""
    keep_open(address, CONNECTIONS, deadline, lambda one, _is_new: is_open(one))


def slow_bodies(address: Address, deadline: float) -> None:
    """400 connections with a body of which a byte comes now and then."""
    head = POST + b"Content-Length: 1000000\r\n\r\n"
    keep_open(address, CONNECTIONS, deadline, lambda one, is_new: sent(one, head if is_new else b"b"))


def unread_answers(address: Address, deadline: float) -> None:
    """400 connections that ask for the status page fifty times, and read nothing."""
    ask = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50
    keep_open(address, CONNECTIONS, deadline, lambda one, is_new: not is_new or sent_only(one, ask))


def pipelined_requests(address: Address, deadline: float) -> None:
    """Thousands of requests in one piece, on one connection after the other."""
    while time.monotonic() < deadline:
        until_closed(address, itertools.repeat((GET + b"\r\n") * 8000, 20), deadline)


def endless_trailer(address: Address, deadline: float) -> None:
    """A body in chunks, then a header field behind it without an end."""
    head = POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\na: "
    while time.monotonic() < deadline:
        until_closed(address, itertools.chain([head], itertools.repeat(b"b" * PIECE)), deadline)


def endless_bodies(address: Address, deadline: float) -> None:
    """A body in chunks without an end, to a path that isn't there."""
    head = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"%x\r\n" % PIECE + bytes(PIECE) + b"\r\n"
    while time.monotonic() < deadline:
        until_closed(address, itertools.chain([head], itertools.repeat(chunk)), deadline)


HTTP_ATTACKS = (
    many_fields,
    endless_field,
    half_headers,
    silent_connections,
    slow_bodies,
    unread_answers,
    pipelined_requests,
    endless_trailer,
    endless_bodies,
)
