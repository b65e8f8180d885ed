"""Periods are named one way, and the name tells the bounds."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deniable.errors import ParameterError
from deniable.registry import period

lengths = st.sampled_from(period.LENGTHS)
moments = st.datetimes(
    datetime(1970, 1, 3),  # noqa: DTZ001 - the zone comes from the strategy
    datetime(9990, 1, 1),  # noqa: DTZ001
    timezones=st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)


@given(moment=moments, length=lengths)
def test_a_moment_lies_in_its_period(moment, length):
    """A moment is within the bounds of the period named after it, whatever its time zone."""
    start, end = period.bounds(period.of(moment, length), length)
    assert start <= moment < end
    assert start.tzinfo is UTC


@given(moment=moments, length=lengths)
def test_periods_meet(moment, length):
    """The end of a period is the start of the next, and both ends name back."""
    name = period.of(moment, length)
    start, end = period.bounds(name, length)
    assert period.of(start, length) == name
    assert period.of(end - timedelta(microseconds=1), length) == name
    following = period.of(end, length)
    assert period.bounds(following, length)[0] == end
    assert following > name, "names sort like time"


@pytest.mark.parametrize(
    ("day", "week"),
    [
        ("2026-12-31", "2026-W53"),
        ("2027-01-03", "2026-W53"),
        ("2027-01-04", "2027-W01"),
        ("2024-12-30", "2025-W01"),
        ("2021-01-03", "2020-W53"),
        ("2023-01-01", "2022-W52"),
    ],
)
def test_iso_weeks_at_new_year(day, week):
    """A week belongs to the year of its Thursday."""
    moment = datetime.fromisoformat(day).replace(tzinfo=UTC)
    assert period.of(moment, "week") == week
    start, end = period.bounds(week, "week")
    assert start <= moment < end
    assert start.isoweekday() == 1
    assert end - start == timedelta(days=7)


@pytest.mark.parametrize(
    ("name", "length", "start", "end"),
    [
        ("2026-11-21T14", "hour", "2026-11-21T14", "2026-11-21T15"),
        ("2026-12-31T23", "hour", "2026-12-31T23", "2027-01-01T00"),
        ("2024-02-29", "day", "2024-02-29T00", "2024-03-01T00"),
        ("2026-12", "month", "2026-12-01T00", "2027-01-01T00"),
        ("2024-02", "month", "2024-02-01T00", "2024-03-01T00"),
    ],
)
def test_bounds(name, length, start, end):
    """Bounds are as the calendar says."""
    assert period.bounds(name, length) == tuple(datetime.strptime(t, "%Y-%m-%dT%H").replace(tzinfo=UTC) for t in (start, end))


@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("2026-1-1", "day"),
        ("2026-01-1", "day"),
        ("2026-02-30", "day"),
        (" 2026-01-01", "day"),
        ("2026-01-01 ", "day"),
        ("2026-01-01", "month"),
        ("2026-13", "month"),
        ("2026-1", "month"),
        ("26-01", "month"),
        ("2026-W54", "week"),
        ("2025-W53", "week"),
        ("2026-W00", "week"),
        ("2026-W1", "week"),
        ("2026-w01", "week"),
        ("2026-01-01T24", "hour"),
        ("2026-01-01T1", "hour"),
        ("2026-01-01 01", "hour"),
        ("٢٠٢٦-01-01", "day"),
        ("9999-12-31", "day"),
        ("9999-12", "month"),
        ("", "day"),
        ("today", "day"),
    ],
)
def test_one_spelling_only(name, length):
    """A spelling that `of` would not write is refused, else one tally had two names."""
    with pytest.raises(ParameterError, match=f"period = {name!r}: write it like .*, of length {length}") as caught:
        period.bounds(name, length)
    assert caught.value.value == name


@given(name=st.text(max_size=14), length=lengths)
def test_any_text_is_canonical_or_refused(name, length):
    """No text but a canonical name is accepted, and none makes anything but a ParameterError."""
    try:
        start, _ = period.bounds(name, length)
    except ParameterError:
        return
    assert period.of(start, length) == name


@given(moment=st.datetimes(timezones=st.just(UTC)), length=lengths)
def test_the_end_is_told_by_the_name_alone(moment, length):
    """No two lengths write a name alike, so the end can be told without its length; of anything else there is none."""
    name = period.of(moment, length)
    try:
        _, end = period.bounds(name, length)
    except ParameterError:  # the last period that the calendar has
        end = None
    assert period.end(name) == end
    assert period.end(f"{name}x") is None


@pytest.mark.parametrize("length", period.LENGTHS)
@pytest.mark.parametrize("days", [1, 2, 7, 8, 9, 28, 29, 30, 31, 32, 61, 365, 366])
def test_periods_are_the_most_that_days_touch(length, days):
    """Counted day by day from every day of five years."""
    if length == "hour":
        assert period.most_in_days(length, days) == 24 * days
        return
    begin = date(2027, 1, 1)
    names = [period.of(datetime.combine(begin + timedelta(n), datetime.min.time(), UTC), length) for n in range(5 * 366 + days)]
    assert period.most_in_days(length, days) == max(len(set(names[start : start + days])) for start in range(5 * 366))


def test_unknown_lengths():
    """Another length is refused by each function."""
    now = datetime.now(UTC)
    for call in (
        lambda: period.of(now, "year"),
        lambda: period.bounds("2026", "year"),
        lambda: period.most_in_days("year", 1),
    ):
        with pytest.raises(ParameterError, match="period = 'year': write one of hour, day, week, month"):
            call()
