"""Panels: where devices report in several periods, intervals over all reports cover, with fresh noise and with kept responses."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from deniable import mechanisms, registry
from deniable.declared import Declared
from deniable.source import OS
from deniable_aggregator import decode, tally
from deniable_aggregator.answer.readings import ShareReading
from deniable_aggregator.decode.bucket_estimate import Partial
from deniable_aggregator.decode.combination import combine
from deniable_aggregator.decode.families.bloom import bloom_design
from deniable_aggregator.decode.panel import Panel, overlap, repeats, repeats_of
from deniable_aggregator.decode.support_estimate import Supported
from deniable_aggregator.decode.tables.joint import from_product
from deniable_aggregator.tally import Tally

REPLAYS = 2000
RARE = 1e-6  # chance that a test of coverage fails although the coverage is exact

FRESH = [
    ("binary", 2, 1, 0.3, 2000),
    ("binary", 2, 4, 0.05, 100),
    ("grr", 8, 4, 0.02, 200),
    ("oue", 64, 3, 0.05, 2000),
    ("local_hash", 40, 3, 0.2, 500),
    ("hadamard", 40, 3, 0.2, 500),
]
KEPT = [
    ("l_grr", 2, 1, 0.3, 2000),
    ("l_grr", 8, 1, 0.1, 5000),
    ("l_osue", 8, 1, 0.3, 2000),
    ("rappor", 8, 1, 0.3, 2000),
    ("loloha", 8, 1, 0.1, 2000),
    ("dbitflip", 6, 1, 0.2, 300),
]
CASES = [*((*each, False) for each in FRESH), *((*each, True) for each in KEPT)]


def steps(mechanism):
    """Return the probabilities of support of both steps of a permanent mechanism: by the response, and by a report of that."""
    p1, q1 = map(float, mechanism.permanent_support)
    p, q = float(mechanism.p), float(mechanism.q)
    step = (p - q) / (p1 - q1)
    return p1, q1, min(q - q1 * step + step, 1.0), max(q - q1 * step, 0.0)


def replay(mechanism, share, reports, rng, *, permanent, random=True, replays=REPLAYS):
    """Draw the support of one value by the exact law: devices that report in a period also do so in all larger ones.

    Where the holders are not drawn, so many of all answers are theirs in each replay; returns the support and that share.
    """
    p, q = float(mechanism.p), float(mechanism.q)
    ordered = np.sort(reports)
    sizes = np.diff(ordered, prepend=0)
    times = np.arange(len(ordered), 0, -1)  # reports of each device of a group
    support, held = np.zeros(replays, np.int64), 0
    for people, visits in zip(sizes, times, strict=True):
        holders = rng.binomial(people, share, replays) if random else np.full(replays, round(people * share))
        held += holders * visits
        if permanent:
            p1, q1, p2, q2 = steps(mechanism)
            responses = rng.binomial(holders, p1) + rng.binomial(people - holders, q1)
            support += rng.binomial(visits * responses, p2) + rng.binomial(visits * (people - responses), q2)
        else:
            support += rng.binomial(visits * holders, p) + rng.binomial(visits * (people - holders), q)
    return support, float(np.mean(held / sum(reports)))


def pooled(mechanism, support, reports, *, permanent):
    """Return the estimate as it is if each report is of another device, and that of a panel."""
    plain = Supported(mechanism, sum(reports), support)
    single = replace(plain, shares=np.clip(plain.frequency, 0, 1))  # each value is a replay of its own
    return single, Panel(single.n, single, repeats(reports), mechanism if permanent else None)


def coverage(estimate, truth, target="population", level=0.95, times=None):
    low, high = estimate.interval(level, **({} if target == "population" else {"target": target}))
    return np.average((low <= truth) & (truth <= high), weights=times)


def enough(hits, of=REPLAYS, level=0.95):
    """Whether so many hits are no fewer than chance alone gives once in a million."""
    return hits * of >= binom.ppf(RARE, of, level)


@pytest.mark.parametrize("reports", [[1] * 30, [4, 1, 2, 8, 8, 1]], ids=["all report", "some report"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[2]} {case[3]}")
def test_intervals_cover_where_devices_report_again(case, reports):
    """Of the population and of the answers; as if each report were of another device they do not."""
    name, size, epsilon, share, n, permanent = case
    rng = np.random.default_rng(21)  # replayed chance of a test, not of a device
    mechanism = mechanisms.make(name, domain_size=size, epsilon=epsilon)
    reports = [n * each for each in reports]
    missed = []
    for random, target in ((True, "population"), (False, "respondents")):
        support, reporters = replay(mechanism, share, reports, rng, permanent=permanent, random=random)
        single, panel = pooled(mechanism, support, reports, permanent=permanent)
        truth = share if random else reporters
        assert enough(coverage(panel, truth, target)), (target, coverage(panel, truth, target))
        assert coverage(panel, truth, target) < 0.985
        stderr = panel.stderr if random else panel.respondents_stderr
        assert np.std(panel.frequency - truth) == pytest.approx(np.sqrt(np.mean(stderr**2)), rel=0.09)
        missed.append(not enough(coverage(single, truth, target)))
    assert missed == [True, permanent]


@pytest.mark.parametrize("case", [("l_osue", 64, 2, 0.02, 100), ("dbitflip", 6, 4, 0.02, 100), ("oue", 64, 5, 0.01, 100)])
def test_few_people_are_few(case):
    """Of a hundred people of whom one or two hold a value, intervals for 64 values at once miss no more than they say."""
    name, size, epsilon, share, n = case
    permanent = name != "oue"
    mechanism = mechanisms.make(name, domain_size=size, epsilon=epsilon)
    rng, replays = np.random.default_rng(22), 40_000
    support, _ = replay(mechanism, share, [n] * 30, rng, permanent=permanent, replays=replays)
    _, panel = pooled(mechanism, support, [n] * 30, permanent=permanent)
    assert coverage(panel, share, level=1 - 0.05 / 64) > 1 - 3 * 0.05 / 64  # as a normal interval of the people: 4 and more
    assert enough(coverage(panel, share), replays)


@pytest.mark.parametrize("case", FRESH[:2] + KEPT[:2], ids=lambda case: f"{case[0]} {case[2]} {case[3]}")
def test_new_people_are_covered_too(case):
    """Where each period brings other devices, intervals are wider than need be."""
    name, size, epsilon, share, n = case
    mechanism = mechanisms.make(name, domain_size=size, epsilon=epsilon)
    permanent = case in KEPT
    support, _ = replay(mechanism, share, [12 * n], np.random.default_rng(23), permanent=permanent)
    _, panel = pooled(mechanism, support, [n] * 12, permanent=permanent)
    assert enough(coverage(panel, share))


@pytest.mark.parametrize("case", KEPT, ids=lambda case: f"{case[0]} {case[2]} {case[3]}")
def test_absent_values_are_not_detected(case):
    """A kept response that supports a value nobody holds does so in each report; the test allows for it."""
    name, size, epsilon, _, n = case
    mechanism = mechanisms.make(name, domain_size=size, epsilon=epsilon)
    support, _ = replay(mechanism, 0.0, [n] * 30, np.random.default_rng(24), permanent=True)
    single, panel = pooled(mechanism, support, [n] * 30, permanent=True)
    assert (panel.p_value <= 0.05).sum() <= binom.isf(RARE, REPLAYS, 0.05)
    assert (single.p_value <= 0.05).mean() > 0.1
    assert panel.detection_frequency() > single.detection_frequency()


def test_a_permanent_response_of_few_is_not_a_value():
    """A bit that one of a thousand people keeps as 1 by chance is in ninety reports, and no sign that anybody holds the value."""
    mechanism = mechanisms.make("l_osue", domain_size=64, epsilon=2, permanent=8)
    replays, chance = 40_000, 0.05 / 64
    support, _ = replay(mechanism, 0.0, [1000] * 90, np.random.default_rng(32), permanent=True, replays=replays)
    _, panel = pooled(mechanism, support, [1000] * 90, permanent=True)
    assert (panel.p_value <= chance).mean() < 2 * chance  # of a binomial: more than three times


@pytest.mark.parametrize("name", ["grr", "oue", "local_hash", "hadamard", "general_hadamard", "l_grr", "loloha", "dbitflip"])
def test_one_period_is_as_it_was(name):
    """Where no device reports twice, nothing changes: neither errors nor intervals nor what is detected."""
    mechanism = mechanisms.make(name, domain_size=12, epsilon=1, **({"buckets": 3} if name == "dbitflip" else {}))
    payloads = b"".join(mechanism.randomize(value % 3) for value in range(400))
    counted = tally.count(mechanism.layout, payloads)
    plain = decode.estimate(mechanism, counted)
    assert repeats([400]) == 0
    for permanent in (False, True):
        same = decode.estimate(mechanism, counted, repeats=repeats([400]), permanent=permanent)
        for part in ("frequency", "stderr", "respondents_stderr", "absent_stderr", "p_value", "count"):
            assert getattr(same, part) == pytest.approx(getattr(plain, part), rel=1e-12)
        for target, simultaneous in product(("population", "respondents"), (True, False)):
            ends = [each.interval(simultaneous=simultaneous, target=target) for each in (same, plain)]
            assert np.allclose(*ends, rtol=1e-9, atol=1e-12)
        assert same.unallocated == pytest.approx(plain.unallocated, nan_ok=True)
        assert same.detection_frequency() == pytest.approx(plain.detection_frequency(), nan_ok=True)


@pytest.mark.parametrize("buckets", [3, 12])
def test_copies_of_a_report_are_one(buckets):
    """A set of buckets has the same report each time: thirty periods of it say what one of them says."""
    mechanism = mechanisms.make("dbitflip", domain_size=12, epsilon=2, buckets=buckets)
    once = tally.count(mechanism.layout, b"".join(mechanism.randomize(value % 4) for value in range(600)))
    often = Tally(once.layout, 30 * once.counts, 30 * once.reports)
    one = decode.estimate(mechanism, once)
    panel = decode.estimate(mechanism, often, repeats=repeats([600] * 30), permanent=True)
    assert isinstance(panel, Panel)
    assert isinstance(panel.independent, Supported if buckets == 12 else Partial)
    exact = {"rel": 1e-9, "abs": 1e-12} if buckets == 12 else {"rel": 0.2, "abs": 0.02}  # how many sets have a value is by chance
    for part in ("frequency", "absent_stderr", "p_value"):
        assert getattr(panel, part) == pytest.approx(getattr(one, part), **exact)
    nearly = exact | {"rel": max(exact["rel"], 0.05)}  # what is surely no noise depends on how many reports there seem to be
    for part in ("stderr", "respondents_stderr"):
        assert getattr(panel, part) == pytest.approx(getattr(one, part), **nearly)
    for simultaneous in (False, True):
        for end, alone in zip(panel.interval(simultaneous=simultaneous), one.interval(simultaneous=simultaneous), strict=True):
            assert end == pytest.approx(alone, **nearly)


def test_a_rest_has_the_error_of_people():
    """What no candidate accounts for is a share of the same people each time."""
    mechanism = mechanisms.make("fast_local_hash", domain_size=1 << 64, epsilon=4)
    counted = tally.count(mechanism.layout, b"".join(mechanism.randomize(value % 4) for value in range(3000)))
    once, panel = (decode.estimate(mechanism, counted, [0, 1], repeats=more) for more in (0.0, 29.0))
    (share, stderr), (same, wider) = once.unallocated, panel.unallocated
    assert same == share == pytest.approx(0.5, abs=0.1)
    assert wider**2 == pytest.approx(stderr**2 + 29 * share * (1 - share) / 3000)


# association and versions


def spread(people, keep, rng):
    """Draw what so many reports of each cell name: it with probability `keep`, any other cell alike."""
    size = len(people)
    return sum(
        rng.multinomial(each, np.where(np.arange(size) == cell, keep, (1 - keep) / (size - 1)))
        for cell, each in enumerate(people)
    )


@pytest.mark.parametrize("permanent", [False, True])
def test_factors_are_found_to_go_together_as_rarely_as_said(permanent):
    """The test that factors are independent holds over twenty periods of one panel; as if each report were another's it fails."""
    mechanism = mechanisms.make("l_grr" if permanent else "grr", domain_size=4, epsilon=2)
    table, rng, runs, times = np.outer([0.6, 0.4], [0.7, 0.3]).ravel(), np.random.default_rng(29), 400, 20
    seen = {0.0: 0, times - 1.0: 0}
    for _ in range(runs):
        held = rng.multinomial(1500, table)
        if permanent:
            p1, _, p2, _ = steps(mechanism)
            cells = spread(times * spread(held, p1, rng), p2, rng)
        else:
            cells = spread(times * held, float(mechanism.p), rng)
        counted = Tally(mechanism.layout, cells[None], np.array([cells.sum()]))
        for more in seen:
            product = from_product(mechanism, counted, (2, 2), repeats=more, permanent=permanent)
            seen[more] += product.independence().p_value <= 0.05
    assert binom.ppf(RARE, runs, 0.05) <= seen[times - 1.0] <= binom.isf(RARE, runs, 0.05)
    assert seen[0.0] > 0.3 * runs


@pytest.mark.parametrize("case", [("binary", 2, 3, 0.3, 500), ("loloha", 12, 3, 0.3, 500)], ids=lambda case: case[0])
def test_versions_of_the_same_people(case):
    """Devices that report one version for ten periods and then the next: the merged share has the error of the people.

    Each version has permanent responses of its own, of the same row.
    """
    name, size, epsilon, share, n = case
    permanent, rng, times = name != "binary", np.random.default_rng(30), 10
    mechanism = mechanisms.make(name, domain_size=size, epsilon=epsilon)
    periods = [{f"{version}{period}": n for period in range(times)} for version in "ab"]
    between = overlap(*periods)
    assert between == pytest.approx(1 / n)
    holders, parts = rng.binomial(n, share, REPLAYS), []
    if permanent:  # of those who hold another value, some have a row that confuses the two
        g = mechanism.family.range_size
        confused = rng.binomial(n - holders, 1 / g)
        p1, _, p2, q2 = steps(mechanism)
        other = (1 - p1) / (g - 1)
    for _ in range(2):
        if permanent:
            responses = rng.binomial(holders + confused, p1) + rng.binomial(n - holders - confused, other)
            support = rng.binomial(times * responses, p2) + rng.binomial(times * (n - responses), q2)
        else:
            p, q = float(mechanism.p), float(mechanism.q)
            support = rng.binomial(times * holders, p) + rng.binomial(times * (n - holders), q)
        parts.append(pooled(mechanism, support, [n] * times, permanent=permanent)[1])
    everything = [range(REPLAYS)] * 2
    together, single = (combine(parts, everything, each) for each in (np.full((2, 2), between), None))
    assert together.weights == pytest.approx([0.5, 0.5], rel=0.02)
    assert coverage(single, share) < 0.93
    assert enough(coverage(together, share))
    assert coverage(together, share) < 0.985
    assert np.mean(together.stderr) == pytest.approx(np.std(together.frequency), rel=0.09 if not permanent else 0.25)
    assert together.p_value > RARE


# how often devices report


def test_repeats_of_a_panel():
    """Devices that report in each of T periods have T - 1 others; those of a small period are among those of a large one."""
    assert repeats([500] * 30) == pytest.approx(29)
    assert repeats([500]) == repeats([500, 0]) == repeats([]) == 0
    # 100 devices with two reports and 300 with one
    assert repeats([100, 400]) == pytest.approx((100 * 4 + 300 * 1) / 500 - 1)
    assert repeats([500] * 2, most=3) == pytest.approx(5)
    assert repeats([2], most=10) == 1  # no device has more reports than there are


@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.lists(st.integers(0, 40), min_size=1, max_size=8))
def test_sums_over_pairs_of_periods(first, second):
    """Both bounds are the sums over all pairs of periods that define them."""
    n, m = sum(first), sum(second)
    named = [{str(number): each for number, each in enumerate(reports)} for reports in (first, second)]
    if n:
        assert repeats(first) == pytest.approx(sum(min(pair) for pair in product(first, repeat=2)) / n - 1)
    pairs = (min(a, b) for (s, a), (t, b) in product(*(each.items() for each in named)) if s != t)
    assert overlap(*named) == pytest.approx(sum(pairs) / (n * m) if n and m else 0)


# regression


def bloom_panel(mechanism, shares, n, times, rng, values):
    """Draw the tally of devices that keep their responses and report so many times, and the estimate from it."""
    design = bloom_design(mechanism, values)
    cohorts, bits = mechanism.cohorts, mechanism.bits
    people = rng.multinomial(n, np.full(cohorts, 1 / cohorts))
    held = np.array([rng.multinomial(each, shares) for each in people])
    ones = np.array([design[row * bits : (row + 1) * bits] @ held[row] for row in range(cohorts)]).astype(np.int64)
    flip, p, q = float(mechanism.flip_permanent), float(mechanism.other), float(mechanism.one)
    again = (p - flip) / (1 - 2 * flip)
    assert q == pytest.approx(1 - p)
    responses = rng.binomial(ones, 1 - flip) + rng.binomial(people[:, None] - ones, flip)
    counts = rng.binomial(times * responses, 1 - again) + rng.binomial(times * (people[:, None] - responses), again)
    counted = Tally(mechanism.layout, counts, times * people)
    return counted, decode.estimate(mechanism, counted, values, repeats=times - 1, permanent=True)


def test_kept_noise_is_no_lack_of_fit():
    """The regression is told what thirty reports of one response share: its residuals are as large as it says."""
    mechanism = mechanisms.make("rappor", domain_size=1 << 64, epsilon=8, permanent=12, cohorts=8)
    rng, values = np.random.default_rng(26), [1, 2, 3, 4]
    shares = np.array([0.6, 0.3, 0.1, 0.0])
    panels = [bloom_panel(mechanism, shares, 2000, 30, rng, values) for _ in range(6)]
    degrees = 8 * 32 - 4
    assert np.mean([each.fit.dispersion for _, each in panels]) == pytest.approx(1, abs=6 * np.sqrt(2 / degrees / len(panels)))
    assert decode.estimate(mechanism, panels[0][0], values).fit.dispersion > 5
    counted, panel = panels[0]
    assert panel.count == pytest.approx(counted.n * panel.frequency)
    assert (panel.respondents_stderr < panel.stderr)[:3].all()


@pytest.mark.campaign
def test_regression_of_kept_filters():
    """Shares and errors hold over thirty periods of the same devices, and are smaller than of one period."""
    mechanism = mechanisms.make("rappor", domain_size=1 << 64, epsilon=8, permanent=12, cohorts=16)
    rng, values, runs = np.random.default_rng(27), list(range(1, 13)), 50
    shares = np.array([0.4, 0.3, 0.15, 0.1, 0.05, *[0] * 7])
    hits, scores, alarms, single, narrower = np.zeros(12), [], 0, [], []
    for _ in range(runs):
        counted, estimate = bloom_panel(mechanism, shares, 5000, 30, rng, values)
        low, high = estimate.interval(0.95)
        hits += (low <= shares) & (shares <= high)
        scores.append((estimate.frequency - shares) / estimate.stderr)
        single.append((estimate.frequency - shares) / decode.estimate(mechanism, counted, values).stderr)
        alarms += estimate.detected()[5:].any()
        narrower.append(estimate.stderr / bloom_panel(mechanism, shares, 5000, 1, rng, values)[1].stderr)
    assert (hits >= binom.ppf(RARE / 12, runs, 0.95)).all()
    assert np.sqrt(np.mean(np.square(scores))) == pytest.approx(1, abs=0.1)
    assert np.sqrt(np.mean(np.square(single), axis=0))[:3].min() > 1.5  # as if each report were of another device
    assert alarms <= binom.isf(RARE, runs, 0.05)
    assert np.mean(narrower) < 0.95


@pytest.mark.campaign
@pytest.mark.nightly
@pytest.mark.parametrize("epsilons", [(0.5, 4), (1, 2)])
@pytest.mark.parametrize("name", [*dict.fromkeys(case[0] for case in CASES)])
def test_coverage_over_a_grid(name, epsilons):
    """Over epsilon, share, people and periods, pointwise and for 64 values at once."""
    permanent, rng = name in {case[0] for case in KEPT}, np.random.default_rng(28)
    failed = []
    for epsilon, share, n, reports in product(
        epsilons, (0.0, 0.01, 0.1, 0.5, 0.9), (200, 2000, 50_000), ([1] * 2, [1] * 12, [1] * 90, [1, 5, 2, 10])
    ):
        mechanism = mechanisms.make(name, domain_size=2 if name == "binary" else 8, epsilon=epsilon)
        counts = [n * each for each in reports]
        for random, target in ((True, "population"), (False, "respondents")):
            support, reporters = replay(mechanism, share, counts, rng, permanent=permanent, random=random, replays=1000)
            truth = share if random else reporters
            support, times = np.unique(support, return_counts=True)  # an interval follows from the support alone
            covered = coverage(pooled(mechanism, support, counts, permanent=permanent)[1], truth, target, times=times)
            # A share of the answers has normal intervals, which are rougher where few reports support a value.
            least = 0.95 if random else 0.94
            if not enough(covered, 1000, least):
                failed.append((epsilon, share, n, reports, target, covered))
    assert not failed


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("name", "size", "options"),
    [
        ("l_grr", 3, {}),
        ("l_osue", 3, {}),
        ("loloha", 7, {}),
        ("rappor", 3, {}),
        ("dbitflip", 6, {"buckets": 2}),
        ("dbitflip", 3, {}),
    ],
)
def test_devices_that_keep_responses(name, size, options):
    """Devices as the mechanisms make them report five times: standard errors are the spread of the estimates."""
    mechanism = mechanisms.make(name, domain_size=size, epsilon=2, **options)
    people, times, rng, scores = 150, 5, np.random.default_rng(31), []
    shares = np.array([0.5, 0.3, 0.2, *[0.0] * (size - 3)])
    for _ in range(150):
        payloads = []
        for value in rng.choice(size, people, p=shares):
            row = int(rng.integers(mechanism.layout.rows))
            response = mechanism.respond_permanently(row, int(value), OS)
            payloads += [mechanism.respond_instantly(row, response, OS) for _ in range(times)]
        counted = tally.count(mechanism.layout, b"".join(payloads))
        estimate = decode.estimate(mechanism, counted, repeats=repeats([people] * times), permanent=True)
        scores.append((estimate.frequency - shares) / estimate.stderr)
    assert np.sqrt(np.mean(np.square(scores))) == pytest.approx(1, abs=0.13)


HOUSEHOLDS = [(5, 500, "1"), (5, 2000, "4"), (50, 20_000, "1"), (50, 20_000, "4")]


@pytest.mark.parametrize(("group", "n", "epsilon"), HOUSEHOLDS)
def test_groups_that_answer_alike(group, n, epsilon):
    """With `together` intervals of shares hold where groups answer alike; without they miss more often."""
    runs, rng, f = 600, np.random.default_rng(42), 0.3
    metric = declared_of(together=group, epsilon=epsilon)
    mechanism = metric.mechanism
    held = group * rng.binomial(n // group, f, runs)
    ones = rng.binomial(held, float(mechanism.p)) + rng.binomial(n - held, float(mechanism.q))
    covered, ignorant = 0, 0
    for one in ones.tolist():
        counted = tally.from_cells(mechanism.layout, np.array([n - one, one]))
        read = (ShareReading(each, counted, {"2026-11-21": n}) for each in (metric, declared_of(epsilon=epsilon)))
        estimate, alone = (each.shares for each in read)
        low, high = estimate.interval(0.95)
        covered += low[1] <= f <= high[1]
        low, high = alone.interval(0.95)
        ignorant += low[1] <= f <= high[1]
    assert covered >= binom.ppf(1e-4, runs, 0.94)
    assert ignorant < 0.92 * runs


def test_groups_enter_in_one_place():
    """Reports of a group are as repeats: of one period, and of several, and of two versions."""
    metric = declared_of(together=4).metric
    assert repeats_of(metric, {"2026-11-21": 100}) == 3
    assert repeats_of(metric, {"2026-11-21": 100, "2026-11-22": 100}) == 7
    assert repeats_of(declared_of().metric, {"2026-11-21": 100}) == 0
    one, other = {"2026-11-21": 100.0}, {"2026-11-21": 50.0}
    assert overlap(one, other) == 0
    assert overlap(one, other, 4) == pytest.approx(4 * 50 / (100 * 50))


def declared_of(together=1, epsilon="1"):
    text = f"""
format = 1
app = "shop"
[metrics.used]
type = "boolean"
epsilon = {epsilon}
together = {together}
description = "d"
owner = "o"
"""
    return Declared.of(registry.parse(text).metrics["used"])
