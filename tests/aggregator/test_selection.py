"""Lists of values that were selected by their estimates, and what all candidates leave: their errors are as stated."""

from __future__ import annotations

import numpy as np
import pytest

from deniable import mechanisms
from deniable.mechanisms.texts.prefix import Pem, TreeHist
from deniable_aggregator import decode, tally
from deniable_aggregator.decode.pools import hash_lookup
from deniable_aggregator.decode.pools.clusters import stderr_of_mean
from deniable_aggregator.decode.search.discovery import discover
from deniable_aggregator.decode.support_estimate import Supported
from deniable_aggregator.tally import Tally

from .test_discovery import simulate

OPEN = 1 << 64  # of keys, which cannot be listed


def zipf(values, exponent=1.0):
    """Shares that fall by a power of the rank."""
    weights = np.arange(1.0, values + 1) ** -exponent
    return weights / weights.sum()


def replay(name, epsilon, n, shares, runs, *, seed):
    """Estimate a population time and again; the support of each value is binomial."""
    rng = np.random.default_rng(seed)  # replayed chance of a test, not of a device
    mechanism = mechanisms.make(name, domain_size=len(shares), epsilon=epsilon)
    p, q = float(mechanism.p), float(mechanism.q)
    for _ in range(runs):
        yield Supported(mechanism, n, rng.binomial(n, q + shares * (p - q)))


def missed(interval, shares, listed):
    """Return the share of a list's intervals that miss, and how many of them hold; 0 of an empty list."""
    low, high = interval
    wrong = ((shares < low) | (high < shares))[listed]
    return wrong.sum() / max(len(wrong), 1), np.count_nonzero(~wrong), len(wrong)


def test_intervals_of_a_list_hold_in_spite_of_the_selection():
    """Where mostly luck gets a value detected, pointwise intervals of those detected fail, and selected ones hold."""
    shares = zipf(128, 0.5)
    pointwise, selected, total, true = [], [], 0.0, 0.0
    for estimate in replay("oue", 1, 20_000, shares, 300, seed=1):
        detected = estimate.detected()
        pointwise.append(missed(estimate.interval(), shares, detected))
        selected.append(missed(estimate.selected_interval(detected), shares, detected))
        total, true = total + estimate.frequency[detected].sum(), true + shares[detected].sum()
    assert total > 1.4 * true  # the winner's curse
    _, hold, listed = np.sum(pointwise, axis=0)
    assert hold / listed < 0.8
    false, hold, listed = np.sum(selected, axis=0)
    assert hold / listed > 0.92
    assert false / len(selected) < 0.05


def test_selected_intervals_by_the_share_selected():
    """On a list of all values intervals are pointwise, on a list of one they are simultaneous, and off a list pointwise."""
    mechanism = mechanisms.make("oue", domain_size=20, epsilon=1)
    estimate = Supported(mechanism, 1000, np.arange(300, 320))
    everything, one = np.ones(20, np.bool_), np.arange(20) == 3
    assert np.array_equal(estimate.selected_interval(everything), estimate.interval())
    assert np.array_equal(estimate.selected_interval(~everything), estimate.interval())
    for end, chosen, alone in zip(
        estimate.selected_interval(one), estimate.interval(simultaneous=True), estimate.interval(), strict=True
    ):
        assert np.allclose(end, np.where(one, chosen, alone))
    (low, high), (lowest, highest) = estimate.selected_interval(one, target="respondents"), estimate.selected_interval(one)
    assert (high - low < highest - lowest).all()


def test_yes_and_no_are_not_selected_from_two():
    """Each says what the other says, so an interval of yes is never longer than that of both at once."""
    estimate = Supported(mechanisms.make("grr", domain_size=2, epsilon=1), 1000, np.array([720, 280]))
    assert estimate.detected().tolist() == [True, False]
    assert np.array_equal(estimate.selected_interval(estimate.detected()), estimate.interval(simultaneous=True))


def draw(mechanism, keys, held, rng):
    """Draw the tally of a sketch from the probabilities of its mechanism, faster than devices do."""
    rows = rng.integers(mechanism.rows, size=len(held))
    places, shape = hash_lookup.hashes(mechanism.family, rows, keys[held]), (mechanism.rows, mechanism.width)
    reports, keep = np.bincount(rows, minlength=mechanism.rows), rng.random(len(held)) < float(mechanism.p)
    if mechanism.name == "cms":
        own = np.bincount(rows * shape[1] + places, minlength=shape[0] * shape[1]).reshape(shape)
        ones = rng.binomial(own, float(mechanism.p)) + rng.binomial(reports[:, None] - own, float(mechanism.other))
        return Tally(mechanism.layout, ones, reports)
    if mechanism.name == "hcms":
        coefficients = rng.integers(shape[1], size=len(held))
        cells = 2 * coefficients + (np.bitwise_count(coefficients & places) & 1 ^ ~keep)
    else:
        cells = (places + np.where(keep, 0, rng.integers(1, shape[1], size=len(held)))) % shape[1]
    width = mechanism.layout.width
    counts = np.bincount(rows * width + cells, minlength=mechanism.rows * width).reshape(-1, width)
    return Tally(mechanism.layout, counts, reports)


def rests(mechanism, n, shares, others, runs, *, seed):
    """Replay the share that no candidate accounts for: its error in standard errors, run by run."""
    rng = np.random.default_rng(seed)
    errors = []
    for _ in range(runs):
        keys = rng.integers(0, OPEN, len(shares) + len(others), np.uint64, endpoint=False)
        counted = draw(mechanism, keys, rng.choice(len(keys), n, p=np.concatenate([shares, others])), rng)
        remainder, stderr = decode.estimate(mechanism, counted, keys[: len(shares)].tolist()).unallocated
        errors.append((remainder - others.sum()) / stderr)
    return np.array(errors)


def hold(errors):
    """Whether errors in standard errors have mean 0, deviation 1 and 95% intervals; each bound is 4 standard deviations away."""
    mean, root = errors.mean(), len(errors) ** 0.5
    return abs(mean) < 4 / root and abs(errors.std() - 1) < 4 / 2**0.5 / root and (abs(errors) < 1.96).mean() > 0.95 - 0.9 / root


@pytest.mark.parametrize(
    ("name", "options"),
    [("fast_local_hash", {"rows": 300}), ("cms", {"rows": 64, "width": 64}), ("hcms", {"rows": 64, "width": 64})],
)
def test_what_no_candidate_accounts_for(name, options):
    """Though none of 60 candidates can be detected, their sum tells how many people hold another answer."""
    mechanism = mechanisms.make(name, domain_size=OPEN, epsilon=2, **options)
    errors = rests(mechanism, 3000, np.full(60, 0.01), 0.4 * zipf(60), 100, seed=2)
    assert hold(errors)


def test_what_is_not_known_of_the_rest():
    """Without reports, in fewer than two rows and where no stderr is known, the numbers are nan, none of them 0 or 1."""
    mechanism = mechanisms.make("fast_local_hash", domain_size=OPEN, epsilon=2, rows=2, width=4)
    assert np.isnan(decode.estimate(mechanism, tally.empty(mechanism.layout), [1]).unallocated).all()
    one = Tally(mechanism.layout, np.array([[5, 0, 0, 0], [0] * 4]), np.array([5, 0]))
    assert np.isnan(decode.estimate(mechanism, one, [1]).unallocated[1])
    partial = mechanisms.make("dbitflip", domain_size=40, epsilon=2, buckets=4)
    assert np.isnan(decode.estimate(partial, tally.empty(partial.layout)).unallocated).all()


def test_stderr_of_mean_is_that_of_clusters():
    """With a report in each row it is the standard error of a mean; rows without reports tell nothing."""
    sums = np.array([1, 4, 2, 0, 7])
    reports = np.array([1, 1, 1, 0, 1])
    assert stderr_of_mean(sums, reports) == pytest.approx(np.std([1, 4, 2, 7], ddof=1) / 2)


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("name", "epsilon", "n", "shares"),
    [
        ("oue", 1, 20_000, zipf(1000)),
        pytest.param("oue", 1, 100_000, np.full(1000, 0.001), marks=pytest.mark.nightly),
        pytest.param("oue", 4, 20_000, zipf(3000), marks=pytest.mark.nightly),
        pytest.param("grr", 4, 500, zipf(500), marks=pytest.mark.nightly),
        ("grr", 4, 5000, zipf(500, 0.3)),
        ("hadamard", 1, 5000, zipf(128)),
        pytest.param("local_hash", 2, 3000, zipf(64, 0.3), marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("control", ["family", "discovery"])
def test_false_coverage_of_lists(name, epsilon, n, shares, control):
    """Over many lists the share of intervals that miss is at most 5% on average, whichever test selected the values."""
    false = []
    for estimate in replay(name, epsilon, n, shares, 400, seed=3):
        detected = estimate.detected(control=control)
        false.append(missed(estimate.selected_interval(detected), shares, detected)[0])
    assert np.mean(false) < 0.06


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("name", "options"), [("fast_local_hash", {}), ("cms", {}), ("hcms", {}), ("cms", {"rows": 32, "width": 64})]
)
@pytest.mark.parametrize("shares", [0.8 * zipf(100), np.array([0.5, *[0.003] * 100])])
def test_what_no_candidate_accounts_for_at_length(name, options, shares):
    """With the default pools as well, of shares that fall and beside a dominant one."""
    mechanism = mechanisms.make(name, domain_size=OPEN, epsilon=2, **options)
    assert hold(rests(mechanism, 20_000, shares, 0.2 * zipf(100), 60, seed=4))


@pytest.mark.campaign
@pytest.mark.parametrize("runs", [30, pytest.param(60, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("cls", [Pem, TreeHist])
def test_what_nothing_found_accounts_for(cls, runs):
    """Of what a search found, confirmed or not, the rest is known without bias, and lists have the coverage stated."""
    rng = np.random.default_rng(5)
    mechanism = cls(domain_size=1 << 24, epsilon=3, start=8)
    errors, false = [], []
    for _ in range(runs):
        values = rng.choice(1 << 24, 300, replace=False).tolist()
        shares = dict(zip(values, zipf(300, 0.6), strict=True))
        discovered = discover(mechanism, simulate(mechanism, values, rng.multinomial(100_000, list(shares.values())), rng))
        held = np.array([shares.get(value, 0.0) for value in discovered.values])
        remainder, stderr = discovered.unallocated
        errors.append((remainder - 1 + held.sum()) / stderr)
        detected = discovered.detected()
        false.append(missed(discovered.selected_interval(detected), held, detected)[0])
    assert hold(np.array(errors))
    assert np.mean(false) < 0.05
