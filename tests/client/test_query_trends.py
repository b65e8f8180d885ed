"""What `deniable query --trend` says of rows, where the sentences of a page are about other answers."""

from __future__ import annotations

import pytest

from deniable_query.answer import Answer
from deniable_query.table import lines
from deniable_query.trends import trends

MINUS = "\N{MINUS SIGN}"


def answer(*rows, metric, times=()):
    """Return an answer with a row of each segment, value and trend, and of each time."""
    about = {"metric": "m", "level": 0.95, "n": 900, "estimate": 0.5, "low": 0.4, "high": 0.6, "to": None, "unit": metric["unit"]}
    names = ["from", "to", "reader", "value", "n", "trend"]
    listed = [
        about
        | dict(zip(("reader", "value", "trend", "trend_low", "trend_high"), row, strict=True))
        | ({"time": at} if at else {})
        for row in rows
        for at in times or ("",)
    ]
    listed = [row | {"unit": row["unit"] if row["value"] in ("mean", "geometric_mean") else "share"} for row in listed]
    metrics = [{"id": "m", "period_length": "week", "scale": "linear", "range": None} | metric]
    return Answer(listed, [{"name": name} for name in names], metrics, trial=False)


MINUTES, SHARE, SECONDS = {"unit": "min"}, {"unit": "share"}, {"unit": "s", "scale": "log"}


@pytest.mark.parametrize(
    ("row", "metric", "words"),
    [
        (("", "mean", 1.5, 0.52, 2.48), MINUTES, "On average the mean rose by 0.5 to 2.5 min a week (95% interval)."),
        (("", "mean", -1.5, -2.48, -0.52), MINUTES, "On average the mean fell by 0.5 to 2.5 min a week (95% interval)."),
        (
            ("", "mean", 0.5, -0.52, 1.48),
            MINUTES,
            f"No trend beyond chance of the mean: {MINUS}0.6 to +1.5 min a week (95% interval).",
        ),
        (("", "crime", 0.01, 0.004, 0.016), SHARE, "On average “crime” rose by 0.40 to 1.60 points a week (95% interval)."),
        (
            ("", "geometric_mean", 1.05, 1.02, 1.08),
            SECONDS,
            "On average the geometric mean rose by a factor of 1.02 to 1.08 a week (95% interval).",
        ),
        (
            ("", "geometric_mean", 0.95, 0.92, 0.98),
            SECONDS,
            "On average the geometric mean fell by a factor of 1.02 to 1.09 a week (95% interval).",
        ),
    ],
)
def test_a_row_has_its_trend_in_words(row, metric, words):
    assert trends(answer(row, metric=metric), None) == [words]


def test_trends_of_several_rows_hold_together():
    """They are asked for again, at a higher level; those of more rows than a reader compares are not said."""
    rows = [("paper", "mean", 1.5, 0.52, 2.48), ("both", "mean", 0.1, -1.0, 1.2)]
    wider = [("paper", "mean", 1.5, 0.4, 2.6), ("both", "mean", 0.1, -1.2, 1.4)]
    levels = []

    def at(level):
        levels.append(level)
        return answer(*wider, metric=MINUTES)

    says = trends(answer(*rows, metric=MINUTES), at)
    assert levels == [pytest.approx(0.975)]
    assert says == [
        "reader=paper: On average the mean rose by 0.4 to 2.6 min a week.",
        f"reader=both: No trend beyond chance of the mean: {MINUS}1.2 to +1.4 min a week.",
        "What is said of these 2 trends holds together at 95%: each has a level of 97.5%.",
    ]
    many = [(f"r{each}", "mean", 1.5, 0.5, 2.5) for each in range(9)]
    assert trends(answer(*many, metric=MINUTES), at) == []


def test_rows_of_many_times_have_one_trend():
    """It is said once, and written once in the table."""
    rows = answer(("", "crime", 0.0123, 0.004, 0.016), metric=SHARE, times=("2026-W40", "2026-W41", "2026-W42"))
    assert len(trends(rows, None)) == 1
    assert "\n".join(lines(rows)).count("+1.2") == 1
