"""An explanation says what is sent, in figures that are the mechanism's own."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from registries import metric_toml, registry_toml

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable.explanation import Explanation
from deniable.registry import parse
from deniable.registry.tables import Budget

KEPT = registry_toml(
    metric_toml(
        "ui.theme",
        values=["light", "dark", "system"],
        epsilon_permanent=2.0,
        sample=0.1,
        mechanism="rappor",
        parameters={"cohorts": 8, "bits": 16, "hashes": 2},
        description="Which theme people use",
    )
)


def test_figures(registry):
    """The figures are those of the mechanism, and what is reserved is what the ledger allows."""
    mechanism = mechanisms.of(registry.metrics["ui.theme"])
    explanation = Explanation.of(registry, "ui.theme", Budget())
    assert (explanation.metric, explanation.description, explanation.mechanism) == (
        "ui.theme",
        "Which theme people use",
        mechanism.name,
    )
    assert (explanation.says, explanation.epsilon) == (mechanism.says, 1.0)
    assert (explanation.report_bytes, explanation.summary, explanation.report) == (
        mechanism.layout.payload_size,
        mechanism.summary,
        None,
    )
    assert (explanation.per_period, explanation.period, explanation.answers_per_month) == (4, "month", 0)
    assert (explanation.reserved_month, explanation.reserved_lifetime) == (4, 240)
    assert (explanation.row_bits, explanation.segment_bits) == (0, 1)
    assert Explanation.of(registry, "ui.theme", Budget(per_month=None, lifetime=None)).reserved_lifetime is None


@pytest.mark.parametrize(("id_", "value"), [("ui.theme", "dark"), ("ui.dark", False), ("ui.dark", True)])
def test_an_example_is_a_report(registry, id_, value):
    """With an answer there is an example of a report, which is a payload of the layout."""
    explanation = Explanation.of(registry, id_, Budget(), value)
    assert explanation.report is not None
    mechanisms.of(registry.metrics[id_]).layout.unpack(bytes.fromhex(explanation.report))


def test_words(registry):
    """The text has the odds, the epsilon, what is reserved, the size, and the example where there is one."""
    without = str(Explanation.of(registry, "ui.dark", Budget()))
    assert "ui.dark: Whether it is dark" in without
    assert "with probability 0.750, and to any one wrong answer with 0.250" in without
    assert "at most 3 times (epsilon 1.099): even odds become 3 to 1." in without
    assert "At most 4 reports a month. Each is randomised anew, so their epsilons add up." in without
    assert (
        "In a calendar month there are at most 4 reports, with at most epsilon 4.394 together "
        "(all questions together may have 32), and all reports ever at most epsilon 263.7. Beyond that nothing is reported."
    ) in without
    assert "Every report has 1 byte, whatever the answer." in without
    assert "look like this" not in without
    with_example = str(Explanation.of(registry, "ui.dark", Budget(), value=True))
    assert re.search(r"look like this: it says (yes|no), sent as bytes 0[01]$", with_example)


def test_no_answer_no_example(registry):
    """What is no answer is refused and not repeated; a metric that nobody declared is named."""
    with pytest.raises(ParameterError, match="one of the 3 declared values") as caught:
        Explanation.of(registry, "ui.theme", Budget(), "canary")
    assert "canary" not in str(caught.value)
    with pytest.raises(ParameterError, match="'nosuch' is not declared in the registry"):
        Explanation.of(registry, "nosuch", Budget())


def test_words_on_time():
    """A metric that keeps its answers tells what all reports of one answer give away; another that it adds up."""
    explanation = Explanation.of(parse(KEPT), "ui.theme", Budget())
    assert explanation.epsilon_permanent == 2
    assert (explanation.answers_per_month, explanation.reserved_month, explanation.reserved_lifetime) == (
        2,
        4,
        6,
    )  # three answers, and never more
    assert "all reports of one answer, however many, can shift the odds at most 7.39 times (epsilon 2)" in str(explanation)
    assert "At most 1 report a day." in str(explanation)
    few = (
        "In a calendar month at most 2 different answers are reported, with at most epsilon 4 together "
        "(all questions together may have 32), "
    )
    assert few + "and ever at most epsilon 6." in str(explanation)
    assert "together show which of 8 rows this device drew and keeps (3.0 bits)." in str(explanation)
    assert "Of all answers only 10%, drawn at random, are reported at all." in str(explanation)
    plain = Explanation.of(parse(KEPT.replace("epsilon_permanent = 2.0\n", "")), "ui.theme", Budget())
    assert (plain.epsilon_permanent, plain.answers_per_month, plain.reserved_month) == (None, 0, 31)
    assert "In a calendar month there are at most 31 reports, with at most epsilon 31 together" in str(plain)
    monthly = KEPT.replace("epsilon_permanent = 2.0\n", 'period = "month"\n')
    assert "In a calendar month there is at most 1 report, with" in str(Explanation.of(parse(monthly), "ui.theme", Budget()))


def explained(declared, value=None):
    text = f'format = 1\napp = "shop"\n[metrics.m]\n{declared}\nepsilon = 1\ndescription = "d"\nowner = "o"\n'
    return Explanation.of(parse(text), "m", Budget(), value)


def test_a_number_in_words():
    """What a report names of a number; where one is kept, what happens to it first."""
    number = 'type = "number"\nrange = [0, 1000]\nunit = "ms"\n'
    explanation = explained(f'{number}estimate = "mean"', 412)
    assert "Numbers beyond 0 to 1000 ms count as the nearer end. A report names one of 32 parts, in order" in explanation.says
    assert len(explanation.report) == 2
    permanent = f"{number}epsilon_permanent = 2\n"
    explanation = explained(f'{permanent}estimate = "mean"', 412)
    assert "rounded to one end of its range, at a point that this device drew once and tells nobody." in explanation.says
    assert explanation.says.endswith("A report points to this end with probability 0.731, and to the other end with 0.269.")
    assert explanation.report in ("00", "01")
    assert (
        "counts as one of 16 equal parts of its range. A report points to"
        in explained(f'{permanent}estimate = "distribution"').says
    )
    with pytest.raises(ParameterError, match="an answer to m must be a number; this is an undeclared str"):
        explained(f'{number}estimate = "mean"', "412")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (1200, "1200 ms is above the range, so 1000 ms is reported in its place."),
        (-0.5, "-0.5 ms is below the range, so 0 ms is reported in its place."),
        (float("inf"), "inf ms is above the range, so 1000 ms is reported in its place."),
        (Fraction(1200), "1200 ms is above the range, so 1000 ms is reported in its place."),  # as a command reads it
        (1000, ""),
        (0, ""),
        (None, ""),
    ],
)
def test_a_number_beyond_its_range_says_what_is_reported(answer, says):
    explanation = explained('type = "number"\nrange = [0, 1000]\nunit = "ms"\nestimate = "mean"', answer)
    assert explanation.beyond == says
    assert says in str(explanation)


def test_a_set_in_words():
    """What a report names of a set, or of two of its options."""
    declared = 'type = "set"\nvalues = ["a", "b", "c"]\n'
    explanation = explained(declared, ["a", "c"])
    assert explanation.says.startswith("A report is about one of 3 options, drawn at random.")
    assert "one of 3 pairs" in explained(f"{declared}joint = true").says
    assert "01" in {explained(declared, ["a"]).report for _ in range(100)}
    capped = explained(f"{declared}most = 1\n", ["a", "c"])
    assert capped.says.startswith("If you chose more than 1 option, one of them counts, drawn at random on this device. A report")


def test_words_on_a_delay():
    """People are told that a report waits."""
    explanation = Explanation.of(parse(KEPT.replace("sample = 0.1", 'delay = "12h"')), "ui.theme", Budget())
    assert explanation.delay == "12h"
    waits = (
        "A report waits on this device for a random time of up to 12h, drawn before your answer is looked at, before it is sent."
    )
    assert waits in str(explanation).splitlines()
    assert "waits" not in str(Explanation.of(parse(KEPT), "ui.theme", Budget()))
