"""Rates: how often something may be done, ``600/minute``, or how much, ``16MB/minute``."""

from __future__ import annotations

import re
from typing import NamedTuple

from deniable.errors import ConfigurationError

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_RATE = re.compile(rf"([1-9][0-9]{{0,8}})/({'|'.join(_UNITS)})")
_VOLUME = re.compile(rf"([1-9][0-9]{{0,8}})MB/({'|'.join(_UNITS)})")
_MB = 1 << 20  # so that one megabyte is enough for the largest upload


class Rate(NamedTuple):
    """The number of requests allowed in a window."""

    amount: int  # requests, at least 1
    seconds: int  # length of the window

    def __str__(self) -> str:
        return f"{self.amount} requests {_unit(self.seconds)}"


class Volume(NamedTuple):
    """The number of bytes allowed in a window."""

    amount: int  # bytes
    seconds: int  # length of the window

    def __str__(self) -> str:
        return f"{self.amount // _MB} MB {_unit(self.seconds)}"


def parse(variable: str, text: str) -> Rate | None:
    """Read a rate; ``off`` is None, no limit."""
    rate = _read(variable, text, _RATE, f"N/{'|'.join(_UNITS)}, e.g. 600/minute")
    return None if rate is None else Rate(*rate)


def parse_volume(variable: str, text: str) -> Volume | None:
    """Read a volume; ``off`` is None, no limit."""
    volume = _read(variable, text, _VOLUME, f"NMB/{'|'.join(_UNITS)}, e.g. 16MB/minute")
    return None if volume is None else Volume(volume[0] * _MB, volume[1])


def _read(variable: str, text: str, pattern: re.Pattern[str], form: str) -> tuple[int, int] | None:
    """Read an amount and the seconds of its window; ``off`` is None."""
    if text == "off":
        return None
    match = pattern.fullmatch(text)
    if not match:
        raise ConfigurationError(f"{variable} = {text!r}: write {form}, or off")
    return int(match[1]), _UNITS[match[2]]


def _unit(seconds: int) -> str:
    name = next(name for name, each in _UNITS.items() if each == seconds)
    return f"an {name}" if name == "hour" else f"a {name}"
