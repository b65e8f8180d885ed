"""Sealed reports: what a device sends to a relay, which cannot read it.

::

    sealed = number of the key (1 byte), enc (32 bytes), ciphertext (payload and 16 bytes)
    enc, ciphertext = SealBase(public key, info, aad = "", payload)      of RFC 9180 (HPKE), with
                      DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM: 0x0020, 0x0001, 0x0001

Each report is sealed by itself, with a key that is drawn for it. It is bound (`binding`) to all that it is counted by. So it
opens for no other app, metric, period or segment. All sealed reports of a metric have the same length.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.process.imports import undisturbed
from deniable.wire import key_pair

if TYPE_CHECKING:
    from deniable.wire.report import Report, Stratum

LONGER = 1 + 32 + 16
"""Bytes by which a sealed report is longer than its payload."""

MOST_KEYS = 255
"""Highest number of a key."""

_HEADER = "deniable sealed report 1"


def lacking() -> str:
    """Say what reports cannot be sealed without and how to install it; empty if it is there. Nothing is imported."""
    from importlib.util import find_spec  # noqa: PLC0415 - only apps with a relay need it

    spec = find_spec("cryptography")
    folders = spec.submodule_search_locations if spec else None
    if any((Path(folder) / "hazmat" / "primitives" / "hpke.py").is_file() for folder in folders or ()):
        return ""
    return "reports for a relay are sealed, which needs the package cryptography, 47 or later: pip install 'deniable[relay]'"


def generate(number: int) -> tuple[bytes, str]:
    """Draw a key pair of the server: the private key in PEM, and the key of a registry's [relay], with its number."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey  # noqa: PLC0415 - see `lacking`

    key = X25519PrivateKey.generate()
    return key_pair.private(key), f"{number}:{key_pair.public(key)}"


def binding(app: str, stratum: Stratum, number: int) -> bytes:
    """Return what a report is bound to: all that it is counted by, and the number of the key, each on a line of its own."""
    return "\n".join((_HEADER, app, *map(str, stratum), str(number))).encode()


def suite() -> Any:
    """Return what seals and opens."""
    from cryptography.hazmat.primitives import hpke  # noqa: PLC0415 - see `lacking`

    return hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_128_GCM)


class Sealer:
    """Seals the reports of an app for its relay, in the sending thread."""

    def __init__(
        self,
        app: str,
        number: int,  # of the server's public key, in [1, 255]
        public_key: bytes,  # the server's, 32 bytes
    ) -> None:
        self._app = app
        self._number = number
        self._public_key = public_key
        self._suite: Any = None
        self._key: Any = None

    def prepare(self) -> None:
        """Import what sealing needs. It is slow, so the sending thread does it."""
        with undisturbed():
            from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey  # noqa: PLC0415

            self._key = X25519PublicKey.from_public_bytes(self._public_key)
            self._suite = suite()

    def __call__(self, report: Report) -> Report:
        """Return a report as it may travel: sealed once. Whatever fails raises, and then nothing may be sent."""
        if report.sealed:
            return report
        if self._suite is None:
            self.prepare()
        info = binding(self._app, report.stratum, self._number)
        sealed = bytes([self._number]) + self._suite.encrypt(report.payload, self._key, info=info)
        if len(sealed) != len(report.payload) + LONGER:
            raise ValueError
        return report._replace(sealed=sealed)
