"""Variables of the environment: the numbers that a worker is told by them, and names that nothing knows, which may be mistyped.

Each floor names its own in the entry-point group ``deniable.variables``, as a mapping from the name to the default as text.
"""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError
from deniable_aggregator.process.logs import LogSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["PREFIX", "VARIABLES", "WORKER", "Number", "Stray", "strays", "warn"]

log = logging.getLogger("deniable.settings")

PREFIX = "DENIABLE_"
_GROUP = "deniable.variables"
# What Kubernetes tells every container of a service whose name begins with ours.
_KUBERNETES = re.compile(r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")


@dataclass(frozen=True, slots=True)
class Number:
    """A number that a worker is told, by a flag or else by its variable.

    Parameters
    ----------
    name
        As in ``--claim-after`` and ``DENIABLE_WORKER_CLAIM_AFTER``.
    default
        Where neither is given. If it is whole, so is what is given.
    above, most
        It is above the one and at most the other.
    unit
        How help calls it.
    about
        What it is, for help.
    """

    name: str
    default: float
    above: int
    most: int
    unit: str
    about: str

    @property
    def flag(self) -> str:
        """The option of ``deniable worker``."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """The variable of the environment."""
        return f"{PREFIX}WORKER_{self.name.upper()}"

    def choose(self, flag: str | None = None, environment: Mapping[str, str] = os.environ) -> float:
        """Return what is chosen: by the flag if it is given, else by the variable, else by default.

        Raises
        ------
        ConfigurationError
            Naming the flag or the variable, the rule and the value.
        """
        by, text = (self.variable, environment.get(self.variable)) if flag is None else (self.flag, flag)
        if text is None:
            return self.default
        whole = isinstance(self.default, int)
        try:
            number = int(text) if whole else float(text)
        except ValueError:
            number = float("nan")
        if not self.above < number <= self.most:
            raise ConfigurationError(f"{by} is a {'whole ' * whole}number above {self.above}, at most {self.most}; got {text!r}")
        return number


WORKER = (
    Number("batch", 100, 0, 10_000, "N", "batches counted in one commit"),
    Number("max_deliveries", 5, 0, 1_000_000, "N", "put aside what so many workers did not get counted"),
    Number("claim_after", 60.0, 0, 3600, "SECONDS", "take over what another worker has had in hand for so long"),
)
"""The numbers that a worker is told."""

VARIABLES: dict[str, str] = {
    "DENIABLE_REDIS_URL": "",
    "DENIABLE_APPS": "",
    "DENIABLE_REGISTRY": "",
    "DENIABLE_METRICS_BIND": "",
    "DENIABLE_LOG_LEVEL": LogSettings().level,
    "DENIABLE_LOG_FORMAT": LogSettings().format,
    **{each.variable: f"{each.default:g}" for each in WORKER},
}
"""What workers and their commands read, with the defaults."""


@dataclass(frozen=True, slots=True)
class Stray:
    """A variable that begins like ours and that nothing reads.

    Parameters
    ----------
    name
        Its name.
    nearest
        The known name most like it; None if none is alike.
    """

    name: str
    nearest: str | None

    def __str__(self) -> str:
        return f"nothing reads {self.name}" + (f"; is {self.nearest} meant?" if self.nearest else "")


def strays(environment: Mapping[str, str] = os.environ) -> list[Stray]:
    """Find the variables that begin like ours and that no floor knows, by name. What Kubernetes sets by itself is none."""
    left = {name for name in environment if name.startswith(PREFIX) and not _KUBERNETES.fullmatch(name)}
    known: set[str] = set()
    for names in _known():  # the floors above are looked into only if need be
        left -= names
        known |= names
        if not left:
            return []
    if not known:  # not installed: nobody can tell
        return []
    return [Stray(name, next(iter(get_close_matches(name, sorted(known), 1)), None)) for name in sorted(left)]


def warn(environment: Mapping[str, str] = os.environ) -> None:
    """Log each stray variable."""
    for stray in strays(environment):
        log.warning("%s", stray)


def _known() -> Iterator[set[str]]:
    points = entry_points(group=_GROUP)
    for name in ("aggregator", "client", "server"):
        for point in points.select(name=name):
            yield set(point.load())
