"""The subcommand ``account``: its table, its words, its exit status, its JSON and its picture."""

from __future__ import annotations

import json
import re
import sys
from datetime import date
from pathlib import Path
from unittest.mock import ANY
from xml.etree import ElementTree as ET

import pytest
from registries import metric_toml, registry_toml

from deniable.commands import entry as cli
from deniable_aggregator.accounting import statement as words
from deniable_aggregator.accounting.account import METHODS

EXAMPLE = str(Path(__file__).parents[2] / "deploy" / "metrics.toml")
SMALL = registry_toml(
    metric_toml("theme", values=["light", "dark"], epsilon_permanent=2),
    metric_toml("cart", epsilon=0.5, sample=0.1, period="month", min_reports=1000),
    budget={},
)


@pytest.fixture
def run(capsys):
    """Run the command; its exit status, and what it printed."""

    def run(*arguments):
        status = cli.main(("account", *map(str, arguments)))
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def small(tmp_path):
    """Write a registry that fits its budget."""
    path = tmp_path / "metrics.toml"
    path.write_text(SMALL)
    return path


def row(out, name):
    (text,) = (line for line in out.splitlines() if line.startswith(name))
    return text[42:].split()


def test_a_year_of_reports(run):
    """All methods, what to quote and why, and what to do next; a total that is worse than the plain sum is marked."""
    status, out, err = run("--epsilon", 1, "--reports", 365, "--all")
    assert (status, err) == (0, "")
    assert row(out, "plain sum") == ["365"]
    assert row(out, "advanced") == ["727.6", "(x)"]
    assert row(out, "Renyi") == ["250.56"]
    assert row(out, "exact, for any mechanisms") == ["244.64"]  # rounded up
    assert "(x) more than the plain sum" in out
    assert "Quote: epsilon 365, which needs no delta.\n" in out
    assert "Beside it: epsilon 244.64 with delta 1e-06: exact, for any mechanisms (Kairouz" in out
    assert "Next: --epsilon-permanent" in out


def test_two_totals_are_enough(run):
    """Without --all the plain sum is printed, and the one total worth quoting beside it, if there is any."""
    _, out, _ = run("--epsilon", 1, "--reports", 365)
    assert (row(out, "plain sum"), row(out, "exact, for any mechanisms")) == (["365"], ["244.64"])
    for key in ("advanced", "closed", "zcdp", "renyi"):
        assert METHODS[key].name not in out
    assert "(x)" not in out
    _, out, _ = run("--epsilon", 1, "--reports", 365, "--mechanism", "grr", "--domain-size", 128)
    assert METHODS["optimal"].name not in out
    assert row(out, "exact, for these mechanisms")
    _, out, _ = run("--epsilon", 2, "--reports", 3)
    assert not any(method.name in out for key, method in METHODS.items() if key != "basic")


def test_columns(run):
    """One for each delta, and for each of these one more of a household."""
    _, out, _ = run("--epsilon", "0.1", "--reports", 100, "--delta", 1e-6, 1e-9, "--group", 2)
    assert row(out, "plain sum") == ["10", "10", "20", "20"]
    assert row(out, "exact, for any")[0] == "4.7746"
    heads = next(line for line in out.splitlines() if line.startswith("epsilon in all"))
    for head in ("a device, 1e-06", "a device, 1e-09", "2 devices, 1e-06", "2 devices, 1e-09"):
        assert head in heads
    assert "All 2 devices of a person or a household: epsilon 20." in out


def test_a_delta_that_takes_nothing_off(run):
    """Few reports: the plain sum is all there is to say."""
    _, out, _ = run("--epsilon", 2, "--reports", 3)
    assert "A delta of 1e-06 takes nothing off: quote the first figure alone." in out
    _, out, _ = run("--epsilon", 1, "--reports", 45)
    assert re.search(r"A delta of 1e-06 takes off little \([\d.]+ in all\): quote the first figure alone", out)
    assert "Beside it" not in out


def test_kept_responses_instead(run):
    """They do not add up while the answer stays; a single report tells its own epsilon."""
    _, out, _ = run("--epsilon", 1, "--reports", 365, "--epsilon-permanent", 2)
    assert row(out, "plain sum") == ["2"]
    assert "between histories of answers that change, and return to an earlier one, at the same times" in out
    assert "Next" not in out
    _, out, _ = run("--epsilon", 1, "--days", 365, "--epsilon-permanent", 2, "--answers", 3)
    assert row(out, "plain sum") == ["6"]
    _, out, _ = run("--epsilon", 1, "--epsilon-permanent", 2)
    assert row(out, "plain sum") == ["1"]


def test_several_epsilons(run):
    """Each with its own number of reports, or all with one."""
    _, out, _ = run("--epsilon", 1, "0.5", "--reports", 2, 4)
    assert row(out, "plain sum") == ["4"]
    _, out, _ = run("--epsilon", 1, "0.5", "--reports", 2)
    assert row(out, "plain sum") == ["3"]


def test_a_mechanism_tells_less_than_the_worst(run):
    """Of a large domain most reports say nothing about two given answers."""
    _, out, _ = run("--epsilon", 1, "--reports", 365, "--mechanism", "grr", "--domain-size", 128, "--all")
    assert row(out, "exact, for any mechanisms") == ["244.64"]
    assert 21 < float(row(out, "exact, for these mechanisms")[0]) < 22


def test_what_readers_of_sums_learn(run):
    """Beside what holds, with its condition, and only where a crowd was stated."""
    _, out, _ = run("--epsilon", 1, "--reports", 10)
    assert "readers" not in out
    _, out, _ = run("--epsilon", 1, "--reports", 10, "--crowd", 1000)
    assert "What readers of the published sums learn, if you trust the operator, with delta 1e-06:" in out
    assert out.split("a report  ")[-1].split()[:4] == ["1", "1,000", "0.14868", "0.21565"]
    assert "together: central epsilon 0.50851, or 0.73757 if half are honest." in out
    assert "\nThe central figures need an operator who is trusted, and so many honest reports in each sum.\n" in out
    assert row(out, "plain sum") == ["10"]  # the local total is still quoted first
    assert out.index("Quote: epsilon 10") < out.index("readers")


def test_a_registry(run, small):
    """Each metric with what it tells, the budget it fits into, and a status to match."""
    status, out, _ = run(small, "--days", 365)
    assert status == 0
    assert "What a device gives away in 365 days, if it reports each metric as often as it may:" in out
    lines = [line.split() for line in out.splitlines()]
    assert ["theme", "l_grr", "365", "2", "kept", "responses", "at", "2", "4", "4", "4"] in lines
    assert ["cart", "binary", "13", "13", "reports", "at", "0.5", "6.5", "0.5", "30"] in lines
    assert "Budget: these metrics reserve 4.5 of 32 nats a month, and 34 of 1,920 ever.\n" in out
    assert "No central figure of theme: its reports are copies of a permanent response" in out
    assert out.split("  cart ")[1].split()[:3] == ["0.5", "1,000", "0.062687"]
    assert "epsilon_permanent" not in out  # cart is asked once a month, which is seldom
    assert "Next: quote these figures" in out
    assert "noise of its own" not in out  # the page of the site says it


@pytest.mark.parametrize("trial", [False, True])
@pytest.mark.parametrize("period", ["month", "day"])
def test_it_ends_in_few_lines(run, tmp_path, trial, period):
    """What to know before quoting, what the budget says and what to do next; the page of the site has the rest."""
    path = tmp_path / "metrics.toml"
    kinds = {
        "kept": {"epsilon_permanent": 2},
        "options": {"type": "set"},
        "many": {"segments": ["platform", "arm"]},
        "often": {},
    }
    metrics = [metric_toml(name, values=["a", "b"], period=period, **kind) for name, kind in kinds.items()]
    segments = {"platform": ["linux", "macos"], "arm": ["x", "y"]}
    path.write_text(registry_toml(*metrics, segments=segments, publication={"trial": trial}), "utf-8")
    _, out, _ = run(path)
    last = out.split("\n\n")[-1].splitlines()
    assert len(last) <= 5
    assert max(map(len, last)) < 300
    assert last[-2] == "What all figures hold for: https://deniable.github.io/deniable/explanation/accounting/#what-they-hold-for"
    assert last[-1].startswith("Next: ")


def test_no_advice_goes_in_a_circle(run, tmp_path):
    """A set keeps no answers, so it is to be asked less often; readers of several metrics are one line."""
    path = tmp_path / "metrics.toml"
    options = metric_toml("options", type="set", values=["a", "b", "c"], epsilon=0.5, period="month")
    path.write_text(registry_toml(options, metric_toml("cart", epsilon=0.5, period="week"), publication={"trial": True}), "utf-8")
    _, out, _ = run(path, "--days", 90)
    assert "Next: each report of cart has new noise: if a person's answer stays the same, declare epsilon_" in out
    assert "reveal; if it changes, ask less often." in out
    assert " Ask options less often: epsilon_permanent cannot be declared there." in out
    assert "No central figure of options, cart: a trial publishes" in out
    _, out, _ = run(path, "--metric", "options")
    assert "1 report at 0.5" in out
    assert "1 reports" not in out


def test_the_registry_here(run, small, monkeypatch):
    """By default metrics.toml of the working directory, over a calendar month."""
    monkeypatch.chdir(small.parent)
    status, out, _ = run("--metric", "theme")
    assert status == 0
    assert "What a device gives away in a calendar month, if it reports each metric as often as it may:" in out
    assert "cart" not in out
    assert "Next: quote these figures" in out


def test_a_budget_that_does_not_allow_it(run, tmp_path):
    """The status says so, and the words name what costs most."""
    daily = tmp_path / "metrics.toml"
    text = Path(EXAMPLE).read_text("utf-8").replace('period = "month"\n', "")
    daily.write_text(text.replace('"search-engines.txt"', f'"{Path(EXAMPLE).with_name("search-engines.txt")}"'), "utf-8")
    status, out, _ = run(daily)
    assert status == 1
    assert "They do not fit: lint refuses such a registry, and in apps the last metrics are off. Most is reserved for" in out
    status, out, _ = run(daily, "--metric", "crash.site")
    assert (status, out.splitlines()[-1]) == (
        1,
        "Next: ask less often, with less epsilon or fewer values, or declare a budget that has room.",
    )


def test_a_metric_that_has_ended_reserves_nothing(run, tmp_path):
    """As in lint and in a plan; of no other metric it takes room. Its reports are counted if it is named."""
    path, parts = tmp_path / "metrics.toml", [metric_toml("now"), metric_toml("before", expires=date(2020, 1, 1))]
    path.write_text(registry_toml(*parts, budget={"per_month": 31.0}), "utf-8")
    status, out, err = run(path)
    assert (status, "31 of 31 nats a month" in out, "before" in out) == (0, True, False)
    assert err == "Collection has ended of before, so this leaves it out; --metric counts it all the same.\n"
    assert run(path, "--metric", "now", "before")[0] == 1
    path.write_text(registry_toml(parts[1]), "utf-8")
    assert run(path) == (2, "", ANY)


def test_no_more_is_quoted_than_what_is_reserved(run, tmp_path):
    """A question that is asked for longer than its part of the budget lasts spends no more than that."""
    path = tmp_path / "metrics.toml"
    path.write_text(SMALL, "utf-8")  # 4 for both kept answers, and 60 months of 0.5
    _, out, _ = run(path, "--days", 3650)
    assert row(out, "plain sum") == ["64.5"]
    assert "Quote: epsilon 34, which needs no delta (the budget stops there)." in out


def test_the_example_fits_its_own_budget(run):
    """The registry that is shipped asks for no more than it lets a device spend."""
    status, out, _ = run(EXAMPLE)
    assert (status, "The budget is too small" in out) == (0, False)


def test_reports_of_a_registry(run, small):
    """A number of reports in place of days."""
    _, out, _ = run(small, "--reports", 1)
    assert "What a device gives away if each metric is reported the times stated:" in out
    assert row(out, "plain sum") == ["1.5"]


def test_json(run, small):
    """One object with everything that the words have, unrounded."""
    status, out, _ = run(small, "--group", 3, "--json", "--check", "--delta", 1e-6, 1e-9)
    written = json.loads(out)
    assert status == 0
    first, second = written["totals"]
    assert (first["delta"], second["delta"]) == (1e-6, 1e-9)
    assert first["basic"] == 4 + 0.5 == first["quote"]["basic"]
    assert first["optimal"] <= second["optimal"] <= first["basic"]
    assert {metric["metric"]: metric["spends"] for metric in written["metrics"]} == {"theme": 2, "cart": 1}
    assert written["fits"] is True
    assert written["budget"]["allowed_in_all"] == written["budget"]["reserved_in_month"] == 4.5
    assert written["budget"]["reserved_ever"] == 34
    reserved = {each["metric"]: (each["reserved_in_month"], each["reserved_ever"]) for each in written["metrics"]}
    assert reserved == {"theme": (4, 4), "cart": (0.5, 30)}
    assert written["group"]["devices"] == 3
    assert written["group"]["totals"][0]["basic"] == 13.5
    assert written["group"]["of_the_pair_alone"][0]["epsilon"] == pytest.approx(3 * min(first["exact"], first["basic"]), abs=1e-4)
    (cart,) = written["readers"]["reports"]
    assert (cart["of"], cart["honest"], cart["occasions"]) == ("cart", 1000, 1)
    assert cart["epsilon"] < cart["if_half_are_honest"] < cart["local"]
    assert [each["of"] for each in written["readers"]["refused"]] == ["theme"]
    theirs = written["dp_accounting"]
    assert [each["epsilon"] for each in theirs] == pytest.approx([first["optimal"], second["optimal"]], abs=1e-2)


def test_json_of_numbers(run):
    """What was given stands beside what it comes to."""
    _, out, _ = run("--epsilon", 1, "--reports", 7, "--json")
    written = json.loads(out)
    assert written["spends"] == [{"epsilon": 1, "reports": 7}]
    assert written["readers"]["reports"] == []
    assert "budget" not in written


def test_a_second_opinion(run):
    """dp-accounting's total stands beside ours."""
    _, out, _ = run("--epsilon", "0.5", "--reports", 100, "--check")
    assert "dp-accounting, for any mechanisms, delta 1e-06: 33.3198; ours is 33.3198." in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--epsilon", "17"), "deniable account: epsilon = '17': write a number of nats above 0 and at most 16"),
        (("--epsilon", "x"), "deniable account: epsilon = 'x': write a number of nats above 0 and at most 16"),
        (("--epsilon", "1", "--delta", "0"), "deniable account: delta = 0.0: write a probability from 1e-15 to below 1"),
        (("--epsilon", "1", "--reports", "-1"), "deniable account: --reports = -1: write a whole number of at least 1"),
        (("--epsilon", "1", "--reports", "1", "2"), "--reports has 2 numbers: write one, or one for each of the 1 epsilons"),
        (("--epsilon", "1", "--reports", "1", "--days", "2"), "either --days, with a report on each, or --reports"),
        (("x.toml", "--epsilon", "1"), "either FILE and --metric, or --epsilon"),
        (("--epsilon", "1", "--answers", "2"), "--answers goes with --epsilon-permanent"),
        (
            ("--epsilon", "1", "--days", "9", "--epsilon-permanent", "2", "--answers", "0"),
            "deniable account: --answers = 0: write a whole number of at least 1",
        ),
        (("--epsilon", "1", "--sample", "2"), "write a share above 0 and at most 1"),
        (("--epsilon", "1", "--sample", "x"), "write a share above 0 and at most 1"),
        (("--epsilon", "1", "--group", "0"), "deniable account: devices = 0: write a whole number of at least 1"),
        (("--epsilon", "1", "--crowd", "0"), "deniable account: crowd = 0: write a whole number of at least 1"),
        (("--epsilon", "1", "--mechanism", "none"), "mechanism = 'none': write one of"),
        ((EXAMPLE, "--sample", "1"), "--sample goes with --epsilon; a registry states its own"),
        ((EXAMPLE, "--epsilon-permanent", "1"), "--epsilon-permanent goes with --epsilon"),
        ((EXAMPLE, "--reports", "1", "2"), "one --reports is for all metrics of a registry"),
        ((EXAMPLE, "--reports", "1", "--days", "2"), "days and reports are both given: leave one of them out"),
        ((EXAMPLE, "--metric", "x"), "metric = 'x': write one of those in "),
        (("missing.toml",), "the registry is missing"),
    ],
)
def test_wrong_usage(run, arguments, words):
    """What is wrong is said in one line, and the status is 2."""
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("deniable account: ")
    assert words in err


@pytest.mark.parametrize(
    ("arguments", "total"),
    [
        (("--epsilon", "1", "0.5", "--reports", "50", "20", "--epsilon-permanent", "2"), "60"),
        ((EXAMPLE, "--metric", "ui.theme", "cart.size", "return.regretted", "--days", "40"), "13.7"),
        ((EXAMPLE, "--metric", "cart.size", "--reports", "3"), "2.4"),
    ],
)
def test_a_picture(run, tmp_path, arguments, total):
    """Totals over the reports or the days, as a well-formed SVG that names each curve and where it ends."""
    path = tmp_path / "account.svg"
    _, out, err = run(*arguments, "--plot", path, "--json")
    json.loads(out)
    assert err == f"Plot: {path}\n"
    ET.parse(path)
    assert f"<!-- plain sum: {total} -->" in path.read_text()
    assert "<!-- exact, any mechanisms: " in path.read_text()


def test_a_picture_that_cannot_be_drawn(run, tmp_path, monkeypatch):
    """A file that cannot be written, and a library that is not there, are faults of the command line."""
    status, _, err = run("--epsilon", 1, "--plot", tmp_path / "missing" / "a.svg")
    assert (status, err[:48]) == (2, "deniable account: --plot cannot be written: [Err")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "deniable_aggregator.accounting.plot", raising=False)
    status, out, err = run("--epsilon", 1, "--plot", tmp_path / "a.svg")
    assert (status, out) == (2, "")
    assert "pip install 'deniable[plots]'" in err


@pytest.mark.parametrize(
    ("epsilon", "written"),
    [(244.634141, "244.64"), (10.0, "10"), (10.000000000001, "10"), (0.05301234, "0.053013"), (7211.77, "7,211.8"), (0.0, "0")],
)
def test_numbers_are_written_rounded_up(epsilon, written):
    """What is printed is no smaller than what was computed."""
    assert words.number(epsilon) == written


def test_the_page_shows_what_is_printed(run):
    """Every row and figure of the page on accounting is one that the command prints, and every row of the table is explained."""
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "accounting.md").read_text("utf-8")
    _, out, _ = run("--epsilon", 1, "--reports", 365)
    table = page.split("```\n")[2].strip().splitlines()
    assert len(table) > 5
    assert [line for line in table if line and line not in out.splitlines()] == []
    _, out, _ = run("--epsilon", 1, "--reports", 365, "--mechanism", "grr", "--domain-size", 128, "--all")
    figures = [row(out, name)[0] for name in ("plain sum", "exact, for any", "exact, for these")]
    assert "has the total {} by the plain sum, {} for any mechanisms, and {} for GRR".format(*figures) in page
    for method in METHODS.values():
        assert f"| {method.name} |" in page


def test_the_file_stands_first_as_in_other_commands(run, small):
    """There is no second name for it."""
    assert run(small)[0] == 0
    with pytest.raises(SystemExit):
        run("--registry", small)


def test_a_month_counts_no_more_answers_than_the_device_makes(run, tmp_path):
    """Five weeks may begin in a month, but a metric with answers_per_month = 2 is answered twice."""
    theme = metric_toml(
        "ui.theme", values=["a", "b", "c", "d", "e", "f"], epsilon=1.0, epsilon_permanent=1.5, period="week", answers_per_month=2
    )
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(theme), "utf-8")
    (use,) = json.loads(run(path, "--json")[1])["metrics"]
    assert (use["kept_responses"], use["basic"]) == (2, use["reserved_in_month"])


def test_what_the_ledger_counts_for_a_first_report(run, tmp_path):
    """The report reveals its own epsilon, and the ledger counts the kept response that it is drawn from."""
    purpose = metric_toml("trip.purpose", values=["work", "visit"], epsilon=1.0, epsilon_permanent=2.0, period="month")
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(purpose), "utf-8")
    _, out, _ = run(path)
    assert "1 report at 1 (the ledger counts 2)" in out
    assert "1 report at 1 (" not in run(path, "--reports", 2)[1]
