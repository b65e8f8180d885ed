"""`deniable registry show`: what a client in another language needs to know of a registry."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from deniable import mechanisms
from deniable.commands.entry import main
from deniable.commands.sheet import sheet
from deniable.registry import parse

HEAD = 'format = 1\napp = "shop"\n'
METRIC = '[metrics."{name}"]\ntype = "{type}"\n{more}\nepsilon = 1\ndescription = "d"\nowner = "o@shop.example"\n'


def entry_of(more, type_="categorical"):
    return sheet(parse(HEAD + METRIC.format(name="theme", type=type_, more=more)))["metrics"]["theme"]


def test_a_line_for_each_metric(tmp_path, capsys):
    """Without --json the command prints fingerprint, mechanism, shape and length of a report."""
    file = tmp_path / "metrics.toml"
    file.write_text(HEAD + METRIC.format(name="theme", type="boolean", more=""), "utf-8")
    assert main(["registry", "show", str(file)]) == 0
    output = capsys.readouterr().out
    fingerprint = sheet(parse(file.read_text("utf-8")))["metrics"]["theme"]["fingerprint"]
    assert output == f"theme version 1: {fingerprint}, binary, 1 x 2 index, 1 byte\n"


def test_json_is_the_sheet_in_ascii(tmp_path, capsys):
    """With --json it prints all; a character that would turn a terminal's text around is escaped."""
    file = tmp_path / "metrics.toml"
    file.write_text(HEAD + METRIC.format(name="theme", type="categorical", more='values = ["a", "\\u202eb"]'), "utf-8")
    assert main(["registry", "show", "--json", str(file)]) == 0
    output = capsys.readouterr().out
    assert output.isascii()
    assert json.loads(output) == sheet(parse(file.read_text("utf-8"), str(file)))


@pytest.mark.parametrize("form", ["--script", "--typescript"])
def test_what_a_page_loads_says_what_a_new_browser_answers(tmp_path, capsys, form):
    """Where there are several questions, the first lines say that a new browser answers one. It is a comment."""
    for names in (["theme"], ["theme", "size"]):
        file = tmp_path / "metrics.toml"
        file.write_text(HEAD + "".join(METRIC.format(name=name, type="boolean", more="") for name in names), "utf-8")
        assert main(["registry", "show", form, str(file)]) == 0
        first, second, *_ = capsys.readouterr().out.splitlines()
        assert first == f"// Written by: deniable registry show {form} metrics.toml"
        assert second.startswith("// A new browser answers one question at first") == (len(names) > 1)


def test_a_faulty_registry_has_no_sheet(tmp_path, capsys):
    """Faults are told as lint tells them."""
    file = tmp_path / "metrics.toml"
    file.write_text(HEAD + METRIC.format(name="theme", type="colour", more=""), "utf-8")
    assert main(["registry", "show", str(file)]) != 0
    output = capsys.readouterr()
    assert "theme: type = 'colour': write one of " in output.err


@pytest.mark.parametrize(
    ("more", "type_", "values"),
    [
        ('values = ["light", "dark"]', "categorical", ["light", "dark"]),
        ("", "boolean", [False, True]),
        ('factors = { a = ["x", "y"], b = ["u", "v"] }', "product", [["x", "u"], ["x", "v"], ["y", "u"], ["y", "v"]]),
        ('candidates = "words.txt"', "key", None),
    ],
)
def test_values_stand_in_their_order(more, type_, values):
    """The place of an answer in the list is its position."""
    assert entry_of(more, type_)["values"] == values


@pytest.mark.parametrize(
    ("name", "permanent"),
    [(name, False) for name in (*mechanisms.names(), "google_rappor", "pem", "tree_hist")]
    + [(name, True) for name in ("l_grr", "l_osue", "loloha", "dbitflip", "rappor", "google_rappor")],
)
def test_every_mechanism_tells_its_constants(name, permanent):
    """Probabilities are fractions between 0 and 1 as texts, all else whole numbers that any JSON reader can read."""
    epsilon = {"coin": "2", "google_rappor": "5"}.get(name, "1")
    more = f'mechanism = "{name}"\n' + ('parameters = { preset = "UMA_RAPPOR_TYPE" }\n' if name == "google_rappor" else "")
    more += "" if not permanent else f"epsilon_permanent = {epsilon if name in ('dbitflip', 'google_rappor') else 2}\n"
    type_, values = ("boolean", "") if name in ("coin", "binary") else ("categorical", 'values = ["a", "b", "c"]\n')
    if name in ("pem", "tree_hist"):
        type_, values = "key", "discover = true\n"
    text = HEAD + METRIC.format(name="theme", type=type_, more=values + more).replace("epsilon = 1\n", f"epsilon = {epsilon}\n")
    entry = sheet(parse(text))["metrics"]["theme"]
    json.dumps(entry)
    flat = entry["constants"] | (entry["constants"].get("family") or {})
    for member, value in flat.items():
        if isinstance(value, int):
            assert 0 <= value < 1 << 53
        elif isinstance(value, str) and member not in ("kind", "label"):
            assert 0 < Fraction(value) < 1
    assert entry["layout"]["payload_bytes"] > 0
    assert (entry["allowance"]["answers"] is None) == (not permanent)


def test_budgets_are_in_millionths():
    """What a device may spend is told as the whole numbers that it adds up."""
    text = HEAD + "[budget]\nper_month = 1.5\nlifetime = 20\n" + METRIC.format(name="used", type="boolean", more="")
    entry = sheet(parse(text))
    assert entry["budget"] == {"per_month": 1_500_000, "lifetime": 20_000_000}
    assert entry["metrics"]["used"]["off"].startswith("it needs 31 nats a month, and the budget has 1.5: write ")
    assert entry["metrics"]["used"]["allowance"] | {"month": 0, "lifetime": 0} == {
        "cost": 1_000_000,
        "per_period": 1,
        "month": 0,
        "lifetime": 0,
        "answers": None,
        "answers_ever": None,
    }


def test_the_example_registry_has_a_sheet():
    """The one that is shipped, too."""
    example = Path(__file__).parents[2] / "deploy" / "metrics.toml"
    assert main(["registry", "show", "--json", str(example)]) == 0
