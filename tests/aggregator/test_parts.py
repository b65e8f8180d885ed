"""Reports that an estimate rests on: which rows move it, and that nothing is published from few of them."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pytest
from registries import metric_toml, registry_toml

from deniable import mechanisms, registry
from deniable.declared import Declared
from deniable.wire.report import Stratum
from deniable_aggregator import decode
from deniable_aggregator.decode.sets.options import option_shares
from deniable_aggregator.decode.sets.pairs import pairs
from deniable_aggregator.publish import release
from deniable_aggregator.publish.publisher import Publisher
from deniable_aggregator.store import Store
from deniable_aggregator.tally import Tally

DAY = 86400
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()
CLOSED = NOON + 4 * DAY
TODAY, TOMORROW = "2026-11-21", "2026-11-22"

PARTED = {
    "sampled_options": {"domain_size": 1 << 5},
    "sampled_pair": {"domain_size": 1 << 4},
    "dbitflip": {"domain_size": 12, "buckets": 8, "permanent": "1"},
    "pem": {"domain_size": 1 << 20, "rows": 12},
}
POOLED = {
    "cms": {"domain_size": 40},
    "hcms": {"domain_size": 40},
    "rappor": {"domain_size": 40, "permanent": "2"},
    "local_hash": {"domain_size": 40},
    "grr": {"domain_size": 5},
}


def declared(options=5, *, joint=False, segments=(), trial=False):
    """Return the registry of a metric about some options."""
    plugins = metric_toml("plugins", type="set", values=[f"o{n}" for n in range(options)], joint=joint, segments=segments)
    publication = {"grace": "3d"} | ({"trial": True} if trial else {"min_reports": 100})
    return registry.parse(registry_toml(plugins, segments={"platform": ["linux", "macos"]}, publication=publication))


def tally_of(mechanism, rng, n=400) -> Tally:
    shape = mechanism.layout.rows, mechanism.layout.width
    counts = rng.integers(1, n, shape)
    if mechanism.layout.kind == "index":
        return Tally(mechanism.layout, counts, counts.sum(axis=1))
    return Tally(mechanism.layout, counts, rng.integers(n, 2 * n, shape[0]))


def without(mechanism, complete: Tally, row: int) -> Tally:
    counts, reports = complete.counts.copy(), complete.reports.copy()
    counts[row], reports[row] = 0, 0
    return Tally(mechanism.layout, counts, reports)


def shares(mechanism, complete: Tally) -> np.ndarray:
    """Return what each estimate is made of, free of the number of all reports."""
    if mechanism.name.startswith("sampled"):
        estimate = option_shares(mechanism, complete)
        return np.array([estimate.support, estimate.covering]).T
    estimate = decode.estimate(mechanism, complete)
    return np.array([estimate.support, estimate.reports]).T


@pytest.mark.parametrize("name", ["sampled_options", "sampled_pair", "dbitflip"])
def test_an_estimate_changes_with_its_parts_and_with_nothing_else(name):
    """The rows that move what is known of a value are one or more whole parts, and each part is needed by some value."""
    mechanism = mechanisms.make(name, epsilon="1", **PARTED[name])
    complete = tally_of(mechanism, np.random.default_rng(1))
    before = shares(mechanism, complete)
    moved = [
        np.any(shares(mechanism, without(mechanism, complete, row)) != before, axis=1) for row in range(mechanism.layout.rows)
    ]
    used = set()
    for value in range(len(before)):
        rows = {row for row in range(mechanism.layout.rows) if moved[row][value]}
        inside = [part for part in mechanism.parts if set(part) <= rows]
        assert set().union(*inside) == rows
        used |= set(inside)
    assert used == set(mechanism.parts)


@pytest.mark.parametrize("name", list(POOLED))
def test_rows_that_are_pooled_are_one_part(name):
    """Hash functions and cohorts are no parts: an estimate uses them all."""
    mechanism = mechanisms.make(name, epsilon="1", **POOLED[name])
    assert not mechanism.part
    assert mechanism.needed(100) == 100
    complete = tally_of(mechanism, np.random.default_rng(1))
    assert complete.by_parts(mechanism).tolist() == [complete.n]
    assert set(decode.estimate(mechanism, complete).reports.tolist()) == {complete.n}


@pytest.mark.parametrize("name", list(PARTED))
def test_the_least_part_has_enough_of_what_is_needed(name):
    """All rows are in parts, and of the reports that are needed the smallest part has the least on average."""
    mechanism = mechanisms.make(name, epsilon="1", **PARTED[name])
    rows = mechanism.layout.rows
    assert set().union(*mechanism.parts) == set(range(rows))
    smallest = min(map(len, mechanism.parts))
    assert 100 <= mechanism.needed(100) * smallest / rows < 100 + smallest


def test_a_pair_rests_on_its_row():
    """The share of people who chose both is that of its own reports."""
    mechanism = mechanisms.make("sampled_pair", epsilon="1", **PARTED["sampled_pair"])
    complete = tally_of(mechanism, np.random.default_rng(1))
    before = pairs(mechanism, complete).both[2]
    for row in range(mechanism.layout.rows):
        if row != 2:
            assert pairs(mechanism, without(mechanism, complete, row)).both[2] == before


class Counted:
    """The reports of one metric about options, on a real store."""

    def __init__(self, client, shop):
        self.registry, self.store = shop, Store(client, "shop")
        self.declared = Declared.of(shop.metrics["plugins"])

    def stratum(self, period=TODAY, segment=""):
        return Stratum("plugins", 1, self.declared.fingerprint, period, segment)

    def count(self, rows, period=TODAY, segment=""):
        """Count so many reports about each option, or pair."""
        layout = self.declared.mechanism.layout
        cells = np.zeros((layout.rows, layout.width), np.int64)
        cells[:, 0] = rows
        assert self.store.partitions[0].commit("test", [], {self.stratum(period, segment): cells.ravel()}, int(NOON)) == []

    def publish(self, now):
        Publisher(self.store, self.registry).publish(now)

    def released(self):
        """Return the reports about each option, or pair, in each release."""
        layout = self.declared.mechanism.layout
        return {
            (each.period, each.segment): self.store.releases.read(layout, [each]).reports.tolist()
            for each in release.listed(self.store, "plugins")
        }


@pytest.mark.parametrize(("options", "joint"), [(30, False), (6, True)])
def test_a_hundred_reports_tell_of_no_option(real_redis, options, joint):
    """A cell of exactly min_reports reports, over all options, is not published: each option has a few of them."""
    shop = Counted(real_redis, declared(options, joint=joint))
    rows = shop.declared.mechanism.layout.rows
    shop.count([100 // rows + (row < 100 % rows) for row in range(rows)])
    shop.publish(CLOSED)
    assert shop.released() == {}
    assert not list(shop.store._client.scan_iter("*release*"))


def test_a_period_waits_until_the_smallest_option_has_enough(real_redis):
    """Periods are joined until each option has min_reports reports."""
    shop = Counted(real_redis, declared(3))
    shop.count([150, 150, 99])
    shop.publish(CLOSED)
    assert shop.released() == {}
    shop.count([1, 1, 1], period=TOMORROW)
    shop.publish(CLOSED + DAY)
    assert shop.released() == {(TOMORROW, ""): [151, 151, 100]}


def test_each_step_has_enough_of_each_option(real_redis):
    """Two releases of a period differ, of each option, by none or by min_reports reports."""
    shop, steps, rng = Counted(real_redis, declared(3)), [[0, 0, 0]], np.random.default_rng(1)
    for _ in range(25):
        shop.count(rng.multinomial(90, [0.2, 0.3, 0.5]))
        shop.publish(NOON)
        steps += list(shop.released().values())
    shop.publish(CLOSED)
    steps += list(shop.released().values())
    assert sum(steps[-1]) == 25 * 90
    sizes = [np.subtract(after, before) for before, after in pairwise(steps) if after != before]
    assert len(sizes) >= 3
    assert all((each >= 100).all() for each in sizes)


def test_a_segment_with_few_reports_of_an_option_is_withheld(real_redis):
    """A segment is published if each option has enough there, and if no difference tells of few reports of an option."""
    shop = Counted(real_redis, declared(3, segments=["platform"]))
    shop.count([200, 200, 200], segment="platform=linux")
    shop.count([300, 300, 40], segment="platform=macos")
    shop.publish(CLOSED)
    assert shop.released() == {(TODAY, ""): [500, 500, 240]}  # linux would give the 40 away


def test_a_trial_shows_all_options_at_once(real_redis):
    """In a trial one report is published, though nothing is known of the other options."""
    shop = Counted(real_redis, declared(3, trial=True))
    shop.count([1, 0, 0])
    shop.publish(NOON)
    assert shop.released() == {(TODAY, ""): [1, 0, 0]}


def test_what_is_needed_is_said():
    """Messages say of what each release needs min_reports reports."""
    assert Declared.of(declared(30).metrics["plugins"]).needed == "100 reports about each option, some 3,000 in all"
    pairs = Declared.of(declared(30, joint=True).metrics["plugins"])
    assert pairs.needed == "100 reports about each pair of options, some 43,500 in all"
