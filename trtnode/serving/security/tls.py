"""The certificates of a port: read, checked, and exchanged while the server runs.

Certificates are read for each new connection and compared by content. Time stamps miss a change within a tick and a
swapped link. Files that can't be used leave the certificates before them in use.
"""

from __future__ import annotations

import dataclasses
import datetime
import logging
import os
import pathlib
import ssl
import threading
from collections.abc import Callable
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from trtnode.serving.errors import TlsError
from trtnode.serving.schema.server import TlsConfig
from trtnode.serving.security.exposure_warnings import warn_of_public_file

logger = logging.getLogger(__name__)

PORT_NAMES = {"grpc": "gRPC", "http": "HTTP"}


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """The identity that a port shows to clients, and the authorities that it accepts, in PEM form.

    Attributes:
        cert: Certificate chain.
        key: Private key.
        client_ca: Authorities of the clients; None for clients without certificates.
        section: The port's part of the configuration.
    """

    section: str
    cert: bytes
    key: bytes = dataclasses.field(repr=False)
    client_ca: bytes | None

    @classmethod
    def read(cls, section: str, config: TlsConfig) -> Identity:
        """Read the configured files.

        Raises:
            TlsError: One can't be read.
        """
        try:
            client_ca = config.client_ca.read_bytes() if config.client_ca else None
            return cls(section, config.cert.read_bytes(), config.key.read_bytes(), client_ca)
        except OSError as error:
            raise TlsError(section, f"{error.filename} can't be read ({error.strerror}); check the path") from None

    def check(self, config: TlsConfig) -> datetime.datetime:
        """Return when the certificate ends.

        Raises:
            TlsError: A file isn't what it should be, or the key is not that of the certificate.
        """
        certificate = self._parsed(config.cert, "certificate", lambda: x509.load_pem_x509_certificates(self.cert)[0])
        key = self._parsed(
            config.key, "private key without a password", lambda: serialization.load_pem_private_key(self.key, None)
        )
        if config.client_ca is not None:
            authorities = self.client_ca or b""
            self._parsed(config.client_ca, "certificate", lambda: x509.load_pem_x509_certificates(authorities))
        if key.public_key() != certificate.public_key():
            raise TlsError(
                self.section,
                f"the key {config.key} is not that of the certificate {config.cert}; use the two of one pair",
            )
        expires: datetime.datetime = certificate.not_valid_after_utc
        return expires

    def configuration(self) -> Any:
        """Return it in the form that gRPC takes."""
        return grpc.ssl_server_certificate_configuration([(self.key, self.cert)], self.client_ca)

    def context(self) -> ssl.SSLContext:
        """Return it in the form that Python's sockets take."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with os.fdopen(os.memfd_create("identity"), "wb") as both:  # the library reads files only; this is in memory
            both.write(self.key + b"\n" + self.cert)
            both.flush()
            context.load_cert_chain(f"/proc/self/fd/{both.fileno()}")
        if self.client_ca is not None:
            context.load_verify_locations(cadata=self.client_ca.decode())
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _parsed(self, path: pathlib.Path, kind: str, parse: Callable[[], Any]) -> Any:
        """Return what ``parse`` makes of a file. What it raises may quote the file, so it is not handed on.

        Raises:
            TlsError: It isn't of that kind.
        """
        try:
            return parse()
        except Exception:
            problem = f"{path} holds no {kind} in PEM form; check that the right file is named"
            raise TlsError(self.section, problem) from None


class Certificates:
    """The identity of a port, as its files have it. Files that can't be used change nothing.

    Attributes:
        expires: When the certificate ends.
    """

    def __init__(self, section: str, config: TlsConfig) -> None:
        """Read the files.

        Args:
            section: The port's part of the configuration: ``grpc`` or ``http``.
            config: Their paths.

        Raises:
            TlsError: They can't be used.
        """
        self._section = section
        self._config = config
        self._lock = threading.Lock()
        self._identity = Identity.read(section, config)
        self._context: ssl.SSLContext | None = None
        self._complaint = ""
        self.expires = self._identity.check(config)
        warn_of_public_file(config.key)
        if self.problem():
            logger.error("%s", self.problem())

    def credentials(self) -> grpc.ServerCredentials:
        """Return what gRPC opens the port with. The files are read again for each new connection."""

        def newest() -> Any:
            return self._identity.configuration() if self._renew() else None  # None keeps the one before

        return grpc.dynamic_ssl_server_credentials(
            self._identity.configuration(),
            newest,
            require_client_authentication=self._config.client_ca is not None,
        )

    def context(self) -> ssl.SSLContext:
        """Return what asyncio opens the port with. The files are read again for each new connection."""
        return _FollowingContext(self)

    def newest(self) -> ssl.SSLContext:
        """Return the context of a connection that begins now."""
        if self._renew() or self._context is None:
            self._context = self._identity.context()
        return self._context

    def problem(self) -> str | None:
        """Return why clients refuse the certificate; None before its end."""
        if datetime.datetime.now(datetime.UTC) <= self.expires:
            return None
        return (
            f"the certificate {self._config.cert.name} expired on {self.expires:%Y-%m-%d %H:%M} UTC, so clients refuse "
            f"the {PORT_NAMES[self._section]} port; put a new certificate and key in place, no restart is needed"
        )

    def _renew(self) -> bool:
        """Take over what the files hold now; return whether that is new."""
        with self._lock:
            try:
                identity = Identity.read(self._section, self._config)
                if identity == self._identity:
                    return False
                expires = identity.check(self._config)
            except TlsError as error:
                self._complain(str(error))
                return False
            self._identity, self.expires, self._complaint = identity, expires, ""
            logger.info("The %s port has a new certificate, valid until %s", PORT_NAMES[self._section], expires)
            return True

    def _complain(self, text: str) -> None:
        """Log why new files are not used, once for each reason: clients may connect often."""
        if text != self._complaint:
            logger.error("The %s port keeps its certificate: %s", PORT_NAMES[self._section], text)
            self._complaint = text


class _FollowingContext(ssl.SSLContext):
    """Begins each connection with the newest certificates."""

    def __new__(cls, _certificates: Certificates) -> _FollowingContext:
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, certificates: Certificates) -> None:
        self._certificates = certificates

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """Return a connection, see ``SSLContext.wrap_bio``."""
        return self._certificates.newest().wrap_bio(*args, **kwargs)
