"""What is compared with what: the same periods, the same version, and releases that are final."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from registries import metric_toml, registry_toml

from deniable import registry
from deniable.declared import Declared
from deniable.registry import Metric
from deniable.wire.report import Stratum
from deniable_aggregator.answer import difference, table
from deniable_aggregator.answer.difference.sentence import times_in_words
from deniable_aggregator.answer.model.comparison import Compared
from deniable_aggregator.answer.model.fields import Span, days_of
from deniable_aggregator.answer.model.query import CompareWith, Query
from deniable_aggregator.answer.over_time.periods import earlier_releases
from deniable_aggregator.answer.pool import meaning_of
from deniable_aggregator.answer.refusal import Incomparable
from deniable_aggregator.answer.select import Published, Selection
from deniable_aggregator.publish.release import Release

REGISTRY = registry_toml(metric_toml("theme", segments=["platform"]), segments={"platform": ["linux", "macos"]})
APP = SimpleNamespace(registry=registry.parse(REGISTRY))
THEME = Declared.of(APP.registry.metrics["theme"])
EARLIER = Declared.of(registry.parse(REGISTRY.replace("epsilon = 1", "epsilon = 2")).metrics["theme"])
DAYS = [f"2026-11-{day}" for day in (20, 21, 22, 23)]


def releases(days, segment="", declared=THEME, **note):
    """Return closed releases of some days, each of that day alone."""
    strata = {day: Stratum("theme", 1, declared.fingerprint, day, segment) for day in days}
    return {
        day: (stratum, Release(**({"number": 1, "closed": True, "first": day, "n": 100} | note)))
        for day, stratum in strata.items()
    }


def selected(days, declared=THEME, **note):
    return Selection(APP, declared, dict(releases(days, declared=declared, **note).values()))


@pytest.mark.parametrize("fewer", ["a", "b"])
def test_segments_are_compared_over_the_periods_of_both(fewer):
    days = {"a": DAYS, "b": DAYS} | {fewer: DAYS[1:3]}
    cells = {name: releases(days[side], name) for side, name in (("a", "platform=linux"), ("b", "platform=macos"))}
    sides = difference._cells(Published(APP, THEME, cells), "platform=linux", "platform=macos", None)
    assert [list(side.by_last) for side in (sides.a, sides.b)] == [DAYS[1:3]] * 2


def side(text, *periods, length="week", updated=None):
    spans = [Span(*each) if isinstance(each, tuple) else Span(each, each) for each in periods]
    return Compared(text, 100, spans, days_of(spans, length), closed=updated is None, updated=updated)


SEPTEMBER, OCTOBER = side("2026-09", "2026-W37", "2026-W38", "2026-W39"), side("2026-10", "2026-W41", "2026-W42", "2026-W43")
PARTLY = "A week that is only partly in a side is left out, so no report counts on both sides."


@pytest.mark.parametrize(
    ("a", "b", "length", "words"),
    [
        (SEPTEMBER, OCTOBER, "week", f"3 whole weeks, 7 to 27 Sep 2026, with 3 whole weeks, 5 to 25 Oct 2026. {PARTLY}"),
        (
            side("2026-W37..2026-W39", "2026-W37", "2026-W39"),
            side("2026-W41", "2026-W41"),
            "week",
            "2 of 3 whole weeks, 7 to 27 Sep 2026, with 1 whole week, 5 to 11 Oct 2026.",
        ),
        (
            side("2026-W39", ("2026-W38", "2026-W39")),
            side("2026-W40", "2026-W40"),
            "week",
            "2 whole weeks, 14 to 27 Sep 2026, with 1 whole week, 28 Sep to 4 Oct 2026.",
        ),
        (
            side("2026-11", "2026-11-01", length="day"),
            side("2026-12", (None, "2026-12-31"), length="day"),
            "day",
            "1 of 30 whole days, 1 Nov 2026, with all days up to 31 Dec 2026.",
        ),
        (side("2026-W37", "2026-W37"), side("2026-W38", "2026-W38"), "week", ""),
        (side("2026-11", "2026-11", length="month"), side("2026-10", "2026-10", length="month"), "month", ""),
        (SEPTEMBER, side("2026-11"), "week", ""),
        (
            SEPTEMBER,
            side("2026-W41..2026-W43", "2026-W41", "2026-W42", updated=datetime(2026, 10, 15, 23, tzinfo=UTC)),
            "week",
            f"3 whole weeks, 7 to 27 Sep 2026, with 2 of 3 whole weeks, 5 to 15 Oct 2026. {PARTLY}",
        ),
    ],
    ids=["cut", "missing", "joined", "from-the-beginning", "periods", "months", "no-reports", "open"],
)
def test_a_comparison_of_times_says_which_days_it_has(a, b, length, words):
    """Where these are not the days that the sides name."""
    assert times_in_words(a, b, length) == words


def test_a_release_is_not_compared_with_itself():
    joined = Published(APP, THEME, {"": releases(DAYS[1:2], first=DAYS[0]) | releases(DAYS[2:3])})
    assert difference._periods(joined, DAYS[0], DAYS[2], None).a.n == 100
    with pytest.raises(Incomparable):
        difference._periods(joined, DAYS[0], DAYS[1], None)


def test_the_smallest_p_value_is_one_of_many():
    rows = [SimpleNamespace(p_value=p) for p in (0.02, 0.5, 0.9)]
    overall = difference._overall(rows, 3, None, 0.95)
    assert (overall.p_value, overall.differs) == (pytest.approx(0.06), False)


def test_a_selection_is_final_once_all_of_it_is():
    closed, open_ = selected(DAYS[:2]), selected(DAYS[2:3], closed=False)
    assert closed.closed
    assert not closed._replace(releases=closed.releases | open_.releases).closed
    assert not closed._replace(releases={}).closed


def asked_with(base, own):
    """Return what a row of macos is compared with, where linux has the releases `base`."""
    query = Query(("theme",), dimensions=("value", "platform"), compare=CompareWith(dimension="platform", base="linux"))
    of = SimpleNamespace(question=SimpleNamespace(earlier=None), compared=None, find=lambda *_: base)
    return table._sides(query, of, ("macos",), [own], ("", "~"))


def test_a_row_is_compared_within_its_version_over_the_periods_of_both():
    base, own = asked_with(selected(DAYS[:3]), selected(DAYS[1:]))
    assert list(base.by_last) == list(own.by_last) == DAYS[1:3]
    assert asked_with(selected(DAYS, EARLIER), selected(DAYS)) == "the base is of another version"
    assert asked_with(selected(DAYS[:1]), selected(DAYS[1:])) == "it and the base are published in no period together"


def test_a_trend_rests_on_the_closed_periods_of_the_last_version():
    trends = {
        DAYS[0]: selected(DAYS[:1], EARLIER),
        DAYS[1]: selected(DAYS[1:2]),
        DAYS[2]: selected(DAYS[2:3], closed=False),
        DAYS[3]: selected(DAYS[3:]),
    }
    of = SimpleNamespace(names=DAYS, find=lambda _, first, __: trends[first])
    assert [at for at, _ in table._course(of, ())] == [1, 3]


def test_shifts_rest_on_the_closed_periods_of_this_version():
    by_last = {
        DAYS[0]: selected(DAYS[:1]),
        DAYS[1]: selected(DAYS[1:2], EARLIER),
        DAYS[2]: selected(DAYS[2:3], closed=False),
        DAYS[3]: selected(DAYS[3:]),
    }
    assert [at for at, _ in earlier_releases(THEME, by_last, DAYS[3:])] == [-3]


def test_a_value_that_stands_for_no_answer_is_another():
    """So versions of which only one counts those who do not answer are not merged in that value."""
    plain, counted = (Metric("m", "categorical", ("a", "b"), "1", none=none) for none in (None, "b"))
    assert meaning_of(plain, 0) == meaning_of(counted, 0)
    assert meaning_of(plain, 1) != meaning_of(counted, 1)
