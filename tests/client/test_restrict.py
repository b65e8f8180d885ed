"""What a served registry may change: each of its three changes is used, and every other change is refused."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from datetime import date

import pytest

from deniable.errors import ServedRegistryError
from deniable.limits.caps import Caps
from deniable.prepared import prepare
from deniable.registry import Metric, Registry, parse
from deniable.served_registry.restrictions import restricted

BUNDLED = """
format = 1
revision = 5
app = "shop"
[budget]
window = 30
per_window = 32
lifetime = 320
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
period = "month"
description = "d"
owner = "o"
[metrics.wait]
type = "number"
range = [1, 100]
unit = "ms"
scale = "log"
estimate = "mean"
epsilon = 1
period = "month"
description = "d"
owner = "o"
[metrics.used]
type = "set"
values = ["x", "y", "z"]
joint = true
epsilon = 1
period = "month"
description = "d"
owner = "o"
[metrics.both]
type = "product"
factors = { a = ["x", "y"], b = ["z", "w"] }
epsilon = 1
period = "month"
description = "d"
owner = "o"
"""
BUDGET = "[budget]\nwindow = 30\nper_window = 32\nlifetime = 320\n"
FRESH = """
[metrics.fresh]
type = "boolean"
epsilon = 0.1
description = "d"
owner = "o"
"""
OURS = parse(BUNDLED)


def served(*changes, more=""):
    """Change the bundled text: pairs of what stands there and what is to."""
    text = BUNDLED.replace("revision = 5", "revision = 6")
    for old, new in changes:
        assert text.count(old) >= 1, old
        text = text.replace(old, new, 1)
    return parse(text + more)


def without(*ids):
    return replace(OURS, revision=6, metrics={id_: metric for id_, metric in OURS.metrics.items() if id_ not in ids})


ALLOWED = {
    "nothing": served(),
    "the same revision": served(("revision = 6", "revision = 5")),
    "a revision far above": served(("revision = 6", "revision = 600")),
    "another way to write it": served(("epsilon = 1\n", "epsilon = 1.0  # a comment\n"), ("window = 30", "window = 30.0")),
    "one left out": without("theme"),
    "all but one left out": without("theme", "kept", "both"),
    "sample lowered": served(("sample = 0.5", "sample = 0.499")),
    "sample lowered, of a kept response": served(("epsilon_permanent = 3", "epsilon_permanent = 3\nsample = 0.2")),
    "ended a day earlier": served(("expires = 2099-06-30", "expires = 2099-06-29")),
    "ended long ago": served(("expires = 2099-06-30", "expires = 2001-01-01")),
    "ended, where the app names no end": served(("max_length = 20", "max_length = 20\nexpires = 2099-01-01")),
    "all three": replace(
        OURS,
        revision=6,
        metrics={
            "theme": replace(OURS.metrics["theme"], sample="0.1", expires=date(2098, 1, 1)),
            "page": replace(OURS.metrics["page"], sample="0.01"),
        },
    ),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_only_turns_down_is_used(name):
    """Metrics left out, samples lowered, collections ended earlier."""
    assert restricted(OURS, ALLOWED[name]) == ALLOWED[name]


@pytest.mark.parametrize("id_", OURS.metrics)
def test_every_metric_may_be_left_out(id_):
    """The others stay as they are."""
    assert restricted(OURS, without(id_)).metrics == {other: OURS.metrics[other] for other in OURS.metrics if other != id_}


@pytest.mark.parametrize("name", ALLOWED)
def test_no_report_means_anything_else(name):
    """Fingerprints and costs are those of the app's own registry: nothing is drawn or counted anew."""
    rest = ({"platform": "linux"}, Caps(), OURS.budget, date(2027, 1, 1))
    before, after = (prepare(registry, *rest) for registry in (OURS, restricted(OURS, ALLOWED[name])))
    assert after
    for id_, prepared in after.items():
        assert (prepared.allowance, prepared.segment) == (before[id_].allowance, before[id_].segment)


def test_what_is_used_is_made_of_the_apps_own():
    """Not even another kind of number, equal to the app's, gets through."""
    used = restricted(OURS, served(("bits = 8", "bits = 8.0"), ("window = 30", "window = 30.0")))
    assert repr(used) == repr(replace(OURS, revision=6))


REFUSED = [
    ([('app = "shop"', 'app = "shop2"')], "app is as in the app: shop; got 'shop2'"),
    ([("revision = 6", "revision = 4")], "the revision is at least 5"),
    ([("revision = 6\n", "")], "the revision is at least 5, .*; got 0"),
    # The budget, in either direction
    ([("window = 30", "window = 29.9")], "budget is as in the app: Budget"),
    ([("window = 30", "window = 0.0000116")], "budget is as in the app"),
    ([("window = 30", "window = 31")], "budget is as in the app"),
    ([("per_window = 32", "per_window = 32.1")], "budget is as in the app"),
    ([("per_window = 32", "per_window = 31")], "budget is as in the app"),
    ([("lifetime = 320", "lifetime = 321")], "budget is as in the app"),
    ([("lifetime = 320", "lifetime = 32")], "budget is as in the app"),
    ([("lifetime = 320", "lifetime = 319")], "budget is as in the app"),
    ([(BUDGET, "")], "budget is as in the app: .*; got 'None'"),
    # Segments, and what the server does with reports
    ([('["linux", "macos", "windows"]', '["linux", "macos"]')], "segments is as in the app"),
    ([('["linux", "macos", "windows"]', '["macos", "linux", "windows"]')], "segments is as in the app"),
    ([('"windows"]', '"windows", "plan9"]')], "segments is as in the app"),
    ([('unused = ["a", "b"]', 'unused = ["b"]')], "segments is as in the app"),
    ([("[metrics.theme]", '[generalize.platform]\nlinux = "unix"\nmacos = "unix"\n[metrics.theme]')], "generalize is as in"),
    ([("revision = 6", "revision = 6\nretention = { tallies = 1, releases = 1 }")], "retention is as in the app"),
    ([("revision = 6", "revision = 6\nretention = { releases = 36500 }")], "retention is as in the app"),
    (
        [("[metrics.theme]", '[experiments]\nplatform = { base = "linux", planned = 0.1 }\n[metrics.theme]')],
        "experiments is as in the app",
    ),
    ([("revision = 6", "revision = 6\nanalysts = { epsilon = 0 }")], "analysts is as in the app"),
    ([("revision = 6", "revision = 6\nanalysts = { epsilon = 20 }")], "analysts is as in the app"),
    ([("revision = 6", "revision = 6\npublication = { min_reports = 7 }")], "publication is as in the app"),
    # What an answer means
    ([('"categorical"', '"ordinal"')], "theme: type is as in the app: categorical; got 'ordinal'"),
    ([('["light", "dark", "system"]', '["dark", "light", "system"]')], "theme: values is as in the app: .'light'"),
    ([('["light", "dark", "system"]', '["light", "dark", "system", "x"]')], "theme: values is"),
    ([('["light", "dark", "system"]', '["dark", "system"]')], "theme: values is"),
    ([('none = "system"', 'none = "dark"')], "theme: none is"),
    ([('none = "system"', 'none = "system"\nother = "system"')], "theme: other is as in the app: None; got 'system'"),
    ([('period = "week"', 'period = "week"\nper_period = 2')], "theme: per_period is as in the app: 1; got '2'"),
    (
        [("epsilon_permanent = 3", "epsilon_permanent = 3\nanswers_per_window = 1")],
        "kept: answers_per_window is as in the app: 2",
    ),
    ([('none = "system"', "")], "theme: none is as in the app: system; got 'None'"),
    ([('period = "week"', 'period = "hour"')], "theme: period is as in the app: week; got 'hour'"),
    ([('period = "week"', 'period = "month"')], "theme: period is"),
    ([('segments = ["platform"]', 'segments = ["platform", "unused"]')], "theme: segments is"),
    ([('segments = ["platform"]', "segments = []")], "theme: segments is"),
    ([("max_length = 20", "max_length = 21")], "page: max_length is"),
    ([("max_length = 20", "max_length = 19")], "page: max_length is"),
    ([('candidates = "pages.txt"', "discover = true")], "page: candidates is .*\n.*page: discover is"),
    ([('"pages.txt"', '"other.txt"')], "page: candidates is"),
    ([('b = ["z", "w"]', 'b = ["w", "z"]')], "both: values is .*\n.*both: factors is"),
    ([('{ a = ["x", "y"], b = ["z", "w"] }', '{ b = ["z", "w"], a = ["x", "y"] }')], "both: values is .*\n.*both: factors is"),
    ([("range = [1, 100]", "range = [1, 100]\nwhole = true")], "wait: step is as in the app: None; got '1'"),
    ([("range = [1, 100]", "range = [1, 1000]")], "wait: range is as in the app: .'1', '100'.; got"),
    ([('unit = "ms"', 'unit = "s"')], "wait: unit is as in the app: ms; got 's'"),
    ([('scale = "log"\n', "")], "wait: scale is as in the app: log; got 'linear'"),
    ([('estimate = "mean"', 'estimate = "distribution"')], "wait: estimate is as in the app: mean; got 'distribution'"),
    ([("joint = true\n", "")], "used: joint is as in the app: True; got 'False'"),
    # What it costs, in either direction
    ([("epsilon = 1\n", "epsilon = 1.0001\n")], "theme: epsilon is as in the app: 1; got '1.0001'"),
    ([("epsilon = 1\n", "epsilon = 0.9999\n")], "theme: epsilon is"),
    ([("epsilon = 1\nepsilon_permanent", "epsilon = 1.5\nepsilon_permanent")], "kept: epsilon is"),
    ([("epsilon_permanent = 3", "epsilon_permanent = 3.1")], "kept: epsilon_permanent is as in the app: 3; got '3.1'"),
    ([("epsilon_permanent = 3", "epsilon_permanent = 2.9999")], "kept: epsilon_permanent is"),
    ([("epsilon_permanent = 3", "")], "kept: epsilon_permanent is as in the app: 3; got 'None'"),
    ([("epsilon = 1\n", "epsilon = 1\nepsilon_permanent = 1\n")], "theme: epsilon_permanent is"),
    ([("epsilon = 1\n", 'epsilon = 1\nmechanism = "grr"\n')], "theme: mechanism is as in the app: auto; got 'grr'"),
    ([("epsilon = 1\n", 'epsilon = 1\nmechanism = "none"\n')], "theme: mechanism is as in the app: auto; got 'none'"),
    ([("cohorts = 4", "cohorts = 5")], "kept: parameters is"),
    ([("cohorts = 4", "cohorts = 2")], "kept: parameters is"),
    ([("max_report_bytes = 50", "max_report_bytes = 51")], "theme: max_report_bytes is"),
    ([("max_report_bytes = 50", "max_report_bytes = 10")], "theme: max_report_bytes is"),
    # What a report carries, and what people were told
    ([("version = 2", "version = 1")], "theme: version is as in the app: 2; got '1'"),
    ([("version = 2", "version = 123456789")], "theme: version is as in the app: 2; got '123456789'"),
    (
        [("version = 2", "version = 3"), ('["light", "dark", "system"]', '["dark", "system"]')],
        "theme: values is .*\n.*theme: version is",
    ),
    ([('description = "d"', 'description = "e"')], "theme: description is"),
    ([('owner = "o"', 'owner = "p"')], "theme: owner is"),
    ([('owner = "o"', 'owner = "o"\nmin_reports = 7')], "theme: min_reports is"),
    ([('owner = "o"', 'owner = "o"\ngrace = "3d"')], "theme: grace is"),
    ([('owner = "o"', 'owner = "o"\ndelay = "3h"')], "theme: delay is"),
    ([('owner = "o"', 'owner = "o"\ntogether = 3')], "theme: together is"),
    ([('owner = "o"', 'owner = "o"\nleast_shift = 0.1')], "theme: least_shift is"),
    # What may be turned down, turned up
    ([("sample = 0.5", "sample = 0.501")], "theme: sample is at most 0.5; got '0.501'"),
    ([("sample = 0.5", "")], "theme: sample is at most 0.5; got '1'"),
    ([("expires = 2099-06-30", "expires = 2099-07-01")], "theme: collection ends on 2099-06-30 or before; got '2099-07-01'"),
    ([("expires = 2099-06-30", "")], "theme: collection ends on 2099-06-30 or before; got 'None'"),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED)
def test_every_other_change_is_refused(changes, words):
    """Also what looks stricter. The fault names metric, rule and value."""
    with pytest.raises(ServedRegistryError, match=f"the served registry: {words}"):
        restricted(OURS, served(*changes))


def test_every_field_has_a_row():
    """Whatever a registry and its metrics come to declare one day is tried above, too."""
    tried = {name for _, words in REFUSED for name in re.findall(r"(?:^|: )(\w+) is", words)}
    declared = {field.name for field in (*fields(Metric), *fields(Registry)) if field.compare}
    # The first is the name of its table, the last one of folders, which no text has.
    assert declared - tried == {"id", "revision", "metrics", "expires", "older"}


def test_no_metric_is_added():
    """However little it asks for, and also as another question under the name of one."""
    with pytest.raises(ServedRegistryError, match="fresh: a served metric is one of those in the app; got 'fresh'"):
        restricted(OURS, served(more=FRESH))
    with pytest.raises(ServedRegistryError, match="theme: values is as in the app"):
        restricted(OURS, replace(OURS, metrics={"theme": replace(OURS.metrics["kept"], id="theme")}))


FORBIDDEN = [("epsilon_permanent = 3", "epsilon_permanent = 2.9999")]
ALSO = {
    "a metric left out": [(BUNDLED[BUNDLED.index("[metrics.both]") :], "")],
    "a lower sample": [("sample = 0.5", "sample = 0.1")],
    "an earlier end": [("expires = 2099-06-30", "expires = 2030-01-01")],
}


@pytest.mark.parametrize("name", ALSO)
def test_an_allowed_change_takes_no_other_along(name):
    """The allowed change alone is used; together with a forbidden one it is refused, and the fault is the forbidden one's."""
    restricted(OURS, served(*ALSO[name]))
    with pytest.raises(ServedRegistryError) as caught:
        restricted(OURS, served(*ALSO[name], *FORBIDDEN))
    (fault,) = caught.value.faults
    assert (fault.metric, fault.rule) == ("kept", "epsilon_permanent is as in the app: 3")


def test_all_faults_come_at_once():
    """Who mends a registry sees everything."""
    with pytest.raises(ServedRegistryError) as caught:
        restricted(
            OURS,
            served(
                ("window = 30", "window = 1"),
                ("sample = 0.5", "sample = 0.6"),
                ("epsilon_permanent = 3", "epsilon_permanent = 4"),
            ),
        )
    assert [fault.metric for fault in caught.value.faults] == ["-", "theme", "kept"]


def test_a_registry_without_revision_can_serve_nothing():
    """Even where the app's own has none."""
    plain = parse(BUNDLED.replace("revision = 5\n", ""))
    with pytest.raises(ServedRegistryError, match="the revision is at least 1"):
        restricted(plain, plain)
