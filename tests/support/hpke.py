"""HPKE (RFC 9180, base mode) from its parts, as docs/reference/wire says: to seal with a given ephemeral key, and to open."""

from __future__ import annotations

import hmac
from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEM, SUITE = b"KEM\x00\x20", b"HPKE\x00\x20\x00\x01\x00\x01"


def extract(suite, salt, label, material):
    return hmac.digest(salt, b"HPKE-v1" + suite + label + material, sha256)


def expand(suite, secret, label, info, size):
    return hmac.digest(secret, size.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info + b"\1", sha256)[:size]


def context(shared, enc, public, info):
    """Return the key and the nonce of the only message."""
    secret = extract(KEM, b"", b"eae_prk", shared)
    secret = expand(KEM, secret, b"shared_secret", enc + public, 32)
    schedule = b"\0" + extract(SUITE, b"", b"psk_id_hash", b"") + extract(SUITE, b"", b"info_hash", info)
    secret = extract(SUITE, secret, b"secret", b"")
    return expand(SUITE, secret, b"key", schedule, 16), expand(SUITE, secret, b"base_nonce", schedule, 12)


def seal(public, info, payload, ephemeral):
    """Seal a payload with the ephemeral private key that is given."""
    own = X25519PrivateKey.from_private_bytes(ephemeral)
    enc = own.public_key().public_bytes_raw()
    key, nonce = context(own.exchange(X25519PublicKey.from_public_bytes(public)), enc, public, info)
    return enc + AESGCM(key).encrypt(nonce, payload, b"")


def opened(private, info, sealed):
    """Open what was sealed; it raises `InvalidTag` for another key or another info."""
    own, enc = X25519PrivateKey.from_private_bytes(private), sealed[:32]
    shared = own.exchange(X25519PublicKey.from_public_bytes(enc))
    key, nonce = context(shared, enc, own.public_key().public_bytes_raw(), info)
    return AESGCM(key).decrypt(nonce, sealed[32:], b"")
