"""What lint says of a file, and what a change would break."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from deniable.lint import Note, lint
from deniable.registry import Metric, Registry
from deniable.registry.comparison import RegistryChange, diff
from deniable.registry.relay import Shuffled
from deniable.registry.tables import Experiment

METRIC = Metric(id="m", type="categorical", values=("a", "b"), epsilon="1", description="d", owner="o", segments=("platform",))
SEGMENTS = {"platform": ("linux", "macos")}
PUBLISHED = Registry("shop", {"m": METRIC}, SEGMENTS)

HEAD = 'format = 1\napp = "shop"\nbudget = { lifetime = 320 }\n'
TRIAL = "publication.trial: all is published at once, which reveals who took part; remove it before people answer"
BODY = 'description = "d"\nowner = "o"\n'


@pytest.fixture
def linted(tmp_path):
    """Lint a text as a file."""

    def run(text: str):
        path = tmp_path / "metrics.toml"
        path.write_text(HEAD + text, "utf-8")
        return lint(path)

    return run


def test_a_sound_file(linted):
    """A file without faults has a note for each metric: what it resolves to, and why."""
    findings = linted(
        f'[metrics.a]\ntype = "boolean"\nepsilon = 1\nperiod = "week"\nexpires = 2999-01-01\n{BODY}'
        f'[metrics.b]\ntype = "boolean"\nmechanism = "coin"\nperiod = "month"\nper_period = 2\nexpires = 2999-01-01\n{BODY}'
    )
    assert (findings.faults, findings.warnings) == ((), ())
    automatic, declared = findings.notes
    assert automatic.metric == "a"
    assert automatic.facts["mechanism"] == "binary: standard error 0.96 / sqrt(n), 1 byte a report"
    assert automatic.facts["chosen for"] == "the least error of 8 mechanisms for 2 values at epsilon 1 within 256 bytes"
    assert automatic.facts["others' error"].startswith("grr +0.0%, subset +0.0%, pgr +29.8%, sue +")
    assert automatic.facts["reports"] == "at most 1 a week"
    assert declared == Note(
        "b",
        {
            "mechanism": "coin: epsilon 1.09861, 1 byte a report, as declared",
            "reports": "at most 2 a month",
        },
    )
    assert findings.exposed == ""
    assert findings.spending == (
        ("metric", "asked", "a month", "share", "ever", "right guess in a year", ""),
        ("a", "1 a week", "5", "16%", "50", "100%", "lasts 10 months"),
        ("b", "2 x 1.099 a month", "2.197", "7%", "21.97", "99.7%", "lasts 10 months"),
        ("all", "", "7.197 of 32", "22%", "71.97 of 320", "", ""),
    )


def test_nothing_is_said_of_a_metric_that_cannot_be_read(linted):
    """A file without a sound metric has faults of form and nothing else."""
    findings = linted("[metrics.a]\ntype = 1\n")
    assert len(findings.faults) == 4
    assert (findings.warnings, findings.notes) == ((), ())


ALL_KINDS = f"""[caps]
permanent = 2
rows = "many"
colour = 3
[segments]
arm = ["a", "b"]
[experiments]
arm = {{ base = "c", planned = 2, spit = 3 }}
[metrics."form.and.caps"]
type = "boolean"
epsilon = 1
epsilon_permanent = 3
perod = "weekly"
expires = "2030"
{BODY}[metrics."no.mechanism"]
type = "boolean"
epsilon = 1
mechanism = "rapor"
[metrics."no.file"]
type = "string"
candidates = "nowhere.txt"
epsilon = 1
period = 7
{BODY}"""


def test_all_faults_are_said_at_once(linted):
    """Whoever mends what the first look names has a file without faults: none of another kind comes after it."""
    findings = linted(ALL_KINDS)
    assert [fault.line for fault in findings.faults] == sorted(fault.line for fault in findings.faults)
    assert {(fault.metric, fault.words.partition(":")[0]) for fault in findings.faults} == {
        ("-", "caps.rows = 'many'"),
        ("-", "caps.colour is no key of [caps]"),
        ("-", "experiments.arm.planned = 2"),
        ("-", "experiments.arm.spit is no key of an experiment"),
        ("-", "experiments.arm.base = 'c'"),
        ("form.and.caps", "perod is no key of a metric"),
        ("form.and.caps", "period = 'weekly'"),
        ("form.and.caps", "expires = '2030'"),
        ("no.mechanism", "mechanism = 'rapor'"),
        ("no.mechanism", "description is missing"),
        ("no.mechanism", "owner is missing"),
        ("no.file", "candidates = 'nowhere.txt'"),
        ("no.file", "period = 7"),
    }
    assert "did you mean 'rappor'?" in next(fault.words for fault in findings.faults if "rapor" in str(fault))


WITHOUT_FAULTS = f"""caps = {{ epsilon = 4 }}
[segments]
platform = ["linux", "macos"]
arm = ["control", "new"]
[experiments]
arm = {{ base = "control", planned = 0.02 }}
[metrics."ui.theme"]
type = "categorical"
values = ["light", "dark", "blue"]
epsilon = 1
mechanism = "auto"
period = "month"
{BODY}
[metrics.time]
type = "number"
unit = "ms"
range = [1, 100]
estimate = "mean"
epsilon = 1
mechanism = "auto"
period = "month"
{BODY}
[metrics.set]
type = "set"
values = ["a", "b", "c", "d"]
epsilon = 1
period = "month"
{BODY}
[metrics.page]
type = "string"
candidates = "pages.txt"
epsilon = 1
mechanism = "auto"
period = "month"
{BODY}"""


@pytest.mark.parametrize(
    "planted",
    [
        [
            ("planned = 0.02", "planed = 0.02"),
            ('base = "control"', 'base = "kontrol"'),
            ('"categorical"', '"categorial"'),
            ('["light", "dark", "blue"]', '["light", "dark", "dark"]'),
            ('mechanism = "auto"\n', 'mechanism = "laplace"\n'),
            ('unit = "ms"', 'unit = "m s"\nscale = "lg"'),
            ("range = [1, 100]", "range = [100, 1]"),
            ("epsilon = 1\nmechanism", "epsilon = 5\nmechanism"),
        ],
        [
            ('[metrics."ui.theme"]', "[metrics.ui.theme]"),
            ("epsilon = 1\n", "epsilon = 0\n"),
            ('mechanism = "auto"\n', 'mechanism = "rappor"\nparameters = { cohort = 3 }\n'),
            ('values = ["a", "b", "c", "d"]', 'values = ["a"]\njoint = "yes"'),
            ('candidates = "pages.txt"', 'candidates = "missing.txt"\nmax_length = 0'),
        ],
        [
            ('"linux", "macos"]', '"lin ux"]'),
            ('estimate = "mean"', 'estimate = "median"\npublic = 1'),
            ("epsilon = 1\nmechanism", "epsilon = 1\nepsilon_permanent = 0.5\nmechanism"),
            ('mechanism = "auto"\n', 'mechanism = "grrr"\n'),
            ('"ui.theme"', '"UI.Theme"'),
        ],
    ],
)
def test_no_fault_hides_another(linted, tmp_path, planted):
    """What lint says of a file with one fault it also says of one with many."""
    (tmp_path / "pages.txt").write_text("home\nwork\n")
    assert not linted(WITHOUT_FAULTS).faults
    alone, all_of_them = set(), WITHOUT_FAULTS
    for before, after in planted:
        # All places at once, so that each metric has each fault that it can have.
        assert before in all_of_them
        all_of_them = all_of_them.replace(before, after)
        alone |= {fault.words.partition(": ")[0] for fault in linted(WITHOUT_FAULTS.replace(before, after)).faults}
    assert alone
    assert alone <= {fault.words.partition(": ")[0] for fault in linted(all_of_them).faults}


def test_lines_that_are_no_toml_hide_nothing(linted):
    """Each such line is a fault, and what is left is checked; what the line declares is not missing."""
    findings = linted(
        f'[metrics.a]\ntype = "boolan"\nepsilon = 1,0\npublic = True\nowner = "me\ndescription = "d"\n'
        f'expires = 2030-02-31\nperiod = "month"\nperiod = "day"\n[metrics.b]\ntype = "boolean"\nepsilon = 5\n{BODY}'
    )
    assert [(fault.line, fault.words.rpartition("; ")[2]) for fault in findings.faults if "TOML" in fault.words] == [
        (6, "write a decimal with a point, such as 0.5"),
        (7, "write true in lower case"),
        (8, "the quote at the end of the text is missing"),
        (10, "there is no such date"),
    ]
    assert [(fault.line, fault.metric) for fault in findings.faults if "TOML" not in fault.words] == [
        (5, "a"),  # its type
        (12, "-"),  # a second period
        (15, "b"),  # above the caps
    ]


def test_a_head_that_is_no_toml_ends_it(linted):
    """Which metric the lines below belong to is then not known, so nothing is said of them."""
    findings = linted(f'[metrics.a]\ntype = "boolan"\n{BODY}[metrics."b]\ntype = 3\n')
    assert [(fault.line, "TOML" in fault.words) for fault in findings.faults] == [(8, True)]


def test_the_caps_of_what_is_sound_are_said_too(linted):
    """A cap that holds is compared with each metric that has a mechanism, whatever is wrong elsewhere."""
    findings = linted(ALL_KINDS.replace('rows = "many"\ncolour = 3\n', ""))
    (above,) = (fault for fault in findings.faults if fault.words.startswith("a kept answer"))
    assert (above.metric, "epsilon_permanent = 2" in above.words) == ("form.and.caps", True)


def test_what_is_left_out_is_not_said_to_be_missing(linted):
    """A key that is wrong is one fault, and no warning that it is not there."""
    findings = linted(f'[metrics.a]\ntype = "boolean"\nepsilon = 1\nexpires = "2030"\n{BODY}')
    assert [fault.words for fault in findings.faults] == ["expires = '2030': write a date such as 2027-12-31, without quotes"]
    assert findings.warnings == ()


@pytest.mark.parametrize(
    ("keys", "rule", "value"),
    [
        ('mechanism = "nosuch"\nepsilon = 1', "mechanism: write one of auto, coin", "nosuch"),
        ('mechanism = "coin"\nepsilon = 1', "the coin mechanism spends ln 3", "1"),
        ('mechanism = "auto"\nepsilon = 1\nmax_report_bytes = 1', None, None),
    ],
)
def test_mechanisms_that_do_not_exist(linted, keys, rule, value):
    """A mechanism that does not exist for the domain and epsilon is a fault of its metric."""
    findings = linted(f'[metrics.a]\ntype = "boolean"\n{keys}\n{BODY}')
    assert [(fault.metric, fault.value) for fault in findings.faults] == ([("a", value)] if rule else [])
    assert all(rule in fault.rule for fault in findings.faults)


def test_a_limit_that_nothing_fits(linted):
    """A payload limit below every mechanism's size is a fault."""
    values = [f"v{i}" for i in range(300)]
    findings = linted(
        f'[metrics.a]\ntype = "categorical"\nvalues = {values}\nepsilon = 1\nmax_report_bytes = 1\n{BODY}'.replace("'", '"')
    )
    assert [fault.rule for fault in findings.faults] == ["max_report_bytes: write more; no mechanism has so short a report"]


STRONG = "epsilon: above 4 it gives the answer away with odds above 50 to 1; write less"
UNENDING = "expires is missing: write the last day of collection, such as expires = 2030-12-31"


@pytest.mark.parametrize(
    ("keys", "rules"),
    [
        ("epsilon = 4\nexpires = 2999-01-01", []),
        ("epsilon = 4.1\nexpires = 2999-01-01", [STRONG]),
        ("epsilon = 1\nexpires = 2001-01-01", ["collection ended on 2001-01-01: remove the metric, or write a later expires"]),
        ("epsilon = 1", [UNENDING]),
        (
            "epsilon = 9",
            [STRONG, UNENDING],
        ),
    ],
)
def test_warnings(linted, keys, rules):
    """What deserves a second look is a warning and no fault."""
    findings = linted(f'[caps]\nepsilon = 16\n[metrics.a]\ntype = "boolean"\nperiod = "month"\n{keys}\n{BODY}')
    assert [warning.rule for warning in findings.warnings] == rules
    assert not findings.faults


def test_an_end_of_a_range_is_no_other_key(linted):
    """`min` stands for half of `range`, and not for `min_reports`."""
    body = 'type = "number"\nmin = 0\nmax = 60\nunit = "s"\nepsilon = 1\ndescription = "d"\nowner = "o"\n'
    words = [fault.words for fault in linted(f"[metrics.m]\n{body}").faults]
    assert any(each.startswith("min is no key of a metric: write range") for each in words)
    assert not any("min_reports" in each for each in words)


def test_what_would_be_off_is_a_fault(linted):
    """Of a metric that the SDK would turn off, with the line to change; the table says which it is."""
    table = f'[metrics.{{}}]\ntype = "boolean"\nepsilon = 1\nexpires = {{}}-01-01\n{BODY}'
    findings = linted(table.format("a", 2999) + table.format("b", 2999))
    (fault,) = findings.faults
    assert fault.metric == "b"
    assert "and the metrics above leave 1 of 32: write " in fault.rule
    less = 'epsilon = 0.5 in [metrics."a"], [metrics."b"]'
    assert fault.rule.endswith(f': write period = "month" in [metrics."a"] (which saves most), or {less}')
    assert [row[-1] for row in findings.spending] == ["", "lasts 10 months", "off", ""]
    findings = linted(table.format("a", 2999) + table.format("b", 2001))  # nobody is asked any more
    assert not findings.faults
    assert [row[0] for row in findings.spending] == ["metric", "a", "all"]


def test_an_epsilon_above_the_cap_is_a_fault(linted):
    """Lint knows the caps of an app that sets none, and those of the file."""
    metric = f'[metrics.a]\ntype = "boolean"\nperiod = "month"\nepsilon = 5\nexpires = 2999-01-01\n{BODY}'
    (fault,) = linted(metric).faults
    assert (fault.metric, fault.line) == ("a", 7)
    assert fault.words == 'a report may give away 5 nats, and the app allows 4: write epsilon = 4 in [metrics."a"]'
    assert not linted(f"[caps]\nepsilon = 5\n{metric}").faults


@pytest.mark.parametrize(
    ("caps", "words"),
    [
        ('mechanisms = ["grr", "ouw"]', "caps.mechanisms has 'ouw', which is no mechanism: write oue"),
        ("epsilom = 4", "caps.epsilom is no key of [caps]: write epsilon"),
        ("domain = 4", "caps.domain is no key of [caps]: write domain_size"),
    ],
)
def test_a_mistyped_cap_is_a_fault(linted, caps, words):
    """A name that is none would allow nothing, and nobody would notice."""
    metric = f'[metrics.a]\ntype = "ordinal"\nvalues = ["x", "y"]\nmechanism = "grr"\nepsilon = 1\nexpires = 2999-01-01\n{BODY}'
    findings = linted(f"[caps]\n{caps}\n{metric}")
    assert [(fault.words, fault.line) for fault in findings.faults] == [(words, 5)]


def test_what_a_registry_may_do_better(linted, tmp_path):
    """No bound for a life, no answer for all others, and devices that are told apart, are warned of."""
    tail = f"period = 'month'\nexpires = 2999-01-01\n{BODY}"
    question = f'[metrics.a]\ntype = "categorical"\nvalues = ["x", "y"]\nepsilon = 1\n{tail}'
    (warning,) = linted(question).warnings
    assert warning.rule.startswith("other is missing: write the value for answers that are not listed")
    assert warning.rule.endswith(': add "something else" to values, and write other = "something else"')
    added = question.replace('"y"]', '"y", "something else"]')
    (warning,) = linted(added).warnings
    assert warning.rule.endswith(': write other = "something else"')
    assert not linted(added + 'other = "something else"\n').warnings
    assert not linted(question + 'other = "y"\n').warnings
    path = tmp_path / "unbounded.toml"
    path.write_text(HEAD.replace("budget = { lifetime = 320 }\n", "") + question + 'other = "y"\n', "utf-8")
    (warning,) = lint(path).warnings
    assert warning.rule.startswith(
        "there is no [budget], so a person gives away up to 32 nats a month and 1920 ever: declare one"
    )
    many = f"segments = {{ version = {[f'v{i}' for i in range(257)]} }}\n".replace("'", '"')
    rows = 'mechanism = "rappor"\nparameters = { cohorts = 512, bits = 16, hashes = 1 }\nepsilon_permanent = 2\n'
    rows += 'segments = ["version"]\n'
    findings = linted(many + question + rows + 'other = "y"\n')
    fine = [re.search(r"put devices into (\d+) groups", warning.rule) for warning in findings.warnings]
    assert [match[1] for match in fine if match] == ["512", "257"]
    assert findings.exposed == (
        "besides answers, reports show something of the device: 9.0 bits by its rows of kept answers, 8.0 bits by its segments"
    )


@pytest.mark.parametrize(("declared", "line"), [("[publication]\ntrial = true\n", 11), ("publication.trial = true\n", 4)])
def test_a_trial_is_a_warning(linted, declared, line):
    """The warning of a trial points to the line that declares it."""
    metric = f'[metrics.a]\ntype = "boolean"\nepsilon = 1\nexpires = 2999-01-01\n{BODY}'
    findings = linted(metric + declared if declared.startswith("[") else declared + metric)
    assert [(fault.rule, fault.value) for fault in findings.warnings] == [(TRIAL, True)]
    assert [fault.line for fault in findings.warnings] == [line]


@pytest.mark.parametrize(("epsilon", "warned"), [(4, False), (4.1, True)])
def test_a_generous_budget_of_analysts_is_a_warning(linted, epsilon, warned):
    """Whoever may ask more than a strong answer tells is told so, of the file as a whole."""
    findings = linted(
        f'analysts = {{ epsilon = {epsilon} }}\n[metrics.a]\ntype = "boolean"\nepsilon = 1\nexpires = 2999-01-01\n{BODY}'
    )
    assert [(warning.metric, warning.value) for warning in findings.warnings] == ([("-", epsilon)] if warned else [])


@pytest.mark.parametrize(("days", "warned"), [(400, False), (401, True)])
def test_sums_that_are_kept_for_long_are_a_warning(linted, days, warned):
    """Exact sums are needed until they are published: whoever keeps them for more than a year is asked why."""
    findings = linted(
        f'retention = {{ tallies = {days} }}\n[metrics.a]\ntype = "boolean"\nepsilon = 1\nexpires = 2999-01-01\n{BODY}'
    )
    assert [(warning.metric, warning.value) for warning in findings.warnings] == ([("-", days)] if warned else [])


HOURLY = "period: it spends its epsilon 24 times a day; declare epsilon_permanent, or a longer period"


@pytest.mark.parametrize(
    ("keys", "doubt"),
    [
        ("epsilon_permanent = 4", None),
        (
            "epsilon_permanent = 4.5",
            ("epsilon_permanent: above 4 all reports of an answer give it away with odds above 50 to 1; write less", 4.5),
        ),
        ('period = "hour"', (HOURLY, "hour")),
        ('period = "hour"\nepsilon_permanent = 2', None),
        ('period = "day"', None),
    ],
)
def test_what_adds_up(linted, keys, doubt):
    """What all reports of an answer tell together is looked at, too."""
    findings = linted(f'[metrics.a]\ntype = "boolean"\nepsilon = 1\n{keys}\nexpires = 2999-01-01\n{BODY}')
    assert [(warning.rule, warning.value) for warning in findings.warnings] == ([doubt] if doubt else [])


@pytest.mark.parametrize(
    ("first", "second", "warned"),
    [
        ('"x", "y", "z"', '"x", "y", "z"', True),
        ('"x", "y", "z"', '"z", "y", "x"', True),
        ('"x", "y", "z"', '"x", "y", "w"', False),
        ('"x", "y", "z"', '"x", "y", "z", "w"', False),
        ('"x", "y"', '"x", "y"', False),
    ],
)
def test_the_same_values_twice(linted, first, second, warned):
    """Two metrics with the same answers may ask for the same thing twice; a yes or no, or what is as short, is too common."""
    tail = f"epsilon = 1\nexpires = 2999-01-01\n{BODY}"
    findings = linted(
        "".join(
            f'[metrics.{id_}]\ntype = "ordinal"\nvalues = [{values}]\n{tail}' for id_, values in (("a", first), ("b", second))
        )
        + "".join(f'[metrics.{id_}]\ntype = "boolean"\n{tail}' for id_ in "cd")
        + "".join(f'[metrics.{id_}]\ntype = "key"\ndiscover = true\n{tail}' for id_ in "ef")
    )
    rule = "a, b have the same values: they may ask the same question, and their losses add up; "
    rule += "keep one, unless the questions differ"
    assert [(warning.metric, warning.rule) for warning in findings.warnings] == ([("-", rule)] if warned else [])


ALIKE = "look alike, and are counted apart: keep one, or make them different"


@pytest.mark.parametrize(
    ("domain", "pair"),
    [
        ('type = "ordinal"\nvalues = ["paypal", "p\u0430ypal", "cash"]', ("paypal", "p<U+0430>ypal")),
        ('type = "ordinal"\nvalues = ["dark", "light", "dark "]', ("dark", "dark ")),
        ('type = "product"\nfactors = { theme = ["dark", "\uff44ark"], export = ["no", "yes"] }', ("dark", "<U+FF44>ark")),
    ],
)
def test_values_that_look_alike(linted, domain, pair):
    """Two values of one question that people take for the same are a warning, which shows the difference."""
    findings = linted(f"[metrics.a]\n{domain}\nepsilon = 1\nexpires = 2999-01-01\n{BODY}")
    words = f"values {pair[0]!r} and {pair[1]!r} {ALIKE}"
    assert [(warning.metric, warning.words) for warning in findings.warnings] == [("a", words)]
    assert not findings.faults


def test_values_of_different_questions_may_look_alike(linted):
    """What two metrics, or two questions of a product, list is not compared."""
    product = 'type = "product"\nfactors = { a = ["no", "yes"], b = ["No", "Yes"] }'
    listed = 'type = "ordinal"\nvalues = ["NO", "YES"]'
    tail = f"epsilon = 1\nexpires = 2999-01-01\n{BODY}"
    assert linted(f"[metrics.x]\n{product}\n{tail}[metrics.y]\n{listed}\n{tail}").warnings == ()


def test_names_that_look_alike(linted):
    """So are two metrics' ids, and two values of a segment."""
    tail = f'type = "boolean"\nepsilon = 1\nexpires = 2999-01-01\n{BODY}'
    findings = linted(
        'segments = { platform = ["linux", "macos", "Linux"], os = ["LINUX"] }\n'
        f'[metrics."ui.l"]\n{tail}[metrics."ui.1"]\n{tail}[metrics."ui.i"]\n{tail}'
    )
    assert [str(warning).partition(": ")[2] for warning in findings.warnings] == [
        f"segments.platform: 'linux' and 'Linux' {ALIKE}",
        "metrics 'ui.l' and 'ui.1' look alike, and are mistaken for each other: rename one",
    ]


def proposed(**changes) -> Registry:
    return replace(PUBLISHED, metrics={"m": replace(METRIC, **changes)})


LATE = "reports of version 1 are counted until the grace of its period is over, or while a folder has it"
GONE = "its reports are refused at once, unless the server has a folder of published registries with it"
BREAKING = [
    ({"type": "ordinal"}, "type was 'categorical', is 'ordinal'"),
    ({"values": ("b", "a")}, "values was [a, b], is [b, a]"),
    ({"values": ("a", "b", "c")}, "values was [a, b], is [a, b, c]"),
    ({"epsilon": "2"}, "epsilon was '1', is '2'"),
    ({"mechanism": "grr"}, "mechanism was 'auto', is 'grr'"),
    ({"period": "week"}, "period was 'day', is 'week'"),
    ({"segments": ()}, "segments was [platform], is []"),
    ({"max_report_bytes": 9}, "max_report_bytes was 256, is 9"),
    ({"discover": True}, "discover was False, is True"),
    ({"max_length": 9}, "max_length was 0, is 9"),
    ({"factors": (("a", ("b",)),)}, "factors was [], is [('a', ('b',))]"),
    ({"parameters": (("rows", 3),)}, "parameters was [], is [('rows', 3)]"),
    ({"epsilon_permanent": "2"}, "epsilon_permanent was None, is '2'"),
    ({"none": "a"}, "none was None, is 'a'"),
    ({"other": "a"}, "other was None, is 'a'"),
    ({"per_period": 3}, "per_period was 1, is 3"),
    ({"answers_per_month": 3}, "answers_per_month was 2, is 3"),
    ({"range": ("0", "1")}, "range was [], is [0, 1]"),
    ({"unit": "ms"}, "unit was '', is 'ms'"),
    ({"scale": "log"}, "scale was 'linear', is 'log'"),
    ({"estimate": "mean"}, "estimate was '', is 'mean'"),
    ({"joint": True}, "joint was False, is True"),
    ({"most": 2}, "most was 0, is 2"),
    (
        {"shuffled": Shuffled(min=9, delta="1e-9", central="1")},
        "shuffled was None, is { min = 9, delta = 1e-09, central = 1 }",
    ),
]
FREE = [
    ({"description": "e"}, "description was 'd', is 'e'"),
    ({"owner": "p"}, "owner was 'o', is 'p'"),
    ({"expires": date(2030, 1, 1)}, "expires was None, is 2030-01-01"),
    ({"sample": "0.1"}, "sample was '1', is '0.1'"),
    ({"min_reports": 5}, "min_reports was 100, is 5"),
    ({"grace": "12h"}, "grace was '48h', is '12h'"),
    ({"delay": "12h"}, "delay was None, is '12h'"),
    ({"candidates": "more.txt"}, "candidates was None, is 'more.txt'"),
    ({"together": 2.5}, "together was 1, is 2.5"),
    ({"step": "1"}, "step was None, is '1' (whole = true)"),
    ({"step": "0.5"}, "step was None, is '0.5'"),
    ({"least_shift": "0.01"}, "least_shift was None, is '0.01'"),
    ({"public": True}, "public was False, is True"),
]


def test_a_shorter_delay_is_told():
    """It breaks no report, but people were told something else."""
    longer = replace(PUBLISHED, metrics={"m": replace(METRIC, delay="12h")})
    for delay, written in (("6h", "'6h'"), (None, "None")):
        (change,) = diff(longer, replace(PUBLISHED, metrics={"m": replace(METRIC, delay=delay)}))
        assert change.what == (
            f"delay was '12h', is {written}; the time of a report tells more of the moment of the answer, so ask people again"
        )
        assert not change.breaking


def test_a_delay_is_named(linted):
    """Lint says for how long reports wait."""
    findings = linted(f'[metrics.m]\ntype = "boolean"\nepsilon = 1\ndelay = "12h"\n{BODY}')
    assert findings.notes[0].facts["travels"] == "after a random time of up to 12h on the device"


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ('range = [0, 60]\nunit = "s"', None),
        ('range = [0, 61]\nunit = "clicks"', None),
        (
            'range = [0, 61]\nunit = "s"',
            "a report waits in memory until 61 s after the block began, so that the moment does not tell",
        ),
        ('range = [0, 61000]\nunit = "ms"', "until 61000 ms after the block began, so that"),
        ('range = [0, 47]\nunit = "h"', "until 47 h after the block began, so that"),
        ('range = [0, 48]\nunit = "h"', "a time by `timed` travels 48 h after its block begins, which is after the grace"),
        (
            'range = [0, 30]\nunit = "h"\ndelay = "20h"',
            "a time by `timed` travels 30 h after its block begins, which is after the grace",
        ),
        ('range = [0, 1e300]\nunit = "h"', "which is after the grace of 48h"),
    ],
    ids=range(8),
)
def test_a_long_range_of_a_time(linted, keys, words):
    """Lint says what `timed` makes of it, and warns where its reports come too late. Only a few apps use it."""
    findings = linted(f'[metrics.m]\ntype = "number"\nestimate = "mean"\nepsilon = 1\nexpires = 2999-01-01\n{keys}\n{BODY}')
    assert findings.faults == ()
    rules = [each.rule for each in findings.warnings if "timed" in each.rule]
    late = words is not None and "grace" in words
    assert len(rules) == late
    assert (words or "") in (rules[0] if late else findings.notes[0].facts.get("by timed", ""))
    assert ("by timed" in findings.notes[0].facts) is (words is not None)


@pytest.mark.parametrize(("change", "words"), BREAKING)
def test_breaking_changes(change, words):
    """A change of meaning breaks, says which version would mend it, and no longer breaks with that version."""
    assert diff(PUBLISHED, proposed(**change)) == [RegistryChange("m", f"{words}; raise version to 2", breaking=True)]
    raised = diff(PUBLISHED, proposed(**change, version=2))
    assert [c.what for c in raised] == [f"version 1 -> 2: a new count begins; {LATE}", words]
    assert not any(c.breaking for c in raised)


@pytest.mark.parametrize(("change", "words"), FREE)
def test_free_changes(change, words):
    """What has no part in the meaning may change."""
    assert diff(PUBLISHED, proposed(**change)) == [RegistryChange("m", words, breaking=False)]


def test_every_field_is_free_or_breaking():
    """No field of a metric is without a rule for its change."""
    from dataclasses import fields

    tested = {key for change, _ in BREAKING + FREE for key in change}
    assert tested | {"id", "version"} == {f.name for f in fields(Metric) if f.init}


def test_no_change():
    """A registry does not differ from itself."""
    assert diff(PUBLISHED, PUBLISHED) == []


@pytest.mark.parametrize(
    ("new", "change"),
    [
        (replace(PUBLISHED, app="other"), RegistryChange("-", "app was shop, is other: another app's counts", breaking=True)),
        (
            replace(PUBLISHED, segments={"platform": ("linux",)}),
            RegistryChange("-", "segments.platform no longer has macos; reports of it will count as (other)", breaking=False),
        ),
        (
            replace(PUBLISHED, metrics={}),
            RegistryChange("m", f"removed; {GONE}", breaking=False),
        ),
        (replace(PUBLISHED, metrics={"m": METRIC, "n": replace(METRIC, id="n")}), RegistryChange("n", "added", breaking=False)),
    ],
)
def test_changes_of_the_whole(new, change):
    """Another app, a lost segment value, a metric removed or added."""
    assert diff(PUBLISHED, new) == [change]


def test_segments_may_grow_and_unused_ones_go():
    """A new segment value breaks nothing, nor does losing one that no metric reports."""
    assert diff(PUBLISHED, replace(PUBLISHED, segments={"platform": ("macos", "linux", "windows"), "arch": ("arm",)})) == []
    unused = replace(PUBLISHED, segments={**SEGMENTS, "arch": ("arm",)})
    assert diff(unused, PUBLISHED) == []


def test_what_generalises_may_change():
    """Devices know nothing of what segments generalise to: a change of it is told and breaks nothing."""
    more = replace(PUBLISHED, generalize={"platform": {"linux": "unix", "macos": "unix"}})
    message = "generalize.platform was [], is [linux -> unix, macos -> unix]"
    assert diff(PUBLISHED, more) == [RegistryChange("-", message, breaking=False)]
    assert diff(more, more) == []
    assert [change.breaking for change in diff(more, PUBLISHED)] == [False]


def test_an_experiment_is_planned_before_anybody_looks():
    """A plan may change; its intervals hold only where it was made first."""
    one, other = (replace(PUBLISHED, experiments={"platform": Experiment(base="linux", planned=each)}) for each in (0.02, 0.05))
    change = "experiments.platform was planned for 0.02 against linux, is planned for 0.05 against linux"
    looked = "; if anybody has looked at it, give the new one a segment of its own"
    assert diff(one, other) == [RegistryChange("-", change + looked, breaking=False)]
    change = "experiments.platform was not declared, is planned for 0.02 against linux"
    assert diff(PUBLISHED, one) == [RegistryChange("-", change, breaking=False)]


def test_what_an_experiment_needs_is_told(linted):
    """By metric and mechanism: so many people in each arm. Kept responses do not get better by waiting."""
    head = 'segments = { arm = ["old", "new"] }\nexperiments = { arm = { base = "old", planned = 0.02 } }\n'
    sound = f'[metrics.m]\ntype = "boolean"\nepsilon = 1\nexpires = 2999-01-01\nperiod = "month"\n{BODY}'
    (note,) = linted(head + sound + 'segments = ["arm"]\n').notes
    need = "89,033 people in each arm of arm find a difference of 0.02 in 80% of cases, however often you look"
    assert note.facts["experiment"] == need
    (note,) = linted(head.replace('"new"', '"new", "newer", "newest"') + sound + 'segments = ["arm"]\n').notes
    assert note.facts["experiment"] == need.replace("89,033", "106,744")
    (note,) = linted(head + sound + 'segments = ["arm"]\nepsilon_permanent = 2\n').notes
    assert note.facts["experiment"].endswith("more periods of the same people hardly help, since each keeps its noise")
    findings = linted(head + sound)
    assert "experiment" not in findings.notes[0].facts
    assert [fault.words for fault in findings.warnings] == [
        "experiments.arm: no metric has this segment; add it to the segments of a metric"
    ]


def test_versions_do_not_go_back():
    """An older version would be counted with what it meant before."""
    newer = proposed(version=3)
    assert diff(newer, PUBLISHED) == [
        RegistryChange("m", "version went back from 3 to 1; write 4, also for what it meant before", breaking=True)
    ]


def test_changes_in_a_line():
    """A change is a line, and long values are cut."""
    assert str(RegistryChange("m", "what", breaking=True)) == "BREAKING m: what"
    assert str(RegistryChange("m", "what", breaking=False)) == "ok       m: what"
    assert str(RegistryChange("-", "what", breaking=True)) == "BREAKING what"
    (change,) = diff(PUBLISHED, proposed(values=tuple(f"value {i}" for i in range(100))))
    assert "..." in change.what
    assert len(change.what) < 150


def test_what_a_lifetime_may_cost(tmp_path, linted):
    """A note of a metric with permanent responses tells what all reports of an answer spend, and a device at most."""
    permanent = f"epsilon = 1\nepsilon_permanent = 2\nexpires = 2999-01-01\n{BODY}"
    findings = linted(
        f'[metrics.a]\ntype = "categorical"\nvalues = ["x", "y", "z"]\n{permanent}'
        f'[metrics.b]\ntype = "categorical"\nvalues = {[f"v{i}" for i in range(50)]}\nmechanism = "loloha"\n{permanent}'.replace(
            "'", '"'
        )
        + f'[metrics.c]\ntype = "string"\ncandidates = "words.txt"\nanswers_per_month = 3\n{permanent}'
    )
    assert [fault.rule for fault in findings.faults] == [
        "candidates: No such file or directory; the file must have one answer to a line, in UTF-8"
    ]
    (tmp_path / "words.txt").write_text("one\n", "utf-8")
    findings = lint(tmp_path / "metrics.toml")
    chosen, hashed, text = (note.facts for note in findings.notes)
    assert chosen["mechanism"].startswith("l_grr: standard error ")
    change = "That an answer changed, or returned to an earlier one, shows as well, and is not counted"
    few = f"at most 2 a month; all reports of one answer give away 2 nats together. {change}"
    assert chosen["answers kept"] == hashed["answers kept"] == few
    two = "2 a kept answer, 2 a month", "4"
    assert [row[1:3] for row in findings.spending[1:4]] == [two, two, ("2 a kept answer, 3 a month", "6")]
    assert [row[4] for row in findings.spending[1:4]] == ["6", "6", "60"]
    assert hashed["mechanism"] == "loloha: epsilon 1, 1 byte a report, as declared"
    assert (text["mechanism"], text["answers"]) == (
        "rappor: epsilon 1, 5 bytes a report",
        "1 candidate; texts are cut after 64 bytes: max_length",
    )
    assert text["answers kept"].startswith("at most 3 ")


def test_a_metric_without_a_chain(linted):
    """A mechanism without permanent responses for a metric that has them is a fault, with those that do."""
    (fault,) = linted(f'[metrics.a]\ntype = "boolean"\nmechanism = "coin"\nepsilon_permanent = 2\n{BODY}').faults
    assert fault.rule.startswith("mechanism: write auto, or one of l_grr, l_osue, ")


def test_candidates_are_read(tmp_path):
    """A metric's candidates are read with its registry: a note counts them, and each fault of the file names its line."""
    registry, words = tmp_path / "metrics.toml", tmp_path / "words.txt"
    registry.write_text(f'{HEAD}[metrics.a]\ntype = "string"\ncandidates = "words.txt"\nepsilon = 1\n{BODY}', "utf-8")
    words.write_text("one\ntwo\n", "utf-8")
    findings = lint(registry)
    assert not findings.faults
    assert findings.notes[0].facts["answers"] == "2 candidates; texts are cut after 64 bytes: max_length"
    words.write_text("one\ntwo\none\n", "utf-8")
    assert [str(fault) for fault in lint(registry).faults] == [f"{words}: a: line 3: 'one': remove it; it is on line 1 already"]


LARGE = 'type = "string"\ncandidates = "words.txt"\nmechanism = "rappor"\nepsilon = 0.01\nexpires = 2999-01-01\n'


@pytest.mark.parametrize(
    ("keys", "retention", "note"),
    [
        ("parameters = { cohorts = 64, bits = 16 }\n", "", None),
        (
            "parameters = { cohorts = 64, bits = 128 }\n",
            "",
            # 64 x 128 bits, 64 numbers of reports, 129 weights; 30 and 1095 days after 2 of grace, and the first and the last
            "up to 460 MiB in the store: 169,100 bytes x (4 segments x 34 periods of exact sums",
        ),
        ("parameters = { cohorts = 64, bits = 128 }\n", "[retention]\ntallies = 7\nreleases = 100\n", None),
        ("parameters = { cohorts = 64, bits = 128 }\nperiod = 'hour'\n", "", "up to 10.7 GiB in the store"),
        ("parameters = { cohorts = 64, bits = 128 }\nperiod = 'month'\n", "", None),
    ],
)
def test_what_takes_much_room_is_told(linted, tmp_path, keys, retention, note):
    """Cells x periods x segments x retention, in bytes, where that is much, with what it comes from and what to do."""
    (tmp_path / "words.txt").write_text("x\ny\n", "utf-8")
    text = f'[segments]\nplatform = ["a", "b", "c"]\n{retention}[metrics.a]\n{LARGE}{keys}segments = ["platform"]\n{BODY}'
    findings = linted(text)
    assert findings.faults == ()
    rules = [warning.rule for warning in findings.warnings if warning.rule.startswith("up to")]
    assert len(rules) == bool(note)
    assert all(rule.startswith(note) and "[retention]" in rule for rule in rules)


NUMBER = f'type = "number"\nunit = "ms"\nexpires = 2999-01-01\nperiod = "month"\n{BODY}'


def note_of(linted, text):
    findings = linted(f"[caps]\nepsilon = 16\n[metrics.a]\n{text}")
    assert findings.faults == ()
    return findings.notes[0].facts, [each.rule for each in findings.warnings]


def test_the_error_of_a_mean(linted):
    """Lint tells what the mean of 10,000 reports may be off by: at epsilon 1, of a range of 1000, about 11."""
    facts, doubts = note_of(linted, f'{NUMBER}range = [0, 60000]\nestimate = "mean"\nepsilon = 1\n')
    assert facts["mechanism"] == "window: epsilon 1, 1 byte a report"
    assert facts["answers"] == "0 to 60000 ms; beyond, the nearer end"
    assert facts["standard error"] == "of the mean of 10,000 reports at most 672 ms"
    assert {"distribution", "quantiles"}.isdisjoint(facts)
    assert doubts == []


@pytest.mark.parametrize(
    ("epsilon", "quantiles"),
    [
        ("0.5", "p90 is resolved from about 80,000 reports, p99 from about 2,000,000 (rough)"),
        ("1", "p90 is resolved from about 20,000 reports, p99 from about 600,000 (rough)"),
        ("2", "p90 is resolved from about 7,000 reports, p99 from about 200,000 (rough)"),
        ("4", "p90 is resolved from about 400 reports, p99 from about 10,000 (rough)"),
        ("4.5", "p90 is resolved from about 400 reports, p99 from about 10,000 (rough)"),
    ],
)
def test_the_error_of_a_distribution(linted, epsilon, quantiles):
    """Lint tells how far quantiles are off, and from how many reports high ones are resolved."""
    facts, _ = note_of(linted, f'{NUMBER}range = [0, 60000]\nestimate = "distribution"\nepsilon = {epsilon}\n')
    assert facts["quantiles"] == quantiles
    if epsilon == "1":
        assert facts["distribution"] == "quantiles of 10,000 reports are off by about 878 ms, on average over all of them"
        assert facts["median"].startswith("its 95% band reaches about 4,560 ms to each side if answers are even over the range; ")


def test_the_error_on_a_logarithmic_scale(linted):
    """There it is a factor."""
    facts, _ = note_of(linted, f'{NUMBER}range = [1, 60000]\nscale = "log"\nestimate = "distribution"\nepsilon = 1\n')
    assert facts["answers"] == "1 to 60000 ms, on a logarithmic scale; beyond, the nearer end"
    assert facts["standard error"] == "of the geometric mean of 10,000 reports at most a factor of 1.14"
    assert facts["distribution"] == "quantiles of 10,000 reports are off by about a factor of 1.17, on average over all of them"
    assert facts["median"].startswith("its 95% band reaches about a factor of 2.31 to each side ")


def test_the_error_of_kept_numbers(linted):
    """Of a mean it is that of one bit, with a floor; of a distribution, that of one of its parts."""
    permanent = f"{NUMBER}range = [0, 60000]\nepsilon = 1\nepsilon_permanent = 2\n"
    facts, _ = note_of(linted, f'{permanent}estimate = "mean"\n')
    assert facts["standard error"] == "of the mean of 10,000 reports at most 649 ms"
    assert facts["averages"].endswith("so the error of an average over many periods has a floor")
    facts, _ = note_of(linted, f'{permanent}estimate = "distribution"\n')
    assert facts["standard error"] == "of one of 16 equal parts, of 10,000 reports 1.9 points"


@pytest.mark.parametrize(
    ("joint", "error"),
    [("false", "of an option, of 10,000 reports at most 2.2 points"),
     ("true", "of each case of a pair of options, of 10,000 reports at most 4.1 points")],
)  # fmt: skip
def test_the_error_of_a_set(linted, joint, error):
    """It grows with the number of options, or of their pairs."""
    text = f'type = "set"\nvalues = ["a", "b", "c", "d"]\njoint = {joint}\nepsilon = 1\nexpires = 2999-01-01\nperiod = "month"\n'
    facts, doubts = note_of(linted, text + BODY)
    assert (facts["answers"], facts["standard error"]) == ("any of 4 options", error)
    (doubt,) = doubts
    assert doubt.startswith("other is missing: write the option for options that are not listed, which is one of the values: ")


@pytest.mark.parametrize(
    ("most", "epsilon", "better"),
    [(2, 1, ""), (5, 0.5, "most: without it the variance of an option is 13% less, and nothing is cut; remove it")],
)
def test_the_cap_of_a_set(linted, most, epsilon, better):
    """What becomes of longer answers is said; lint warns of a cap that only costs."""
    text = f'type = "set"\nvalues = [{", ".join(map(repr, "abcdefghij"))}]\nother = "j"\nmost = {most}\nepsilon = {epsilon}\n'
    facts, doubts = note_of(linted, f'{text}expires = 2999-01-01\nperiod = "month"\n{BODY}')
    assert facts["answers"] == (f"any of 10 options; of more than {most}, {most} of them count, drawn at random on the device")
    assert doubts == ([better] if better else [])


def test_the_error_of_a_mean_position(linted):
    """Of ordered answers it is told in positions."""
    text = 'type = "ordinal"\nvalues = ["bad", "fair", "good"]\nestimate = "mean"\nepsilon = 1\n'
    text += 'expires = 2999-01-01\nperiod = "month"\n'
    facts, doubts = note_of(linted, text + BODY)
    assert facts["standard error"] == "of the mean of 10,000 reports at most 0.022 positions"
    assert doubts == []


def test_doubtful_numbers(linted):
    """A range that many numbers exceed, the mean of logarithms, and a `none` beyond the range."""
    _, doubts = note_of(linted, f'{NUMBER}range = [1, 600]\nscale = "log"\nestimate = "mean"\nnone = 5000\nepsilon = 1\n')
    assert doubts == [
        "scale: the geometric mean is estimated, which is less than the mean; write 'linear' for the mean",
        "range ends at 600, and ms are often more: write a wider range, which costs little",
        "none: it is beyond the range, and is reported as the nearer end; write a number from 1 to 600",
    ]
    _, doubts = note_of(linted, f'{NUMBER}range = [0, 600]\nestimate = "mean"\nnone = 0\nepsilon = 1\n')
    assert doubts == ["range ends at 600, and ms are often more: write a wider range, which costs little on a logarithmic scale"]


@pytest.mark.parametrize(
    ("id_", "is_sound"), [("rename_failed", True), ("file.rename-2", True), ("Rename", False), ("2nd", False)]
)
def test_an_id_is_written_as_the_reference_says(linted, id_, is_sound):
    """Both say that a word may have an underscore."""
    rule = "words of lower-case letters, digits and _, joined by dots or dashes; it begins with a letter"
    faults = linted(f'[metrics."{id_}"]\ntype = "boolean"\nepsilon = 1\nexpires = 2999-01-01\n{BODY}').faults
    assert [rule in fault.rule for fault in faults] == [True] * (not is_sound)
    reference = Path(__file__).parents[2] / "docs" / "reference" / "metrics-toml.md"
    assert rule in " ".join(reference.read_text("utf-8").replace("`_`", "_").split())


@pytest.mark.parametrize("key", ["whole = true", "step = 1"])
def test_a_step_without_effect_is_named_as_it_is_written(linted, key):
    text = f'[metrics.a]\ntype = "number"\nrange = [0, 100000]\nunit = "ms"\nestimate = "mean"\n{key}\nepsilon = 1\n'
    (warning,) = linted(f"{text}expires = 2999-01-01\n{BODY}").warnings
    effect = "it has an effect on the distribution of a number without epsilon_permanent only"
    assert warning.words == f"{key}: remove it; {effect}"
    assert Path(warning.file).read_text("utf-8").splitlines()[warning.line - 1] == key


@pytest.mark.parametrize("key", ["whole = true", "step = 1", "step = 0.5"])
def test_equal_steps_of_a_wide_range(linted, key):
    """The warning names what is written, and its line."""
    text = f'[metrics.a]\ntype = "number"\nrange = [0, 1000]\nunit = "photos"\nestimate = "distribution"\n{key}\nepsilon = 1\n'
    findings = linted(f"{text}expires = 2999-01-01\n{BODY}")
    (warning,) = findings.warnings
    assert warning.rule == f"{key} has no effect, since the range then has more than 128 values; remove it"
    assert Path(warning.file).read_text("utf-8").splitlines()[warning.line - 1] == key
