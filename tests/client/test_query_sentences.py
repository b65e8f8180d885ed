"""What `deniable query` says of few rows, where these tell nothing."""

from __future__ import annotations

import pytest

from deniable_query import Answer
from deniable_query.sentences import differences, sentences
from deniable_query.table import days_of


class Rows:
    """An answer by disk, of a question of yes or no."""

    def __init__(self, **row):
        self.columns = [{"name": name} for name in ("metric", "from", "to", "disk", "value", "n")]
        self.metrics = [{"id": "failed", "unit": "share", "scale": "linear"}]
        about = {"metric": "failed", "disk": "ssd", "unit": "share", "level": 0.95, "n": 2, "detected": False}
        self.rows = [about | {"value": value} | row for value in ("yes", "no")]


@pytest.mark.parametrize(("n", "words"), [(1, "1 report detects"), (2, "2 reports detect")])
def test_what_is_not_detected_has_no_share(n, words):
    """As without a breakdown: an impossible share is no finding. It is said once of a group."""
    assert sentences(Rows(n=n, estimate=-0.58, low=-0.58, high=1.24)) == [f"disk=ssd: {words} no answer."]


def test_a_quantile_that_is_not_resolved_is_no_finding():
    """Its interval may miss, so it is not said as if it held."""
    answer = Rows(n=40, estimate=200.0, low=90.0, high=410.0)
    answer.metrics = [{"id": "failed", "unit": "ms", "scale": "linear"}]
    answer.rows = [row | {"value": name, "unit": "ms"} for row, name in zip(answer.rows, ("p50", "p90"), strict=True)]
    assert sentences(answer) == [
        "disk=ssd: 40 reports do not resolve the median.",
        "disk=ssd: 40 reports do not resolve the 90% quantile.",
    ]


def test_what_rows_tell_is_said():
    assert sentences(Rows(n=9000, estimate=0.4, low=0.39, high=0.41, detected=True))[0] == (
        "disk=ssd: \u201cyes\u201d has a share of 40.0% (95% interval 39.0% to 41.0%)."
    )


@pytest.mark.parametrize(
    ("updated", "last"),
    [("2020-11-28T23:00:00Z", "2020-11-28"), ("2020-12-24T08:00:00Z", "2020-11-29"), (None, "2020-11-29")],
)
def test_of_an_open_period_the_days_end_when_it_was_published(updated, last):
    """As in the sentence above the rows, whatever day it is now."""
    rows = Rows(to="2020-11-29", reason=None, **{"from": "2020-11-23"})
    answer = Answer(rows.rows, rows.columns, [{**rows.metrics[0], "updated": updated}], trial=False)
    assert days_of(answer) == ("2020-11-23", last)
    assert repr(answer) == f"<Answer: 2 rows of failed, 2020-11-23 to {last}>"


@pytest.mark.parametrize(
    ("count", "words"), [(4, "1 more differs: p04."), (12, "9 more differ: p04, p05, p06, p07, p08, p09, p10, p11 and 1 other.")]
)
def test_differences_beyond_the_first_are_named(count, words):
    """With their segment only if they have several."""
    about = {"differs": True, "difference": 3.0, "diff_low_all": 2.0, "diff_high_all": 4.0}
    answer = Rows(**about)
    answer.metrics = [{"id": "failed", "unit": "ms", "scale": "linear"}]
    answer.rows = [answer.rows[0] | {"value": f"p{at:02}", "unit": "ms", "p_holm": at / 1e6} for at in range(1, count + 1)]
    assert differences(answer, "disk=hdd")[3:] == [words]
    answer.rows.append(answer.rows[-1] | {"disk": "tape", "p_holm": 3.5e-6})
    assert f"disk=tape p{count:02}, disk=ssd p04" in differences(answer, "disk=hdd")[-1]
