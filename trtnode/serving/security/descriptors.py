"""The process's file descriptors, and the share that the connections of each port may take.

Connections of one port must not keep the other from accepting, nor models from being read. What the two shares leave
is for everything else.
"""

from __future__ import annotations

import logging
import resource

logger = logging.getLogger(__name__)

HTTP_SHARE = 1 / 2
GRPC_SHARE = 1 / 4


MANY = (1 << 31) - 1
"""Connections without a bound, as gRPC's options take numbers."""
ENOUGH = 1 << 16
"""Descriptors that a server asks for, if it may have them: shells and init systems often give 1024 of them at first."""


def raise_descriptor_limit() -> None:
    """Let the process open as many files as it may, up to a number that is enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = ENOUGH if hard == resource.RLIM_INFINITY else min(ENOUGH, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def most_connections(share: float) -> int:
    """Return how many connections a share of the descriptors allows."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MANY if soft == resource.RLIM_INFINITY else min(MANY, max(1, int(soft * share)))


def bounded_connections(key: str, wanted: int, share: float) -> int:
    """Return how many connections a port takes: as many as wanted, or as the descriptors allow, with a warning.

    Args:
        key: Of servable.yaml, for the warning.
        wanted: Its value.
        share: Of the descriptors.
    """
    most = most_connections(share)
    if wanted > most:
        logger.warning(
            "%s is %d, but this process may open %d files, so that %d connections are taken; raise its limit (ulimit "
            "-n), or lower the key",
            key, wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[0], most,
        )  # fmt: skip
    return min(wanted, most)
