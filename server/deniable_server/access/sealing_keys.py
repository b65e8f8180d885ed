"""The server's private keys, with which it opens what devices have sealed. Only a server that takes uploads has them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.errors import ConfigurationError
from deniable.wire import key_pair, sealing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    from deniable.registry import Registry
    from deniable.wire.report import Stratum

_VARIABLE = "DENIABLE_SEALING_KEYS"


class Opener:
    """Opens sealed reports, with whichever key fits: while a key is replaced, there are two."""

    def __init__(self, keys: Sequence[X25519PrivateKey] = ()) -> None:
        self._keys = keys
        self._suite: Any = sealing.suite() if keys else None

    @classmethod
    def read(
        cls,
        paths: str,  # of files from `deniable registry keygen --sealing`, joined by `:`
    ) -> Opener:
        """Read the keys; raise `ConfigurationError` for a file that is none, or without the package that opens."""
        files = [path for path in paths.split(os.pathsep) if path]
        if files and (lack := sealing.lacking()):
            raise ConfigurationError(f"{_VARIABLE}: {lack}")
        return cls([_read(path) for path in files])

    def lacks(self, registry: Registry) -> str:
        """Say which key is missing that devices of an app seal to, and what to do; empty if it is here, or nothing is sealed."""
        public = {key.public_key().public_bytes_raw() for key in self._keys}
        if registry.relay is None or registry.relay.public_key in public:
            return ""
        rule = f"reports of {registry.app} are sealed to key {registry.relay.number}, and its private part is not here"
        return f"{rule}: name the file that `deniable registry keygen --sealing` wrote in {_VARIABLE}"

    def open(
        self,
        app: str,
        stratum: Stratum,  # as the device said it
        reports: Iterable[bytes],  # sealed; none is empty
    ) -> list[bytes | None]:
        """Return what each has inside; None for one that was not sealed to a key of ours, for this place."""
        bindings: dict[int, bytes] = {}
        payloads: list[bytes | None] = []
        for sealed in reports:
            number = sealed[0]
            if number not in bindings:
                bindings[number] = sealing.binding(app, stratum, number)
            payloads.append(self._open(sealed[1:], bindings[number]))
        return payloads

    def _open(self, ciphertext: bytes, info: bytes) -> bytes | None:
        for key in self._keys:
            try:
                payload: bytes = self._suite.decrypt(ciphertext, key, info=info)
            except Exception:  # noqa: BLE001, S112 - whatever is wrong with it, it does not open
                continue
            return payload
        return None


def _read(path: str) -> X25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey  # noqa: PLC0415 - few servers need it

    try:
        key = key_pair.read(Path(path).read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{_VARIABLE} names {path}, which cannot be read: {error.strerror}") from None
    if not isinstance(key, X25519PrivateKey):
        raise ConfigurationError(f"{_VARIABLE} names {path}, which is no file that `deniable registry keygen --sealing` wrote")
    return key
