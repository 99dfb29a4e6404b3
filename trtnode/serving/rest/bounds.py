"""The bounds of the HTTP port, from servable.yaml and the process's descriptors."""

from __future__ import annotations

import dataclasses

from trtnode.serving.schema.server import HttpConfig, LimitsConfig
from trtnode.serving.security.callers import Callers
from trtnode.serving.security.descriptors import HTTP_SHARE, bounded_connections

HEADER_FIELDS = 100
"""The most fields of a header; browsers send about 20."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of what connections may take of the server.

    Attributes:
        connections: How many may be open.
        header_bytes: Bytes of a request's first line and header fields.
        header_timeout_s: The time for a header, from its first byte, or from the start of the connection.
        callers: Those that are answered.
    """

    connections: int
    header_bytes: int
    header_timeout_s: float
    callers: Callers

    @classmethod
    def of_port(cls, limits: LimitsConfig, http: HttpConfig) -> Bounds:
        """Return those of a port for clients."""
        wanted = limits.http_connections
        return cls(
            connections=bounded_connections("server.limits.http_connections", wanted, HTTP_SHARE),
            header_bytes=limits.http_header_bytes,
            header_timeout_s=limits.http_header_timeout_s,
            callers=Callers.of(http),
        )
