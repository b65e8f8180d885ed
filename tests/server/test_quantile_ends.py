"""What is written of a quantile whose band reaches an end of the range: pages, sentences and `deniable query` agree."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from deniable_aggregator.answer.difference.sentence import both_sides
from deniable_aggregator.answer.headline import figures_of, in_words, quantile_measure
from deniable_aggregator.answer.model.number import NumberEstimate, QuantileEstimate
from deniable_aggregator.answer.model.series import Point
from deniable_query.sentences import sentences
from deniable_query.table import figures_of as cells_of
from deniable_server.pages import number_page
from deniable_server.pages.parts import timeline

NAN = float("nan")


def fines(*quantiles):
    """Return what is estimated of fines from 0 to 40 EUR, of which most people have none."""
    listed = [QuantileEstimate(share, value, band, resolved=True) for share, value, band in quantiles]
    return NumberEstimate(
        unit="EUR",
        range=(0.0, 40.0),
        scale="linear",
        geometric_mean=None,
        mean=1.9,
        stderr=0.1,
        interval=(1.7, 2.1),
        respondents=(1.7, 2.1),
        sum=None,
        quantiles=listed,
        bands="approximate",
        values=[],
        range_ends=None,
        range_share=None,
        parts=[],
    )


MEDIAN, NINE = (0.5, 0.11, (0.0, 0.32)), (0.9, 6.4, (5.2, 7.9))


@pytest.mark.parametrize(
    ("quantiles", "words"),
    [
        ((MEDIAN,), "At least half of the answers are at most 0.32 EUR"),
        ((MEDIAN, NINE), "At least half of the answers are at most 0.32 EUR, and at most one answer in ten is above 6.4 EUR"),
        (
            (MEDIAN, (0.9, 0.2, (0.0, 0.41))),
            "At least half of the answers are at most 0.32 EUR, and at least nine in ten are at most 0.41 EUR",
        ),
        (
            ((0.5, 20.2, (17.1, 23.3)), (0.9, 39.8, (38.2, 40.0))),
            "The median is 20 EUR, and at least one in ten is at least 38.2 EUR",
        ),
    ],
)
def test_the_headline_says_what_the_band_excludes(quantiles, words):
    """If reports do not distinguish a quantile from an end of the range, none of its digits is known."""
    assert number_page.view(fines(*quantiles)).says.replace("\u202f", " ") == words


def test_every_surface_says_the_same():
    number = fines(MEDIAN, NINE)
    view = number_page.view(number)
    says = in_words(number, figures_of(number)[0], 0.95).replace("\u202f", " ")
    assert says == "The median is at most 0.32 EUR (95% interval 0.00 to 0.32 EUR)."
    assert view.first.value == "at most 0.32\u202fEUR"
    # Each row has the digits of its own band.
    assert [(row.value, row.words) for row in view.quantiles] == [
        ("≤ 0.32\u202fEUR", "50% or more are here or below"),
        ("6.4\u202fEUR", "at most one in ten is above"),
    ]
    metric = {"id": "fine", "unit": "EUR", "scale": "linear", "range": [0.0, 40.0]}
    row = {"metric": "fine", "value": "p75", "unit": "EUR", "estimate": 0.11, "low": 0.0, "high": 0.32, "level": 0.95, "n": 9}
    row |= {"detected": True}
    assert cells_of(row, metric) == ["≤ 0.32 EUR", "0.00 EUR", "0.32 EUR"]

    class Rows:
        columns = ({"name": "to"}, {"name": "value"})
        metrics = (metric,)
        rows = (row, row | {"value": "p50"}, row | {"value": "mean"})

    assert sentences(Rows) == [
        "At least 75% of answers are at most 0.32 EUR (95% interval 0.00 EUR to 0.32 EUR).",
        "The median is at most 0.32 EUR (95% interval 0.00 EUR to 0.32 EUR).",
        "The mean is 0.11 EUR (95% interval 0.00 EUR to 0.32 EUR).",
    ]


@pytest.mark.parametrize(
    ("median", "nine", "says", "words"),
    [  # of people with so many pets, or fines
        (1.0, 3.0, "The median is 1 EUR, and at most one answer in ten is above 3 EUR", "at most one in ten is above"),
        (40.0, 40.0, "At least half of the answers are 40 EUR", "10% or more are here"),
        (0.0, 0.0, "At least half of the answers are 0 EUR", "90% or more are here"),
        (
            0.0,
            3.0,
            "At least half of the answers are 0 EUR, and at most one answer in ten is above 3 EUR",
            "at most one in ten is above",
        ),
        (39.0, 40.0, "The median is 39 EUR, and at least one in ten is 40 EUR", "10% or more are here"),
    ],
)
def test_what_is_said_of_whole_numbers_is_true(median, nine, says, words):
    """Many people give the very answer that is the quantile, so fewer are below, and more at most there."""
    view = number_page.view(fines((0.5, median, (median, median)), (0.9, nine, (nine, nine))))
    assert view.says.replace("\u202f", " ") == says
    assert view.quantiles[1].words == words
    lie = f"The median lies at {median:.0f} EUR, the 90% quantile at {nine:.0f} EUR."
    assert view.detail.replace("\u202f", " ").startswith(lie)


@pytest.mark.parametrize(
    ("estimate", "value", "says"),
    [
        (1.0, "p25", "At least 25% of answers are at most 1 pets (95% interval 1 pets to 1 pets)."),
        (5.0, "p25", "At least 75% of answers are 5 pets (95% interval 5 pets to 5 pets)."),
        (0.0, "p75", "At least 75% of answers are 0 pets (95% interval 0 pets to 0 pets)."),
    ],
)
def test_so_does_the_command(estimate, value, says):
    metric = {"id": "pets", "unit": "pets", "scale": "linear", "range": [0.0, 5.0]}
    row = {"metric": "pets", "value": value, "unit": "pets", "level": 0.95, "n": 9, "detected": True}
    row |= dict.fromkeys(("estimate", "low", "high"), estimate)

    class Rows:
        columns = ({"name": "to"}, {"name": "value"})
        metrics = (metric,)
        rows = (row,)

    assert sentences(Rows) == [says]


def test_an_interval_of_one_number_is_written_once():
    measure = quantile_measure(fines(MEDIAN))
    assert [measure.signed((each, each)).replace("\u202f", " ") for each in (0.0, 1.0)] == ["0 EUR", "+1 EUR"]


def test_over_time_the_band_stands_beside_it():
    """Its ends are those of the table of quantiles."""
    point = Point(0.11, (0.0, 0.32), (0.0, 0.41), 900)
    assert timeline.estimate(point, quantile_measure(fines(MEDIAN))) == "≤ 0.32\u202fEUR (0.00 to 0.32)"


@pytest.mark.parametrize(("label", "first"), [("median", "≤ 0.32\u202fEUR"), ("mean", "0.11\u202fEUR")])
def test_both_sides_of_a_comparison_are_written_so(label, first):
    row = SimpleNamespace(value=None, label=label, first=0.11, first_interval=(0.0, 0.32), second=6.4, second_interval=(5.2, 7.9))
    comparison = SimpleNamespace(unit="EUR", scale="linear", range=(0.0, 40.0))
    assert both_sides(row, comparison) == (first, "6.4\u202fEUR")


@pytest.mark.parametrize(
    ("value", "band", "text"),
    [
        (1.0, (0.0, 2.0), "1\u202fEUR"),  # of whole numbers, digits promise nothing more
        (20.3, (0.0, 40.0), "20\u202fEUR"),
        (0.0, (0.0, 0.32), "≤ 0.32\u202fEUR"),
    ],
)
def test_a_band_that_reaches_both_ends_or_is_whole(value, band, text):
    assert number_page.view(fines((0.5, value, band))).quantiles[0].value == text
