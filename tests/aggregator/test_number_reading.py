"""What is read of a number: the sum is of the answers that came, and bands allow for devices that answer alike."""

from __future__ import annotations

from math import isfinite
from types import SimpleNamespace

import numpy as np
import pytest
from registries import metric_toml, registry_toml

from deniable import registry
from deniable.declared import Declared
from deniable_aggregator import tally
from deniable_aggregator.answer.readings import number
from deniable_aggregator.answer.readings.number import NumberReading, moved, to_number

REGISTRY = registry_toml(
    metric_toml("wait", estimate="{estimate}", range=[0, 1000], unit="ms", epsilon=4, per_period=2, together=3)
)


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


def test_a_part_of_the_axis_stands_for_its_middle(monkeypatch):
    """Of kept numbers only parts are known: a mean position of ten, counted from one, is the middle of the tenth part."""
    permanent = 'epsilon = 1\nepsilon_permanent = 2\nmechanism = "l_osue"'
    text = REGISTRY.format(estimate="distribution").replace("epsilon = 4\nper_period = 2", permanent)
    declared = Declared.of(registry.parse(text).metrics["wait"])
    position = SimpleNamespace(mean=10.0, stderr=0.5, interval=lambda _: (9.5, 10.5))
    monkeypatch.setattr(number, "order", lambda *_, **__: position)
    centre = NumberReading(declared, tally.empty(declared.layout), {}).centre
    assert (centre.place, centre.stderr) == (9.5 / 16, 0.5 / 16)
    assert centre.interval(0.95) == (8.5 / 16, 10.5 / 16)  # wherever in their parts the numbers are


def test_intervals_of_all_values_together_are_wider():
    text = REGISTRY.format(estimate="distribution").replace("range = [0, 1000]", "range = [0, 10]\nstep = 1")
    declared = Declared.of(registry.parse(text).metrics["wait"])
    mechanism = declared.mechanism
    payloads = b"".join(mechanism.randomize(declared.metric.position(at % 11)) for at in range(110))
    rows = NumberReading(declared, tally.count(mechanism.layout, payloads), {"2026-11-21": 110})._values(0.95)
    assert len(rows) == 11
    for row in rows:
        assert row.simultaneous[0] < row.interval[0] < row.interval[1] < row.simultaneous[1]


def test_few_reports_on_a_long_logarithmic_axis_have_finite_ends():
    """Their intervals may reach many axes beyond the ends, and a factor is never 0."""
    text = metric_toml("lag", estimate="mean", range=[1e-6, 1e9], unit="ms", scale="log", epsilon=0.01)
    metric = registry.parse(registry_toml(text)).metrics["lag"]
    for written in (to_number(metric), moved(metric)):
        ends = [written(place) for place in (-1e6, -0.5, 0.5, 1e6)]
        assert ends == sorted(ends)
        assert (ends[0] > 0, isfinite(ends[-1])) == (True, True)
    assert moved(metric)(1.0) == pytest.approx(1e15)
