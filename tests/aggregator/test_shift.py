"""Shifts: seldom seen where nothing changed, whoever answers again; seen soon where something did; never taken back."""

from __future__ import annotations

import numpy as np
import pytest
from panels import estimate, make, replay
from scipy.special import ndtri
from scipy.stats import binom

from deniable_aggregator.inference.shift import MEMORY, confidence, shifts
from deniable_aggregator.inference.slope import Course

RARE = 1e-6  # chance that a test fails although the rate is exact
CASES = [("binary", 2, 1), ("oue", 64, 3), ("l_grr", 2, 1), ("l_osue", 8, 1)]


def search(case, shares, n, turnover, seed, runs, *, exact=True, **options):
    """Return the shifts of many runs, each as a value of its own, and the course."""
    mechanism, permanent = make(*case)
    reports = replay(mechanism, shares, n, turnover, np.random.default_rng(seed), permanent=permanent, runs=runs)
    estimates = [estimate(mechanism, n, each, permanent=permanent) for each in reports]
    course = Course.of_shares(range(len(shares)), estimates, [0.0] * len(shares))
    level = confidence(1)
    if exact:
        ends = tuple(map(np.array, zip(*(each.interval(level) for each in estimates), strict=True)))
    else:  # tens of times faster
        reach = -ndtri((1 - level) / 2) * course.stderr
        ends = course.estimates - reach, course.estimates + reach
    p, q = mechanism.permanent_support if permanent else (1, 0)
    return shifts(course, ends, level, distance=1 / float(p - q), **options), course, ends


def false(seen, runs):
    return len({each.value for each in seen}) / runs


@pytest.mark.first_cases(6)
@pytest.mark.parametrize("turnover", [0.0, 0.1, 1.0], ids=["the same", "a tenth is new", "all are new"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_a_shift_is_seldom_seen_where_nothing_changed(case, turnover):
    """With few reports, too: in 40 periods at most a fifth of the chance of 200."""
    runs = 300
    seen, *_ = search(case, [0.05] * 40, 100, turnover, 61, runs)
    assert len({each.value for each in seen}) <= binom.isf(RARE, runs, 0.01)


LENGTHS = [500, pytest.param(2000, marks=pytest.mark.nightly)]


@pytest.mark.campaign
@pytest.mark.parametrize("runs", LENGTHS)
@pytest.mark.parametrize("turnover", [0.0, 0.02, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("case", [CASES[0], CASES[2]], ids=lambda case: case[0])
def test_of_200_periods_at_most_a_twentieth_has_a_false_shift(case, turnover, runs):
    """Kept responses share the most between periods, and panels of which some are replaced drift the furthest."""
    seen, *_ = search(case, [0.3] * 200, 2000, turnover, 62, runs, exact=False)
    assert len({each.value for each in seen}) <= binom.isf(RARE, runs, 0.05)


@pytest.mark.campaign
@pytest.mark.parametrize("runs", LENGTHS)
@pytest.mark.parametrize("case", [("grr", 128, 5), ("l_grr", 64, 4)], ids=lambda case: case[0])
def test_few_people_who_stay_are_no_shift(case, runs):
    """Of a hundred reports two are of holders. These stay for ten periods, so means of many periods are as skewed as one."""
    seen, *_ = search(case, [0.02] * 200, 100, 0.1, 76, runs)
    assert len({each.value for each in seen}) <= binom.isf(RARE, runs, 0.05)


def test_fewer_people_are_no_shift():
    """After thousands of reports a hundred come, hardly any of a holder. What is high by chance stays so for some periods."""
    runs, before, after = 500, 60, 40
    mechanism, _ = make("grr", 128, 5)
    ns = [2000] * before + [100] * after
    rng = np.random.default_rng(77)
    reports = [
        each
        for n, periods in ((2000, before), (100, after))
        for each in replay(mechanism, [0.005] * periods, n, 0.1, rng, permanent=False, runs=runs)
    ]
    estimates = [estimate(mechanism, n, each, permanent=False) for n, each in zip(ns, reports, strict=True)]
    level = confidence(1)
    ends = tuple(map(np.array, zip(*(each.interval(level) for each in estimates), strict=True)))
    seen = shifts(Course.of_shares(range(len(ns)), estimates, [0.0] * len(ns)), ends, level)
    assert len({each.value for each in seen if each.seen >= before}) <= binom.isf(RARE, runs, 0.05 * after / 200)


@pytest.mark.first_cases(1)
@pytest.mark.parametrize(("errors", "soon"), [(3, 8), (4, 4), (6, 2)])
def test_a_shift_is_seen_soon(errors, soon):
    """New people: a shift of so many standard errors of a period is seen within so many periods, in half of the runs."""
    n, runs = 2000, 400
    mechanism, _ = make("binary", 2, 1)
    s = 0.3 * float(mechanism.p - mechanism.q) + float(mechanism.q)
    rise = errors * np.sqrt(s * (1 - s) / n) / float(mechanism.p - mechanism.q)
    seen, *_ = search(CASES[0], [0.3] * 60 + [0.3 + rise] * 30, n, 1.0, 63, runs)
    first = {each.value: each for each in reversed(seen) if each.seen >= 60}
    delays = [first[run].seen - 59 if run in first else 999 for run in range(runs)]
    assert np.median(delays) <= soon
    begun = [abs(each.begins - 60) for each in first.values()]
    assert np.median(begun) <= 1
    assert all(each.size > 0 for each in first.values())


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("turnover", [0.0, 0.1, 1.0], ids=["the same", "a tenth is new", "all are new"])
def test_the_size_of_a_shift_is_covered(turnover):
    """Although it is told only where it came out large: the interval holds together with those of all looks."""
    runs, after = 400, 0.45
    seen, *_ = search(CASES[2], [0.3] * 30 + [after] * 10, 1000, turnover, 64, runs)
    inside = [each for each in seen if each.begins >= 30]
    assert len(inside) > 100
    missed = sum(not each.low <= after - 0.3 <= each.high for each in inside)
    assert missed <= binom.isf(RARE, len(inside), 0.01)


def test_what_was_seen_stays():
    """Whether a period has a shift depends on the periods before it only, and on no more of them than is said."""
    runs = 20
    shares = [0.2] * 60 + [0.4] * 30 + [0.3] * 49 + [0.4] * 30
    seen, course, ends = search(CASES[0], shares, 3000, 1.0, 66, runs)
    last, first = 140, 140 - MEMORY
    part = slice(first, last + 1)
    columns = [getattr(course, name)[part] for name in ("times", "reports", "repeats", "estimates", "stderr", "shared")]
    again = shifts(Course(*columns), tuple(each[part] for each in ends), confidence(1))
    last_shifts = [(each.value, each.begins, each.size, each.low) for each in seen if each.seen == last]
    assert last_shifts
    assert last_shifts == [(each.value, each.begins + first, each.size, each.low) for each in again if each.seen + first == last]


def test_weekdays_are_compared_with_weekdays():
    """Who answers otherwise on Sundays has no shift each week; a change of Sundays has."""
    week = np.array([0.2] * 6 + [0.5])
    seen, *_ = search(CASES[0], np.tile(week, 10), 20_000, 1.0, 67, 50, cycle=7)
    assert false(seen, 50) <= binom.isf(RARE, 50, 0.05) / 50
    seen, *_ = search(CASES[0], np.tile(week, 10), 20_000, 1.0, 67, 50)
    assert false(seen, 50) > 0.9
    other = np.concatenate([np.tile(week, 9), [0.2] * 7])
    seen, *_ = search(CASES[0], other, 20_000, 1.0, 67, 50, cycle=7)
    sundays = {each.value for each in seen if each.seen == 69 and each.size < 0}
    assert len(sundays) > 45


def test_a_small_shift_does_not_count_if_the_owner_says_so():
    shares = [0.3] * 20 + [0.36] * 10
    seen, *_ = search(CASES[0], shares, 50_000, 1.0, 68, 30)
    assert false(seen, 30) == 1
    seen, *_ = search(CASES[0], shares, 50_000, 1.0, 68, 30, least=0.05)
    assert all(each.low > 0.05 for each in seen)
    seen, *_ = search(CASES[0], shares, 50_000, 1.0, 68, 30, least=0.07)
    assert not seen


def test_one_shift_is_told_once():
    """While later periods still lie beyond the earlier ones, nothing new happened."""
    seen, *_ = search(CASES[0], [0.2] * 20 + [0.6] * 30, 5000, 1.0, 69, 20)
    assert [each.value for each in seen] == sorted(range(20))
    assert all(each.seen == each.begins == 20 for each in seen)


def test_few_periods_have_no_shift():
    seen, *_ = search(CASES[0], [0.2] * 3 + [0.9], 5000, 1.0, 70, 20)
    assert seen == []
