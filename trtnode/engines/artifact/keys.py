"""Reads and writes the Ed25519 keys of signers, and checks their signatures."""

from __future__ import annotations

import pathlib

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from trtnode.engines.artifact.cache_folder import OTHERS
from trtnode.engines.artifact.machine_key import read_key_file, write_key_file
from trtnode.engines.errors import KeyFileError

PUBLIC_SUFFIX = ".pub"


def generate_key(path: pathlib.Path) -> pathlib.Path:
    """Write a new private key (PEM, without a password, readable by its owner alone), and beside it the public one.

    Returns:
        The file of the public key: the same name with ``.pub``.

    Raises:
        KeyFileError: One of the files is there already, or can't be written.
    """
    key = Ed25519PrivateKey.generate()
    public = path.with_name(path.name + PUBLIC_SUFFIX)
    if public.exists():
        raise KeyFileError(public, "is there already, and keys are never overwritten; choose another name")
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    write_key_file(path, key.private_bytes(serialization.Encoding.PEM, *form), 0o600)
    form_public = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    write_key_file(public, key.public_key().public_bytes(*form_public), 0o644)
    return public


def read_private_key(path: pathlib.Path) -> Ed25519PrivateKey:
    """Read a key to sign with.

    Raises:
        KeyFileError: The file is no Ed25519 private key without a password, or others can read it.
    """
    data, facts = read_key_file(path)
    try:
        key = serialization.load_pem_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: it has a password
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(path, "is no Ed25519 private key without a password; make one with `trtnode keys generate`")
    if facts.st_mode & OTHERS:
        raise KeyFileError(
            path, "is a private key that others can read or change; run `chmod 600` on it, or make another"
        )
    return key


def read_public_key(path: pathlib.Path) -> bytes:
    """Read the 32 bytes of a key that checks signatures.

    Raises:
        KeyFileError: The file is no Ed25519 public key.
    """
    data, _ = read_key_file(path)
    try:
        key = serialization.load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise KeyFileError(path, "is no Ed25519 public key; give the .pub file that `trtnode keys generate` wrote")
    return key.public_bytes_raw()


def has_signed(key: bytes, signature: bytes, data: bytes) -> bool:
    """Return whether the owner of a public key, of 32 bytes, has signed some data."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, data)
    except InvalidSignature:
        return False
    return True
