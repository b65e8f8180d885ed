"""Queries at their limits: the first and the last period of a range, what a value contains, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from deniable import registry
from deniable.declared import Declared
from deniable_aggregator.answer.model.query import CompareWith, Filter, Query
from deniable_aggregator.answer.question import date_range, questions
from deniable_aggregator.answer.question.date_range import DateRange
from deniable_aggregator.answer.refusal import Incomparable, IncompatibleMembers

REGISTRY = """
format = 1
app = "shop"

[segments]
edition = ["1.0", "1.1", "2.0"]

[generalize]
edition = { "1.0" = "old", "1.1" = "old" }

[metrics.theme]
type = "boolean"
epsilon = 1
segments = ["edition"]
description = "Whether it is dark"
owner = "core@shop.example"
"""
MIDNIGHT = datetime(2026, 11, 21, tzinfo=UTC)


def ask(**members):
    """Ask the one metric of the registry."""
    declared = registry.parse(REGISTRY)
    (question,) = questions(declared, Query(("theme",), **members), [[Declared.of(declared.metrics["theme"])]], MIDNIGHT)
    return question


def test_periods_that_overlap_a_range_are_in_it():
    day, tick = timedelta(days=1), timedelta(microseconds=1)
    assert DateRange(MIDNIGHT, MIDNIGHT + 2 * day).names("day") == ("2026-11-21", "2026-11-22")
    assert DateRange(MIDNIGHT + tick, MIDNIGHT + 2 * day + tick).names("day") == ("2026-11-21", "2026-11-23")
    assert DateRange(MIDNIGHT, MIDNIGHT + tick).names("month") == ("2026-11", "2026-11")


@pytest.mark.parametrize(
    ("length", "first", "last"),
    [("day", "2026-11-15", "2026-11-21"), ("week", "2026-W46", "2026-W47"), ("month", "2026-11", "2026-11")],
)
def test_the_last_week_has_all_periods_that_it_touches(length, first, last):
    """Otherwise the last 7 days of a monthly metric would be empty on most days."""
    assert date_range.read("7d", MIDNIGHT).names(length) == (first, last)
    assert date_range.read("35d", MIDNIGHT).names("month") == ("2026-10", "2026-11")


@pytest.mark.parametrize("now", [MIDNIGHT, MIDNIGHT + timedelta(hours=23, minutes=59)])
def test_the_last_days_end_with_today(now):
    assert date_range.read("2d", now).names("day") == ("2026-11-20", "2026-11-21")


@pytest.mark.parametrize(("days", "before"), [(6, 7), (7, 7), (8, 14), (14, 14), (15, 21)])
def test_weeks_before_a_range_do_not_overlap_it(days, before):
    span = DateRange(MIDNIGHT, MIDNIGHT + timedelta(days=days))
    assert span.before("day", weekday=True).periods == before
    assert span.before("day", weekday=False).periods == days


def test_who_excludes_a_group_of_values_excludes_what_is_within():
    values = ("old", "1.0", "1.1", "2.0")
    question = ask(
        dimensions=("value", "edition"), filters=(Filter("is", "edition", values), Filter("is_not", "edition", ("old",)))
    )
    assert question.groups == [("2.0",)]
    question = ask(
        dimensions=("value", "edition"), filters=(Filter("is", "edition", values), Filter("is_not", "edition", ("1.0",)))
    )
    assert question.groups == [("old",), ("1.1",), ("2.0",)]


def test_a_value_is_not_compared_with_one_that_contains_it():
    def compared(*values):
        filters = (Filter("is", "edition", values),)
        return ask(dimensions=("value", "edition"), filters=filters, compare=CompareWith(dimension="edition", base=values[0]))

    assert compared("old", "2.0").groups == [("old",), ("2.0",)]
    for values in (("old", "1.0"), ("1.0", "old")):
        with pytest.raises(Incomparable):
            compared(*values)


def test_versions_together_tell_of_the_population_only():
    assert ask(pool=True).groups == [()]
    with pytest.raises(IncompatibleMembers):
        ask(pool=True, target="respondents")
