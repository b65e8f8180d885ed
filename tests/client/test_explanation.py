"""An explanation says what is sent, in figures that are the mechanism's own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable.explanation import Explanation
from deniable.registry import parse

KEPT = """
format = 1
app = "shop"
[metrics."ui.theme"]
type = "categorical"
values = ["light", "dark", "system"]
epsilon = 1.0
epsilon_permanent = 2.0
sample = 0.1
mechanism = "rappor"
description = "Which theme people use"
owner = "design@shop.example"
"""


def test_figures(registry):
    """The figures are those of the mechanism."""
    metric = registry.metrics["ui.theme"]
    mechanism = mechanisms.of(metric)
    told = Explanation.of(metric, mechanism)
    assert (told.metric, told.description, told.mechanism) == ("ui.theme", "Which theme people use", mechanism.name)
    assert (told.p, told.q, told.epsilon) == (float(mechanism.p), float(mechanism.q), mechanism.epsilon)
    assert (told.report_bytes, told.summary, told.report) == (mechanism.layout.payload_size, mechanism.summary, None)


@pytest.mark.parametrize(("id_", "value"), [("ui.theme", "dark"), ("ui.dark", False), ("ui.dark", True)])
def test_an_example_is_a_report(registry, id_, value):
    """With an answer there is an example of a report, which is a payload of the layout."""
    metric = registry.metrics[id_]
    told = Explanation.of(metric, mechanisms.of(metric), value)
    assert told.report is not None
    mechanisms.of(metric).layout.unpack(bytes.fromhex(told.report))


def test_words(registry):
    """The text has the odds, the epsilon, the size, and the example where there is one."""
    metric = registry.metrics["ui.dark"]
    without = str(Explanation.of(metric, mechanisms.of(metric)))
    assert "ui.dark: Whether it is dark" in without
    assert "with probability 0.750, and to any given other one with 0.250" in without
    assert "at most 3 times (epsilon 1.099)" in without
    assert "Every report has 1 byte, whatever the answer." in without
    assert "look like this" not in without
    assert "look like this: 0" in str(Explanation.of(metric, mechanisms.of(metric), value=True))


def test_no_answer_no_example(registry):
    """What is no answer is refused and not repeated."""
    metric = registry.metrics["ui.theme"]
    with pytest.raises(ParameterError, match="one of the 3 declared values") as caught:
        Explanation.of(metric, mechanisms.of(metric), "canary")
    assert "canary" not in str(caught.value)


def test_words_on_time():
    """A metric that keeps its answers tells what all reports of one answer give away; another that it adds up."""
    (metric,) = parse(KEPT).metrics.values()
    mechanism = mechanisms.of(metric)
    told = Explanation.of(metric, mechanism)
    assert told.epsilon_permanent == pytest.approx(2)
    assert told.epsilon_lifetime == pytest.approx(6)
    assert "all reports of one answer, however many, can raise the odds at most 7.39 times (epsilon 2)" in str(told)
    assert "Only a share of 0.1 of the answers" in str(told)
    plain = Explanation.of(replace(metric, epsilon_permanent=None), mechanism)
    assert (plain.epsilon_permanent, plain.epsilon_lifetime) == (None, None)
    assert "Every report adds to that" in str(plain)
