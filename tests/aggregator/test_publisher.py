"""The publisher: what is published when, and that it never changes after."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from math import inf

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deniable import mechanisms, registry
from deniable.declared import fingerprint
from deniable.wire.report import Stratum
from deniable_aggregator import decode
from deniable_aggregator.audit.entry import intact_entry
from deniable_aggregator.audit.log import AuditLog
from deniable_aggregator.audit.verify import Chain
from deniable_aggregator.counting.faults import Faults
from deniable_aggregator.counting.prometheus import Vitals
from deniable_aggregator.publish import publisher, release
from deniable_aggregator.publish.breakdown import Breakdown
from deniable_aggregator.publish.period import Period
from deniable_aggregator.publish.publisher import Publisher
from deniable_aggregator.store import Store, Upload
from deniable_aggregator.store.script import Script
from deniable_aggregator.store.server.servers import primaries
from deniable_aggregator.store.sums import deltas, staging, tallies

pytestmark = pytest.mark.divided_too

DAY = 86400
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()
CLOSED = NOON + 4 * DAY
TODAY, TOMORROW = "2026-11-21", "2026-11-22"

REGISTRY = """
format = 1
app = "shop"

[segments]
platform = ["linux", "macos", "windows"]
version = ["1.0", "1.1", "2.0"]

[generalize]
version = "."

[publication]
min_reports = 100
grace = "3d"
{publication}

[metrics.theme]
type = "categorical"
values = ["light", "dark", "system"]
epsilon = 1.0
mechanism = "grr"
description = "Which theme"
owner = "design@shop.example"

[metrics.export]
type = "boolean"
epsilon = 1.0
segments = ["platform", "version"]
description = "Whether it was exported"
owner = "core@shop.example"
"""


SCREENS = [f"s{number}" for number in range(203)]
"""Of three, many people answer; of all others, few."""

MANY_SMALL = f"""
format = 1
app = "shop"

[segments]
screen = {json.dumps(SCREENS)}

[metrics.export]
type = "boolean"
epsilon = 1.0
segments = ["screen"]
description = "Whether it was exported"
owner = "core@shop.example"
"""


class Counted:
    """An app on a real store, counted by hand."""

    def __init__(self, client, publication="", text=REGISTRY):
        self.registry = registry.parse(text.replace("{publication}", publication))
        self.store = Store(client, "shop")
        self.publisher = Publisher(self.store, self.registry)

    def stratum(self, metric, period=TODAY, segment=""):
        declared = self.registry.metrics[metric]
        return Stratum(metric, 1, fingerprint(declared, mechanisms.of(declared).canonical), period, segment)

    def count(self, metric, cells, period=TODAY, segment=""):
        """Count reports as a worker would, spread over the partitions."""
        parts, cells = self.store.partitions, np.array(cells, np.int64)
        for place, partition in enumerate(parts):
            part = (cells + place) // len(parts)
            assert partition.commit("test", [], {self.stratum(metric, period, segment): part}, int(NOON)) == []

    def counted(self, metric, n, **where):
        cells = np.zeros(mechanisms.of(self.registry.metrics[metric]).layout.width, np.int64)
        cells[0] = n
        self.count(metric, cells, **where)

    def answered(self, metric, no, yes, chance, **where):
        """Count the randomised answers of so many people."""
        mechanism = mechanisms.of(self.registry.metrics[metric])
        ones = chance.binomial(yes, float(mechanism.p)) + chance.binomial(no, float(mechanism.q))
        self.count(metric, [no + yes - ones, ones], **where)

    def estimate(self, metric, period=TODAY, segment=""):
        """Estimate the share of yes: the number of reports, and the ends of a 95% interval."""
        mechanism = mechanisms.of(self.registry.metrics[metric])
        released = self.store.releases.read(mechanism.layout, [self.stratum(metric, period, segment)])
        lows, highs = decode.estimate(mechanism, released).interval(0.95)
        return released.n, lows[1], highs[1]

    def published(self, metric):
        """Return the number of reports in each release, by period and cell."""
        layout = mechanisms.of(self.registry.metrics[metric]).layout
        listed = release.listed(self.store, metric)
        return {(each.period, each.segment): self.store.releases.read(layout, [each]).n for each in listed}


@pytest.fixture
def shop(real_redis):
    return Counted(real_redis)


def empty(client):
    """Empty the store, and divide the app again if it was divided."""
    number = len(Store(client, "shop").partitions)
    client.flushall()
    for server in primaries(client):
        server.connection_pool.reset()  # each store and publisher keeps some
    Store(client, "shop").divide(number)


def test_nothing_early_where_it_is_switched_off(real_redis):
    """With early = false a period is published when it closes, and not before."""
    shop = Counted(real_redis, "early = false")
    shop.counted("theme", 5000)
    shop.publisher.publish(NOON)
    assert shop.published("theme") == {}
    shop.publisher.publish(CLOSED)
    assert shop.published("theme") == {(TODAY, ""): 5000}


def test_too_few_are_never_published(shop):
    """A period of fewer than min_reports leaves no trace among what is published."""
    shop.counted("theme", 99)
    shop.publisher.publish(CLOSED)
    assert shop.published("theme") == {}
    assert not list(shop.store._client.scan_iter("*release*"))


def test_cells_are_published_at_the_close(shop):
    """A metric with segments is published when its period closes: cells of enough reports, none that gives another away."""
    for segment, n in {
        "platform=linux,version=1.0": 300,
        "platform=linux,version=1.1": 40,
        "platform=linux,version=2.0": 500,
        "platform=macos,version=2.0": 200,
        "platform=windows,version=2.0": 7,
    }.items():
        shop.counted("export", n, segment=segment)
    shop.publisher.publish(NOON)
    assert shop.published("export") == {}
    shop.publisher.publish(CLOSED)
    cells = {cell: n for (_, cell), n in shop.published("export").items()}
    assert cells[""] == 1047
    assert "platform=windows" not in cells
    assert not {"platform=linux", "platform=macos"} <= set(cells)  # beside all reports, both would tell of the 7
    assert "version=1.1" not in cells
    assert all(n >= 100 for n in cells.values())


def test_reports_that_wait_are_waited_for(shop):
    """A period does not close while batches that were taken before its close may wait to be counted."""
    shop.counted("theme", 200)
    shop.store.partitions[0].join()
    shop.store.append(Upload(b"a batch", key="one", remember=b"", cap=10, ttl=60))
    shop.publisher.publish(CLOSED)
    assert shop.published("theme") == {}
    shop.store._client.delete(shop.store.partitions[0].stream)
    shop.publisher.publish(CLOSED)
    assert shop.published("theme") == {(TODAY, ""): 200}


def test_a_definition_that_is_gone_is_not_published(shop):
    """What was counted under another definition than the registry's is not published under its name."""
    stratum = shop.stratum("theme")._replace(fingerprint="another")
    shop.store.partitions[0].commit("test", [], {stratum: np.array([500, 0, 0])}, int(NOON))
    shop.publisher.publish(CLOSED)
    assert shop.published("theme") == {}


def test_a_trial_shows_everything_at_once(real_redis):
    """In a trial what was counted is published at every look, with its segments, however few, exactly, until it closes."""
    shop = Counted(real_redis, "trial = true")
    shop.counted("theme", 15)
    shop.counted("export", 20, segment="platform=linux,version=2.0")
    assert shop.publisher.publish(NOON)
    assert shop.published("theme") == {(TODAY, ""): 15}
    assert shop.published("export")[TODAY, "version=2"] == 20
    assert shop.publisher.publish(NOON) == []
    shop.counted("theme", 1)
    shop.publisher.publish(NOON)
    assert shop.published("theme") == {(TODAY, ""): 16}
    shop.publisher.publish(CLOSED)
    shop.counted("theme", 1)
    shop.publisher.publish(CLOSED)
    assert shop.published("theme") == {(TODAY, ""): 16, (TOMORROW, ""): 1}
    assert {note.closed for note in release.listed(shop.store, "export").values()} == {True}


def test_answers_that_depend_on_segments_are_published_without_bias(real_redis):
    """Of 3 segments of 1,000 people who say no and 200 of 10 who say yes, the total has all, and covers the true 40%."""
    shop, chance = Counted(real_redis, text=MANY_SMALL), np.random.default_rng(1)
    for place, screen in enumerate(SCREENS):
        no, yes = (1000, 0) if place < 3 else (0, 10)
        shop.answered("export", no, yes, chance, segment=f"screen={screen}")
    shop.publisher.publish(CLOSED)
    n, low, high = shop.estimate("export")
    assert n == 5000
    assert low < 0.4 < high


def test_the_latest_reporters_are_published_at_the_close(real_redis):
    """Of 505 people the last 95 say yes: the close publishes them with all others, and covers the true 18.8%."""
    shop, chance = Counted(real_redis, text=MANY_SMALL.replace('segments = ["screen"]', "")), np.random.default_rng(1)
    for no, yes in [(10, 0)] * 41 + [(0, 5)] * 19:
        shop.answered("export", no, yes, chance)
        Publisher(shop.store, shop.registry).publish(NOON)
    early, _, _ = shop.estimate("export")
    shop.publisher.publish(CLOSED)
    n, low, high = shop.estimate("export")
    assert 0 < early < 505
    assert n == 505
    assert low < 95 / 505 < high


@pytest.mark.campaign
@pytest.mark.parametrize("examples", [50, pytest.param(200, marks=pytest.mark.nightly)])
def test_published_totals_differ_by_enough_and_nothing_is_lost(real_redis, monkeypatch, examples):
    """However reports arrive, two totals of a period differ by none or by min_reports, and the last one has them all."""
    monkeypatch.setattr(publisher, "_PATIENCE", inf)

    @settings(max_examples=examples)
    @given(arrivals=st.lists(st.integers(0, 350), min_size=1, max_size=40), least=st.sampled_from([1, 20, 100]))
    def arrive(arrivals, least):
        empty(real_redis)
        shop, totals = Counted(real_redis, text=REGISTRY.replace("min_reports = 100", f"min_reports = {least}")), {0}
        for n in arrivals:
            shop.counted("theme", n)
            shop.publisher.publish(NOON)
            totals.add(shop.published("theme").get((TODAY, ""), 0))
        shop.publisher.publish(CLOSED)
        last = shop.published("theme").get((TODAY, ""), 0)
        assert last == (sum(arrivals) if sum(arrivals) >= least else 0)
        assert all(b - a >= least for a, b in pairwise(sorted(totals | {last})))

    arrive()


def test_early_releases_lag_by_enough(shop):
    """What is published is what was counted when min_reports, and a quarter of what was published, had not come after it yet."""
    steps = []
    for _ in range(20):
        shop.counted("theme", 50)
        Publisher(shop.store, shop.registry).publish(NOON)
        steps.append(shop.published("theme").get((TODAY, ""), 0))
    assert steps == [0] * 3 + [100] * 2 + [200] * 2 + [300] * 2 + [400] * 2 + [500] * 3 + [600] * 3 + [750] * 3


def test_the_close_is_the_end(shop):
    """At the close the rest is added; after it nothing changes, whatever is counted, and no snapshot is left."""
    for _ in range(4):
        shop.counted("theme", 100)
        Publisher(shop.store, shop.registry).publish(NOON)
    shop.counted("theme", 1)
    assert shop.published("theme") == {(TODAY, ""): 300}
    shop.publisher.publish(CLOSED)
    assert shop.published("theme") == {(TODAY, ""): 401}
    before = {key: shop.store._client.dump(key) for key in shop.store._client.scan_iter("*release*")}
    shop.counted("theme", 4000)
    assert Publisher(shop.store, shop.registry).publish(CLOSED) == []
    assert [n for _, n in shop.publisher.unpublished()] == [4000, 0]
    assert {key: shop.store._client.dump(key) for key in shop.store._client.scan_iter("*release*")} == before
    assert not list(shop.store._client.scan_iter(f"*snapshot*{TODAY}*"))
    (note,) = release.listed(shop.store, "theme").values()
    assert (note.number, note.closed) == (4, True)


def test_a_longer_grace_loses_no_report(real_redis):
    """What is taken of a period that a shorter grace has closed counts in the next one, and is published with it."""
    text = REGISTRY.replace("{publication}", "")
    shop = Counted(real_redis, text=text.replace('grace = "3d"', 'grace = "12h"'))
    shop.counted("theme", 200)
    shop.publisher.publish(NOON + 1.5 * DAY)
    longer = Publisher(shop.store, registry.parse(text))
    shop.counted("theme", 150)
    shop.counted("theme", 300, period=TOMORROW)
    assert sum(n for _, n in longer.unpublished()) == 450
    longer.publish(CLOSED + DAY)
    assert shop.published("theme") == {(TODAY, ""): 200, (TOMORROW, ""): 450}
    assert sum(n for _, n in longer.unpublished()) == 0


def test_what_comes_late_waits_for_enough(shop):
    """Few late reports are published with enough others, by segments too, and never by themselves."""
    shop.counted("export", 200, segment="platform=linux,version=2.0")
    shop.publisher.publish(CLOSED)
    shop.counted("export", 50, segment="platform=linux,version=2.0")
    shop.publisher.publish(CLOSED + 3 * DAY)
    assert {period for period, _ in shop.published("export")} == {TODAY}
    shop.counted("export", 60, period="2026-11-24", segment="platform=macos,version=2.0")
    shop.publisher.publish(CLOSED + 3 * DAY)
    assert shop.published("export")["2026-11-24", ""] == 110
    assert shop.published("export")[TODAY, ""] == 200


@pytest.mark.parametrize("at_once", [0, deltas.AT_ONCE])
def test_what_comes_while_a_period_is_read_is_not_lost(shop, monkeypatch, at_once):
    """A batch that is counted between reading a period and publishing it counts in the next one, in one piece or in several."""
    monkeypatch.setattr(deltas, "AT_ONCE", at_once)
    shop.counted("theme", 200)
    read = shop.store.sums

    def reading(*arguments):
        sums = read(*arguments)
        shop.counted("theme", 150)
        return sums

    monkeypatch.setattr(shop.store, "sums", reading)
    shop.publisher.publish(CLOSED)
    monkeypatch.setattr(shop.store, "sums", read)
    shop.publisher.publish(CLOSED + DAY)
    assert shop.published("theme") == {(TODAY, ""): 200, (TOMORROW, ""): 150}


def test_a_period_is_not_sealed_between_two_pieces(shop, monkeypatch):
    """While a commit is added in pieces no period is sealed: all of it counts in the same one."""
    definition = shop.stratum("theme")[:3]
    monkeypatch.setattr(deltas, "AT_ONCE", 0)
    apply = shop.store.partitions[0].staging.apply
    monkeypatch.setattr(shop.store.partitions[0].staging, "apply", lambda: None)
    shop.counted("theme", 400)
    assert not shop.store.seal(definition, TOMORROW)
    apply()
    assert shop.store.seal(definition, TOMORROW)
    assert shop.store.seal(definition, TODAY)  # what is sealed stays so
    shop.counted("theme", 30)
    apply()
    assert shop.store.read(mechanisms.of(shop.registry.metrics["theme"]).layout, [shop.stratum("theme")]).n == 400
    assert shop.store.read(mechanisms.of(shop.registry.metrics["theme"]).layout, [shop.stratum("theme", TOMORROW)]).n == 30


def test_late_reports_of_permanent_responses_are_told(real_redis):
    """They are joined with no other period, so they are never published; who runs the service sees that they wait."""
    theme = 'epsilon = 1.0\nmechanism = "grr"'
    permanent = 'epsilon = 1.0\nepsilon_permanent = 2.0\nmechanism = "rappor"'
    shop = Counted(real_redis, text=REGISTRY.replace(theme, permanent))
    assert shop.registry.metrics["theme"].permanent
    rows = mechanisms.of(shop.registry.metrics["theme"]).layout.width
    shop.count("theme", [200] * (rows + 1))
    shop.publisher.publish(CLOSED)
    shop.count("theme", [50] * (rows + 1))
    shop.publisher.publish(CLOSED + DAY)
    assert shop.published("theme") == {(TODAY, ""): 200}
    assert sum(n for _, n in shop.publisher.unpublished()) == 50


def test_several_workers_publish_once(shop):
    """Of workers that publish the same at the same time one is heard, and each report is published once."""
    for n in (100, 300, 400):
        shop.counted("theme", n)
        start, releases = threading.Barrier(8), []

        def publish(publisher, start=start, releases=releases):
            start.wait()
            releases.extend(publisher.publish(NOON))

        publishers = [Publisher(shop.store, shop.registry) for _ in range(8)]
        threads = [threading.Thread(target=publish, args=(each,)) for each in publishers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(releases) == (n > 100)
    assert shop.published("theme") == {(TODAY, ""): 400}


def before_publishing(shop, monkeypatch, act):
    """Call `act` with the keys of each script that publishes, right before it runs."""
    call = Script.__call__

    def late(self, keys, *arguments):
        if shop.store.published.key in keys:
            act(keys)
        return call(self, keys, *arguments)

    monkeypatch.setattr(Script, "__call__", late)


def test_of_two_workers_that_read_the_same_one_publishes(shop, monkeypatch):
    """A worker that was quicker, after another has read and before it writes, is the one that publishes: nothing counts twice."""
    shop.counted("theme", 100)
    slow, quick = (Publisher(shop.store, shop.registry) for _ in range(2))
    releases = []

    def meanwhile(_keys):
        if not releases:
            releases.append([])
            releases[0] += quick.publish(CLOSED)

    before_publishing(shop, monkeypatch, meanwhile)
    assert slow.publish(CLOSED) == []
    assert [len(each) for each in releases] == [1]
    assert shop.published("theme") == {(TODAY, ""): 100}
    assert release.summary(shop.store, shop.stratum("theme")[:3]).n == 100


def test_an_audit_log_that_grows_meanwhile_stays_whole(shop, monkeypatch):
    """What others log after a publisher has looked at the log's end, and before it writes, does not break the log."""
    shop.counted("theme", 100)
    log, others = AuditLog(shop.store), iter(["0" * 16, "1" * 16])

    def meanwhile(_keys):
        if (other := next(others, None)) is not None:
            log.append("key.revoked", "command", {"id": other})

    before_publishing(shop, monkeypatch, meanwhile)
    assert len(shop.publisher.publish(CLOSED)) == 1
    lines = list(log.lines(log.first()))
    assert [intact_entry(line).event for line in lines] == ["key.revoked", "key.revoked", "release.published"]
    chain = Chain("shop")
    chain.add("store", lines)
    chain.finish(with_files=True)
    assert chain.faults == []
    assert shop.published("theme") == {(TODAY, ""): 100}


def test_releases_are_in_the_audit_log(shop):
    """Each release is an entry of the audit log, made in the same moment; a look that publishes nothing leaves none."""
    for _ in range(2):
        shop.counted("theme", 100)
        for _ in range(2):
            Publisher(shop.store, shop.registry).publish(NOON)
    shop.publisher.publish(CLOSED)
    log = AuditLog(shop.store)
    entries = [intact_entry(line) for line in log.lines(log.first())]
    assert [(each.event, each.actor) for each in entries] == [("release.published", "worker")] * 2
    assert [(each.details["number"], each.details["closed"]) for each in entries] == [(1, 0), (2, 1)]


def test_a_trial_that_ends_goes_on_in_steps(real_redis):
    """Where a registry's trial ends within a period, what it has shown is not added again, and the next step is of enough."""
    trial = Counted(real_redis, "trial = true")
    trial.counted("theme", 500)
    trial.publisher.publish(NOON)
    shop = Counted(real_redis)
    for n, published in ((99, 500), (51, 500), (150, 650)):
        shop.counted("theme", n)
        Publisher(shop.store, shop.registry).publish(NOON)
        assert shop.published("theme") == {(TODAY, ""): published}
    shop.publisher.publish(CLOSED)
    assert shop.published("theme") == {(TODAY, ""): 800}


def days(number):
    """Name so many days, from today on."""
    return [f"2026-11-{21 + day}" for day in range(number)]


def test_small_periods_are_joined(shop):
    """Closed periods of too few reports are published together with those after them, once there are enough; none is lost."""
    first, second, third, fourth, fifth = days(5)
    for period, n in {first: 60, second: 60, third: 60, fourth: 39, fifth: 500}.items():
        shop.counted("theme", n, period=period)
    seen = []
    for day in range(5):
        shop.publisher.publish(CLOSED + day * DAY)
        seen.append({period: n for (period, _), n in shop.published("theme").items()})
    assert seen == [{}, {second: 120}, {second: 120}, {second: 120}, {second: 120, fifth: 599}]
    firsts = {stratum.period: note.first for stratum, note in release.listed(shop.store, "theme").items()}
    assert firsts == {second: "", fifth: third}


def test_small_cells_are_joined(shop):
    """So are the cells of metrics with segments: what one period would withhold, several may show."""
    for period in days(3):
        for platform, n in (("linux", 40), ("macos", 45)):
            shop.counted("export", n, period=period, segment=f"platform={platform},version=2.0")
    shop.publisher.publish(CLOSED + 3 * DAY)
    assert shop.published("export") == {(days(3)[1], cell): 170 for cell in ("", "version=2", "version=2.0")}
    shop.counted("export", 200, period=days(4)[3], segment="platform=linux,version=2.0")
    shop.publisher.publish(CLOSED + 4 * DAY)
    assert shop.published("export")[days(4)[3], ""] == 285


def test_few_and_none_look_alike(real_redis):
    """Whether a period before had few reports or none does not show in what is noted of the release that follows."""
    notes = []
    for few in (0, 3):
        real_redis.flushall()
        shop = Counted(real_redis)
        for period, n in zip(days(3), (200, few, 200), strict=True):
            shop.counted("theme", n, period=period) if n else None
        shop.publisher.publish(CLOSED + 3 * DAY)
        notes.append({stratum.period: replace(note, n=0) for stratum, note in release.listed(shop.store, "theme").items()})
    assert notes[0] == notes[1]
    assert notes[0][days(3)[2]].first == days(3)[1]


def test_early_steps_of_a_period_that_is_joined(shop):
    """A period that was published early takes those before it along when it closes; that adds enough, too."""
    small, large = days(2)
    shop.counted("theme", 7, period=small)
    for _ in range(3):
        shop.counted("theme", 100, period=large)
        Publisher(shop.store, shop.registry).publish(CLOSED)
    assert shop.published("theme") == {(large, ""): 200}
    shop.publisher.publish(CLOSED + DAY)
    assert shop.published("theme") == {(large, ""): 307}


def test_a_threshold_that_is_raised(shop):
    """A period that was published early is published at its close, though min_reports was raised meanwhile, and counted once."""
    for _ in range(2):
        shop.counted("theme", 100)
        Publisher(shop.store, shop.registry).publish(NOON)
    stricter = Counted(shop.store._client, text=REGISTRY.replace("min_reports = 100", "min_reports = 500"))
    stricter.counted("theme", 900, period=days(2)[1])
    stricter.publisher.publish(CLOSED + DAY)
    assert shop.published("theme") == {(TODAY, ""): 200, (days(2)[1], ""): 900}


@pytest.mark.parametrize("left", [0, 150, 201, 299])
def test_what_the_store_lost_shows_in_no_difference(shop, left):
    """A primary that lost the last commits may keep fewer reports than are published, or too few more for another step."""
    for _ in range(3):
        shop.counted("theme", 100)
        Publisher(shop.store, shop.registry).publish(NOON)
    assert shop.published("theme") == {(TODAY, ""): 200}
    stratum = shop.stratum("theme")
    before = shop.store.releases.read(mechanisms.of(shop.registry.metrics["theme"]).layout, [stratum])
    for partition in shop.store.partitions:
        shop.store._client.delete(partition.tallies.key(tallies.name(stratum)))
    shop.count("theme", [0, left, 0])
    waiting = {declared.metric.id: n for declared, n in shop.publisher.unpublished()}
    assert waiting["theme"] == max(0, left - 200)
    shop.publisher.publish(CLOSED)
    assert shop.store.releases.read(before.layout, [stratum]) == before
    (note,) = release.listed(shop.store, "theme").values()
    assert (note.n, note.closed) == (200, True)
    assert [partition.n for partition in release.summaries(shop.store).values()] == [200]


def test_copies_of_one_answer_are_not_joined(real_redis):
    """Where devices keep a noisy answer, reports of several periods are copies of it: each period is published by itself."""
    metric = 'mechanism = "l_grr"\nepsilon_permanent = 2.0\ndescription = "Which theme"'
    shop = Counted(real_redis, text=REGISTRY.replace('mechanism = "grr"\ndescription = "Which theme"', metric))
    for period, n in zip(days(3), (60, 60, 150), strict=True):
        shop.counted("theme", n, period=period)
    shop.publisher.publish(CLOSED + 3 * DAY)
    assert shop.published("theme") == {(days(3)[2], ""): 150}
    (note,) = release.listed(shop.store, "theme").values()
    assert note.first == days(3)[2]


@given(arrivals=st.lists(st.integers(0, 250), min_size=1, max_size=10))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_published_and_what_waits_is_all_there_is(real_redis, arrivals):
    """However many reports each period has: each is in one release or waits, and no release has fewer than min_reports."""
    empty(real_redis)
    shop = Counted(real_redis)
    for day, (period, n) in enumerate(zip(days(10), arrivals, strict=False)):
        shop.counted("theme", n, period=period)
        shop.publisher.publish(CLOSED + day * DAY)
        published = shop.published("theme").values()
        waits = sum(arrivals[: day + 1]) - sum(published)
        assert all(n >= 100 for n in published)
        assert 0 <= waits < 100


def test_values_that_are_listed_no_more_are_other(shop):
    """Reports of a value, or of a segment, that the registry has no more count as other; nothing else is held up by them."""
    for segment, n in {
        "platform=linux,version=2.0": 300,
        "platform=beos,version=2.0": 120,
        "platform=amiga,version=2.0": 80,
        "version=1.0,plan=free": 400,
    }.items():
        shop.counted("export", n, segment=segment)
    shop.counted("theme", 100)
    shop.publisher.publish(CLOSED)
    cells = {cell: n for (_, cell), n in shop.published("export").items()}
    assert (cells[""], cells["platform=linux"], cells["platform=(other)"]) == (900, 300, 600)
    assert cells["platform=(other),version=2.0"] == 200
    assert shop.published("theme") == {(TODAY, ""): 100}


def test_a_fault_in_one_metric_stays_in_it(shop, monkeypatch, caplog):
    """Whatever fails of a metric, the others are published; the log names it, and the worker counts it."""
    monkeypatch.setattr(Period, "early", lambda *_: 1 / 0)
    shop.counted("theme", 100)
    shop.counted("export", 100, period="2026-11-10", segment="platform=linux,version=2.0")
    vitals = Vitals(["shop"])
    Publisher(shop.store, shop.registry, faults=Faults(shop.store, vitals)).publish(NOON)
    assert shop.published("export")["2026-11-10", ""] == 100
    assert "publisher of theme@1 failed (ZeroDivisionError)" in caplog.text
    assert vitals.registry.get_sample_value("deniable_worker_faults_total", {"chore": "publisher"}) == 1
    assert vitals.registry.get_sample_value("deniable_worker_faults_total", {"chore": "retention"}) == 0


def test_each_metric_has_a_grace_of_its_own(real_redis):
    """A metric of a shorter grace is published sooner than the others."""
    shop = Counted(real_redis, text=REGISTRY.replace("[metrics.export]", '[metrics.export]\ngrace = "1h"'))
    shop.counted("export", 100, segment="platform=linux,version=2.0")
    shop.counted("theme", 100)
    midnight = NOON + DAY / 2
    published = []
    for hours in (1, 2, 72, 73):
        shop.publisher.publish(midnight + hours * 3600)
        published.append((bool(shop.published("export")), bool(shop.published("theme"))))
    assert published == [(False, False), (True, False), (True, False), (True, True)]


@pytest.mark.campaign
@pytest.mark.parametrize("runs", [50, pytest.param(200, marks=pytest.mark.nightly)])
def test_intervals_cover_whatever_answers_depend_on(shop, runs):
    """Answers depend on segments and on the day: 95% intervals cover the truth of what they are about, and nothing is lost."""
    covered = []
    for seed in range(runs):
        shop.store._client.flushall()
        chance, people = np.random.default_rng(seed), {}
        for day, period in enumerate(days(4)):
            for i, platform in enumerate(("linux", "macos", "windows")):
                for j, version in enumerate(("1.0", "1.1", "2.0")):
                    n = chance.poisson(90 / ((i + 1) * (j + 1)))
                    yes = chance.binomial(n, 0.1 + 0.08 * day + 0.15 * i + 0.1 * j)
                    people[period, f"platform={platform},version={version}"] = n, yes
                    shop.answered("export", n - yes, yes, chance, period=period, segment=f"platform={platform},version={version}")
        shop.publisher.publish(CLOSED + 9 * DAY)
        listed = release.listed(shop.store, "export")
        breakdown = Breakdown.of(shop.registry, shop.registry.metrics["export"])
        for stratum, note in listed.items():
            inside = [
                each
                for (period, leaf), each in people.items()
                if note.covers(stratum.period, period)
                and stratum.segment in map(breakdown.text, breakdown.above(breakdown.leaf(leaf)))
            ]
            n, low, high = shop.estimate("export", stratum.period, stratum.segment)
            assert n == sum(n for n, _ in inside)
            covered.append(low <= sum(yes for _, yes in inside) / n <= high)
        last = release.summary(shop.store, shop.stratum("export")[:3]).closed
        waits = sum(n for (period, _), (n, _) in people.items() if period > last)
        published = sum(n for (_, cell), n in shop.published("export").items() if not cell)
        assert published + waits == sum(n for n, _ in people.values())
    assert len(covered) > 10 * runs
    assert 0.935 < np.mean(covered) < 0.985


@pytest.mark.parametrize("ahead", [-1e9, 1e9])
def test_a_clock_that_is_ahead_publishes_nothing(real_redis, monkeypatch, ahead):
    """Of the worker's clock and the store's it goes by the earlier one, whichever that is."""
    shop = Counted(real_redis)
    looks = []
    monkeypatch.setattr(Publisher, "publish", lambda _, now: looks.append(now))
    now = time.time()
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: now + ahead)
        shop.publisher.run()
    assert looks == [pytest.approx(min(now, now + ahead), abs=60)]


def test_a_part_of_a_commit_is_never_published(shop, monkeypatch):
    """While a commit is added in pieces nothing is published, nor what was read meanwhile; then all of it is."""
    monkeypatch.setattr(deltas, "AT_ONCE", 0)
    apply = shop.store.partitions[0].staging.apply
    monkeypatch.setattr(shop.store.partitions[0].staging, "apply", lambda: None)
    shop.counted("theme", 400)
    assert shop.publisher.publish(CLOSED) == []
    apply()
    assert len(shop.publisher.publish(CLOSED)) == 1
    assert shop.published("theme") == {(TODAY, ""): 400}
    # A commit that comes, and goes on, between reading and publishing.
    read = shop.store.sums

    def overtaken(*arguments):
        answer = read(*arguments)
        shop.counted("export", 5, segment="platform=linux,version=1.0")
        apply()
        return answer

    shop.counted("export", 400, segment="platform=linux,version=1.0")
    apply()
    monkeypatch.setattr(shop.store, "sums", overtaken)
    assert shop.publisher.publish(CLOSED) == []
    monkeypatch.setattr(shop.store, "sums", read)
    assert len(shop.publisher.publish(CLOSED)) > 0
    assert shop.published("export")[TODAY, ""] == 400
    assert sum(n for _, n in shop.publisher.unpublished()) == 5  # of a period that was closed when they were counted


def test_a_commit_in_pieces_holds_up_no_metric_that_it_is_not_of(shop, monkeypatch):
    """Before a look at the others, or in the midst of it, a large commit of one metric goes on: the others are published."""
    shop.counted("theme", 500)
    shop.counted("export", 500, segment="platform=linux,version=2.0")
    monkeypatch.setattr(deltas, "AT_ONCE", 5)
    monkeypatch.setattr(shop.store.partitions[0].staging, "apply", lambda: None)
    big = Stratum("big", 1, "f" * 16, TODAY, "")
    read = shop.store.sums

    def reading(*arguments):
        assert shop.store.partitions[0].commit("busy", [], {big: np.ones(64, np.int64)}, int(NOON)) == []
        return read(*arguments)

    monkeypatch.setattr(shop.store, "sums", reading)
    shop.publisher.publish(CLOSED)
    assert shop.store.settled("big") is None
    assert (shop.published("theme")[TODAY, ""], shop.published("export")[TODAY, ""]) == (500, 500)


def test_nothing_that_was_staged_is_left(shop, monkeypatch):
    """Neither where a release is made, nor where another worker was quicker, nor where what was staged is gone."""
    shop.counted("theme", 400)
    late, releases = Publisher(shop.store, shop.registry), []

    def meanwhile(_keys):
        if not releases:
            releases.append(None)
            assert len(shop.publisher.publish(CLOSED)) == 1

    before_publishing(shop, monkeypatch, meanwhile)
    assert late.publish(CLOSED) == []
    assert releases
    assert list(shop.store._client.scan_iter("*:staged:*")) == []
    assert shop.published("theme") == {(TODAY, ""): 400}


def test_a_release_whose_cells_are_gone_is_not_made(shop, monkeypatch):
    """Cells that were staged for too long are missing: nothing is published by halves, and the next look does it."""
    shop.counted("export", 400, segment="platform=linux,version=1.0")
    shop.counted("export", 400, segment="platform=macos,version=1.0")
    losses = [True]

    def lose(keys):
        if losses:
            losses.pop()
            assert shop.store._client.delete(keys[6])

    before_publishing(shop, monkeypatch, lose)
    assert shop.publisher.publish(CLOSED) == []
    assert shop.published("export") == {}
    assert shop.publisher.publish(CLOSED)
    assert shop.published("export")[TODAY, ""] == 800


@pytest.mark.parametrize("lost", [2, 3])
@pytest.mark.parametrize("early", [False, True])
def test_a_release_of_which_a_part_was_lost_is_not_made(shop, monkeypatch, lost, early):
    """A store that fails over while chunks are staged may forget some: no part is published, and the next look does it."""
    shop.count("theme", [200, 300, 400])
    if early:
        shop.publisher.publish(NOON)
        shop.count("theme", [200, 300, 400])
        monkeypatch.setattr(Publisher, "_due", lambda *_: True)
    monkeypatch.setattr(staging, "CHUNK", 8)
    stage, staged = shop.store.staging._stage, []

    def lossy(keys, args):
        staged.append(keys)
        if len(staged) == lost:
            shop.store._client.delete(*keys)
        return stage(keys, args)

    monkeypatch.setattr(shop.store.staging, "_stage", lossy)
    assert shop.publisher.publish(NOON if early else CLOSED) == []
    assert shop.published("theme") == {}
    shop.publisher.publish(NOON if early else CLOSED)
    assert shop.published("theme") == {(TODAY, ""): 900}
    if early:
        assert shop.store._client.get(shop.store.snapshots.key(tallies.name(shop.stratum("theme"))))[:8] == (400).to_bytes(
            8, "big"
        )


def test_a_string_that_was_lost_in_part_has_no_gap(shop, monkeypatch):
    """What a failover forgets are the last writes. What comes after a gap is not written, so the length tells of it."""
    monkeypatch.setattr(staging, "CHUNK", 8)
    stage, number = shop.store.staging._stage, []

    def lossy(keys, args):
        number.append(keys)
        return 0 if len(number) == 2 else stage(keys, args)

    monkeypatch.setattr(shop.store.staging, "_stage", lossy)
    shop.count("theme", [200, 300, 400])
    assert shop.publisher.publish(CLOSED) == []
    assert len(number) > 2
    assert len(shop.publisher.publish(CLOSED)) == 1
    assert shop.published("theme") == {(TODAY, ""): 900}


def test_reports_of_joined_periods():
    """What a release tells of the periods that it joins: their sum, and that too few waited to be published before the last."""
    stratum = Stratum("theme", 1, "f", "2026-11-20", "")
    assert release.by_period({}, "day", 100) == {}
    assert release.by_period({stratum: release.Release(n=900)}, "day", 100) == {
        "2026-11-20": 900
    }  # the first of all: how many joined is not told
    assert release.by_period({stratum: release.Release(first="2026-11-20", n=900)}, "day", 100) == {"2026-11-20": 900}
    three = release.by_period({stratum: release.Release(first="2026-11-18", n=900)}, "day", 100)
    assert three == {"2026-11-18": 49.5, "2026-11-19": 49.5, "2026-11-20": 801}
    assert release.by_period({stratum: release.Release(first="2026-11-18", n=900)}, "day", 1) == {
        "2026-11-18": 0,
        "2026-11-19": 0,
        "2026-11-20": 900,
    }
    few = release.by_period({stratum: release.Release(first="2026-11-18", n=120)}, "day", 100)
    assert few == {"2026-11-18": 40, "2026-11-19": 40, "2026-11-20": 40}
    later = {
        stratum: release.Release(first="2026-11-20", n=7),
        stratum._replace(period="2026-11-21"): release.Release(first="2026-11-21", n=8),
    }
    assert release.by_period(later, "day", 100) == {"2026-11-20": 7, "2026-11-21": 8}
    months = release.by_period({stratum._replace(period="2026-02"): release.Release(first="2025-12", n=3000)}, "month", 100)
    assert list(months) == ["2025-12", "2026-01", "2026-02"]
