"""Every rule of metrics.toml, broken once; all faults come at once."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import date
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deniable import mechanisms
from deniable.errors import ParameterError, RegistryError
from deniable.registry import load, parse
from deniable.rules import MAX_VALUES

HEAD = 'format = 1\napp = "shop"\n[segments]\nplatform = ["linux", "macos"]\n'
SOUND = {
    "type": '"categorical"',
    "values": '["a", "b", "c"]',
    "epsilon": "1.0",
    "description": '"What"',
    "owner": '"me"',
}


def metric(id_: str = "m", /, **changes: str | None) -> str:
    """Write a sound metric with keys replaced, added or (None) left out."""
    lines = [f"{key} = {value}" for key, value in (SOUND | changes).items() if value is not None]
    return "\n".join([f'[metrics."{id_}"]', *lines, ""])


LONG = "a" * 81

FAULTS = [
    # the file
    ("format = [", "-", "the registry is valid TOML", None),
    (HEAD.replace("format = 1", "format = 2") + metric(), "-", "format is 1, the registry format this version reads", 2),
    (HEAD.replace("format = 1", 'format = "1"') + metric(), "-", "format is 1", "1"),
    (HEAD.replace("format = 1", "format = true") + metric(), "-", "format is 1", True),
    (HEAD.replace("format = 1", "") + metric(), "-", "format is 1", None),
    (HEAD.replace('app = "shop"', "") + metric(), "-", "app is a lower-case name such as shop", None),
    (HEAD.replace('"shop"', '"Shop"') + metric(), "-", "app is a lower-case name", "Shop"),
    (HEAD.replace('"shop"', "3") + metric(), "-", "app is a lower-case name", 3),
    (HEAD.replace('"shop"', f'"{LONG}"') + metric(), "-", "app is a lower-case name", LONG),
    (f"surprise = 1\n{HEAD}{metric()}", "-", "a key is one of format, app, segments, metrics", "surprise"),
    (f"metric = 1\n{HEAD}{metric()}", "-", "(did you mean metrics?)", "metric"),
    (HEAD, "-", 'at least one metric is declared, as a table [metrics."ui.theme"]', None),
    (f"{HEAD}[metrics]\n", "-", "at least one metric is declared", {}),
    ('format = 1\napp = "shop"\nmetrics = 3\n', "-", "at least one metric is declared", 3),
    # segments
    (f'format = 1\napp = "shop"\nsegments = 1\n{metric()}', "-", "segments is a table of lists of words", 1),
    (f'{HEAD}"two words" = ["x"]\n{metric()}', "-", "a segment's name is a word of letters, digits and _.+-", "two words"),
    (f'{HEAD}"a=b" = ["x"]\n{metric()}', "-", "a segment's name is a word", "a=b"),
    (f"{HEAD}arch = []\n{metric()}", "-", "segments.arch is a list of words", []),
    (f'{HEAD}arch = "x86"\n{metric()}', "-", "segments.arch is a list of words", "x86"),
    (f'{HEAD}arch = ["x,y"]\n{metric()}', "-", "segments.arch is a list of words", ["x,y"]),
    (f'{HEAD}arch = ["x=y"]\n{metric()}', "-", "segments.arch is a list of words", ["x=y"]),
    (f"{HEAD}arch = [1]\n{metric()}", "-", "segments.arch is a list of words", [1]),
    (f'{HEAD}arch = ["x", "x"]\n{metric()}', "-", "segments.arch lists each value once", ["x", "x"]),
    # a metric
    (HEAD + metric("Upper"), "Upper", "an id is lower-case words joined by dots or dashes, at most 80 characters", "Upper"),
    (HEAD + metric("a..b"), "a..b", "an id is lower-case words", "a..b"),
    (HEAD + metric("1a"), "1a", "an id is lower-case words", "1a"),
    (HEAD + metric("a b"), "a b", "an id is lower-case words", "a b"),
    (HEAD + metric(LONG), LONG, "an id is lower-case words", LONG),
    (f"{HEAD}[metrics]\nm = 1\n", "m", "a metric is a table", 1),
    (HEAD + metric(epsilom="1"), "m", "(did you mean epsilon?)", "epsilom"),
    (HEAD + metric(id='"x"'), "m", "a key is one of type, values, epsilon", "id"),
    (HEAD + metric(_positions="1"), "m", "a key is one of type, values, epsilon", "_positions"),
    # its domain
    (HEAD + metric(type=None), "m", "type is one of boolean, categorical, ordinal", None),
    (HEAD + metric(type='"number"'), "m", "type is one of boolean, categorical, ordinal", "number"),
    (HEAD + metric(type="[]"), "m", "type is one of", []),
    (HEAD + metric(type='"boolean"'), "m", "a boolean's values are yes and no and are not listed", ["a", "b", "c"]),
    (HEAD + metric(values=None), "m", "values is a list of texts", None),
    (HEAD + metric(values='"a"'), "m", "values is a list of texts", "a"),
    (HEAD + metric(values="[1, 2]"), "m", "values is a list of texts", [1, 2]),
    (HEAD + metric(values='["a", ""]'), "m", "values is a list of texts", ["a", ""]),
    (HEAD + metric(values='["a"]'), "m", f"values lists 2 to {MAX_VALUES} answers", 1),
    (HEAD + metric(values="[]"), "m", "values lists 2 to", 0),
    (HEAD + metric(values='["b", "a", "b", "a", "c"]'), "m", "values lists each answer once", ["a", "b"]),
    # its privacy
    (HEAD + metric(epsilon=None), "m", "epsilon is a number of nats above 0 and at most 16", None),
    (HEAD + metric(epsilon="0"), "m", "epsilon is a number of nats", 0),
    (HEAD + metric(epsilon="-1.5"), "m", "epsilon is a number of nats", -1.5),
    (HEAD + metric(epsilon="17"), "m", "epsilon is a number of nats", 17),
    (HEAD + metric(epsilon="inf"), "m", "epsilon is a number of nats", float("inf")),
    (HEAD + metric(epsilon="true"), "m", "epsilon is a number of nats", True),
    (HEAD + metric(epsilon="2027-12-31"), "m", "epsilon is a number of nats", date(2027, 12, 31)),
    (HEAD + metric(epsilon='"1.0"'), "m", "epsilon is a number, without quotes", "1.0"),
    (HEAD + metric(epsilon='"1.0986122886681098"', mechanism='"coin"'), "m", "without quotes", "1.0986122886681098"),
    (HEAD + metric(epsilon="1e-12"), "m", "epsilon is at least 2^-31 nats", 1e-12),
    # its upkeep
    (HEAD + metric(description=None), "m", "description is a text", None),
    (HEAD + metric(description='" "'), "m", "description is a text", " "),
    (HEAD + metric(owner="3"), "m", "owner is a text", 3),
    (HEAD + metric(mechanism="3"), "m", "mechanism is a text", 3),
    (HEAD + metric(version="0"), "m", "version is a whole number of at least 1", 0),
    (HEAD + metric(version="1.5"), "m", "version is a whole number of at least 1", 1.5),
    (HEAD + metric(version="true"), "m", "version is a whole number of at least 1", True),
    (HEAD + metric(min_reports="-1"), "m", "min_reports is a whole number of at least 0", -1),
    (HEAD + metric(max_report_bytes="0"), "m", "max_report_bytes is a whole number of at least 1", 0),
    (HEAD + metric(period='"year"'), "m", "period is one of hour, day, week, month", "year"),
    (HEAD + metric(period="1"), "m", "period is one of", 1),
    (HEAD + metric(expires='"2027-12-31"'), "m", "expires is a date such as 2027-12-31, without quotes", "2027-12-31"),
    (HEAD + metric(expires="07:32:00"), "m", "expires is a date", None),
    (HEAD + metric(expires="2027-12-31T07:32:00Z"), "m", "expires is a date", None),
    (HEAD + metric(segments='["arch"]'), "m", "segments lists names declared under [segments]: platform", ["arch"]),
    (HEAD + metric(segments='"platform"'), "m", "segments lists names declared", "platform"),
    (HEAD + metric(segments="[1]"), "m", "segments lists names declared", [1]),
    (HEAD + metric(segments='["platform", "platform"]'), "m", "segments lists each name once", ["platform", "platform"]),
    (f'format = 1\napp = "shop"\n{metric(segments=chr(91) + chr(34) + "x" + chr(34) + chr(93))}', "m", "none is", ["x"]),
]


@pytest.mark.parametrize(("text", "where", "rule", "value"), FAULTS, ids=range(len(FAULTS)))
def test_faults(text, where, rule, value):
    """A broken rule is one fault with file, metric, rule and value."""
    with pytest.raises(RegistryError) as caught:
        parse(text, "some/metrics.toml")
    (fault,) = caught.value.faults
    assert fault.file == "some/metrics.toml"
    assert fault.metric == where
    assert rule in fault.rule
    if value is not None:
        assert fault.value == value
        assert type(fault.value) is type(value)


def test_the_base_of_the_table_is_sound():
    """What the table of faults changes has none itself."""
    assert parse(HEAD + metric()).metrics["m"].values == ("a", "b", "c")


def test_all_faults_at_once():
    """Every fault of a file is reported, in its order."""
    text = 'format = 3\napp = "S"\n[segments]\nx = []\n' + metric("A", epsilon="99", period='"y"') + metric("b", version="0")
    with pytest.raises(RegistryError) as caught:
        parse(text)
    assert [fault.metric for fault in caught.value.faults] == ["-", "-", "-", "A", "A", "A", "b"]
    assert len(str(caught.value).splitlines()) == 7


def test_a_long_list_with_one_fault_is_checked_soon():
    """The largest list of answers, one of them twice, takes no quadratic time."""
    values = [f"value {i}" for i in range(MAX_VALUES - 1)]
    began = perf_counter()
    with pytest.raises(RegistryError, match="values lists each answer once; got \\['value 7'\\]"):
        parse(HEAD + metric(values=str([*values, "value 7"]).replace("'", '"')))
    assert perf_counter() - began < 5


def test_what_is_read(registry):
    """A sound file gives every key, and defaults for those that may be left out."""
    theme, dark, old = (registry.metrics[id_] for id_ in ("ui.theme", "ui.dark", "old"))
    assert registry.app == "shop"
    assert registry.segments == {"platform": ("linux", "macos")}
    assert (theme.values, theme.epsilon, theme.segments) == (("light", "dark", "system"), "1", ("platform",))
    assert (theme.version, theme.mechanism, theme.period, theme.min_reports, theme.max_report_bytes) == (1, "auto", "day", 0, 256)
    assert theme.expires is None
    assert (dark.values, dark.mechanism, dark.domain_size) == ((False, True), "coin", 2)
    assert mechanisms.of(dark).ratio == 3
    assert (old.epsilon, old.expires) == ("1", date(2001, 1, 1))


def test_epsilon_is_kept_as_written():
    """0.1 stays 1/10 and does not become the nearest binary number."""
    assert (
        mechanisms.of(parse(HEAD + metric(epsilon="0.1")).metrics["m"]).requested
        == mechanisms.make("auto", domain_size=3, epsilon="1/10").requested
    )


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_files_that_cannot_be_read(tmp_path, content):
    """A file that is missing or not UTF-8 is a fault of the file."""
    path = tmp_path / "metrics.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RegistryError, match="the registry is a readable UTF-8 file") as caught:
        load(path)
    assert caught.value.faults[0].file == str(path)


def test_load_and_parse_agree(tmp_path, registry_text, registry):
    """A file is read like its text."""
    (tmp_path / "metrics.toml").write_text(registry_text, "utf-8")
    assert load(tmp_path / "metrics.toml") == load(str(tmp_path / "metrics.toml")) == registry


def test_positions_and_labels(registry):
    """Answers are encoded by their place and written back for people."""
    theme, dark = registry.metrics["ui.theme"], registry.metrics["ui.dark"]
    assert [theme.position(v) for v in theme.values] == [0, 1, 2]
    assert [theme.label(i) for i in range(3)] == ["light", "dark", "system"]
    assert [dark.position(v) for v in (False, True)] == [0, 1]
    assert [dark.label(i) for i in range(2)] == ["no", "yes"]


CANARY = "canary-f3b1"


@pytest.mark.parametrize("value", [CANARY, [CANARY], {CANARY}, {CANARY: 1}, None, 0, 1, 1.0, b"light", "Light", "light "])
@pytest.mark.parametrize("id_", ["ui.theme", "ui.dark"])
def test_what_is_no_answer(registry, id_, value):
    """What is not a declared answer of the declared kind is refused without being repeated."""
    with pytest.raises(ParameterError, match=f"an answer to {id_} is") as caught:
        registry.metrics[id_].position(value)
    error: BaseException | None = caught.value
    while error is not None:
        assert CANARY not in f"{error} {error.args} {vars(error)}"
        error = error.__cause__ or error.__context__


@given(st.text())
def test_only_declared_texts_are_answers(registry, text):
    """No other text is an answer."""
    theme = registry.metrics["ui.theme"]
    if text not in theme.values:
        with pytest.raises(ParameterError):
            theme.position(text)


def test_segments(registry):
    """A report's segment has the metric's breakdowns and no others."""
    theme, dark = registry.metrics["ui.theme"], registry.metrics["ui.dark"]
    assert registry.segment(theme, {"platform": "linux", "other": "x"}) == "platform=linux"
    assert registry.segment(dark, {"platform": "linux"}) == ""
    for wrong in ({}, {"platform": "beos"}):
        with pytest.raises(ParameterError, match="segment platform is one of linux, macos"):
            registry.segment(theme, wrong)


def test_expiry(registry):
    """The last day of collection is within it."""
    old = registry.metrics["old"]
    assert not old.expired(date(2001, 1, 1))
    assert old.expired(date(2001, 1, 2))
    assert not registry.metrics["ui.theme"].expired(date(9999, 1, 1))


def test_metrics_are_frozen_values(registry, registry_text):
    """A metric cannot be changed, and equals another of the same declaration."""
    theme = registry.metrics["ui.theme"]
    with pytest.raises(FrozenInstanceError):
        theme.epsilon = "9"
    twin = parse(registry_text).metrics["ui.theme"]
    assert twin == theme
    assert hash(twin) == hash(theme)
