"""The certificates of the gRPC port: read, checked, and exchanged while the server runs."""

import dataclasses
import datetime
import logging
import pathlib
import threading
from collections.abc import Callable
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from serving.errors import TlsError
from serving.exposure import warn_of_public_file
from serving.schema import TlsConfig

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """What the port shows to clients, and whom it accepts, all in PEM form.

    Attributes:
        cert: Certificate chain.
        key: Private key.
        client_ca: Authorities of the clients; None for clients without certificates.
    """

    cert: bytes
    key: bytes = dataclasses.field(repr=False)
    client_ca: bytes | None

    @classmethod
    def read(cls, config: TlsConfig) -> "Identity":
        """Read the configured files.

        Raises:
            TlsError: One can't be read.
        """
        try:
            client_ca = config.client_ca.read_bytes() if config.client_ca else None
            return cls(config.cert.read_bytes(), config.key.read_bytes(), client_ca)
        except OSError as error:
            raise TlsError(f"{error.filename} can't be read ({error.strerror}); check the path") from None

    def check(self, config: TlsConfig) -> datetime.datetime:
        """Return when the certificate ends.

        Raises:
            TlsError: A file isn't what it should be, or the key is not that of the certificate.
        """
        certificate = _parsed(config.cert, "certificate", lambda: x509.load_pem_x509_certificates(self.cert)[0])
        key = _parsed(
            config.key, "private key without a password", lambda: serialization.load_pem_private_key(self.key, None)
        )
        if config.client_ca is not None:
            _parsed(config.client_ca, "certificate", lambda: x509.load_pem_x509_certificates(self.client_ca or b""))
        if key.public_key() != certificate.public_key():
            raise TlsError(
                f"the key {config.key} is not that of the certificate {config.cert}; use the two of one pair"
            )
        expires: datetime.datetime = certificate.not_valid_after_utc
        return expires

    def configuration(self) -> Any:
        """Return it in the form that gRPC takes."""
        return grpc.ssl_server_certificate_configuration([(self.key, self.cert)], self.client_ca)


class Certificates:
    """The identity of a port, as its files have it. Files that can't be used change nothing.

    Attributes:
        expires: When the certificate ends.
    """

    def __init__(self, config: TlsConfig) -> None:
        """Read the files.

        Raises:
            TlsError: They can't be used.
        """
        self._config = config
        self._lock = threading.Lock()
        self._identity = Identity.read(config)
        self._complaint = ""
        self.expires = self._identity.check(config)
        warn_of_public_file(config.key)
        if self.problem():
            logger.error("%s", self.problem())

    def credentials(self) -> grpc.ServerCredentials:
        """Return what gRPC opens the port with. The files are read again for each new connection."""
        return grpc.dynamic_ssl_server_credentials(
            self._identity.configuration(),
            self._renew,
            require_client_authentication=self._config.client_ca is not None,
        )

    def problem(self) -> str | None:
        """Say why clients refuse the certificate; None before its end."""
        if datetime.datetime.now(datetime.UTC) <= self.expires:
            return None
        return (
            f"the certificate {self._config.cert.name} expired on {self.expires:%Y-%m-%d %H:%M} UTC, so clients refuse "
            "the gRPC port; put a new certificate and key in place, no restart is needed"
        )

    def _renew(self) -> Any:
        """Return the configuration for the next connection; None for the one before."""
        with self._lock:
            try:
                identity = Identity.read(self._config)
                if identity == self._identity:
                    return None
                expires = identity.check(self._config)
            except TlsError as error:
                self._complain(str(error))
                return None
            self._identity, self.expires, self._complaint = identity, expires, ""
            logger.info("The gRPC port has a new certificate, valid until %s", expires)
            return identity.configuration()

    def _complain(self, text: str) -> None:
        """Log why new files are not used, once for each reason: clients may connect often."""
        if text != self._complaint:
            logger.error("The gRPC port keeps its certificate: %s", text)
            self._complaint = text


def _parsed(path: pathlib.Path, kind: str, parse: Callable[[], Any]) -> Any:
    """Return what ``parse`` makes of a file. What it raises may quote the file, so it is not handed on.

    Raises:
        TlsError: It isn't of that kind.
    """
    try:
        return parse()
    except Exception:
        raise TlsError(f"{path} holds no {kind} in PEM form; check that the right file is named") from None
