"""What is read of a number: the sum is of the answers that came, and bands allow for devices that answer alike."""

from __future__ import annotations

import numpy as np
import pytest

from deniable import registry
from deniable.declared import Declared
from deniable_aggregator import tally
from deniable_aggregator.answer.readings import number
from deniable_aggregator.answer.readings.number import NumberReading, to_number

REGISTRY = """
format = 1
app = "shop"

[metrics.wait]
type = "number"
estimate = "{estimate}"
range = [0, 1000]
unit = "ms"
epsilon = 4
per_period = 2
together = 3
description = "How long it took"
owner = "core@shop.example"
"""


def reading(estimate="mean", n=300):
    declared = Declared.of(registry.parse(REGISTRY.format(estimate=estimate)).metrics["wait"])
    mechanism, at = declared.mechanism, declared.metric.position(400)
    payloads = b"".join(mechanism.randomize(at) for _ in range(n))
    return NumberReading(declared, tally.count(mechanism.layout, payloads), {"2026-11-20": n / 2, "2026-11-21": n / 2})


def test_the_sum_is_of_the_answers_that_came():
    """Its interval is that of their mean, which is narrower than that of the population's."""
    one = reading()
    answer = one._number(0.95)
    total, interval = answer.sum
    assert total == pytest.approx(one.n * answer.mean)
    assert interval == pytest.approx([one.n * end for end in answer.respondents])
    assert interval[1] - interval[0] < one.n * (answer.interval[1] - answer.interval[0])


def test_strict_bands_allow_for_all_reports_that_one_answer_may_have_made(monkeypatch):
    """In two periods of two reports, where three devices answer alike, up to eleven others."""
    reports = set()

    def band(*_, repeats):
        reports.add(repeats)
        return 0.0, 1.0

    monkeypatch.setattr(number, "strict_quantile", band)
    one = reading("distribution")
    quantiles = [number.QuantileEstimate(0.5, 400.0, (390.0, 410.0), resolved=True)]
    answer = one.with_strict_bands(number.replace(reading()._number(0.95), quantiles=quantiles), 0.95)
    assert reports == {11}
    assert [each.interval for each in answer.quantiles] == [(0.0, 1000.0)]


def test_positions_of_an_ordinal_are_counted_from_one():
    text = (
        REGISTRY.format(estimate="mean").replace('"number"', '"ordinal"').replace("range = [0, 1000]", 'values = ["a", "b", "c"]')
    )
    metric = registry.parse(text.replace('unit = "ms"\n', "")).metrics["wait"]
    assert [to_number(metric)(place) for place in np.linspace(0, 1, 3)] == [1, 2, 3]
