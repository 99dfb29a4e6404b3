"""An authority that signs certificates for 127.0.0.1, for tests of encrypted ports."""

from __future__ import annotations

import datetime
import ipaddress
import pathlib

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


class Authority:
    """Signs certificates for 127.0.0.1 and writes them as PEM files."""

    def __init__(self, folder: pathlib.Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(_pem(self._sign(self._name, self._key, DAY, authority=True)))

    def issue(self, name: str, valid: datetime.timedelta = DAY, password: bytes | None = None) -> None:
        """Write NAME.pem and NAME.key, valid until ``valid`` from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        (self._folder / f"{name}.pem").write_bytes(_pem(self._sign(subject, key, valid)))
        lock = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        file = self._folder / f"{name}.key"
        file.touch(0o600)
        file.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock))

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, valid: datetime.timedelta, authority: bool = False
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * DAY)
            .not_valid_after(now + valid)
            .add_extension(x509.BasicConstraints(authority, None), critical=True)
            .add_extension(names, critical=False)
            # Python 3.13 refuses certificates without these.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(x509.KeyUsage(True, *[False] * 4, authority, *[False] * 3), critical=True)
            .sign(self._key, hashes.SHA256())
        )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
