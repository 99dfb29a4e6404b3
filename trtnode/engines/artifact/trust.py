"""Decides whose engines may run, before a library sees any engine byte: engine bytes can be programs.

A signature stands in the envelope. The envelope has the hashes of the engine bytes and of the nodes which they replace,
so a signature covers all three. It is either ``ed25519:`` and the signature of a key pair's owner in base64, or
``machine:`` and the mark of the machine that built the engine (``trtnode.engines.artifact.machine_key``).
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import pathlib
from collections.abc import Iterable

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from trtnode.engines.artifact.envelope import Envelope
from trtnode.engines.artifact.keys import has_signed, read_public_key
from trtnode.engines.artifact.machine_key import MachineKey
from trtnode.engines.errors import EngineRejectedError

SIGNED, MARKED = "ed25519:", "machine:"
MACHINE_KEY_FILE = "machine.key"
HARMLESS = frozenset({"openvino", "reference", "sparse"})
"""Backends whose engine bytes are data, and need no signature unless the user names keys."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The rules that make an engine trusted.

    Attributes:
        keys: Ed25519 public keys, 32 bytes each; an engine that one of them signed may run.
        allow_unsigned: Backends whose engines run without any signature.
        machine: Knows the engines that were built on this machine; None where there is no such knowledge.
    """

    keys: tuple[bytes, ...] = ()
    allow_unsigned: frozenset[str] = HARMLESS
    machine: MachineKey | None = None

    @classmethod
    def of(cls, keys: Iterable[pathlib.Path], allow_unsigned: Iterable[str] | None) -> Trust:
        """Read public keys.

        Args:
            keys: Files.
            allow_unsigned: Backends; None allows those whose engines are data, if there are no keys.

        Raises:
            KeyFileError: A file is no public key.
        """
        read = tuple(read_public_key(path) for path in keys)
        if allow_unsigned is not None:
            return cls(keys=read, allow_unsigned=frozenset(allow_unsigned))
        return cls(keys=read, allow_unsigned=frozenset() if read else HARMLESS)

    def on_machine(self, folder: pathlib.Path) -> Trust:
        """Return the same rules, which also trust the engines of the machine that has its key in a folder."""
        return dataclasses.replace(self, machine=MachineKey(folder / MACHINE_KEY_FILE))

    def mark(self, envelope: Envelope) -> Envelope:
        """Return the envelope with this machine's mark, if it has a key."""
        mark = self.machine.mark(envelope.signed_bytes()) if self.machine else None
        return dataclasses.replace(envelope, signature=f"{MARKED}{mark}" if mark else None)

    def check(self, envelope: Envelope, segment: str) -> None:
        """Refuse an engine that nobody vouches for.

        Args:
            envelope: Of the engine. ``Envelope.verify`` compares it with the engine bytes.
            segment: For the message.

        Raises:
            EngineRejectedError: It needs a signature, and has none that counts.
        """
        if envelope.backend in self.allow_unsigned or self._is_signed(envelope):
            return
        if envelope.signature is None:
            problem = f"it has no signature, and engines of {envelope.backend} need one: `trtnode sign` signs the file"
            raise EngineRejectedError(segment, f"{problem}, and trust.keys or --trust-key names the key.")
        whose = "a trusted key" if self.keys else "this machine, and no key is trusted"
        raise EngineRejectedError(segment, f"its signature is not of {whose}, or what it covers was changed.")

    def _is_signed(self, envelope: Envelope) -> bool:
        signature, data = envelope.signature or "", envelope.signed_bytes()
        if signature.startswith(MARKED):
            return self.machine is not None and self.machine.accepts(data, signature.removeprefix(MARKED))
        return signature.startswith(SIGNED) and any(_fits(key, signature, data) for key in self.keys)


def sign(envelope: Envelope, key: Ed25519PrivateKey) -> Envelope:
    """Return the envelope with a signature in place of the one that it had."""
    signature = base64.b64encode(key.sign(envelope.signed_bytes())).decode()
    return dataclasses.replace(envelope, signature=f"{SIGNED}{signature}")


def _fits(key: bytes, signature: str, data: bytes) -> bool:
    try:
        decoded = base64.b64decode(signature.removeprefix(SIGNED), validate=True)
    except (binascii.Error, ValueError):  # ValueError: characters beyond ASCII
        return False
    return has_signed(key, decoded, data)
