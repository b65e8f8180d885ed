"""The envelope of a served registry: what is signed, and what is no envelope."""

from __future__ import annotations

import importlib.util
import json
from base64 import b64decode, b64encode
from hashlib import sha256

import pytest

from deniable.errors import ConfigurationError, ServedRegistryError
from deniable.served_registry.signature import MAX_BYTES, Envelope, check_public_key, generate, seal

TEXT = '{"app":"caf\u00e9",\r\n"revision":3}'  # an envelope may hold any text
# RFC 8032, section 7.1, test 1: a key pair that everybody has.
PUBLIC = b64encode(bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")).decode()
SIGNATURE = bytes.fromhex(
    "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"  # its R
    "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"  # and S, of the empty message
)


def changed(body, **members):
    document = json.loads(body) | members
    return json.dumps({name: value for name, value in document.items() if value is not None}).encode()


def test_a_signature_holds_for_its_text_alone(sealed):
    """What was signed is verified; another text, another signature and another key are not."""
    body = sealed(TEXT)
    envelope = Envelope.read(body)
    assert envelope.text == TEXT
    envelope.verify(sealed.public)
    assert Envelope.read(envelope.write()) == envelope
    assert envelope.digest == sha256(TEXT.encode()).hexdigest()
    first = envelope.signature[0] ^ 1
    for forged in (
        changed(body, restriction=TEXT.replace("3", "4")),
        changed(body, restriction=TEXT.replace("\r\n", "\n")),
        changed(body, restriction="\ud800"),
        changed(body, signature=b64encode(bytes([first]) + envelope.signature[1:]).decode()),
        changed(body, signature=b64encode(bytes(64)).decode()),
        sealed(TEXT, "theirs"),
    ):
        with pytest.raises(ServedRegistryError, match="the signature is of another text, or by another key than the app pins"):
            Envelope.read(forged).verify(sealed.public)


def test_what_is_signed_begins_with_a_header(sealed):
    """A signature that the same key made for another purpose is none of a registry; ours is Ed25519 as in RFC 8032."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = load_pem_private_key(sealed.private, password=None)
    with pytest.raises(ServedRegistryError, match="the signature is of another text, or by another key than the app pins"):
        Envelope(TEXT, key.sign(TEXT.encode())).verify(sealed.public)
    Envelope(TEXT, key.sign(b"deniable restriction 1\n" + TEXT.encode())).verify(sealed.public)
    Ed25519PublicKey.from_public_bytes(b64decode(PUBLIC)).verify(SIGNATURE, b"")
    with pytest.raises(ServedRegistryError, match="the signature is of another text, or by another key than the app pins"):
        Envelope("", SIGNATURE).verify(PUBLIC)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<!DOCTYPE html><title>Welcome to our hotel</title>",
        b"\xff\xfe",
        b"[1, 2]",
        b'"text"',
        b"{}",
        b'{"error": "not found"}',
        b'{"format": 1, "restriction": "{\\"app\\":\\"shop\\"',
        b'{"app":"shop","metrics":{},"revision":6}',
        b'format = 1\n[metrics."ui.theme"]\n',
        b"[" * 100_000,
        b"1" * 10_000,
    ],
)
def test_other_documents_are_no_envelope(body):
    """A page of somebody's network, and what is not signed at all, is not an attempt to serve a registry."""
    assert Envelope.read(body) is None


GOOD = {"format": 1, "restriction": "x", "signature": b64encode(bytes(64)).decode()}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            {"signature": None},
            "the members of an envelope = 'format, restriction': write format, restriction, ",
        ),
        ({"restriction": None}, "the members of an envelope = 'format, signature': write format, restriction, "),
        (
            {"registry": "x"},
            "the members of an envelope = 'format, registry, restriction, signature': write format, restriction, ",
        ),
        (
            {"seed": 7},
            "the members of an envelope = 'format, restriction, seed, signature': write format, restriction, ",
        ),
        ({"format": 2}, "format = 2: write 1"),
        ({"format": True}, "format = true: write 1"),
        ({"restriction": {"app": "shop"}}, "restriction and signature are dict and str: write texts"),
        ({"signature": 5}, "restriction and signature are str and int: write texts"),
        ({"signature": ""}, "a signature is no base64 of 64 bytes: copy all of it"),
        ({"signature": b64encode(bytes(63)).decode()}, "a signature is no base64 of 64 bytes: copy all of it"),
        (
            {"signature": b64encode(bytes(64)).decode()[:-2] + "B="},
            "a signature is no base64 of 64 bytes: copy all of it",
        ),
        ({"signature": GOOD["signature"] + "\n"}, "a signature is no base64 of 64 bytes: copy all of it"),
        ({"signature": "\u00e9" * 88}, "a signature is no base64 of 64 bytes: copy all of it"),
        (b" " * (MAX_BYTES + 1), f"the envelope has {MAX_BYTES + 1:,} bytes, and {MAX_BYTES:,} are allowed: list fewer metrics"),
    ],
)
def test_a_faulty_envelope_is_refused(body, words):
    """What was meant for an envelope has its exact form, or is refused with the rule."""
    body = body if isinstance(body, bytes) else changed(json.dumps(GOOD).encode(), **body)
    with pytest.raises(ServedRegistryError, match=words):
        Envelope.read(body)


def test_a_largest_envelope_is_read():
    """A mebibyte is allowed, to the byte."""
    filler = "x" * (MAX_BYTES - len(json.dumps(GOOD)) + 1)
    body = json.dumps(GOOD | {"restriction": filler}).encode()
    assert len(body) == MAX_BYTES
    assert Envelope.read(body).text == filler


@pytest.mark.parametrize("key", ["", "short", PUBLIC[:-1], PUBLIC + "=", PUBLIC + "\n", "-----BEGIN PRIVATE KEY-----"])
def test_a_public_key_is_32_bytes(key):
    """A mistyped key is noticed before anything is served."""
    with pytest.raises(ConfigurationError, match="a public key is no base64 of 32 bytes: copy all of it"):
        check_public_key(key)


def test_a_key_file_is_ours(sealed):
    """Only what keygen writes signs: no other kind of key, no public one, nothing encrypted."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
        load_pem_private_key,
    )

    ours = load_pem_private_key(sealed.private, password=None)
    other = ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    encrypted = ours.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    public = ours.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for bad in (b"", b"text", other, encrypted, public):
        with pytest.raises(ConfigurationError, match="a key file is what `deniable registry keygen` writes"):
            seal(TEXT, bad)
    assert seal(TEXT, sealed.private)[1] == sealed.public
    assert generate()[1] != generate()[1]


def test_without_the_extra_the_message_names_it(monkeypatch):
    """Where cryptography is missing, whoever needs it is told what to install."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *arguments: None if name == "cryptography" else find(name, *arguments)
    )
    for use in (generate, lambda: seal(TEXT, b""), lambda: Envelope(TEXT, bytes(64)).verify(PUBLIC)):
        with pytest.raises(ConfigurationError, match=r"pip install 'deniable\[signed\]'"):
            use()
