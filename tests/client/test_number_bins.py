"""Parts of an axis, where permanent responses are kept for a distribution: each end of the range is in a part of it."""

from __future__ import annotations

from deniable.registry import Metric
from deniable.registry.answers.axis import BINS


def test_the_ends_of_the_range_are_in_parts_of_it():
    metric = Metric(
        "m", "number", (), "1", range=("0", "1600"), estimate="distribution", epsilon_permanent="2", mechanism="l_osue"
    )
    assert metric.domain_size == BINS == 16
    for answer, part in ((-5, 0), (0, 0), (99, 0), (100, 1), (1499, 14), (1500, 15), (1599, 15), (1600, 15), (1e9, 15)):
        assert metric.position(answer) == part


def test_the_ends_of_the_range_are_within_it():
    metric = Metric("m", "number", (), "1", range=("0", "1600"), estimate="mean")
    assert [metric.clips(answer) for answer in (-1, 0, 1600, 1600.5)] == [True, False, False, True]
