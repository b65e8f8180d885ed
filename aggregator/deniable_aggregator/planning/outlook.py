"""The outlook of a metric: how exact its estimates will be with one mechanism, and what a wanted error needs."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor, prod
from typing import TYPE_CHECKING, Any

from deniable import mechanisms
from deniable.declared import Declared, declare_all
from deniable.errors import ParameterError
from deniable.forecast.precision import resolved_from
from deniable.limits.guess import in_year
from deniable.mechanisms import auto
from deniable.messages.percent import meant_percent
from deniable.registry.tables import Publication
from deniable_aggregator import checks
from deniable_aggregator.inference.overall import rise_seen
from deniable_aggregator.planning.lead import lead_shown
from deniable_aggregator.planning.precision import POWER, precision
from deniable_aggregator.planning.wait import LENGTHS, first_release

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from deniable.mechanisms import Mechanism
    from deniable.registry import Metric, Registry
    from deniable_aggregator.planning.precision import Precision

EPSILON_STEPS = 1000
"""A needed epsilon is found to so many steps a nat."""

_MOST_EPSILON = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a plan is made for."""

    users: int | None = None  # people who answer once; None to find how many are needed for `within`, or an arm for `difference`
    share: float = 0.1  # the share for which errors are computed, in [0, 1)
    # The wanted error: of a share, or of a mean as a part of the range. None if the error is what is asked for.
    within: float | None = None
    level: float = 0.95  # confidence, in (0, 1)
    difference: float | None = None  # the rise from `share`, or of the mean, for which arms are sized; None for none
    leads_by: float | None = None  # by how much one value is above the next one, which is to be shown; None for none
    per_day: float | None = None  # reports a day; None if the users report once a period, evenly over it

    def __post_init__(self) -> None:
        if self.users is None and self.within is None and self.difference is None and self.leads_by is None:
            raise ParameterError("the plan has no aim: give users, within (a wanted error), difference (of arms) or leads_by")
        if self.users is not None:
            checks.count("users", self.users)
        if not 0 <= self.share < 1:
            raise ParameterError(f"share: write a number from 0 to below 1{meant_percent(self.share)}", self.share)
        if self.within is not None and not 0 < self.within < 1:
            rule = "within: write a wanted error between 0 and 1; it is of a share, or part of the range of a number"
            raise ParameterError(f"{rule}{meant_percent(self.within, ' points')}", self.within)
        if not 0 < self.level < 1:
            raise ParameterError(f"level: write a confidence between 0 and 1{meant_percent(self.level)}", self.level)
        if self.difference is not None and not 0 < self.difference <= 1 - self.share:
            rule = "difference: write a number above 0, so that the share with it is at most 1"
            raise ParameterError(f"{rule}{meant_percent(self.difference, ' points')}", self.difference)
        if self.leads_by is not None and not 0 < self.leads_by <= 1 - self.share:
            rule = "leads_by: write a number above 0, so that the share with it is at most 1"
            raise ParameterError(f"{rule}{meant_percent(self.leads_by, ' points')}", self.leads_by)
        if self.per_day is not None:
            checks.positive("reports a day", self.per_day)


@dataclass(frozen=True, slots=True)
class Few:
    """Reports that are too few for a wanted error, whatever the epsilon."""

    share: float  # how many of them are about what is estimated, such as one option of a set, at most
    about: int  # so many are
    needed: int  # reports that would be enough, at the epsilon that the metric declares


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """How exact the estimates of one cell of a metric will be with one mechanism."""

    metric: Metric  # as declared, or with the epsilon that it needs
    mechanism: Mechanism | None  # its mechanism; None if no epsilon is enough
    values: int  # how many values are estimated; 0 where it is not known
    # cell, parts: the segments that the cell fixes, empty for all reports; and how many such cells the reports are spread over,
    # evenly
    cell: str
    parts: int
    reports: int | None  # reports of all cells together; None if it is not known how many are needed
    terms: Terms  # what the plan is made for
    publication: Publication  # how the app publishes

    @property
    def n(self) -> int | None:
        """Reports of the cell."""
        return None if self.reports is None else self.reports // self.parts

    @property
    def users(self) -> int | None:
        """People who are asked: more than there are reports, if a sample of the answers is recorded."""
        if self.terms.users is not None or self.reports is None:
            return self.terms.users
        return ceil(self.reports / Fraction(self.metric.sample))

    @property
    def stderr(self) -> float | None:
        """Standard error of the share, or of the mean as a part of the range; None where it is not known."""
        return self._precision.stderr(self.n, self.terms.share) if self._precision and self.n else None

    @property
    def error(self) -> float | None:
        """Half the length of an interval with the confidence of the terms."""
        return self._precision.error(self.n, self.terms.share, self.terms.level) if self._precision and self.n else None

    @property
    def detects(self) -> float | None:
        """The smallest share that is detected half of the time."""
        return self._precision.detects(self.n, self.terms.level) if self._precision and self.n else None

    @property
    def difference(self) -> float | None:
        """The smallest rise that is seen with power 80%, if half of the reports are of each of two arms."""
        if not self._precision or self.n is None or self.n < 2:  # noqa: PLR2004 - one report an arm
            return None
        at = 0.0 if self.of == "mean" else self.terms.share
        return self._precision.difference(self.n // 2, at, self.terms.level)

    @property
    def overall(self) -> float | None:
        """The smallest such rise for which the test of all values at once says that the arms differ; None without that test."""
        if self.metric.open or self.metric.estimate or self.mechanism is None or self.n is None:
            return None
        return rise_seen(self.mechanism, self.n // 2, self.terms.share, self.terms.level, POWER)

    @property
    def arm(self) -> int | None:
        """Reports that each of two arms needs, to see the difference of the terms with power 80%."""
        if not self._precision or self.terms.difference is None:
            return None
        return self._precision.arm(self.terms.difference, self.terms.share, self.terms.level)

    @property
    def lead(self) -> int | None:
        """People who are needed in all to show with power 80% that one value of this cell leads; None where it is not known."""
        if self.mechanism is None or self.terms.leads_by is None or self.of == "mean":
            return None
        needed = lead_shown(self.metric, self.mechanism, self.values, self.terms.leads_by, self.terms.share, self.terms.level)
        return None if needed is None else ceil(needed * self.parts / Fraction(self.metric.sample))

    @property
    def too_few(self) -> Few | None:
        """Why no epsilon is enough for the wanted error; None where one is, or if it is not known."""
        if self.mechanism or self.terms.within is None or not self.reports:
            return None
        try:
            how, best = (precision(each, mechanisms.of(each), self.values) for each in (self.metric, _largest(self.metric)))
        except ParameterError:
            return None
        if how is None or best is None:
            return None
        needed = how.users(self.terms.within, self.terms.share, self.terms.level)
        return Few(best.share_about, floor(self.reports * best.share_about), needed)

    @property
    def of(self) -> str:
        """What is estimated: ``share`` or ``mean``."""
        scored = self.metric.estimate == "mean" or (self.metric.estimate == "distribution" and not self.metric.binned)
        return "mean" if scored else "share"

    @property
    def resolved(self) -> dict[str, bool]:
        """Which quantiles so many reports resolve, roughly; empty where none are estimated."""
        if self.metric.estimate != "distribution" or self.metric.binned or not self.mechanism or self.n is None:
            return {}
        return {name: self.n >= least for name, least in resolved_from(self.mechanism.epsilon).items()}

    @property
    def wait(self) -> timedelta | None:
        """How long the first release takes; None if it never comes, or the number of reports is not known."""
        rate = self.terms.per_day
        if rate is None:
            if not self.reports:
                return None
            rate = self.reports * self.metric.per_period / (LENGTHS[self.metric.period] / LENGTHS["day"])
        return first_release(self.metric, self.mechanism, self.publication, rate / self.parts)

    @property
    def guess(self) -> float | None:
        """How often the best guess between two answers is right at most, from a year's reports of one answer."""
        return in_year(Declared.of(self.metric)) if self.mechanism else None

    @property
    def _precision(self) -> Precision | None:
        return precision(self.metric, self.mechanism, self.values) if self.mechanism else None

    def to_dict(self) -> dict[str, Any]:
        """Write it for programs. Errors of a mean are parts of the range."""
        mechanism, wait = self.mechanism, self.wait
        return {
            "metric": self.metric.id,
            "cell": self.cell,
            "parts": self.parts,
            "mechanism": mechanism.name if mechanism else self.metric.mechanism,
            "epsilon": mechanism.epsilon if mechanism else None,
            "report_bytes": mechanism.layout.payload_size if mechanism else None,
            "users": self.users,
            "reports": self.n,
            "of": self.of,
            "share": None if self.of == "mean" else self.terms.share,
            "stderr": self.stderr,
            "error": self.error,
            "level": self.terms.level,
            "detects": self.detects,
            "difference": self.difference,
            "overall": self.overall,
            "arm": self.arm,
            "lead": self.lead,
            "quantiles": self.resolved,
            "right_guess_in_year": self.guess,
            "first_release_seconds": wait.total_seconds() if wait is not None else None,
        }


def of_mechanisms(
    metric: Metric,  # What is asked. If `epsilon_needed`, its epsilon does not matter.
    terms: Terms,  # what the plan is made for
    *,
    epsilon_needed: bool = False,  # whether to find the epsilon that `terms.within` needs
    names: tuple[str, ...] = (),  # names of mechanisms; none for those that `auto` chooses from
    segments: tuple[int, ...] = (),  # the number of values of each segment
) -> list[Outlook]:
    """Look ahead with each mechanism, the most precise first."""
    cells = _cells({f"segment {i}": size for i, size in enumerate(segments, 1)})
    metric = replace(metric, segments=tuple(cells)[1 : len(segments) + 1])
    variants = [replace(metric, mechanism=name) for name in names or _names(metric, known=not epsilon_needed)]
    ahead = [list(_ahead(each, terms, cells, Publication(), epsilon_needed=epsilon_needed)) for each in variants]
    ahead.sort(key=lambda rows: _merit(rows[0], epsilon_needed=epsilon_needed))
    return [row for rows in ahead for row in rows]


def of_registry(registry: Registry, terms: Terms) -> list[Outlook]:
    """Look ahead for each metric of a registry, and each kind of its cells."""
    rows: list[Outlook] = []
    for declared in declare_all(registry, registry.metrics.values()):
        metric, candidates = declared.metric, len(declared.candidates)
        cells = _cells({name: len(registry.segments[name]) for name in metric.segments})
        # With users and a wanted error, each metric gets the epsilon that it needs.
        needed = terms.users is not None and terms.within is not None
        rows += _ahead(metric, terms, cells, registry.publication, candidates, epsilon_needed=needed)
    return rows


def _ahead(
    metric: Metric,
    terms: Terms,
    cells: dict[str, int],
    publication: Publication,
    candidates: int = 0,
    *,
    epsilon_needed: bool,
) -> Iterator[Outlook]:
    """Look ahead for each cell of a metric. So many users are needed by the cell itself, and such an epsilon by all reports."""
    values = candidates if metric.open else metric.kind.estimated(metric)
    n = None if terms.users is None else floor(terms.users * Fraction(metric.sample))
    needed: int | None = None  # reports of a cell
    mechanism: Mechanism | None = None
    if not epsilon_needed:
        mechanism = mechanisms.of(metric)
    elif n:
        enough = _with_enough(metric, terms, values, n)
        metric, mechanism = (enough, mechanisms.of(enough)) if enough else (metric, None)
    how = precision(metric, mechanism, values) if mechanism else None
    if n is None and how and terms.within is not None:
        needed = how.users(terms.within, terms.share, terms.level)
    for cell, parts in cells.items():
        yield Outlook(
            metric=metric,
            mechanism=mechanism,
            values=values,
            cell=cell,
            parts=parts,
            reports=n if needed is None else needed * parts,
            terms=terms,
            publication=publication,
        )


def _with_enough(metric: Metric, terms: Terms, values: int, n: int) -> Metric | None:
    """Return a metric with the least epsilon that the wanted error needs; None if none is enough."""
    most = Fraction(_largest(metric).epsilon)
    steps = range(1, floor(most * EPSILON_STEPS) + 1)
    first = bisect_left(steps, x=True, key=lambda step: _reaches(_at(metric, step), terms, values, n))
    return _at(metric, steps[first]) if first < len(steps) else None


def _largest(metric: Metric) -> Metric:
    """Return a metric with the largest epsilon that it may have."""
    return replace(metric, epsilon=metric.epsilon_permanent or str(_MOST_EPSILON))


def _at(metric: Metric, step: int) -> Metric:
    return replace(metric, epsilon=str(step / EPSILON_STEPS))


def _reaches(metric: Metric, terms: Terms, values: int, n: int) -> bool:
    """Return whether n reports are within the wanted error; they are not if there is no such mechanism."""
    try:
        how = precision(metric, mechanisms.of(metric), values)
    except ParameterError:
        return False
    return how is not None and terms.within is not None and how.error(n, terms.share, terms.level) <= terms.within


def _names(metric: Metric, *, known: bool) -> list[str]:
    """Name the mechanisms that ``auto`` chooses from; with a known epsilon only those that exist for it."""
    if metric.kind.mechanism(metric):
        return ["auto"]
    if known:
        chosen = mechanisms.choose(domain_size=metric.domain_size, epsilon=metric.epsilon, permanent=metric.epsilon_permanent)
        return [each.name for each in chosen.considered]
    candidates = auto.permanent_candidates() if metric.permanent else auto.CANDIDATES
    return [each.name for each in candidates if each.name != "binary" or metric.domain_size == 2]  # noqa: PLR2004


def _merit(row: Outlook, *, epsilon_needed: bool) -> tuple[bool, float, int]:
    """Order mechanisms by what they need, or by their error."""
    if not row.mechanism:
        return True, 0.0, 0
    if epsilon_needed:
        merit: float | None = row.mechanism.epsilon
    elif row.terms.users:
        merit = row.error
    else:
        merit = row.users if row.terms.within else row.arm if row.terms.difference else row.lead
    return merit is None, merit or 0.0, row.mechanism.layout.payload_size


def _cells(segments: dict[str, int]) -> dict[str, int]:
    """Name the cell of all reports, those of each segment, and those of all segments together, each with their number."""
    together = {" x ".join(segments): prod(segments.values())} if len(segments) > 1 else {}
    return {"": 1} | segments | together
