"""Warnings about what others can reach: open ports, and secrets that every user of the machine can read."""

from __future__ import annotations

import logging
import pathlib
import stat

from trtnode.serving.schema.server import GrpcConfig, HttpConfig, ServerConfig
from trtnode.serving.security.callers import is_local

logger = logging.getLogger(__name__)


def warn_of_open_ports(config: ServerConfig) -> None:
    """Warn if other machines reach a port without authentication or encryption."""
    ports: dict[str, GrpcConfig | HttpConfig] = {"grpc": config.grpc, "http": config.http}
    reached = {section: port for section, port in ports.items() if not is_local(port.host)}
    known = config.auth or all(port.tls and port.tls.client_ca for port in reached.values())
    missing = [] if known else ["anyone may call (server.auth is not set)"]
    clear = [f"server.{section}.tls" for section, port in reached.items() if port.tls is None]
    if clear:
        missing.append(f"tokens and tensors travel in the clear (not set: {', '.join(clear)})")
    hosts = dict.fromkeys(port.host for port in reached.values())
    if missing:
        logger.warning("Other machines reach %s, where %s", " and ".join(hosts), " and ".join(missing))


def warn_of_public_file(path: pathlib.Path) -> None:
    """Warn if every user of the machine can read or write a file that holds secrets."""
    if path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
        logger.warning("Every user of this machine can read or change %s; run `chmod o-rw` on it", path)
