"""What a served registry may change, rule by rule: each is broken once, and each tightening once allowed."""

from __future__ import annotations

import pytest

from deniable.budget import Budget
from deniable.caps import Caps
from deniable.errors import ServedRegistryError
from deniable.registry import parse
from deniable.tighten import tightened

BUNDLED = """
format = 1
revision = 5
app = "shop"
[budget]
window = 30
per_window = 16
lifetime = 160
[segments]
platform = ["linux", "macos", "windows"]
unused = ["a", "b"]
[metrics.theme]
type = "categorical"
values = ["light", "dark", "system"]
epsilon = 1
version = 2
period = "week"
segments = ["platform"]
sample = 0.5
none = "system"
max_report_bytes = 50
expires = 2099-06-30
description = "d"
owner = "o"
[metrics.kept]
type = "categorical"
values = ["a", "b", "c", "d", "e"]
mechanism = "rappor"
parameters = { bits = 8, hashes = 1, cohorts = 4 }
epsilon = 1
epsilon_permanent = 3
description = "d"
owner = "o"
[metrics.page]
type = "string"
candidates = "pages.txt"
max_length = 20
epsilon = 2
description = "d"
owner = "o"
[metrics.both]
type = "product"
factors = { a = ["x", "y"], b = ["z", "w"] }
epsilon = 1
description = "d"
owner = "o"
"""
FRESH = """
[metrics.fresh]
type = "boolean"
epsilon = {epsilon}
description = "d"
owner = "o"
"""


def served(*changes, more=""):
    """Change the bundled text: pairs of what stands there and what is to."""
    text = BUNDLED.replace("revision = 5", "revision = 6")
    for old, new in changes:
        assert text.count(old) >= 1, old
        text = text.replace(old, new, 1)
    return parse(text + more)


def without(id_):
    head, _, rest = BUNDLED.partition(f"[metrics.{id_}]")
    _, bracket, tail = rest.partition("[metrics.")
    return parse(head + bracket + tail)


def result(registry, caps=None):
    return tightened(parse(BUNDLED), registry, caps or Caps())


RAISED = ("version = 2", "version = 3")


@pytest.mark.parametrize(
    "changes",
    [
        [],
        [("revision = 6", "revision = 5")],
        [("epsilon = 1\n", "epsilon = 0.5\n")],
        [("epsilon = 1\n", 'epsilon = 1\nmechanism = "grr"\n')],
        [("epsilon_permanent = 3", "epsilon_permanent = 2.5")],
        [("cohorts = 4", "cohorts = 2")],
        [("sample = 0.5", "sample = 0.499")],
        [("expires = 2099-06-30", "expires = 2099-06-29")],
        [("max_report_bytes = 50", "max_report_bytes = 10")],
        [("window = 30", "window = 31"), ("per_window = 16", "per_window = 15"), ("lifetime = 160", "lifetime = 1")],
        [('"windows"]', '"windows", "plan9"]')],
        [('unused = ["a", "b"]', 'unused = ["b"]')],
        [("[metrics.theme]", '[generalize.platform]\nlinux = "unix"\nmacos = "unix"\n[metrics.theme]')],
        [('description = "d"', 'description = "e"'), ('owner = "o"', 'owner = "p"\nmin_reports = 7')],
        [('"pages.txt"', '"other.txt"')],
        # A later version
        [RAISED, ('["light", "dark", "system"]', '["system", "light"]')],
        [RAISED, ('period = "week"', 'period = "month"'), ('segments = ["platform"]', "segments = []")],
    ],
)
def test_tightenings_are_allowed(changes):
    """Whatever asks for the same or less is used."""
    registry = served(*changes)
    assert result(registry) == registry


def test_devices_do_not_care_how_long_things_are_kept():
    """How long the server keeps sums and releases may change in any direction: a device has no part in it."""
    for days in (1, 36500):
        registry = served(("revision = 6", f"revision = 6\nretention = {{ tallies = {days}, releases = {days} }}"))
        assert result(registry).retention.releases == days


def test_devices_do_not_care_what_analysts_may_ask():
    """What keys may spend on exact numbers may change in any direction: it is no business of a device."""
    for epsilon in (0, 20):
        registry = served(("revision = 6", f"revision = 6\nanalysts = {{ epsilon = {epsilon} }}"))
        assert result(registry).analysts.epsilon == epsilon


def test_a_metric_may_be_dropped():
    """What is not asked any more costs nothing, nor do segments that only it used."""
    for id_ in ("theme", "kept", "page", "both"):
        assert id_ not in result(without(id_)).metrics
    registry = parse(BUNDLED.partition("[segments]")[0] + FRESH.format(epsilon=1))
    assert list(result(registry).metrics) == ["fresh"]


def test_a_permanent_response_may_be_introduced():
    """A question whose answers were independent may come to keep its responses: all reports of an answer then tell less."""
    was = parse(BUNDLED.replace("epsilon_permanent = 3\n", ""))
    assert tightened(was, served(), Caps()).metrics["kept"].epsilon_permanent == "3"


def test_new_metrics_stay_within_the_caps():
    """The app need not bring a metric along, but its caps bound it."""
    assert "fresh" in result(served(more=FRESH.format(epsilon=2)), Caps(epsilon=2)).metrics
    with pytest.raises(ServedRegistryError, match=r"fresh: a metric stays within the caps of the app; .*allows 2 nats"):
        result(served(more=FRESH.format(epsilon=2.01)), Caps(epsilon=2))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([('app = "shop"', 'app = "shop2"')], "-: the app is shop; got 'shop2'"),
        ([("revision = 6", "revision = 4")], "-: the revision is at least 5"),
        ([("revision = 6\n", "")], "-: the revision is at least 5, .*; got 0"),
        # The budget
        ([("window = 30", "window = 29.9")], "-: the budget's window is at least 30; got 29.9"),
        ([("window = 30", "window = 0.0000116")], "-: the budget's window is at least 30"),
        ([("per_window = 16", "per_window = 16.1")], "-: the budget's per_window is at most 16; got 16.1"),
        ([("lifetime = 160", "lifetime = 161")], "-: the budget's lifetime is at most 160"),
        ([("lifetime = 160", "")], "-: the budget's lifetime is at most 160; got 320"),
        (
            [("[budget]\nwindow = 30\nper_window = 16\nlifetime = 160", "")],
            "-: a budget that the app brings along is not taken away",
        ),
        # Segments
        ([('["linux", "macos", "windows"]', '["linux", "macos"]')], "-: segments.platform begins with linux, macos, windows"),
        ([('["linux", "macos", "windows"]', '["macos", "linux", "windows"]')], "-: segments.platform begins with"),
        # The same version
        ([('"categorical"', '"ordinal"')], "theme: type of version 2 is categorical; got 'ordinal'"),
        ([('["light", "dark", "system"]', '["dark", "light", "system"]')], "theme: values of version 2 is .'light'"),
        ([('["light", "dark", "system"]', '["light", "dark", "system", "x"]')], "theme: values of version 2"),
        ([('period = "week"', 'period = "hour"')], "theme: period of version 2 is week; got 'hour'"),
        ([('period = "week"', 'period = "month"')], "theme: period of version 2"),
        ([('segments = ["platform"]', 'segments = ["platform", "unused"]')], "theme: segments of version 2"),
        ([('none = "system"', 'none = "dark"')], "theme: none of version 2"),
        ([('none = "system"', "")], "theme: none of version 2 is system; got 'None'"),
        ([("max_length = 20", "max_length = 21")], "page: max_length of version 1"),
        ([('candidates = "pages.txt"', "discover = true")], "page: discover of version 1"),
        ([('b = ["z", "w"]', 'b = ["w", "z"]')], "both: factors of version 1"),
        ([('{ a = ["x", "y"], b = ["z", "w"] }', '{ b = ["z", "w"], a = ["x", "y"] }')], "both: factors of version 1"),
        # Any version
        ([("version = 2", "version = 1")], "theme: the version is at least 2; got 1"),
        ([("sample = 0.5", "sample = 0.501")], "theme: sample is at most 0.5; got '0.501'"),
        ([("sample = 0.5", "")], "theme: sample is at most 0.5; got '1'"),
        ([("expires = 2099-06-30", "expires = 2099-07-01")], "theme: collection ends on 2099-06-30 or before"),
        ([("expires = 2099-06-30", "")], "theme: collection ends on 2099-06-30 or before; got 'None'"),
        ([("max_report_bytes = 50", "max_report_bytes = 51")], "theme: max_report_bytes is at most 50"),
        ([("epsilon = 1\n", "epsilon = 1.0001\n")], "theme: a report spends at most 1 nats; got 1.0001"),
        ([("epsilon = 1\nepsilon_permanent", "epsilon = 1.5\nepsilon_permanent")], "kept: a report spends at most 1 nats"),
        ([("epsilon_permanent = 3", "epsilon_permanent = 3.1")], r"kept: a kept answer spends at most 3(\.0*)? nats; got 3.1"),
        ([("epsilon_permanent = 3", "")], "kept: answers have permanent responses, which are not given up"),
        ([("cohorts = 4", "cohorts = 5")], "kept: a device keeps one of at most 4 rows; got 5"),
        # A later version
        ([RAISED, ("epsilon = 1\n", "epsilon = 1.5\n")], "theme: a report spends at most 1 nats; got 1.5"),
        ([RAISED, ('"categorical"', '"ordinal"')], "theme: a later version is also of type categorical"),
        (
            [RAISED, ('period = "week"', 'period = "day"')],
            "theme: a later version's period is not shorter than a week; got 'day'",
        ),
        ([RAISED, ('segments = ["platform"]', 'segments = ["unused"]')], "theme: a later version's segments are among platform"),
        ([RAISED, ("sample = 0.5", "sample = 0.6")], "theme: sample is at most 0.5"),
        ([RAISED, ("expires = 2099-06-30", "")], "theme: collection ends on 2099-06-30 or before"),
        ([("max_length = 20", "max_length = 21\nversion = 2")], "page: a later version takes no other texts"),
        ([('candidates = "pages.txt"', "discover = true\nversion = 2")], "page: a later version takes no other texts"),
    ],
)
def test_a_loosening_is_refused(changes, words):
    """Whatever asks for more is refused, and the fault names metric, rule and value."""
    with pytest.raises(ServedRegistryError, match=f"the served registry: {words}"):
        result(served(*changes))


def test_a_mechanism_that_there_is_not_is_refused():
    """A registry of a later format cannot be judged."""
    with pytest.raises(ServedRegistryError, match="theme: a mechanism is one of auto, "):
        result(served(("epsilon = 1\n", 'epsilon = 1\nmechanism = "none"\n')))


def test_all_faults_come_at_once():
    """Who mends a registry sees everything."""
    with pytest.raises(ServedRegistryError) as caught:
        result(
            served(
                ("window = 30", "window = 1"),
                ("sample = 0.5", "sample = 0.6"),
                ("epsilon_permanent = 3", "epsilon_permanent = 4"),
            )
        )
    assert [fault.metric for fault in caught.value.faults] == ["-", "theme", "kept"]


def test_the_budget_that_results_is_the_strictest():
    """What the app brings along stays, unless the server is stricter; without either the caps alone hold."""
    assert result(served(("lifetime = 160", "lifetime = 9"))).budget == Budget(window=30, per_window=16, lifetime=9)
    plain = parse(BUNDLED.replace("[budget]\nwindow = 30\nper_window = 16\nlifetime = 160", ""))
    assert tightened(plain, plain, Caps()).budget is None
    assert tightened(plain, served(), Caps()).budget == Budget(window=30, per_window=16, lifetime=160)
    with pytest.raises(ServedRegistryError, match="the budget's per_window is at most 4; got 16"):
        tightened(plain, served(), Caps(budget=Budget(per_window=4)))
    with pytest.raises(ServedRegistryError, match="the budget's window is at least 60; got 30"):
        tightened(plain, served(), Caps(budget=Budget(window=60)))


def test_a_registry_without_revision_can_serve_nothing():
    """Even where the app's own has none."""
    plain = parse(BUNDLED.replace("revision = 5\n", ""))
    with pytest.raises(ServedRegistryError, match="the revision is at least 1"):
        tightened(plain, plain, Caps())
