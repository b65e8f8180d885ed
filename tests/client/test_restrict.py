"""What a served registry says: what it is derived from, in which form it is read, and that it only turns off and down."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from datetime import date
from fractions import Fraction
from itertools import product

import pytest
from mixing import RELAY
from registries import metric_toml

from deniable.device.prepared import prepare
from deniable.errors import RegistryError, ServedRegistryError
from deniable.limits.admission import admit
from deniable.registry import Metric, Registry, parse
from deniable.served_registry.derivation import derived
from deniable.served_registry.restrictions import Restriction

MIXES = f'[relay]\noperator = "{RELAY["operator"]}"\nkey = "{RELAY["key"]}"\n'
MIXED = "shuffled = { min = 10000, delta = 1e-8, central = 0.3 }"
BUNDLED = """
format = 1
revision = 5
app = "shop"
[budget]
per_month = 32
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
BUDGET = "[budget]\nper_month = 32\nlifetime = 320\n"
FRESH = metric_toml("fresh", epsilon=0.1)
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
    "another way to write it": served(("epsilon = 1\n", "epsilon = 1.0  # a comment\n"), ("per_month = 32", "per_month = 32.0")),
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


def restricted(bundled, turned_down):
    """Do what an operator and then a device do."""
    return Restriction.read(derived(bundled, turned_down).write()).applied(bundled)


@pytest.mark.parametrize("id_", OURS.metrics)
def test_every_metric_may_be_left_out(id_):
    """The others stay as they are."""
    assert restricted(OURS, without(id_)).metrics == {other: OURS.metrics[other] for other in OURS.metrics if other != id_}


@pytest.mark.parametrize("name", ALLOWED)
def test_no_report_means_anything_else(name):
    """Fingerprints and costs are those of the app's own registry: nothing is drawn or counted anew."""
    before, after = (
        prepare(registry, admit(registry, None, date(2027, 1, 1)), {"platform": "linux"})[0]
        for registry in (OURS, restricted(OURS, ALLOWED[name]))
    )
    assert after
    for id_, prepared in after.items():
        assert (prepared.allowance, prepared.segment) == (before[id_].allowance, before[id_].segment)


def test_what_is_used_is_made_of_the_apps_own():
    """Not even another kind of number, equal to the app's, gets through."""
    used = restricted(OURS, served(("bits = 8", "bits = 8.0"), ("per_month = 32", "per_month = 32.0")))
    assert repr(used) == repr(replace(OURS, revision=6))


REFUSED = [
    ([('app = "shop"', 'app = "shop2"')], "app = 'shop2': write 'shop', as in the app"),
    ([("revision = 6", "revision = 4")], "revision = 4: write 5 or more"),
    ([("revision = 6\n", "")], "revision = 0: write a whole number above 0 and below 2.53"),
    # The budget, in either direction
    ([("[budget]", "[caps]\nepsilon = 3\n[budget]")], "caps = .*: remove it"),
    ([("per_month = 32", "per_month = 32.1")], "budget = "),
    ([("per_month = 32", "per_month = 31")], "budget = "),
    ([("lifetime = 320", "lifetime = 321")], "budget = "),
    ([("lifetime = 320", "lifetime = 32")], "budget = "),
    ([("lifetime = 320", "lifetime = 319")], "budget = "),
    ([(BUDGET, "")], "budget is missing: write .*; devices keep"),
    # Segments, and what the server does with reports
    ([('["linux", "macos", "windows"]', '["linux", "macos"]')], "segments = "),
    ([('["linux", "macos", "windows"]', '["macos", "linux", "windows"]')], "segments = "),
    ([('"windows"]', '"windows", "plan9"]')], "segments = "),
    ([('unused = ["a", "b"]', 'unused = ["b"]')], "segments = "),
    ([("[metrics.theme]", '[generalize.platform]\nlinux = "unix"\nmacos = "unix"\n[metrics.theme]')], "generalize = "),
    ([("revision = 6", "revision = 6\nretention = { tallies = 1, releases = 1 }")], "retention = "),
    ([("revision = 6", "revision = 6\nretention = { releases = 36500 }")], "retention = "),
    (
        [("[metrics.theme]", '[experiments]\nplatform = { base = "linux", planned = 0.1 }\n[metrics.theme]')],
        "experiments = ",
    ),
    ([("revision = 6", "revision = 6\nanalysts = { epsilon = 0 }")], "analysts = "),
    ([("revision = 6", "revision = 6\nanalysts = { epsilon = 20 }")], "analysts = "),
    ([("revision = 6", "revision = 6\npublication = { min_reports = 7 }")], "publication = "),
    # Who mixes reports, and with which key they are sealed
    ([("[metrics.theme]", f"{MIXES}[metrics.theme]")], "relay = .*: remove it"),
    (
        [("[metrics.theme]", f"{MIXES}[metrics.theme]"), ("epsilon = 1\n", f"epsilon = 1\n{MIXED}\n")],
        "relay = .*: remove it.*\n.*theme: shuffled = .*: remove it",
    ),
    # What an answer means
    ([('"categorical"', '"ordinal"')], "theme: type = 'ordinal': write categorical; devices keep"),
    ([('["light", "dark", "system"]', '["dark", "light", "system"]')], "theme: values = .*: write .'light'"),
    ([('["light", "dark", "system"]', '["light", "dark", "system", "x"]')], "theme: values = "),
    ([('["light", "dark", "system"]', '["dark", "system"]')], "theme: values = "),
    ([('none = "system"', 'none = "dark"')], "theme: none = "),
    ([('none = "system"', 'none = "system"\nother = "system"')], "theme: other = 'system': remove it; devices keep"),
    ([('period = "week"', 'period = "week"\nper_period = 2')], "theme: per_period = '2': write 1; devices keep"),
    (
        [("epsilon_permanent = 3", "epsilon_permanent = 3\nanswers_per_month = 1")],
        "kept: answers_per_month = .*: write 2",
    ),
    ([('none = "system"', "")], "theme: none is missing: write system; devices keep"),
    ([('period = "week"', 'period = "hour"')], "theme: period = 'hour': write week; devices keep"),
    ([('period = "week"', 'period = "month"')], "theme: period = "),
    ([('segments = ["platform"]', 'segments = ["platform", "unused"]')], "theme: segments = "),
    ([('segments = ["platform"]', "segments = []")], "theme: segments = "),
    ([("max_length = 20", "max_length = 21")], "page: max_length = "),
    ([("max_length = 20", "max_length = 19")], "page: max_length = "),
    ([('candidates = "pages.txt"', "discover = true")], "page: candidates is missing.*\n.*page: discover = "),
    ([('"pages.txt"', '"other.txt"')], "page: candidates = "),
    ([('b = ["z", "w"]', 'b = ["w", "z"]')], "both: values = .*\n.*both: factors = "),
    ([('{ a = ["x", "y"], b = ["z", "w"] }', '{ b = ["z", "w"], a = ["x", "y"] }')], "both: values = .*\n.*both: factors = "),
    ([("range = [1, 100]", "range = [1, 100]\nwhole = true")], "wait: step = '1': remove it; devices keep"),
    ([("range = [1, 100]", "range = [1, 1000]")], "wait: range = .*: write .'1', '100'.; devices keep"),
    ([('unit = "ms"', 'unit = "s"')], "wait: unit = 's': write ms; devices keep"),
    ([('scale = "log"\n', "")], "wait: scale = 'linear': write log; devices keep"),
    ([('estimate = "mean"', 'estimate = "distribution"')], "wait: estimate = 'distribution': write mean; devices keep"),
    ([("joint = true\n", "most = 1\n")], "used: joint = 'False': write True; devices keep what the app has\n.*used: most = "),
    ([("joint = true\n", "")], "used: joint = 'False': write True; devices keep"),
    # What it costs, in either direction
    ([("epsilon = 1\n", "epsilon = 1.0001\n")], "theme: epsilon = '1.0001': write 1; devices keep"),
    ([("epsilon = 1\n", "epsilon = 0.9999\n")], "theme: epsilon = "),
    ([("epsilon = 1\nepsilon_permanent", "epsilon = 1.5\nepsilon_permanent")], "kept: epsilon = "),
    ([("epsilon_permanent = 3", "epsilon_permanent = 3.1")], "kept: epsilon_permanent = '3.1': write 3; devices keep"),
    ([("epsilon_permanent = 3", "epsilon_permanent = 2.9999")], "kept: epsilon_permanent = "),
    ([("epsilon_permanent = 3", "")], "kept: epsilon_permanent is missing: write 3; devices keep"),
    ([("epsilon = 1\n", "epsilon = 1\nepsilon_permanent = 1\n")], "theme: epsilon_permanent = "),
    ([("epsilon = 1\n", 'epsilon = 1\nmechanism = "grr"\n')], "theme: mechanism = 'grr': write auto; devices keep"),
    ([("epsilon = 1\n", 'epsilon = 1\nmechanism = "none"\n')], "theme: mechanism = 'none': write auto; devices keep"),
    ([("cohorts = 4", "cohorts = 5")], "kept: parameters = "),
    ([("cohorts = 4", "cohorts = 2")], "kept: parameters = "),
    ([("max_report_bytes = 50", "max_report_bytes = 51")], "theme: max_report_bytes = "),
    ([("max_report_bytes = 50", "max_report_bytes = 10")], "theme: max_report_bytes = "),
    # What a report carries, and what people were told
    ([("version = 2", "version = 1")], "theme: version = '1': write 2; devices keep"),
    ([("version = 2", "version = 123456789")], "theme: version = '123456789': write 2; devices keep"),
    (
        [("version = 2", "version = 3"), ('["light", "dark", "system"]', '["dark", "system"]')],
        "theme: values = .*\n.*theme: version = ",
    ),
    ([('description = "d"', 'description = "e"')], "theme: description = "),
    ([('owner = "o"', 'owner = "p"')], "theme: owner = "),
    ([('owner = "o"', 'owner = "o"\nmin_reports = 7')], "theme: min_reports = "),
    ([('owner = "o"', 'owner = "o"\ngrace = "3d"')], "theme: grace = "),
    ([('owner = "o"', 'owner = "o"\ndelay = "3h"')], "theme: delay = "),
    ([('owner = "o"', 'owner = "o"\ntogether = 3')], "theme: together = "),
    ([('owner = "o"', 'owner = "o"\nleast_shift = 0.1')], "theme: least_shift = "),
    ([('owner = "o"', 'owner = "o"\npublic = true')], "theme: public = "),
    # What may be turned down, turned up
    ([("sample = 0.5", "sample = 0.501")], "theme: sample = '0.501': write 0.5; devices keep"),
    ([("sample = 0.5", "")], "theme: sample = '1': write 0.5; devices keep"),
    ([("expires = 2099-06-30", "expires = 2099-07-01")], "theme: expires = '2099-07-01': write 2099-06-30; devices keep"),
    ([("expires = 2099-06-30", "")], "theme: expires is missing: write 2099-06-30; devices keep"),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED)
def test_every_other_change_is_refused(changes, words):
    """Whoever wants to sign it learns that no device would. The fault names metric, rule and value."""
    with pytest.raises(RegistryError, match=f"metrics.toml: {words}") as caught:
        derived(OURS, served(*changes))
    for line in str(caught.value).splitlines():
        other = re.search(r": (app|revision) = \d|: app = ", line) is None
        assert not other or re.search(r"(\w+ = .+|is missing): (write .+|remove it); devices keep what the app has$", line), line


def test_every_field_has_a_row():
    """Whatever a registry and its metrics come to declare one day is tried above, too."""
    tried = {name for _, words in REFUSED for name in re.findall(r"(?:^|: )(\w+) (?:=|is missing)", words)}
    declared = {field.name for field in (*fields(Metric), *fields(Registry)) if field.compare}
    # The first is the name of its table, the last one of folders, which no text has.
    assert declared - tried == {"id", "metrics", "older"}


def test_no_metric_is_added():
    """However little it asks for, and also as another question under the name of one."""
    with pytest.raises(
        RegistryError, match="fresh: the app has no such metric: remove it here, or add it in a release of the app"
    ):
        derived(OURS, served(more=FRESH))
    with pytest.raises(RegistryError, match="theme: values = "):
        derived(OURS, replace(OURS, metrics={"theme": replace(OURS.metrics["kept"], id="theme")}))


def test_all_faults_come_at_once():
    """Who mends a registry sees everything."""
    with pytest.raises(RegistryError) as caught:
        derived(
            OURS,
            served(
                ("lifetime = 320", "lifetime = 321"),
                ("sample = 0.5", "sample = 0.6"),
                ("epsilon_permanent = 3", "epsilon_permanent = 4"),
            ),
        )
    assert [fault.metric for fault in caught.value.faults] == ["-", "theme", "kept"]


def test_a_registry_without_revision_can_serve_nothing():
    """Even where the app's own has none."""
    plain = parse(BUNDLED.replace("revision = 5\n", ""))
    with pytest.raises(RegistryError, match="revision = 0: write a whole number above 0"):
        derived(plain, plain)


def test_a_sample_that_devices_do_not_read_is_not_signed():
    """A share so small that it has more than 30 places is as good as off."""
    with pytest.raises(
        RegistryError,
        match=r"theme: sample = '0\.0000000000000000000000000000001': write 1, or a decimal",
    ):
        derived(OURS, served(("sample = 0.5", "sample = 1e-31")))
    assert restricted(OURS, served(("sample = 0.5", "sample = 1e-30"))).metrics["theme"].sample == f"0.{'0' * 29}1"


# What a device makes of a text, whoever wrote it

GOOD = {"app": "shop", "metrics": {"theme": {"sample": "0.5", "until": "2099-06-29"}}, "revision": 6}
TEXT = '{"app":"shop","metrics":{"theme":{"sample":"0.5","until":"2099-06-29"}},"revision":6}'


def canonical(document):
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def limits(**members):
    return canonical(GOOD | {"metrics": {"theme": {"sample": "0.5", "until": None} | members}})


def test_the_form():
    """It is frozen: what is signed is these very bytes."""
    assert Restriction.read(TEXT).write() == canonical(GOOD) == TEXT
    assert derived(OURS, without("kept", "page", "wait", "used", "both")).write() == TEXT.replace("06-29", "06-30")


ASKED = {
    "all of a sample": {"sample": "1", "until": None},
    "a little more": {"sample": "0.500000000000000000000000000001", "until": "2099-07-01"},
    "for longer": {"sample": "0.5", "until": "9999-12-31"},
}


@pytest.mark.parametrize("name", ASKED)
def test_asking_for_more_changes_nothing(name):
    """A device takes the lesser sample and the earlier end, so its own stay."""
    restriction = Restriction.read(canonical(GOOD | {"metrics": dict.fromkeys(OURS.metrics, ASKED[name])}))
    own = {id_: replace(metric, expires=metric.expires or restriction.metrics[id_].until) for id_, metric in OURS.metrics.items()}
    used = restriction.applied(OURS)
    assert used.metrics["theme"] == OURS.metrics["theme"]
    assert {id_: replace(metric, sample="1") for id_, metric in used.metrics.items()} == {
        id_: replace(metric, sample="1") for id_, metric in own.items()
    }
    assert all(Fraction(metric.sample) <= Fraction(OURS.metrics[id_].sample) for id_, metric in used.metrics.items())


@pytest.mark.parametrize("on", [[], ["theme"], ["theme", "kept", "used"], [*OURS.metrics, "unknown", "theme.3", "theme-2"]])
def test_nothing_but_samples_ends_and_silence_changes(on):
    """Whatever a text says: each metric in use is the app's own but for a sample and an end, neither of which is above it."""
    for sample, until in product(("1", "0.7", "0.5", "0.1"), (None, "2099-07-01", "2099-06-30", "2001-01-01")):
        read = Restriction.read(canonical(GOOD | {"metrics": {id_: {"sample": sample, "until": until} for id_ in on}}))
        used = read.applied(OURS)
        assert list(used.metrics) == [id_ for id_ in OURS.metrics if id_ in on]
        for id_, metric in used.metrics.items():
            own = OURS.metrics[id_]
            assert replace(metric, sample=own.sample, expires=own.expires) == own
            assert Fraction(metric.sample) == min(Fraction(own.sample), Fraction(sample))
            ends = [day for day in (own.expires, date.fromisoformat(until) if until else None) if day]
            assert metric.expires == min(ends, default=None)
        assert replace(used, metrics=OURS.metrics, revision=OURS.revision) == OURS
        assert repr(replace(used, metrics={}, revision=5)) == repr(replace(OURS, metrics={}))  # not even another kind of number


def test_a_restriction_holds_for_every_version():
    """It names a question by its id. Apps with another version, or with metrics more or less, take it, too."""
    read = Restriction.read(TEXT)
    later = parse(BUNDLED.replace("version = 2", "version = 3").replace('"dark"', '"dark", "dim"') + FRESH)
    assert {id_: metric.version for id_, metric in read.applied(later).metrics.items()} == {"theme": 3}
    earlier = parse(BUNDLED.replace("version = 2\n", "").replace("sample = 0.5", "sample = 0.1"))
    assert read.applied(earlier).metrics["theme"].sample == "0.1"
    assert read.applied(replace(OURS, metrics={"kept": OURS.metrics["kept"]})).metrics == {}


def test_another_app_and_an_older_revision_are_refused():
    """One key may sign for several apps."""
    with pytest.raises(ServedRegistryError, match="app = 'blog': write 'shop', as in the app"):
        Restriction.read(canonical(GOOD | {"app": "blog"})).applied(OURS)
    with pytest.raises(ServedRegistryError, match="revision = 4: write 5 or more; the registry in the app has that"):
        Restriction.read(canonical(GOOD | {"revision": 4})).applied(OURS)


CANONICAL = "its text is no canonical JSON: write names in order and each once, no spaces and no escapes"
REVISION = r"revision = .*: write a whole number above 0 and below 2\^53"
SAMPLE = r"theme: sample (= .*|is missing): write 1, or a decimal"
DAY = ": write a day such as 2026-12-31"
ODD = {
    # Its form
    "empty": ("", CANONICAL),
    "TOML": (BUNDLED, CANONICAL),
    "cut off": (TEXT[:-1], CANONICAL),
    "more after it": (TEXT + TEXT, CANONICAL),
    "deep": ("[" * 100_000, CANONICAL),
    "a number without end": (TEXT.replace(":6", ":" + "6" * 5000), CANONICAL),
    "a line end": (TEXT + "\n", CANONICAL),
    "a space": (TEXT.replace(":", ": ", 1), CANONICAL),
    "another order": ('{"revision":6,' + TEXT[1:].replace(',"revision":6', ""), CANONICAL),
    "an app twice": (TEXT.replace('"app"', '"app":"shop","app"'), CANONICAL),
    "a metric twice": (TEXT.replace('"theme"', '"theme":{"sample":"0.1","until":null},"theme"'), CANONICAL),
    "a sample twice": (TEXT.replace('"sample"', '"sample":"0.1","sample"'), CANONICAL),
    "an escape": (TEXT.replace("theme", "\\u0074heme"), CANONICAL),
    "not ASCII": (
        TEXT.replace("theme", "th\u00e9me"),
        "write an id as words of lower-case letters, digits and _, joined by dots or dashes",
    ),
    "half a character": (
        TEXT.replace("theme", "\ud800"),
        "write an id as words of lower-case letters, digits and _, joined by dots or dashes",
    ),
    "no name": (
        TEXT.replace("theme", ""),
        "write an id as words of lower-case letters, digits and _, joined by dots or dashes",
    ),
    "a version of a metric": (
        TEXT.replace("theme", "theme@2"),
        "'theme@2': write an id as words of lower-case letters, digits and _, joined by dots or dashes",
    ),
    # Its members
    "a list": ("[]", "the members of a restriction = 'list': write app, metrics, revision, and nothing else"),
    "nothing": ("null", "the members of a restriction = 'nothing': write app, metrics, revision, and nothing else"),
    "no revision": (
        canonical({"app": "shop", "metrics": {}}),
        "the members of a restriction = 'app, metrics': write app, metrics, revision, and nothing else",
    ),
    "a seed": (
        canonical(GOOD | {"seed": 7}),
        "the members of a restriction = 'app, metrics, revision, seed': write app, metrics, revision, and nothing else",
    ),
    "a budget": (
        canonical(GOOD | {"budget": {"window": 1}}),
        "the members of a restriction = 'app, budget, metrics, revision': write app, metrics, revision, and nothing else",
    ),
    "an app that is none": (canonical(GOOD | {"app": None}), "app is missing: write a lower-case name in quotes, such as 'shop'"),
    "an app with a mark": (canonical(GOOD | {"app": "shop\u200b"}), "app = 'shop.*': write a lower-case name"),
    "metrics as a list": (canonical(GOOD | {"metrics": ["theme"]}), "metrics = 'list': write an object"),
    "revision 0": (canonical(GOOD | {"revision": 0}), REVISION),
    "revision below": (canonical(GOOD | {"revision": -1}), REVISION),
    "revision beyond": (canonical(GOOD | {"revision": 1 << 53}), REVISION),
    "revision of a kind": (canonical(GOOD | {"revision": True}), REVISION),
    "revision with places": (canonical(GOOD | {"revision": 6.0}), REVISION),
    "revision as a text": (canonical(GOOD | {"revision": "6"}), REVISION),
    # A metric
    "a metric that is on": (
        canonical(GOOD | {"metrics": {"theme": True}}),
        "theme: the members of a metric = true: write sample, until, and nothing else",
    ),
    "a metric that is off": (
        canonical(GOOD | {"metrics": {"theme": None}}),
        "theme: the members of a metric = 'nothing': write sample, until, and nothing else",
    ),
    "without an end": (
        canonical(GOOD | {"metrics": {"theme": {"sample": "1"}}}),
        "theme: the members of a metric = 'sample': write sample, until, and nothing else",
    ),
    "an epsilon": (
        limits(epsilon="8"),
        "theme: the members of a metric = 'epsilon, sample, until': write sample, until, and nothing else",
    ),
    "a version": (
        limits(version=3),
        "theme: the members of a metric = 'sample, until, version': write sample, until, and nothing else",
    ),
    "values": (
        limits(values=["dark"]),
        "theme: the members of a metric = 'sample, until, values': write sample, until, and nothing else",
    ),
    "an unknown metric, too": (
        canonical(GOOD | {"metrics": {"unknown": {}}}),
        "unknown: the members of a metric = '': write sample, until, and nothing else",
    ),
    "a long name": (canonical(GOOD | {"metrics": {"x" * 900_000: 1}}), f"'{'x' * 57}\\.\\.\\.': write an id "),
    "sample 0": (limits(sample="0"), SAMPLE),
    "sample above 1": (limits(sample="1.5"), SAMPLE),
    "sample below 0": (limits(sample="-0.5"), SAMPLE),
    "sample as a number": (limits(sample=0.5), SAMPLE),
    "sample as a whole number": (limits(sample=1), SAMPLE),
    "sample of a kind": (limits(sample=True), SAMPLE),
    "sample none": (limits(sample=None), SAMPLE),
    "sample as a fraction": (limits(sample="1/2"), SAMPLE),
    "sample with an exponent": (limits(sample="5e-1"), SAMPLE),
    "sample with a zero more": (limits(sample="0.50"), SAMPLE),
    "sample with a zero less": (limits(sample=".5"), SAMPLE),
    "sample 1.0": (limits(sample="1.0"), SAMPLE),
    "sample in other digits": (limits(sample="0.\u0665"), SAMPLE),
    "sample with a line end": (limits(sample="0.5\n"), SAMPLE),
    "sample infinite": (limits(sample="inf"), SAMPLE),
    "sample not a number": (limits(sample=float("nan")), SAMPLE),
    "sample of a million places": (limits(sample=f"0.{'1' * 1_000_000}"), SAMPLE),
    "until without dashes": (limits(until="20990629"), DAY),
    "until as a week": (limits(until="2099-W01-1"), DAY),
    "until with a time": (limits(until="2099-06-29T00:00:00"), DAY),
    "until with a space": (limits(until="2099-06-29 "), DAY),
    "until no day": (limits(until="2099-02-30"), DAY),
    "until beyond all": (limits(until="10000-01-01"), DAY),
    "until as a number": (limits(until=20990629), DAY),
    "until never": (limits(until=""), DAY),
    "until of a kind": (limits(until=False), DAY),
}


@pytest.mark.parametrize("name", ODD)
def test_any_other_text_is_refused(name):
    """With one clear rule each, and in few words: a text may be a mebibyte long."""
    text, words = ODD[name]
    with pytest.raises(ServedRegistryError, match=words) as caught:
        Restriction.read(text)
    assert len(str(caught.value)) < 250
