"""The tables of a registry that hold for all metrics: experiments, publication, retention, analysts, budget, caps.

Below them stands how the keys of any table are checked.
"""

from __future__ import annotations

import re
from datetime import timedelta
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.frozen import dataclass, field, fields
from deniable.messages.percent import meant_percent
from deniable.registry.keys import instead, meant
from deniable.wire.layout import MAX_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

__all__ = ["GRACE", "MIN_REPORTS", "Analysts", "Budget", "Caps", "Experiment", "Publication", "Retention", "covered", "duration"]

GRACE = "48h"
"""How long a period takes reports after its end, by default."""

MIN_REPORTS = 100
"""The default of `Publication.min_reports`."""

_LONGEST = timedelta(days=30)
TAKEN_FOR = (timedelta(days=31) + _LONGEST).total_seconds()
"""Seconds for which a device keeps a report. After the longest period and the longest grace no server takes it any more."""

_MOST_DAYS = 36_500
_MOST_NATS_OF_ANALYSTS = 20.0
_MAX_SEGMENTS = 4096

LARGEST = 1e6
"""Most nats of a bound: more than anybody needs, and `Decimal` can still compute e to this power."""


MONTHS = 60
"""Months for which a budget without a `lifetime` lasts if all is spent in each: five years, longer than most keep an app."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """An experiment, of which the values of a segment are the arms. Devices do not use this."""

    base: str  # the arm that each other arm is compared with
    # The difference for which it is planned, as a share above 0 and below 1; of a number, as a share of its range. It is chosen
    # before anybody looks.
    planned: float
    # How many devices each arm has, as numbers above 0 whose ratios count; empty: as many each.
    split: Mapping[str, float] = field(default_factory=dict)

    def comparisons(self, arms: Collection[str], pair: Collection[str]) -> int:
        """Return how many comparisons there are like that of a pair of arms: of each arm with the base, or of any two."""
        others = len(arms) - 1
        return others if self.base in pair else others * len(arms) // 2

    def shares(self, arms: Iterable[str]) -> dict[str, float]:
        """Return the declared share of devices of each arm."""
        sizes = {arm: self.split.get(arm, 1) for arm in arms}
        return {arm: size / sum(sizes.values()) for arm, size in sizes.items()}

    def __post_init__(self) -> None:
        sizes = self.split.values() if isinstance(self.split, dict) else [None]
        if any(isinstance(size, bool) or not isinstance(size, int | float) or not 0 < size < inf for size in sizes):
            raise ParameterError("split: write a number above 0 for each arm, such as { control = 0.9, new = 0.1 }", self.split)
        if not isinstance(self.base, str):
            raise ParameterError("base: write the arm that each other arm is compared with", self.base)
        if isinstance(self.planned, bool) or not isinstance(self.planned, int | float) or not 0 < self.planned < 1:
            rule = "planned: write the difference to find, a share above 0 and below 1 such as 0.02"
            raise ParameterError(f"{rule}{meant_percent(self.planned, ' points')}", self.planned)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """How the results of all metrics are published. Devices do not use this."""

    # Everything published rests on at least so many reports, and any two published results differ by at least so many. 1 or more.
    # A metric may declare its own number.
    min_reports: int = MIN_REPORTS
    grace: str = GRACE  # How long a period takes reports after its end, such as `12h` or `2d`. A metric may declare its own.
    early: bool = True  # whether a period is also published before it closes, whenever there are enough new reports
    # Whether everything is published at once, with all segments and however few reports. It is for trials: then only the noise of
    # the devices protects the answers.
    trial: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.min_reports, bool) or not isinstance(self.min_reports, int) or self.min_reports < 1:
            raise ParameterError("min_reports: write a whole number of at least 1", self.min_reports)
        duration("grace", self.grace)
        for name in ("early", "trial"):
            if not isinstance(getattr(self, name), bool):
                raise ParameterError(f"{name}: write true or false, without quotes", getattr(self, name))


def duration(
    name: str,  # its key
    written: object,  # a number of hours or days
) -> timedelta:
    """Read a grace or a delay; raise `ParameterError` if it is no such text, or too long."""
    match = re.fullmatch(r"([1-9][0-9]{0,2})([hd])", written) if isinstance(written, str) else None
    read = timedelta(**{"hours" if match[2] == "h" else "days": int(match[1])}) if match else _LONGEST * 2
    if read > _LONGEST:
        raise ParameterError(
            f"{name}: write a number of hours or days in quotes, such as '12h' or '2d', and 30 days at most", written
        )
    return read


def covered(delay: str, grace: str) -> bool:
    """Return whether a report that waits for a delay comes within the grace, with an hour for sending it."""
    return duration("delay", delay) + timedelta(hours=1) <= duration("grace", grace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long the data of all metrics are kept. Devices do not use this.

    All are whole days from 1 to 36500 after a period has closed. A period closes when its grace is over. Raise `ParameterError`
    if a number is out of range, or if releases would be deleted before their tallies.
    """

    tallies: int = 30  # For exact sums that were published. Dead letters are kept for the same time after they were put aside.
    releases: int = 1095  # For releases, and for sums of too few reports that wait to be published. Not shorter than `tallies`.
    alarms: int = 90  # for alarms of made-up reports, and for the numbers of reports with which later periods are compared

    def __post_init__(self) -> None:
        for setting in fields(self):
            days = getattr(self, setting.name)
            if isinstance(days, bool) or not isinstance(days, int) or not 1 <= days <= _MOST_DAYS:
                raise ParameterError(f"{setting.name}: write a whole number of days from 1 to {_MOST_DAYS:,}", days)
        if self.releases < self.tallies:
            # Otherwise a period could be published a second time.
            raise ParameterError(f"releases: write {self.tallies} or more, the days of tallies", self.releases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysts:
    """The budget of analysts, for questions about the reports of each month. Devices do not use this."""

    # Nats that all keys together may spend on a month's reports; at most 20. With 0 no such question is answered.
    epsilon: float = 1.0
    per_key: float = 0.5  # nats of these that one key may spend, unless it was made for less

    def __post_init__(self) -> None:
        check_nats_of_analysts("epsilon", self.epsilon)
        check_nats_of_analysts("per_key", self.per_key)


def check_nats_of_analysts(name: str, nats: object) -> None:
    """Raise `ParameterError` unless these are nats that analysts, or one key, may be allowed for a month's reports."""
    if isinstance(nats, bool) or not isinstance(nats, int | float) or not 0 <= nats <= _MOST_NATS_OF_ANALYSTS:
        raise ParameterError(f"{name}: write a number of nats from 0 to {_MOST_NATS_OF_ANALYSTS:g}", nats)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a device may give away over all metrics, as a plain sum. Nothing is recorded that would exceed it.

    A report counts in the calendar month (UTC) in which its period ends. For each month, the reports that count in it spend at
    most `per_month` together, whenever they are made and sent.

    Parameters
    ----------
    per_month
        Nats that may be spent in a calendar month; None for no bound.
    lifetime
        Nats that may be spent ever, not below `per_month`; None for no bound. By default 60 times `per_month`. Each metric has
        the same share of both.

    Raises
    ------
    ParameterError
        If a number is out of range, or if there is a lifetime without `per_month`.
    """

    per_month: float | None = 32
    lifetime: float | None = ...  # type: ignore[assignment] # for `MONTHS`

    def __post_init__(self) -> None:
        for name in self.__slots__:
            number = getattr(self, name)
            if number is None or number is ...:
                continue
            wrong = isinstance(number, bool) or not isinstance(number, int | float)
            if wrong or not isfinite(number) or not 0 < number <= LARGEST:
                raise ParameterError(f"{name}: write a number of nats above 0 and at most {LARGEST:,.0f}", number)
        lifetime: object = self.lifetime
        if lifetime is ...:
            lifetime = None if self.per_month is None else min(MONTHS * self.per_month, LARGEST)
            object.__setattr__(self, "lifetime", lifetime)
        if self.lifetime is not None and (self.per_month is None or self.lifetime < self.per_month):
            least = "per_month too" if self.per_month is None else f"{self.per_month:g} or more, the nats of per_month"
            raise ParameterError(f"lifetime: write {least}", self.lifetime)

    def tightened(self, other: Budget) -> Budget:
        """Return the stricter of two budgets in every respect."""
        return Budget(per_month=_least(self.per_month, other.per_month), lifetime=_least(self.lifetime, other.lifetime))


def _least(one: float | None, other: float | None) -> float | None:
    bounds = [bound for bound in (one, other) if bound is not None]
    return min(bounds) if bounds else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """Bounds that no metric can exceed: one that does is off. A registry has them as ``[caps]``, without `metrics` and `budget`.

    Caps in an app's code hold instead of the table. No registry that a server hands out has any.

    Parameters
    ----------
    epsilon
        Largest privacy loss of one report of any metric, in nats.
    permanent
        Largest privacy loss of all reports of one permanent response, in nats.
    shuffled_epsilon
        The same as `epsilon` for metrics with ``shuffled``, which may be larger: what a report says if a relay and a server work
        together. None for `epsilon`.
    metrics
        Stricter bounds than these for single metrics, by id.
    mechanisms
        Names of allowed mechanisms; None for all.
    domain_size
        Largest number of listed answers; None for no bound. It does not bound texts and keys; use `mechanisms` for them.
    rows
        Largest number of groups into which the rows of all metrics with permanent responses together divide devices. A device
        keeps its rows, and each report shows one. With many groups, few devices share one.
    segments
        Largest number of combinations of the segments that reports carry. Segments are not randomised.
    budget
        What the device may spend over all metrics, whatever a registry says: the stricter of both holds. None for that of the
        registry alone.

    Raises
    ------
    ParameterError
        If a bound is invalid.
    """

    epsilon: float = 4
    permanent: float = 4
    shuffled_epsilon: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict, hash=False)
    mechanisms: Collection[str] | None = None
    domain_size: int | None = None
    rows: int = MAX_ROWS
    segments: int = _MAX_SEGMENTS
    budget: Budget | None = None

    def __post_init__(self) -> None:
        shuffled = self.epsilon if self.shuffled_epsilon is None else self.shuffled_epsilon
        bounds = ("epsilon", self.epsilon), ("permanent", self.permanent), ("shuffled_epsilon", shuffled)
        for name, nats in (*bounds, *self.metrics.items()):
            wrong = isinstance(nats, bool) or not isinstance(nats, int | float)
            if wrong or not isfinite(nats) or not 0 < nats <= LARGEST:
                raise ParameterError(f"{name}: write a number of nats above 0 and at most {LARGEST:,.0f}", nats)
        names = self.mechanisms
        if names is not None and (isinstance(names, str) or not all(isinstance(name, str) for name in names)):
            raise ParameterError("mechanisms: write a list of names, each in quotes", names)
        object.__setattr__(self, "metrics", dict(self.metrics))  # a copy that nobody else can change
        if self.mechanisms is not None:
            object.__setattr__(self, "mechanisms", frozenset(self.mechanisms))
        sizes = (("domain_size", self.domain_size, 2), ("rows", self.rows, 1), ("segments", self.segments, 1))
        for name, size, least in sizes:
            if size is None and name == "domain_size":
                continue
            if isinstance(size, bool) or not isinstance(size, int) or size < least:
                raise ParameterError(f"{name}: write a whole number of at least {least}", size)


Found = tuple[str, str, object]
"""A metric, a rule and the value that breaks it: a fault without its file."""

USUAL: dict[str, dict[str, object]] = {
    "experiments": {"base": "control", "planned": 0.5},
    "relay": {"operator": "somebody", "key": f"1:{'A' * 43}="},
    "shuffled": {"min": 2, "delta": "1e-300", "central": "1e-300"},
}
"""Sound values of keys that have no default, by table: where one is missing, the others are checked all the same."""


def unknown_keys(where: str, of: str, known: Sequence[str], table: dict[str, Any], place: str = "") -> Iterator[Found]:
    """Find keys that a table may not have."""
    for key in table:
        if key not in known:
            yield where, f"{place}{key} is no key {of}: write {instead(key, known)}", ...


def missing_keys(name: str, needed: Iterable[str], table: dict[str, Any], example: str) -> Iterator[Found]:
    """Find needed keys that a table lacks."""
    mistyped = {meant(key, needed) for key in table if key not in needed}  # one of these is not missing as well
    for key in needed:
        if key not in table and key not in mistyped:
            yield "-", f"{name}.{key} is missing: write all keys, such as {example}", ...


def refused_values(
    name: str,
    made_of: Callable[..., object],
    table: dict[str, Any],
    usual: dict[str, object],  # values of keys that have no default
) -> Iterator[Found]:
    """Find what a table refuses, key by key. What is about a key as well that was refused before is not known."""
    refused: set[str] = set()
    while True:
        try:
            made_of(**usual | {key: value for key, value in table.items() if key not in refused})
        except ParameterError as error:
            key = error.rule.partition(":")[0]
            if refused.isdisjoint(re.findall(r"\w+", error.rule)):
                yield "-", f"{name}.{error.rule}", error.value
            if key in refused or key not in table:
                return
            refused.add(key)
        else:
            return
