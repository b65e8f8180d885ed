"""Lines: each fault of a registry says where it is."""

from __future__ import annotations

import re

import pytest

from deniable import registry
from deniable.errors import RegistryError
from deniable.lint import lint

SOUND = """format = 1
app = "shop"

[budget]
per_month = 8.0
lifetime = 80.0

[segments]
platform = [
    "linux",
    "macos",
]

[metrics."ui.theme"]
type = "categorical"
values = ["light", "dark"]
epsilon = 1.0
description = "d"
owner = "o"
expires = 2999-01-01

[metrics.b]
type = "boolean"
epsilon = 1
period = "day"
description = "d"
owner = "o"
expires = 2999-01-01
"""


def faults(text):
    with pytest.raises(RegistryError) as caught:
        registry.parse(text)
    return [(fault.line, fault.metric, fault.rule) for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("format = 1", "format = 2", 1),
        ('app = "shop"', 'app = "Shop"', 2),
        ('app = "shop"', "", 1),
        ("per_month = 8.0", "per_month = -1", 5),
        ("lifetime = 80.0", "lifetme = 80.0", 6),
        ('"linux",', '"li nux",', 9),
        ('"categorical"', '"categorial"', 15),
        ('["light", "dark"]', '["light"]', 16),
        ("epsilon = 1.0", "epsilon = 99", 17),
        ("epsilon = 1.0", "epsilo = 1.0", 17),
        ('description = "d"\nowner = "o"\nexpires = 2999-01-01\n\n', 'owner = "o"\n\n', 14),
        ('period = "day"', 'period = "year"', 25),
        ('[metrics.b]\ntype = "boolean"', '[metrics.b]\ntype = "boolean"\nvalues = ["no", "yes"]', 24),
        ("[metrics.b]", "[metrics.B]", 22),
    ],
)
def test_a_fault_says_its_line(before, after, line):
    """The line is that of the key which is wrong; of one that is missing, that of its table."""
    assert SOUND.count(before)
    registry.parse(SOUND)
    assert line in [number for number, _, _ in faults(SOUND.replace(before, after, 1))]


def test_every_fault_has_a_line():
    """No fault of a text is without one."""
    text = SOUND.replace("epsilon", "epsilom").replace("type", "typo").replace("per_month", "per_moon")
    lines = faults(text)
    assert len(lines) == 5  # a mistyped key is not missing as well
    assert all(line > 0 for line, _, _ in lines)


@pytest.mark.parametrize("written", ['metric."ui.theme"', "metric.b"])
def test_a_mistyped_head_has_its_own_line(written):
    """Where the word `metrics` is mistyped, the line is that of the table; so are those of faults within."""
    head = written.replace("metric.", "metrics.")
    line = SOUND.split("\n").index(f"[{head}]") + 1
    text = SOUND.replace(f"[{head}]", f"[{written}]")
    assert faults(text) == [(line, "-", "metric is no key of a registry: write metrics")]
    both = SOUND.replace("metrics", "metric").replace("period", "perod")
    assert [line for line, _, _ in faults(both)] == [14, 25]
    assert [line for line, _, rule in faults(both.replace('owner = "o"\n', "")) if "owner" in rule] == [14, 21]


@pytest.mark.parametrize(
    ("twice", "name", "first"),
    [
        ('[metrics."ui.theme"]  # again', '[metrics."ui.theme"]', 14),
        ("[budget]", "[budget]", 4),
        ('owner = "p"', "owner", 27),
    ],
)
def test_what_is_declared_twice_is_told_with_both_lines(twice, name, first):
    """The table or key is named as it is written, with the line of the first; the fault's own is that of the second."""
    last = SOUND.count("\n") + 1
    assert faults(f"{SOUND}{twice}\n") == [(last, "-", f"{name} is on line {first} already: keep one of the two")]


def test_a_text_that_is_no_toml():
    """The line is the one where reading ended."""
    assert [line for line, _, _ in faults(SOUND.replace("per_month = 8.0", "per_month = "))] == [5]


@pytest.mark.parametrize(
    ("array", "line"),
    [
        ('values = ["light", "dark"', 16),
        ('values = [\n    "light",\n    "[dark]"  # ]\n', 16),
        ('values = [\n    "light",\n    "dark",\n\n', 16),
    ],
)
def test_an_array_without_end(array, line, tmp_path):
    """It is one fault, where the array begins, and not one for each line after it."""
    text = SOUND.replace('values = ["light", "dark"]', array)
    path = tmp_path / "metrics.toml"
    path.write_text(text, "utf-8")
    key = array.partition(" ")[0]
    rule = f"{key} begins an array that has no end: write ] after its last value"
    assert faults(text) == [(line, "-", rule)]
    assert [(fault.line, fault.rule) for fault in lint(path).faults if fault.metric == "-"] == [(line, rule)]
    assert len(lint(path).faults) == 1
    last = f"{SOUND}segments = ["
    assert [number for number, _, _ in faults(last)] == [last.count("\n") + 1]


def test_a_comma_that_is_missing():
    """An array that has an end is not said to have none."""
    for array in ('["light" "dark"]', '[\n"light"\n"dark"\n]'):
        text = SOUND.replace('["light", "dark"]', array)
        ((line, _, rule),) = faults(text)
        assert (line, rule.rpartition("; ")[2]) == (16 + 2 * array.count("\n") // 3, "a comma is missing before it")


def test_a_byte_order_mark_is_read_over(tmp_path):
    """Some editors of Windows write one."""
    path = tmp_path / "metrics.toml"
    path.write_text(SOUND, "utf-8-sig")
    assert registry.load(path) == registry.parse(SOUND, str(path))
    marked = lint(path)
    path.write_text(SOUND, "utf-8")
    assert marked == lint(path)


def test_an_epsilon_is_shown_as_a_number(tmp_path):
    """It is no text in the file, and none in the fault."""
    path = tmp_path / "metrics.toml"
    path.write_text(
        SOUND.replace('"categorical"', '"set"').replace("epsilon = 1.0", "epsilon = 1.0\nepsilon_permanent = 2.0"), "utf-8"
    )
    assert f"{path}:18: ui.theme: epsilon_permanent = 2.0: remove it; " in "\n".join(map(str, lint(path).faults))


def test_few_reports_of_all_metrics_are_said_where_they_are_written(tmp_path):
    """Once, and not at each metric."""
    path = tmp_path / "metrics.toml"
    text = SOUND.replace("[segments]", "[publication]\nmin_reports = 1\n\n[segments]")
    path.write_text(f"{text}min_reports = 2\n", "utf-8")
    words = "below 20 it publishes results of small groups; write more"
    assert [(each.line, each.metric, each.rule) for each in lint(path).warnings if "min_reports" in each.rule] == [
        (9, "-", f"publication.min_reports: {words}"),
        (32, "b", f"min_reports: {words}"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        'format = 1\napp = "shop"\n[metrics]\na = { type = "boolen", epsilon = 1, description = "d", owner = "o" }\n',
        'format = 1\napp = "shop"\n[metrics]\na.type = "boolen"\na.epsilon = 1\na.description = "d"\na.owner = "o"\n',
        'format = 1\napp = "shop"\n# a comment\nmetrics.a = { type = "boolen", epsilon = 1, description = "d", owner = "o" }\n',
    ],
)
def test_other_ways_to_write_a_table(text):
    """Inline tables and dotted keys have lines, too."""
    assert [line for line, _, _ in faults(text)] == [4]


def test_an_id_without_quotes():
    """A table whose id has a dot and no quotes gets the hint, and its own faults, but none that follow from it."""
    rule = '[metrics.ui.theme] is an id with a dot, which needs quotes: write [metrics."ui.theme"]'
    unquoted = SOUND.replace('[metrics."ui.theme"]', "[metrics.ui.theme]")
    assert faults(unquoted) == [(14, "ui.theme", rule)]
    assert [(line, metric) for line, metric, _ in faults(unquoted.replace("epsilon = 1.0", "epsilon = 0"))] == [
        (14, "ui.theme"),
        (17, "ui.theme"),
    ]
    beside = f'{SOUND}[metrics.b.c]\nnothing = "of a metric"\n'
    assert [rule for _, _, rule in faults(beside)] == [
        '[metrics.b.c] is an id with a dot, which needs quotes: write [metrics."b.c"]'
    ]


@pytest.mark.parametrize("head", ['[metrics."a.b"]', "[metrics.a-b]", "[metrics.a.b]", "[analysts]", "[generalize]"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", "1"),
        ("revision", "2"),
        ("app", '"shop"'),
        ("segments", '{ platform = ["linux", "macos"] }'),
        ("experiments", '{ arm = { base = "control", planned = 0.02 } }'),
        ("caps", "{ epsilon = 4.0 }"),
        ("publication", "{ trial = true }"),
        ("retention", "{ tallies = 30 }"),
        ("budget", "{ per_month = 8.0 }"),
        ("relay", '{ operator = "o" }'),
    ],
)
def test_a_key_of_the_file_inside_a_table(head, key, value, tmp_path):
    """It is said where it stands and where it belongs, and it is not missing as well."""
    text = re.sub(rf"^(?:{key} = .*\n|\[{key}\]\n(?:.+\n)*)", "", SOUND, flags=re.MULTILINE)
    text = text.replace("[metrics.b]", head) if "metrics" in head else f"{text}{head}\n"
    text = f"{text}{key} = {value}\n"
    line = text.count("\n")
    as_table = f", or write [{key}]" if value.startswith("{") else ""
    rule = f"{key} stands inside {head}: move it above the first table{as_table}"
    others = [fault for fault in faults(text) if fault != (line, "-", rule)]
    assert len(others) == len(faults(text)) - 1
    assert not any(other.startswith((f"{key}:", f"{key} ")) for _, _, other in others)
    (tmp_path / "metrics.toml").write_text(text, "utf-8")
    assert rule in [fault.rule for fault in lint(tmp_path / "metrics.toml").faults]


def test_a_budget_at_the_end_of_the_file(tmp_path):
    """It is one fault, at its own line. What it holds is checked as well."""
    start, end = SOUND.split("[budget]\nper_month = 8.0\nlifetime = 80.0\n")
    path = tmp_path / "metrics.toml"
    text = f"{start}{end}"
    last = text.count("\n") + 1
    path.write_text(f"{text}budget = {{ per_month = 90 }}\n", "utf-8")
    line = f"{path}:{last}: budget stands inside [metrics.b]: move it above the first table, or write [budget]"
    assert list(map(str, lint(path).faults)) == [line]
    assert [number for number, _, _ in faults(f"{text}budget = {{ per_month = -1 }}\n")] == [last, last]


def test_lint_says_lines_of_warnings(tmp_path):
    """What deserves a second look has a line as well, and a message begins as compilers' do."""
    path = tmp_path / "metrics.toml"
    path.write_text(SOUND.replace("epsilon = 1.0", "epsilon = 5.0"), "utf-8")
    findings = lint(path)
    assert 17 in [warning.line for warning in findings.warnings if warning.metric == "ui.theme"]
    assert str(findings.warnings[0]).startswith(f"{path}:")


def test_a_missing_registry_is_called_missing(tmp_path, monkeypatch):
    """A file that is not there is no unreadable one, and the message says where it was looked for."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RegistryError, match=r"^/.*: the registry is missing: .*deniable init"):
        registry.load("metrics.toml")


def test_what_is_not_closed_is_reported_at_the_end():
    """A text that is never closed is a fault of the last line, where it is missed."""
    with pytest.raises(RegistryError) as raised:
        registry.parse('format = 1\napp = "shop"\nvalues = """\n  "a",\n')
    assert [fault.line for fault in raised.value.faults] == [4]


def test_texts_of_several_lines_and_odd_line_ends_shift_nothing():
    """Lines within a text are no tables and no keys, and only a newline ends a line."""
    head = 'format = 1\napp = "shop"\n'
    metric = '[metrics."a"]\ntype = "boolean"\nepsilon = 1.0\nowner = "o"\n'
    odd = f'{metric}description = """one\u2028two\n[metrics."b"]\nperiod = 3\n"""\nperiod = "year"\n'
    with pytest.raises(RegistryError) as raised:
        registry.parse(head + odd)
    assert [(fault.metric, fault.line) for fault in raised.value.faults] == [("a", 11)]


def test_lint_reads_the_lines_once(tmp_path, monkeypatch):
    """However many findings there are, the lines of the file are found once."""
    from deniable.registry import places

    calls, lines = [], places._lines
    monkeypatch.setattr(places, "_lines", lambda text: calls.append(text) or lines(text))
    path = tmp_path / "metrics.toml"
    metrics = "".join(f'[metrics."m{n}"]\ntype = "boolean"\nepsilon = 9.0\nowner = "o"\ndescription = "d"\n' for n in range(20))
    path.write_text(f'format = 1\napp = "shop"\n{metrics}', "utf-8")
    assert len(lint(path).warnings) >= 20
    assert len(calls) == 1
