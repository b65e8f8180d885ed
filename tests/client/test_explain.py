"""An explanation says what is sent, in figures that are the mechanism's own."""

from __future__ import annotations

import pytest

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable.explain import Explanation


def test_figures(registry):
    """The figures are those of the mechanism."""
    metric = registry.metrics["ui.theme"]
    mechanism = mechanisms.of(metric)
    told = Explanation.of(metric, mechanism)
    assert (told.metric, told.description, told.mechanism) == ("ui.theme", "Which theme people use", mechanism.name)
    assert (told.p, told.q, told.epsilon) == (float(mechanism.p), float(mechanism.q), mechanism.epsilon)
    assert (told.report_bytes, told.summary, told.sample) == (mechanism.layout.payload_size, mechanism.summary, None)


@pytest.mark.parametrize(("id_", "value"), [("ui.theme", "dark"), ("ui.dark", False), ("ui.dark", True)])
def test_a_sample_is_a_report(registry, id_, value):
    """With an answer there is a sample, which is a payload of the layout."""
    metric = registry.metrics[id_]
    told = Explanation.of(metric, mechanisms.of(metric), value)
    assert told.sample is not None
    mechanisms.of(metric).layout.unpack(bytes.fromhex(told.sample))


def test_words(registry):
    """The text has the odds, the epsilon, the size, and the sample where there is one."""
    metric = registry.metrics["ui.dark"]
    without = str(Explanation.of(metric, mechanisms.of(metric)))
    assert "ui.dark: Whether it is dark" in without
    assert "with probability 0.750, and to any given other one with 0.250" in without
    assert "at most 3 times (epsilon 1.099)" in without
    assert "Every report has 1 bytes, whatever the answer." in without
    assert "look like this" not in without
    assert "look like this: 0" in str(Explanation.of(metric, mechanisms.of(metric), value=True))


def test_no_answer_no_sample(registry):
    """What is no answer is refused and not repeated."""
    metric = registry.metrics["ui.theme"]
    with pytest.raises(ParameterError, match="one of the 3 declared values") as caught:
        Explanation.of(metric, mechanisms.of(metric), "canary")
    assert "canary" not in str(caught.value)
