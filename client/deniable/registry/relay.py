"""A relay: somebody else who mixes sealed reports before the server can open them, and what is claimed of mixed reports."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from decimal import Decimal, InvalidOperation

from deniable.errors import ParameterError
from deniable.frozen import dataclass
from deniable.wire.sealing import MOST_KEYS

__all__ = ["Relay", "Shuffled"]

_KEY_BYTES = 32
_LONGEST_NAME = 80
_LEAST_CROWD, _LARGEST_CROWD = 2, 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay:
    """Who mixes the reports of metrics with ``shuffled``, and the key of the server that they are sealed to.

    It ships with the app. No registry that a server hands out has one: a key for one device alone would mark its reports.

    Parameters
    ----------
    operator
        Who runs the relay, as people shall read it. It must be somebody else than who runs the server.
    key
        The server's public key (X25519), as ``deniable registry keygen --sealing`` prints it: its number from 1 to 255, a colon,
        and the base64 of 32 bytes.

    Raises
    ------
    ParameterError
        If one of them is invalid.
    """

    operator: str
    key: str

    def __post_init__(self) -> None:
        name = self.operator
        if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
            rule = f"operator: write who runs the relay, in one line of at most {_LONGEST_NAME} characters"
            raise ParameterError(f"{rule}, such as 'Example Foundation'", name)
        match = re.fullmatch(r"([1-9][0-9]{0,2}):([A-Za-z0-9+/]{43}=)", self.key) if isinstance(self.key, str) else None
        # There are several ways to write the same bytes. Only one is read.
        known = match is not None and int(match[1]) <= MOST_KEYS and b64encode(b64decode(match[2])).decode() == match[2]
        if not known:
            raise ParameterError("key: write what `deniable registry keygen --sealing NUMBER` prints, all of it", self.key)

    @property
    def number(self) -> int:
        """Number of the key, in [1, 255]. Sealed reports begin with it."""
        return int(self.key.partition(":")[0])

    @property
    def public_key(self) -> bytes:
        """The server's public key, 32 bytes."""
        return b64decode(self.key.partition(":")[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Shuffled:
    """What is claimed of the reports of a metric if a relay mixes them. It never changes once the metric is published.

    A pool has the reports of one metric, version, period and combination of segments, sealed to one key. The server gets it as a
    whole, in an order that says nothing.

    Parameters
    ----------
    min
        Fewest reports of a pool, at least 2. The relay hands on no smaller one.
    delta
        Delta of the claim as written, above 0 and at most 1 / (100 min).
    central
        Epsilon of the claim in nats, as written: what the server learns of a report, but for delta, if it and the relay do not
        work together and ``min`` reports of the pool are honest. ``deniable registry lint`` refuses one that is not proved.

    Raises
    ------
    ParameterError
        If one of them is invalid.
    """

    min: int
    delta: str
    central: str

    def __post_init__(self) -> None:
        least = self.min
        if isinstance(least, bool) or not isinstance(least, int) or not _LEAST_CROWD <= least <= _LARGEST_CROWD:
            raise ParameterError("min: write how many reports a relay mixes at least, a whole number such as 10000", least)
        delta = _decimal("delta", self.delta, "a probability such as 1e-8")
        most = Decimal(1) / (100 * least)
        if delta > most:
            rule = f"delta: write {most.normalize():.1e} or less, 1 / (100 min)"
            raise ParameterError(f"{rule}; it is the chance that a report is not protected", self.delta)
        central = _decimal("central", self.central, "a number of nats above 0, such as 0.3")
        for name, value in (("delta", delta), ("central", central)):
            object.__setattr__(self, name, f"{value.normalize():f}")

    def __str__(self) -> str:
        return f"{{ min = {self.min}, delta = {float(self.delta):g}, central = {self.central} }}"

    @property
    def meaning(self) -> list[int | str]:
        """What a fingerprint has of it: relay, server and device refuse each other's reports if they declare it differently."""
        return [self.min, self.delta, self.central]


def _decimal(name: str, written: object, example: str) -> Decimal:
    rule = f"{name}: write {example}, without quotes"
    if isinstance(written, bool) or not isinstance(written, int | float | str):
        raise ParameterError(rule, written)
    try:
        value = Decimal(str(written))
    except InvalidOperation:
        raise ParameterError(rule, written) from None
    if not value.is_finite() or not value > 0 or value > 1000 or -value.adjusted() > 300:  # noqa: PLR2004 - far beyond any use
        raise ParameterError(rule, written)
    return value
