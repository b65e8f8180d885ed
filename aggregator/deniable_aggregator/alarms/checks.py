"""Alarm tests, which honest reports pass for any population, and made-up reports may fail.

A mechanism bounds the probability of every part of a report (`Mechanism.bounds`), and so the sums. Each test is for one kind of
excess. Its p-value holds for any number of reports and for the worst population (`tail_bounds`):

``weight``
    the number of ones in a report has a known distribution;
``row``
    hash functions, cohorts and sets are drawn uniformly;
``cell``
    no cell is named, and no bit set, more often than if everybody held it, or less often than if nobody did;
``set``
    no few values have more support than all people together could give them: the sum of estimates would be far above 1;
``value``
    if a mechanism hashes or transforms: no value has an estimate far above 1 or below 0, and no code without a value has one far
    from 0.

They detect what no honest population can cause. They cannot detect lies that an honest population might have told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from deniable.messages.plural import plural
from deniable_aggregator.alarms import tail_bounds
from deniable_aggregator.decode.families import family_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism
    from deniable.mechanisms.bounds import Bounds
    from deniable_aggregator.tally import Tally

ALPHA = 1e-4
"""Probability of any alarm in one look at honest reports, over all tests."""

_CLOSEST = 64  # most extreme counts, whose tails are computed
_NAMED = 5
_MOST_VALUES = 1 << 16  # most values that are decoded while the worker waits


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one test."""

    test: str  # its name
    p_value: float  # upper bound on the probability of this result for honest reports, over everything that the test covers
    what: str  # what was found, in words
    values: tuple[int, ...] = ()  # some of the values it is about, as places in the domain


def examine(
    mechanism: Mechanism,  # what honest devices ran
    tally: Tally,  # the sum of the reports
    # (width + 1,): how many reports set none, one, ... all of the bits, if they have bits and it is known
    weights: NDArray[np.int64] | None = None,
) -> list[Finding]:
    """Test reports of one metric and period: one finding for each test that fits the mechanism, significant or not."""
    if not tally.n:
        return []
    known = mechanism.bounds()
    findings = [*_cells(known, tally), *_values(mechanism, tally)]
    if tally.layout.kind == "bits" and weights is not None and weights.any():
        findings.append(_weight(tail_bounds.ones(known), weights))
    if tally.layout.rows > 1:
        findings.append(_rows(tally))
    return findings


def raised(findings: list[list[Finding]], alpha: float = ALPHA) -> list[list[Finding]]:
    """Return the alarms among all findings of one look, such that honest reports raise any with probability `alpha` at most."""
    # Each keeps its place. Its p-value becomes that of the whole look (Bonferroni).
    tests = sum(map(len, findings))
    return [
        [Finding(each.test, tests * each.p_value, each.what, each.values) for each in group if tests * each.p_value < alpha]
        for group in findings
    ]


def about(number: float) -> float:
    """Round a number of reports to two digits: alarms show at once, and exact numbers must not."""
    return float(f"{number:.1e}")


def _about(number: float) -> str:
    rounded = about(number)
    return f"{rounded:,.{0 if rounded.is_integer() else 1}f}"


def _weight(kinds: NDArray[np.float64], weights: NDArray[np.int64]) -> Finding:
    """Test the number of ones: of each count of reports, and of those with at most and with at least as many ones."""
    n = int(weights.sum())
    light, heavy = np.cumsum(kinds, axis=1), np.cumsum(kinds[:, ::-1], axis=1)[:, ::-1]  # summed from the end with less mass
    seen = np.stack([weights, weights.cumsum(), weights[::-1].cumsum()[::-1]])
    most = np.minimum(np.stack([kinds.max(axis=0), light.max(axis=0), heavy.max(axis=0)]), 1.0)
    p_values = tail_bounds.at_least(seen, n, most)
    which, ones = np.unravel_index(int(np.argmin(p_values)), p_values.shape)
    bits = f"{('', 'at most ', 'at least ')[which]}{plural(int(ones), 'bit')} set"
    usual = _about(n * most[which, ones])
    what = f"{_about(seen[which, ones])} of {_about(n)} reports have {bits}; of honest ones {usual} or fewer on average"
    return Finding("weight", min(1.0, float(p_values.min()) * p_values.size), what)


def _rows(tally: Tally) -> Finding:
    rows, n = tally.layout.rows, tally.n
    single, row = _furthest(tally.reports, n, 1 / rows, 1 / rows)
    together = _together(tally.reports, n, 1 / rows, 1 / rows)
    average = f"each of the {rows:,} has {_about(n / rows)} on average"
    what = f"row {row} has {_about(tally.reports[row])} of {_about(n)} reports; {average}"
    if together < single:
        what = f"{_about(n)} reports are not spread evenly over the {rows:,} rows"
    return Finding("row", min(1.0, 2 * min(single, together)), what)


def _cells(known: Bounds, tally: Tally) -> Iterator[Finding]:
    """Test each cell or bit, all together if they exclude each other or are independent, and the largest sets."""
    layout = tally.layout
    unary, direct = layout.kind == "bits", known.direct
    least, most = float(known.low), float(known.high)
    share = 1 if unary else layout.rows  # bits are compared with the reports of their row
    of = tally.reports[:, None] if unary else tally.n
    low, high = least / share, most / share
    single, place = _furthest(tally.counts, of, low, high)
    seen, among = int(tally.counts.flat[place]), int(tally.reports[place // layout.width] if unary else tally.n)
    thing = f"bit {place % layout.width}" if unary else f"cell {place}"
    limit = f"of honest reports it counts {_about(among * low)} to {_about(among * high)} on average"
    yield Finding(
        "cell", single, f"{thing} counts {_about(seen)} of {_about(among)} reports; {limit}", (place,) if direct else ()
    )
    if unary and layout.rows > 1:  # bits of one row depend on the number of its reports
        return
    counts, n = tally.counts.ravel(), tally.n
    what = f"too many of the {len(counts):,} counts are below those of values that nobody holds, as where others were pushed up"
    yield Finding("cell", _together(counts, n, low, high), what)
    if direct:
        p_value, size = tail_bounds.set_surplus(counts, n, most, least, exclusive=not unary)
        top = np.argsort(-counts, kind="stable")[:size]
        total = (int(counts[top].sum()) - n * size * least) / (n * (most - least))
        what = f"{plural(size, 'value')} together have an estimated share of {total:.1%}"
        yield Finding("set", p_value, what, tuple(top[:_NAMED].tolist()))


def _together(counts: NDArray[np.int64], n: int, low: float, high: float) -> float:
    """Bound the probability that the counts together are this low, or this high."""
    return min(1.0, 2 * min(tail_bounds.shortfall(counts, n, low), tail_bounds.shortfall(n - counts, n, 1 - high)))


def _furthest(counts: NDArray[np.int64], of: NDArray[np.int64] | int, low: float, high: float) -> tuple[float, int]:
    """Find the count furthest beyond its bounds; return its p-value over all counts, and its place."""
    among = np.broadcast_to(np.asarray(of, np.float64), counts.shape).ravel()
    flat = counts.ravel()
    with np.errstate(divide="ignore", invalid="ignore"):
        under = np.nan_to_num((among * low - flat) / np.sqrt(among * low * (1 - low)), nan=-np.inf)
        over = np.nan_to_num((flat - among * high) / np.sqrt(among * high * (1 - high)), nan=-np.inf)
    best, place = 1.0, 0
    for score, bound, tail in ((under, low, tail_bounds.at_most), (over, high, tail_bounds.at_least)):
        # Exact tails of millions of counts would take seconds. So only the counts with the most standard deviations are computed.
        chosen = np.argpartition(-score, min(_CLOSEST, len(score)) - 1)[:_CLOSEST]
        p_values = tail(flat[chosen], among[chosen], bound)
        least = int(np.argmin(p_values))
        if p_values[least] < best:
            best, place = float(p_values[least]), int(chosen[least])
    return min(1.0, 2 * len(flat) * best), place


def _values(mechanism: Mechanism, tally: Tally) -> Iterator[Finding]:
    """Test the support of each value, unless it is a count of the tally itself, and of codes without a value."""
    family = family_of(mechanism)
    if mechanism.odds is None or mechanism.domain_size > _MOST_VALUES or not family.mixed:
        return
    support = family.supports(tally)
    p, q = map(float, mechanism.odds)
    p_value, value = _furthest(support, tally.n, q, p)
    share = (float(support[value]) / tally.n - q) / (p - q)
    yield Finding("value", p_value, f"a value has an estimated share of {share:.1%}", (value,))
    if mechanism.unused:
        unused = family.unused(tally)
        p_value, place = _furthest(unused, tally.n, q, q)
        sigmas = (float(unused[place]) - tally.n * q) / np.sqrt(tally.n * q * (1 - q))
        more = f"{abs(sigmas):.1f} standard deviations {'more' if sigmas > 0 else 'less'} often than by chance"
        yield Finding("value", p_value, f"a code that no value has is supported {more}")
