"""The bounds of the HTTP port, from servable.yaml and the process's descriptors."""

from __future__ import annotations

import dataclasses

from trtnode.serving.schema.server import HttpConfig, LimitsConfig
from trtnode.serving.security.callers import Callers
from trtnode.serving.security.descriptors import HTTP_SHARE, MANY, bounded_connections

HEADER_FIELDS = 100
"""The most fields of a header; browsers send about 20."""
ADDED_FIELDS = 8
"""Fields that the supervisor may add to a client's."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of what connections may take of the server.

    Attributes:
        connections: How many may be open.
        header_bytes: Bytes of a request's first line and header fields.
        header_fields: How many fields there may be.
        header_timeout_s: The time for a header, from its first byte, or from the start of the connection.
        callers: Those that are answered; None where another process has looked at them.
    """

    connections: int
    header_bytes: int
    header_fields: int = HEADER_FIELDS
    header_timeout_s: float
    callers: Callers | None = None

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

    @classmethod
    def behind_port(cls, limits: LimitsConfig) -> Bounds:
        """Return those of a worker: the supervisor has bounded what comes, and adds a little to it."""
        return cls(
            connections=MANY,
            header_bytes=2 * limits.http_header_bytes,
            header_fields=HEADER_FIELDS + ADDED_FIELDS,
            header_timeout_s=limits.http_header_timeout_s,
        )
