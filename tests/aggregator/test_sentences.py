"""How answers are written in sentences: each rule as a table of cases."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from deniable.messages.plural import plural
from deniable.registry.answers import types
from deniable_aggregator.answer import digits as rounding
from deniable_aggregator.answer import figures
from deniable_aggregator.answer.figures import Measure
from deniable_aggregator.answer.model.comparison import Differing
from deniable_aggregator.answer.model.series import Line, PeriodChange, Series
from deniable_aggregator.answer.model.shares import ValueEstimate
from deniable_aggregator.answer.over_time.sentence import change_in_words
from deniable_aggregator.answer.readings import leading as module
from deniable_aggregator.answer.readings.leading import leading

RULES = [
    # plurals
    (plural, (0, "report"), "0 reports"),
    (plural, (1, "report"), "1 report"),
    (plural, (2, "report"), "2 reports"),
    # values in prose
    (figures.quoted, ("once",), "“once”"),
    (figures.segment, ("airport=EWR,carrier=9E",), "airport = EWR, carrier = 9E"),
    (figures.group, ("airport=EWR",), "airport EWR"),
    (figures.group, ("airport=EWR,carrier=9E",), "airport EWR and carrier 9E"),
    (figures.listed, ([],), ""),
    (figures.listed, (["a"],), "a"),
    (figures.listed, (["a", "b"],), "a and b"),
    (figures.listed, (["a", "b", "c"],), "a, b and c"),
    # digits by the standard error, no negative nought
    (figures.share, (0.2112, 0.003), "21.1%"),
    (figures.share, (0.2112, 0.021), "21%"),
    (figures.share, (-0.0001, 0.01), "0%"),
    # an interval is rounded outwards, so that it holds at least as often as it says
    (figures.share_range, ((0.234, 0.319), 0.021), "23 to 32%"),
    (figures.share_range, ((0.236, 0.312), 0.019), "23 to 32%"),
    (figures.share_range, ((0.23, 0.32), 0.022), "23 to 32%"),
    (figures.number_ends, ((398.2, 431.3), "ms"), ("398", "432\u202fms")),
    (figures.number_ends, ((0.0, 450.0),), ("0", "450")),
    # sizes of differences, without a sign; where an interval holds no difference, only its far end is known
    (partial(Measure(is_share=True).size, is_rise=False), ((-0.076, -0.042),), "4.2 to 7.6 points"),
    (partial(Measure(is_share=True).size, is_rise=True), ((-0.001, 0.042),), "up to 4.2 points"),
    (partial(Measure(is_share=True).size, is_rise=False), ((-0.06, 0.001),), "up to 6.0 points"),
    (partial(Measure(is_share=True).size, is_rise=False), ((-0.0412, -0.0009),), "0.09 to 4.2 points"),  # not rounded to none
    (partial(Measure(is_share=True).size, is_rise=True), ((0.0048, 0.0521),), "0.4 to 5.3 points"),
    (partial(Measure(is_share=False, unit="min").size, is_rise=True), ((0.0066, 1.3354),), "0.006 to 1.34\u202fmin"),
    (partial(Measure(is_share=False, unit="min").size, is_rise=True), ((0.604, 2.01),), "0.60 to 2.01\u202fmin"),
    (partial(Measure(is_share=False, unit="ms").size, is_rise=True), ((3, 5),), "3 to 5\u202fms"),
    (partial(Measure(is_share=False, scale="log").size, is_rise=False), ((0.5, 0.8),), "a factor of 1.2 to 2.0"),
    (partial(Measure(is_share=False, scale="log").size, is_rise=True), ((0.8, 1.5),), "a factor of up to 1.5"),
    # intervals of differences with signs: an end beside 0 is not rounded to 0, so that its side is seen
    (Measure(is_share=True).signed, ((-0.0018, 0.0584),), "\N{MINUS SIGN}0.2 to +5.9 points"),
    (Measure(is_share=True).signed, ((0.0123, 0.0618),), "+1.2 to +6.2 points"),
    (Measure(is_share=True).signed, ((0.012, 0.156),), "+1 to +16 points"),
    (Measure(is_share=True).signed, ((0.0004, 0.0584),), "+0.04 to +5.9 points"),
    (Measure(is_share=True).signed, ((-0.08, -0.02),), "\N{MINUS SIGN}8.0 to \N{MINUS SIGN}2.0 points"),
    (Measure(is_share=False, unit="km").signed, ((-0.004, 1.76),), "\N{MINUS SIGN}0.1 to +1.8\u202fkm"),
    (Measure(is_share=False, unit="min").signed, ((-2.01, -0.604),), "\N{MINUS SIGN}2.01 to \N{MINUS SIGN}0.60\u202fmin"),
    (Measure(is_share=False, scale="log").signed, ((0.94, 1.2),), "a factor of 0.94 to 1.20"),
    (Measure(is_share=False, scale="log").signed, ((0.862, 1.098),), "a factor of 0.86 to 1.10"),
    (Measure(is_share=False, scale="log").signed, ((0.509, 1.78),), "a factor of 0.50 to 1.8"),
    (partial(Measure(is_share=False, scale="log").size, is_rise=True), ((1.004, 1.4),), "a factor of 1.004 to 1.40"),
    # a difference with its sign; what rounds to none has no sign
    (Measure(is_share=True).difference, (0.0012, (-0.09, 0.1)), "0"),
    (Measure(is_share=True).difference, (0.023, (-0.02, 0.06)), "+2.3"),
    (Measure(is_share=False, unit="km").difference, (1.23, (0.2, 2.3)), "+1.2\u202fkm"),
    (Measure(is_share=False, scale="log").difference, (0.974, (0.862, 1.098)), "\N{MULTIPLICATION SIGN} 0.97"),
    # what few reports estimate is written as far as it is possible: a share in a sentence, and how far two are apart
    (Measure(is_share=True).possible, (1.32, (0.9, 1.74)), "100%"),
    (Measure(is_share=True).possible, (-0.12, (-0.2, -0.04)), "0%"),
    (Measure(is_share=False, unit="ms").possible, (-3, (-4, -2)), "\N{MINUS SIGN}3\u202fms"),
    # a number is written as far as it is possible also in a table
    (Measure(is_share=False, unit="ms", range=(0, 500)).estimate, (-31, (-80, 18)), "0\u202fms"),
    (Measure(is_share=False, unit="ms", range=(0, 500)).ends, ((-80, 18),), "0 to 18\u202fms"),
    (Measure(is_share=True).estimate, (-0.12, (-0.2, -0.04)), "\N{MINUS SIGN}12%"),
    (partial(Measure(is_share=True).size, is_rise=True), ((0.3, 2.4),), "30 to 100 points"),
    (partial(Measure(is_share=True).size, is_rise=True), ((-0.3, 2.4),), "up to 100 points"),
    (Measure(is_share=True).signed, ((-1.8, 0.2),), "\N{MINUS SIGN}100 to +20 points"),
    (Measure(is_share=True).most, (((-1.3, 0.1), (-0.2, 0.2)),), "100 points"),
    # the largest of several, which is not rounded down
    (Measure(is_share=True).most, (((-0.0446, 0.01), (-0.02, 0.02)),), "4.5 points"),
    # chance
    (figures.chance, (0.9,), "more than 1 in 2"),
    (figures.chance, (0.5,), "1 in 2"),
    (figures.chance, (0.4,), "2 in 5"),
    (figures.chance, (0.0625,), "1 in 16"),
    (figures.chance, (0.05,), "1 in 20"),
    (figures.chance, (0.003,), "1 in 330"),
    (figures.chance, (0.0001,), "1 in 10,000"),
    (figures.chance, (1e-12,), "under 1 in 10,000"),
    (figures.chance, (0.0,), "under 1 in 10,000"),
    # time
    (figures.moments, ("2026-09", "2026-10", "month"), "September to October 2026"),
    (figures.moments, ("2025-12", "2026-01", "month"), "December 2025 to January 2026"),
    (figures.moments, ("2026-11-08", "2026-11-15", "day"), "8 November to 15 November 2026"),
    (figures.moments, ("2026-W46", "2026-W47", "week"), "the week of 9 Nov to the week of 16 Nov 2026"),
    (figures.moments, ("2026-W53", "2027-W01", "week"), "the week of 28 Dec 2026 to the week of 4 Jan 2027"),
    (figures.moment, ("2026-W01", "week"), "the week of 29 December 2025"),
    (figures.brief, ("2026-W47", "week"), "week of 16 Nov 2026"),
    (figures.brief_range, ("2026-W46", "2026-W47", "week"), "weeks of 9 to 16 Nov 2026"),
    (figures.brief_range, ("2026-W31", "2026-W47", "week"), "weeks of 27 Jul to 16 Nov 2026"),
    (figures.brief_range, ("2026-11-08T10", "2026-11-08T12", "hour"), "8 Nov 2026, 10:00 to 12:00"),
    (figures.within, ("These reports detect no answer.",), "these reports detect no answer."),
    (figures.within, ("“No” leads.",), "“No” leads."),
]


@pytest.mark.parametrize(("rule", "arguments", "text"), RULES)
def test_each_rule_of_writing(rule, arguments, text):
    assert rule(*arguments) == text


def row(label, share, *, detected=True):
    ends = (share - 0.01, share + 0.01)
    numbers = {"n": 1000, "frequency": share, "stderr": 0.004, "consistent": share, "count": 1000 * share}
    intervals = {"interval": ends, "simultaneous": ends, "interval_kind": "pointwise"}
    return ValueEstimate(value=label, label=str(label), detected=detected, **numbers, **intervals)


def metric(type_="categorical", *, discover=False):
    return SimpleNamespace(type=type_, kind=types.of(type_), discover=discover)


FOUR = [row("EV", 0.17), row("UA", 0.168), row("B6", 0.166), row("9E", 0.02)]
UNSEEN = [row("a", 0.2), row("b", 0.19, detected=False), row("c", 0.1)]
YES_AND_NO = [row(label=False, share=0.8), row(label=True, share=0.2)]
HEADLINES = [
    (FOUR, [0], True, metric(), "“EV” is the most frequent answer: 17.0% (16.0 to 18.0%)."),
    (
        FOUR,
        [0],
        True,
        metric("set"),
        (
            "“EV” is the most frequent option: 17.0% (16.0 to 18.0%). "
            "Next by estimate: “UA” 16.8% (15.8 to 17.8%) and “B6” 16.6% (15.6 to 17.6%)."
        ),
    ),
    (
        UNSEEN,
        [0],
        True,
        metric("set"),
        "“a” is the most frequent option: 20.0% (19.0 to 21.0%). Next by estimate: “c” 10.0% (9.0 to 11.0%).",
    ),
    (
        FOUR,
        [0, 1],
        True,
        metric(),
        "“EV” and “UA” are the 2 most frequent answers: 15.8 to 18.0% each. Which is first cannot be told.",
    ),
    (FOUR, [0, 1, 2], False, metric(), "“EV”, “UA” and “B6” lead: 15.6 to 18.0% each. Which is first cannot be told."),
    (FOUR, [0, 1, 2, 3], False, metric(), "No clear leader: all 4 answers may be first."),
    (
        [row(str(at), 0.05) for at in range(20)],
        list(range(12)),
        False,
        metric(),
        "No clear leader: 12 of 20 answers may be first.",
    ),
    (UNSEEN, [0, 1], False, metric(), "“a” and “b” lead: 18.0 to 21.0% each. Which is first cannot be told."),
    # what a search could not confirm is not named
    (UNSEEN, [0, 1], False, metric(discover=True), "No clear leader: 2 of 3 answers found may be first."),
    ([row("a", 0.2)], [0], False, metric(), "20.0% answer “a” (19.0 to 21.0%)."),
    (YES_AND_NO, [0], True, metric("boolean"), "20.0% answer “yes” (19.0 to 21.0%)."),
    # of few reports the unbiased share is none that people can have
    ([row(label=True, share=3.91)], [0], True, metric("boolean"), "100.0% answer “yes” (99.6 to 100.0%)."),
]


@pytest.mark.parametrize(("rows", "places", "ahead", "of", "text"), HEADLINES)
def test_what_is_said_of_leaders(monkeypatch, rows, places, ahead, of, text):
    """One that is first, some that lead, and no clear leader."""
    tests = SimpleNamespace(places=np.array(places), order=np.arange(len(rows)), ahead=ahead)
    monkeypatch.setattr(module, "Leaders", lambda *_: tests)
    answer = leading(of, None, rows, 0.95, 0.1)
    assert answer.says == text
    assert (answer.count, answer.of) == (len(places), len(rows))


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (0.12, "These reports detect no answer. They would detect, half of the time, one that 12% of people give."),
        (float("nan"), "These reports detect no answer, and could detect none, however many give it."),
    ],
)
def test_what_is_said_where_nothing_is_detected(monkeypatch, limit, text):
    tests = SimpleNamespace(places=np.arange(2), order=np.arange(2), ahead=False)
    monkeypatch.setattr(module, "Leaders", lambda *_: tests)
    answer = leading(metric(), None, [row("a", 0.2, detected=False), row("b", 0.1, detected=False)], 0.95, limit)
    assert (answer.says, answer.leaders, answer.count) == (text, [], 2)


@pytest.mark.parametrize(
    ("differs", "ends", "text"),
    [
        ((True,), (0.042, 0.076), "“a” rose by 4.2 to 7.6 points, from September to October 2026."),
        ((True,), (-0.076, -0.042), "“a” fell by 4.2 to 7.6 points, from September to October 2026."),
        ((True,), (-0.001, 0.076), "“a” rose by up to 7.6 points, from September to October 2026."),  # Holm's test finds it
        (
            (True, True),
            (0.042, 0.076),
            "“a” rose by 4.2 to 7.6 points, from September to October 2026. “b” rose by 4.2 to 7.6 points.",
        ),
        (
            (True,) * 5,
            (0.042, 0.076),
            (
                "“a” rose by 4.2 to 7.6 points, from September to October 2026. “b” rose by 4.2 to 7.6 points. "
                "“c” rose by 4.2 to 7.6 points. 2 more changed."
            ),
        ),
        ((False,), (-0.01, 0.03), "No change beyond chance from September to October 2026: \N{MINUS SIGN}1.0 to +3.0 points."),
        (
            (False, False),
            (-0.01, 0.03),
            "No change beyond chance from September to October 2026: no answer rose or fell by more than 3.0 points.",
        ),
    ],
)
def test_what_is_said_of_changes(differs, ends, text):
    """The interval is repeated, not the estimate; where nothing is found, that there is no change is not said."""
    lines = []
    for at, moved in enumerate(differs):
        size = sum(ends) / 2 / (at + 1)
        fields = dict.fromkeys(Differing.__struct_fields__, 0.0) | {"difference": size, "interval": ends, "simultaneous": ends}
        change = PeriodChange(**(fields | {"differs": moved}), since="2026-09", last="2026-10")
        lines.append(Line("share", "abcde"[at], "abcde"[at], [], change, None))
    fields = dict.fromkeys(Series.__struct_fields__) | {"period_length": "month", "unit": "", "scale": "linear", "range": (0, 1)}
    family = " This metric is tested alone; the list tests all metrics together, and may not find this."
    words = change_in_words(Series(**(fields | {"lines": lines, "periods": []})))
    assert words == f"{text}{family if any(differs) else ''}"


def test_each_number_has_the_digits_of_its_own_interval():
    """Whole numbers have none after the point."""
    assert figures.number(150.26, (120.0, 181.5), "ms") == "150\u202fms"
    assert rounding.of_number(4.0, (3.0, 5.0)) == 0
    assert rounding.of_number(1.5, (1.5, 1.5)) == 2
