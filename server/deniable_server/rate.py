"""How often something may be done: ``600/minute``."""

from __future__ import annotations

import re
from typing import NamedTuple

from deniable.errors import ConfigurationError

__all__ = ["Rate", "parse"]

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_RATE = re.compile(rf"([1-9][0-9]{{0,8}})/({'|'.join(_UNITS)})")


class Rate(NamedTuple):
    """How many requests are let through in a window.

    Parameters
    ----------
    amount
        Requests, at least 1.
    seconds
        Length of the window.
    """

    amount: int
    seconds: int

    def __str__(self) -> str:
        unit = next(name for name, seconds in _UNITS.items() if seconds == self.seconds)
        return f"{self.amount} requests a {unit}"


def parse(variable: str, text: str) -> Rate | None:
    """Read a rate; None, no limit, for ``off``.

    Raises
    ------
    ConfigurationError
        Naming the variable, the rule and the value.
    """
    if text == "off":
        return None
    found = _RATE.fullmatch(text)
    if not found:
        raise ConfigurationError(f"{variable} is written N/{'|'.join(_UNITS)}, e.g. 600/minute, or off; got {text!r}")
    return Rate(int(found[1]), _UNITS[found[2]])
