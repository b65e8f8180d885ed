"""The bound of what sums take, beside what they take of a real store when every cell of every one of them is full."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest

from deniable import registry
from deniable.declared import Declared
from deniable.forecast import space
from deniable.wire.report import Stratum
from deniable_aggregator.publish.breakdown import Breakdown
from deniable_aggregator.publish.release import Release
from deniable_aggregator.store import Store, schema
from deniable_aggregator.store.sums import tallies
from deniable_aggregator.store.sums.deltas import Weights
from deniable_server.doctor.config import inspect

pytestmark = pytest.mark.both_stores

WORDS = 'type = "string"\ncandidates = "words.txt"'
METRICS = {
    "export.used": 'type = "boolean"\nepsilon = 1.0',
    "ui.theme": 'type = "categorical"\nvalues = ["light", "dark", "system"]\nmechanism = "oue"\nepsilon = 1.0',
    "ui.search": f'{WORDS}\nmechanism = "rappor"\nepsilon = 0.01\nparameters = {{ cohorts = 8, bits = 64 }}',
    "home.page": f'{WORDS}\nmechanism = "cms"\nepsilon = 1.0\nparameters = {{ rows = 16, width = 64 }}',
}
COUNTED, OPEN, PUBLISHED = (
    [f"2026-11-{day:02}" for day in range(1, 1 + days)] for days in (3, 2, 4)
)  # kept for 1 and 2 days after an hour of grace
SEGMENTS = {"platform": ["linux", "macos"], "version": ["2.4.0", "2.4.1"]}
TEXT = (
    'format = 1\nbudget.per_month = 10000\nbudget.lifetime = 100000\napp = "shop"\n[segments]\n'
    + "".join(f"{name} = {json.dumps(values)}\n" for name, values in SEGMENTS.items())
    + '[publication]\ngrace = "1h"\n[retention]\ntallies = 1\nreleases = 2\nalarms = 1\n'
    + "".join(
        f'[metrics."{name}"]\n{keys}\nperiod = "day"\nsegments = ["platform", "version"]\ndescription = "d"\n'
        f'owner = "o@shop.example"\n'
        for name, keys in METRICS.items()
    )
)


@pytest.fixture
def path(tmp_path):
    (tmp_path / "words.txt").write_text("one\ntwo\n", "utf-8")
    written = tmp_path / "metrics.toml"
    written.write_text(TEXT, "utf-8")
    return written


@pytest.fixture
def filled(real_redis, path):
    """Return what fills every sum, copy and release of the registry in some number of commits, and returns the bytes taken."""
    loaded = registry.load(path)
    store = Store(real_redis, "shop")
    partition = store.partitions[0]
    partition.join()

    def commit(stratum, layout, parts):
        """Add to each cell and weight, part by part: nothing is as large before the last part as it is after it."""
        cells = np.ones(layout.rows * (layout.width + (layout.kind == "bits")), np.int64)
        numbers = np.ones(layout.width + 1, np.int64)
        for part in range(parts):
            begin, end = (len(cells) * each // parts for each in (part, part + 1))
            added = {stratum: np.where((np.arange(len(cells)) >= begin) & (np.arange(len(cells)) < end), cells, 0)}
            if layout.kind == "bits":
                added[Weights(stratum)] = numbers
            assert partition.commit("w", [], added, 0) == []

    def publish(stratum, layout):
        cells = np.ones(layout.rows * (layout.width + (layout.kind == "bits")), np.int64)
        name = tallies.name(stratum)
        with store.staging.strings([tallies.written(cells)]) as (staged,):
            real_redis.persist(staged)
            real_redis.rename(staged, store.releases.key(name))
        note = Release(3, 1_800_000_000, closed=True, first=stratum.period, n=10**6)
        real_redis.hset(schema.RELEASES.of("shop", stratum.metric), name, note.note())

    def fill(parts):
        before = real_redis.info("memory")["used_memory"]
        for metric in loaded.metrics.values():
            declared, breakdown = Declared.of(metric), Breakdown.of(loaded, metric)
            words = [breakdown.words_of(name) for name in breakdown.names]
            leaves = [breakdown.text(each) for each in product(*words)]
            assert len(leaves) == space.Space.of(loaded, metric, declared.layout).segments
            for period, leaf in product(COUNTED, leaves):
                commit(Stratum(*declared.definition, period, leaf), declared.layout, parts)
            for period in OPEN:
                partition.copy([tallies.name(Stratum(*declared.definition, period, leaf)) for leaf in leaves], metric.id, 0)
            cells = [breakdown.text(each) for each in product(*((*words_, None) for words_ in words))]
            for period, cell in product(PUBLISHED, cells):
                publish(Stratum(*declared.definition, period, cell), declared.layout)
        return real_redis.info("memory")["used_memory"] - before

    return fill


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("parts", [1, 2, 7])
def test_the_figure_bounds_what_full_sums_take(filled, path, parts):
    """Whether they are filled at once or little by little, and is twice that at most."""
    taken, most = filled(parts), space.total(space.spaces(registry.load(path)))
    assert taken < most < 2 * taken


def test_periods_are_those_of_the_figure(path):
    """As many as the other test fills."""
    made_of = space.spaces(registry.load(path))[0].made_of()
    assert f"9 segments x {len(COUNTED)} periods of exact sums" in made_of
    assert f"16 x {len(PUBLISHED)} of releases" in made_of


@pytest.mark.parametrize("divided", [1, 3])
def test_the_doctor_compares_it_with_the_store(real_redis, store_url, path, divided):
    """With its `maxmemory`; a divided app has sums in each part."""
    Store(real_redis, "shop").divide(divided)
    environment = {"DENIABLE_REDIS_URL": store_url, "DENIABLE_REGISTRY": str(path)}
    most = space.total(space.spaces(registry.load(path), divided))
    try:
        for limit, warned in ((2 * most, False), (most, True)):
            real_redis.config_set("maxmemory", limit)
            findings = inspect(environment)
            assert findings.errors == []
            assert [space.written(limit) in each and "set maxmemory " in each for each in findings.warnings] == [True] * warned
            assert findings.store.endswith(f"maxmemory is {space.written(limit)}")
    finally:
        real_redis.config_set("maxmemory", 0)
    assert inspect(environment).warnings == []
    assert "no maxmemory" in inspect(environment).store
