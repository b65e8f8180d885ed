"""The linkage attack: an observer who knows something of each person looks for their record, and for their answer.

The people are made up, and anybody may look at them. The observer knows who is in the data, as neighbours, colleagues and
employers often do, and computes how likely each record and each answer is. Devices run the SDK's own mechanisms on the operating
system's generator.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from deniable import mechanisms
from deniable.registry.tables import MIN_REPORTS
from deniable_aggregator import decode, tally
from deniable_aggregator.decode.binomial import clopper_pearson
from deniable_aggregator.decode.consistent import consistent
from deniable_aggregator.decode.tables.payload_likelihood import likelihood

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from fractions import Fraction

    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

SURE = 0.9
"""The observer claims what is at least so likely."""
_LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Linked:
    """How often the observer was right about people, from one kind of publication."""

    published: str  # in words
    people: int  # at least 1
    named: int  # people of whom one record or report is theirs, as far as the observer is concerned, and is theirs
    claims: int  # people whose answer the observer claims
    right_claims: int  # of these the right ones
    guesses: int  # people whose answer the observer would guess rightly, sure or not
    without: int  # people whose answer the observer would guess rightly if they had taken no part: what the others tell
    # of people whose report is known, the share that any observer can guess, on average; nan of other publications
    bound: float = float("nan")
    intervals: Mapping[str, tuple[float, float]] = field(init=False)  # 95% intervals of shares (Clopper and Pearson)

    def __post_init__(self) -> None:
        shares = {name: (getattr(self, name), self.people) for name in ("named", "claims", "guesses", "without")}
        shares["right_claims"] = (self.right_claims, self.claims)
        object.__setattr__(self, "intervals", {name: _interval(*each) for name, each in shares.items()})

    def to_dict(self) -> dict[str, Any]:
        """Write it for programs."""
        counts = {name: getattr(self, name) for name in ("people", "named", "claims", "right_claims", "guesses", "without")}
        intervals = {f"{name}_interval": list(ends) for name, ends in self.intervals.items()}
        return {"published": self.published} | counts | intervals | ({} if np.isnan(self.bound) else {"bound": self.bound})


def judged(
    published: str,
    posterior: Floats,  # (people, answers), how likely each answer is to the observer, from 0 to 1
    without: Floats,  # the same for an observer of a publication without the person
    answers: Integers,  # (people,), the true ones
    named: NDArray[np.bool_],  # (people,), whether the observer is sure of the right record
    rng: np.random.Generator,  # which breaks ties
    bound: float = float("nan"),
) -> Linked:
    """Count what the observer finds."""
    right, right_without = (np.argmax(each + 1e-9 * rng.random(each.shape), axis=1) == answers for each in (posterior, without))
    claims = posterior.max(axis=1) >= SURE
    counts = (int(each.sum()) for each in (named, claims, claims & right, right, right_without))
    people_named, claimed, right_claims, guesses, others = counts
    return Linked(published, len(answers), people_named, claimed, right_claims, guesses, others, bound)


def of_nothing(answers: Integers, size: int, rng: np.random.Generator) -> Linked:
    """Guess the most frequent answer, as whoever knows the totals can."""
    known = totals(answers, size)
    return judged("nothing but the totals", known, known, answers, np.zeros(len(answers), bool), rng)


def totals(answers: Integers, size: int) -> Floats:
    """Return how likely each answer of each person is to whoever knows the totals, (people, answers)."""
    return np.tile(np.bincount(answers, minlength=size) / len(answers), (len(answers), 1))


def of_reports(
    published: str,
    answers: Integers,  # (people,)
    cells: Integers,  # (people,), the segments and the period in which each report stands in the open
    epsilon: float | str | Fraction,  # of a report
    size: int,  # how many answers there are
    rng: np.random.Generator,
) -> Linked:
    """Let devices report, one report each, and look for people by what stands in the open."""
    mechanism = mechanisms.make("grr", domain_size=size, epsilon=epsilon)
    payloads = b"".join(mechanism.randomize(int(answer)) for answer in answers)
    prior, without = totals(answers, size)[0], totals(answers, size)
    likely = likelihood(mechanism, payloads).astype(np.float64)
    # How much likelier each answer is if a report is the person's. The others in the cell say nothing of this person.
    factors = likely / (likely @ prior)[:, None]
    posterior = np.empty((len(answers), size))
    alone = np.zeros(len(answers), bool)
    for members in _members(cells):
        total = factors[members].sum(axis=0)
        posterior[members] = prior * total / len(members)
        alone[members] = len(members) == 1
        if len(members) > 1:
            without[members] = prior * (total - factors[members]) / (len(members) - 1)
    return judged(published, posterior, without, answers, alone, rng, _most(mechanism, prior))


def of_releases(
    published: str, answers: Integers, cells: Integers, epsilon: float | str | Fraction, size: int, rng: np.random.Generator
) -> Linked:
    """Let devices report, publish the cells with at least 100 reports, and guess what most of a person's cell answer."""
    mechanism = mechanisms.make("grr", domain_size=size, epsilon=epsilon)
    posterior, without = totals(answers, size), totals(answers, size)
    for members in _members(cells):
        if len(members) >= MIN_REPORTS:
            reports = [mechanism.randomize(int(answers[person])) for person in members]
            counts, prior = tally.count(mechanism.layout, b"".join(reports)).counts[0], totals(answers, size)[0]
            of_each = {report: tally.count(mechanism.layout, report).counts[0] for report in set(reports)}
            posterior[members] = _estimated(mechanism, counts, prior)
            left = {report: _estimated(mechanism, counts - own, prior) for report, own in of_each.items()}
            without[members] = [left[report] for report in reports]
    return judged(published, posterior, without, answers, np.zeros(len(answers), bool), rng)


def _estimated(mechanism: Mechanism, counts: Integers, prior: Floats) -> Floats:
    """Estimate the share of each answer in a cell, nearer to the totals the more of the difference is noise (James and Stein)."""
    estimate = decode.estimate(mechanism, tally.from_cells(mechanism.layout, counts))
    away, noise = float(np.square(estimate.frequency - prior).sum()), float(np.square(estimate.stderr).sum())
    return consistent(prior + max(1 - noise / away, 0.0) * (estimate.frequency - prior), complete=True)


def _members(cells: Integers) -> Iterator[Integers]:
    """Return the people of each cell."""
    order = np.argsort(cells, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(cells[order])) + 1)


def _most(mechanism: Mechanism, prior: Floats) -> float:
    """Return how often the best guess from a known report is right, on average."""
    p, q = float(mechanism.p), float(mechanism.q)  # type: ignore[attr-defined] # of a pure mechanism
    chances = np.full((len(prior), len(prior)), q) + (p - q) * np.eye(len(prior))
    return float((prior[:, None] * chances).max(axis=0).sum())


def _interval(right: int, of: int) -> tuple[float, float]:
    if not of:
        return 0.0, 1.0
    low, high = clopper_pearson(np.array([right]), of, (1 - _LEVEL) / 2)
    return float(low[0]), float(high[0])
