"""Environment variables: the numbers of a worker, and names that nothing reads, which may be mistyped.

Each floor lists its variables in the entry-point group ``deniable.variables``: a mapping from the name to the default as text.
"""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError
from deniable.messages import lookalike
from deniable_aggregator.process.logs import LogSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

log = logging.getLogger("deniable.settings")

PREFIX = "DENIABLE_"
_GROUP = "deniable.variables"
# Kubernetes sets these in every container, for each service whose name begins with ours.
_KUBERNETES = re.compile(r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a worker's settings: from a flag, or else from a variable."""

    name: str  # as in `--claim-after` and `DENIABLE_WORKER_CLAIM_AFTER`
    default: float  # without flag and variable; if it is an int, the number must be whole
    # above, most: the number is above the one, and at most the other
    above: int
    most: int
    unit: str  # the unit, for help
    about: str  # the description, for help

    @property
    def flag(self) -> str:
        """The option of ``deniable worker``."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """The variable of the environment."""
        return f"{PREFIX}WORKER_{self.name.upper()}"

    def choose(self, flag: str | None = None, environment: Mapping[str, str] = os.environ) -> float:
        """Return the number of the flag, or else of the variable, or else the default."""
        by, text = (self.variable, environment.get(self.variable)) if flag is None else (self.flag, flag)
        if text is None:
            return self.default
        is_int = isinstance(self.default, int)
        try:
            number = int(text) if is_int else float(text)
        except ValueError:
            number = float("nan")  # which no comparison accepts
        if not self.above < number <= self.most:
            raise ConfigurationError(
                f"{by} = {text!r}: write a {'whole ' * is_int}number above {self.above}, at most {self.most}"
            )
        return number


WORKER = (
    Number("batch", 100, 0, 10_000, "N", "batches counted in one commit"),
    Number("max_deliveries", 5, 0, 1_000_000, "N", "put a batch aside after so many deliveries"),
    Number("claim_after", 60.0, 0, 3600, "SECONDS", "take over batches that another worker has held for so long"),
)
"""The numbers in a worker's settings."""

ARCHIVE = f"{PREFIX}ARCHIVE"
"""The variable of the archive's path or URL."""

VARIABLES: dict[str, str] = {
    "DENIABLE_REDIS_URL": "",
    "DENIABLE_APPS": "",
    "DENIABLE_REGISTRY": "",
    "DENIABLE_METRICS_BIND": "",
    ARCHIVE: "",
    "DENIABLE_LOG_LEVEL": LogSettings().level,
    "DENIABLE_LOG_FORMAT": LogSettings().format,
    **{each.variable: f"{each.default:g}" for each in WORKER},
}
"""Variables that workers and their commands read, with the defaults."""


@dataclass(frozen=True, slots=True)
class Stray:
    """A variable with our prefix that nothing reads."""

    name: str
    nearest: str | None  # the most similar known name; None if none is similar

    def __str__(self) -> str:
        return f"nothing reads {self.name}" + (f"; is {self.nearest} meant?" if self.nearest else "")


def strays(environment: Mapping[str, str] = os.environ) -> list[Stray]:
    """Return the variables with our prefix that no floor knows, in order, without those that Kubernetes sets."""
    left = {name for name in environment if name.startswith(PREFIX) and not _KUBERNETES.fullmatch(name)}
    known: set[str] = set()
    for names in _known():  # a generator, as the packages of the floors above are imported only if needed
        left -= names
        known |= names
        if not left:
            return []
    if not known:  # the package is not installed, so it has no entry points
        return []
    words = {name.removeprefix(PREFIX): name for name in sorted(known)}  # what all begin with makes none alike
    return [Stray(name, words.get(lookalike.nearest(name.removeprefix(PREFIX), words) or "")) for name in sorted(left)]


def warn(environment: Mapping[str, str] = os.environ) -> None:
    """Log each stray variable."""
    for stray in strays(environment):
        log.warning("%s", stray)


def _known() -> Iterator[set[str]]:
    points = entry_points(group=_GROUP)
    for name in ("aggregator", "client", "query", "server"):
        for point in points.select(name=name):
            yield set(point.load())
