"""The envelope of a served registry: a restriction, and an Ed25519 signature that the app checks.

::

    {"format": 1, "restriction": "its text", "valid_until": "2026-12-31", "signature": "base64 of 64 bytes"}

The signature is of the line ``deniable restriction 1 until 2026-12-31`` and then the text. So it covers the revision, too.
Without ``valid_until`` the line is ``deniable restriction 1``. A key is written as the base64 of its 32 bytes.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from datetime import date
from hashlib import sha256
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError, Fault, ServedRegistryError
from deniable.frozen import dataclass
from deniable.process.imports import undisturbed
from deniable.wire import key_pair

if TYPE_CHECKING:
    from types import ModuleType

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

FORMAT = 1
MAX_BYTES = 1024 * 1024
"""Largest envelope."""
FILE = "the served registry"
"""The file's name in faults."""

# Stands before the text that is signed. So a signature that the key gave anything else is none of a restriction.
_HEADER = "deniable restriction 1"
_MEMBERS = {"format", "restriction", "signature"}
_UNTIL = "valid_until"
_SHOWN = 60  # characters of a value in a fault


def refusal(rule: str, value: object, metric: str = "-") -> ServedRegistryError:
    """Return the error for one fault."""
    return ServedRegistryError([Fault(FILE, str(_short(metric)), rule, value if value is ... else _short(value))])


def day(name: str, written: object, metric: str = "-") -> date:
    """Read a day; raise `ServedRegistryError` if it is not written in the one way that there is."""
    try:
        parsed = date.fromisoformat(written if isinstance(written, str) else "")
    except ValueError:
        parsed = None
    if parsed is None or parsed.isoformat() != written:
        raise refusal(f"{name}: write a day such as 2026-12-31", written, metric)
    return parsed


@dataclass(frozen=True, slots=True)
class Envelope:
    """The text of a restriction, and its signature."""

    text: str
    signature: bytes
    # The last day (UTC) on which it may be handed to a device that has not had it; None for no end.
    valid_until: date | None = None

    @classmethod
    def read(cls, body: bytes) -> Envelope | None:
        """Read an envelope; None for something else, such as a hotel's login page; raise `ServedRegistryError` if invalid."""
        # Before it is parsed: the server, or whoever answers in its place, chooses its size.
        if len(body) > MAX_BYTES:
            raise refusal(f"the envelope has {len(body):,} bytes, and {MAX_BYTES:,} are allowed: list fewer metrics", ...)
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            return None
        if not isinstance(document, dict) or not {"restriction", "signature"} & set(document):
            return None
        if set(document) - {_UNTIL} != _MEMBERS:
            raise refusal(
                f"the members of an envelope: write {', '.join(sorted(_MEMBERS))}, and nothing else", ", ".join(sorted(document))
            )
        if document["format"] != FORMAT or isinstance(document["format"], bool):  # True == 1
            raise refusal(f"format: write {FORMAT}", document["format"])
        text, written = document["restriction"], document["signature"]
        if not isinstance(text, str) or not isinstance(written, str):
            kinds = f"{type(text).__name__} and {type(written).__name__}"
            raise refusal(f"restriction and signature are {kinds}: write texts", ...)
        return cls(text, _bytes(written, 64, "a signature"), day(_UNTIL, document[_UNTIL]) if _UNTIL in document else None)

    def write(self) -> bytes:
        """Write the envelope as JSON."""
        until = {_UNTIL: self.valid_until.isoformat()} if self.valid_until else {}
        document = {"format": FORMAT, "restriction": self.text, **until, "signature": b64encode(self.signature).decode()}
        return json.dumps(document, indent=1).encode() + b"\n"

    @property
    def digest(self) -> str:
        """SHA-256 of the text, in hexadecimal. If it is published, anyone can check that all devices get the same text."""
        return sha256(self.text.encode(errors="surrogatepass")).hexdigest()

    def is_fresh(self, today: date) -> bool:
        """Return whether it may still be handed to a device that has not had it."""
        return self.valid_until is None or today <= self.valid_until

    def verify(
        self,
        public_key: str,  # the base64 of 32 bytes
    ) -> None:
        """Raise `ServedRegistryError` if the signature is by another key, or of another text."""
        from_bytes = _ed25519().Ed25519PublicKey.from_public_bytes
        key: Ed25519PublicKey = from_bytes(check_public_key(public_key))
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - see `_ed25519`

        try:
            key.verify(self.signature, _signed(self.text, self.valid_until))
        except InvalidSignature:
            raise refusal("the signature is of another text, or by another key than the app pins: sign it again", ...) from None


def check_installed() -> None:
    """Raise `ConfigurationError` if the package `cryptography` is not installed; it is not imported."""
    from importlib.util import find_spec  # noqa: PLC0415 - only apps with a served registry need it

    if find_spec("cryptography") is None:
        rule = "a signed registry needs the package cryptography, which is not installed: pip install 'deniable[signed]'"
        raise ConfigurationError(rule)


def check_public_key(written: str) -> bytes:
    """Read a public key; raise `ConfigurationError` if it is invalid."""
    try:
        return _bytes(written, 32, "a public key")
    except ServedRegistryError as error:
        raise ConfigurationError(error.faults[0].words) from None


def generate() -> tuple[bytes, str]:
    """Draw a key pair: the private key in PEM, and the public one, to be pinned in the app."""
    key: Ed25519PrivateKey = _ed25519().Ed25519PrivateKey.generate()
    return key_pair.private(key), key_pair.public(key)


def seal(
    text: str,  # of a restriction
    private_key: bytes,  # PEM
    valid_until: date | None = None,  # the last day on which it may be handed to a device that has not had it; None for no end
) -> tuple[Envelope, str]:
    """Sign the text of a restriction, and return the envelope to serve and the public key of the signature."""
    ed25519 = _ed25519()
    key = key_pair.read(private_key)
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise ConfigurationError("a key file is what `deniable registry keygen` writes: an Ed25519 key in PEM, not encrypted")
    return Envelope(text, key.sign(_signed(text, valid_until)), valid_until), key_pair.public(key)


def _ed25519() -> ModuleType:
    """Import the module when it is used, in the sending thread, because this is slow."""
    check_installed()
    with undisturbed():
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415

    return ed25519


def _signed(text: str, valid_until: date | None) -> bytes:
    header = f"{_HEADER} until {valid_until.isoformat()}\n" if valid_until else f"{_HEADER}\n"
    # JSON can write a lone surrogate, which has no UTF-8. No signed text has one.
    return (header + text).encode(errors="surrogatepass")


def _short(value: object) -> object:
    """Return a value as a fault shows it: whoever signs may make it as long as an envelope."""
    if not isinstance(value, str | int | float | None):
        return type(value).__name__
    return value if len(str(value)) <= _SHOWN else f"{str(value)[: _SHOWN - 3]}..."


def _bytes(written: str, size: int, what: str) -> bytes:
    try:
        data = b64decode(written, validate=True)
    except ValueError:  # also binascii.Error; a text that is not ASCII raises ValueError itself
        data = b""
    # There are several ways to write the same bytes, by which a server could mark a device. Only one is read.
    if len(data) != size or b64encode(data).decode() != written:
        raise refusal(f"{what} is no base64 of {size} bytes: copy all of it", ...)
    return data
