"""Key pairs (Ed25519, X25519) as text: the private key is PKCS #8 in PEM, not encrypted; the public one, base64 of 32 bytes."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey


def private(key: Ed25519PrivateKey | X25519PrivateKey) -> bytes:
    """Write a private key, as `read` reads it."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - few need keys, and it is slow

    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def public(key: Ed25519PrivateKey | X25519PrivateKey) -> str:
    """Write the public key of a private one."""
    return b64encode(key.public_key().public_bytes_raw()).decode()


def read(pem: bytes) -> object | None:
    """Return the private key in a file, of whatever kind, or None if it is no such file."""
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - see `private`
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    try:
        return load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
