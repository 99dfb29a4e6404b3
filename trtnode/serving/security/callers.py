"""The pages and names from which requests may come: a browser sends what any page asks it to, also to this machine."""

from __future__ import annotations

import dataclasses
import ipaddress
import urllib.parse
from collections.abc import Iterable

from trtnode.serving.schema.server import HttpConfig

SAFE = (b"GET", b"HEAD")
"""Methods that change nothing, and whose answers a browser keeps from other pages."""
Fault = tuple[int, str]
"""A status, and its reason."""


@dataclasses.dataclass(frozen=True, slots=True)
class Callers:
    """The rules of a port.

    Attributes:
        hosts: Names that requests may call the server by, beside addresses and localhost; None for any.
        origins: Pages that may send more than a look, beside those of this server.
    """

    hosts: frozenset[str] | None
    origins: frozenset[str]

    @classmethod
    def of(cls, config: HttpConfig) -> Callers:
        """Return the rules that are configured."""
        hosts = frozenset(map(str.lower, config.allowed_hosts))
        is_open = not hosts and not is_local(config.host)
        return cls(None if is_open else hosts, frozenset(map(str.lower, config.allowed_origins)))

    def fault(self, method: bytes, version: str, headers: Iterable[tuple[bytes, bytes]]) -> Fault | None:
        """Return why a request isn't answered; None if it is.

        Args:
            method: As it came.
            version: Of HTTP.
            headers: With names in lower case.
        """
        hosts, origin, site = [], "", b""
        for name, value in headers:
            if name == b"host":
                hosts.append(value.decode("latin-1").strip().lower())
            elif name == b"origin":
                origin = value.decode("latin-1").strip().lower()
            elif name == b"sec-fetch-site":
                site = value
        if len(hosts) > 1 or (not hosts and version == "1.1"):
            return 400, f"a request has one Host, and this has {len(hosts) or 'none'}"
        host = hosts[0] if hosts else ""
        if hosts and not self._is_known(host):
            return 421, f"this server isn't known as {host[:255]!r}; server.http.allowed_hosts names others"
        if method in SAFE:
            return None
        foreign = site == b"cross-site" if not origin else urllib.parse.urlsplit(origin).netloc != host
        if foreign and origin not in self.origins:
            return 403, (
                f"pages of {origin[:255] or 'other sites'} may not send this; server.http.allowed_origins names those "
                "that may"
            )
        return None

    def _is_known(self, host: str) -> bool:
        if self.hosts is None:
            return True
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        return host in self.hosts or name in self.hosts or is_local(name) or _is_address(name)


def _is_address(name: str) -> bool:
    """Return whether a name is an address, which no foreign page can make its own."""
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def is_local(name: str) -> bool:
    """Return whether a name or an address is that of this machine alone."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    return _is_address(name) and ipaddress.ip_address(name.strip("[]")).is_loopback
