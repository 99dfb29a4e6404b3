"""Warnings about what others can reach: open ports, and secrets that every user of the machine can read."""

import ipaddress
import logging
import pathlib
import stat

from serving.schema import ServerConfig

logger = logging.getLogger(__name__)


def warn_of_open_ports(config: ServerConfig) -> None:
    """Warn if other machines reach a port without authentication or encryption."""
    tls = config.grpc.tls
    missing = [] if config.auth or (tls and tls.client_ca) else ["anyone may call (server.auth is not set)"]
    if tls is None:
        missing.append("tokens and tensors travel in the clear (server.grpc.tls is not set)")
    hosts = dict.fromkeys(host for host in (config.grpc.host, config.http.host) if not _is_loopback(host))
    if hosts and missing:
        logger.warning("Other machines reach %s, where %s", " and ".join(hosts), " and ".join(missing))


def warn_of_public_file(path: pathlib.Path) -> None:
    """Warn if every user of the machine can read or write a file that holds secrets."""
    if path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
        logger.warning("Every user of this machine can read or change %s; run `chmod o-rw` on it", path)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
