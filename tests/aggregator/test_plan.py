"""The plan: what it says is what mechanisms and decoders say, backwards it finds what forwards is enough, and nothing else."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from registries import metric_toml, registry_toml

from deniable import mechanisms, registry
from deniable.commands import entry as cli
from deniable.declared import fingerprint
from deniable.errors import ParameterError
from deniable.lint import lint
from deniable.registry import Metric
from deniable.wire.report import Stratum
from deniable_aggregator import decode
from deniable_aggregator.planning.outlook import EPSILON_STEPS, Terms, of_mechanisms
from deniable_aggregator.planning.precision import precision
from deniable_aggregator.planning.wait import first_release
from deniable_aggregator.publish.publisher import Publisher
from deniable_aggregator.store import Store
from deniable_aggregator.tally import from_cells

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "plan.md").read_text("utf-8")
SHOWN = [
    (command, table) for command, table in re.findall(r"```sh\ndeniable (plan [^\n]*)\n```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
]
PLAIN = [name for name in mechanisms.names() if name not in ("coin", "binary")]
REGISTRY = registry_toml(
    metric_toml("theme", values=["light", "dark", "system"], segments=["platform", "channel"]),
    metric_toml("cart", type="set", values=["a", "b", "c"], epsilon=0.5, sample=0.1, period="month"),
    metric_toml("start", range=[0, 1000], unit="ms", estimate="distribution"),
    segments={"platform": ["linux", "macos", "windows"], "channel": ["beta", "stable"]},
)


@pytest.fixture
def run(capsys):
    def run(*arguments):
        return cli.main(("plan", *map(str, arguments))), *capsys.readouterr()

    return run


@pytest.fixture
def declared(tmp_path):
    path = tmp_path / "metrics.toml"
    path.write_text(REGISTRY)
    return path


def listed(size=12, **changes):
    return Metric(id="", type="categorical", values=tuple(map(str, range(size))), **{"epsilon": "1"} | changes)


def how(name, size=12, epsilon=1.0):
    metric = listed(size, epsilon=str(epsilon), mechanism=name)
    return precision(metric, mechanisms.of(metric), size)


@pytest.mark.parametrize(("command", "table"), SHOWN)
def test_what_the_page_shows_is_printed(run, command, table):
    """The commands of docs/how-to/plan.md print the tables that stand there."""
    status, out, _ = run(*command.split()[1:])
    assert (status, out.splitlines()[: len(table.splitlines())]) == (0, table.splitlines())


def test_the_page_shows_commands():
    """The search for them finds some: an empty list would make the test above pass for nothing."""
    assert len(SHOWN) >= 3


@pytest.mark.parametrize("name", PLAIN)
def test_users_backwards_are_the_fewest(name):
    """So many users are within the wanted error, and one fewer is not."""
    outlook = how(name)
    users = outlook.users(0.02, 0.1)
    assert outlook.error(users, 0.1) <= 0.02 < outlook.error(users - 1, 0.1)


@pytest.mark.parametrize("name", ["grr", "subset", "local_hash", "hadamard", "pgr"])
def test_epsilon_backwards_is_the_least(name):
    """The needed epsilon is within the wanted error, and a step less is not."""
    (row,) = of_mechanisms(listed(), Terms(users=20_000, within=0.03), epsilon_needed=True, names=(name,))
    step = round(float(row.metric.epsilon) * EPSILON_STEPS)
    assert how(name, epsilon=step / EPSILON_STEPS).error(20_000, 0.1) == row.error <= 0.03
    assert how(name, epsilon=(step - 1) / EPSILON_STEPS).error(20_000, 0.1) > 0.03


def test_where_no_epsilon_is_enough():
    """An error that sampling the people alone exceeds has no epsilon."""
    (row,) = of_mechanisms(listed(), Terms(users=100, within=0.01), epsilon_needed=True, names=("grr",))
    assert (row.mechanism, row.error, row.wait) == (None, None, timedelta(days=3))


@pytest.mark.parametrize("name", PLAIN)
def test_a_difference_is_what_an_arm_is_for(name):
    """The smallest difference that arms of so many reports see is the one for which each arm needs so many."""
    outlook = how(name)
    difference = outlook.difference(30_000, 0.1)
    assert outlook.arm(difference, 0.1) <= 30_000 < outlook.arm(difference * 0.999, 0.1)
    assert outlook.difference(3, 0.1) is None


@pytest.mark.parametrize("name", ["grr", "l_grr", "hadamard", "pgr"])
def test_the_error_is_the_decoders(name):
    """Of a tally that is what is expected, the decoder states the planned error."""
    mechanism, n = how(name).mechanism, 4_000_000
    layout = mechanism.layout
    chances = np.zeros(layout.width)
    for cell in range(layout.width):
        supported = mechanism.supported(layout.pack(0, cell))
        low, high = map(float, mechanism.bounds()[:2])
        chances[cell] = np.mean([high if value in supported else low for value in range(10)])
    estimate = decode.estimate(mechanism, from_cells(layout, np.rint(n * chances).astype(np.int64)))
    assert estimate.stderr[0] == pytest.approx(how(name).stderr(n, 0.1), rel=1e-3)


def test_the_first_release_comes_when_the_publisher_makes_it(real_redis):
    """Of twice min_reports the first step is published; of one fewer it is not, and the plan says as much."""
    shop = registry.parse(registry_toml(metric_toml("x")))
    metric, store = shop.metrics["x"], Store(real_redis, "shop")
    noon = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()
    stratum = Stratum("x", 1, fingerprint(metric, mechanisms.of(metric).canonical), "2026-11-21", "")
    releases = []
    for cells in ([100, 0], [99, 0], [1, 0]):
        assert store.partitions[0].commit("test", [], {stratum: np.array(cells, np.int64)}, int(noon)) == []
        releases.append(len(Publisher(store, shop).publish(noon)))
    assert releases == [0, 0, 1]
    assert first_release(metric, None, shop.publication, 2400.0) == timedelta(hours=2)


def test_when_a_release_waits_for_the_close():
    """Segments, few reports and permanent responses each change when the first release comes."""
    publication = registry.parse(REGISTRY).publication
    day, close = timedelta(days=1), timedelta(days=2)
    assert first_release(listed(), None, publication, 200) == day
    assert first_release(listed(), None, publication, 199) == day + close
    assert first_release(listed(segments=("platform",)), None, publication, 5000) == day + close
    assert first_release(listed(), None, publication, 40) == 3 * day + close
    assert first_release(listed(epsilon_permanent="2"), None, publication, 40) is None
    assert first_release(listed(), None, replace(publication, early=False), 5000) == day + close
    assert first_release(listed(), None, replace(publication, trial=True), 1) == timedelta(0)


def test_in_a_trial_the_first_release_comes_at_once(tmp_path, capsys):
    """A length of 0 minutes says nothing to a person."""
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(metric_toml("a"), publication={"trial": True}))
    assert cli.main(["plan", str(path), "--users", "1000"]) == 0
    out = capsys.readouterr().out
    assert "at once" in out
    assert "0 minutes" not in out


def test_every_metric_and_cell_of_a_registry(run, declared):
    """A registry's plan has each metric, each kind of its cells, and the budget of all."""
    status, out, _ = run(declared, "--users", "1e5", "--json")
    document = json.loads(out)
    assert status == 0
    assert [(each["metric"], each["cell"], each["reports"]) for each in document["plan"]] == [
        ("theme", "", 100_000),
        ("theme", "platform", 33_333),
        ("theme", "channel", 50_000),
        ("theme", "platform x channel", 16_666),
        ("cart", "", 10_000),
        ("start", "", 100_000),
    ]
    assert document["plan"][5]["quantiles"] == {"p90": True, "p99": False}
    assert document["budget"]["reserved"] == pytest.approx(sum(document["budget"]["metrics"].values()))
    assert "A/B sees" in run(declared, "--users", "1e5")[1]


OFF = registry_toml(
    metric_toml("on", epsilon=1),
    metric_toml("strong", epsilon=3),
    metric_toml("large", period="week", epsilon=2),
    metric_toml("old", expires=date(2001, 1, 1)),
    budget={"per_month": 32.0, "lifetime": 1000.0},
    caps={"epsilon": 2.0},
)


@pytest.mark.parametrize("command", [["plan"], ["simulate", "--runs", "2", "--seed", "1"]])
def test_metrics_that_are_off_are_marked(capsys, tmp_path, command):
    """Above the caps, without room in the budget, or ended: no device reports them, which the row, a line and JSON say."""
    (tmp_path / "metrics.toml").write_text(OFF, "utf-8")
    arguments = [command[0], str(tmp_path / "metrics.toml"), "--users", "1000", *command[1:]]
    assert cli.main(arguments) == 0
    out = capsys.readouterr().out
    assert [line.partition("  ")[0] for line in out.split("\n\n")[0].splitlines()[1:]] == [
        *("on", "strong (off)", "large (off)", "old (off)"),
    ]
    assert "off: devices do not record it. What its row says is what it would show" in out
    assert "strong is off: a report may give away 3 nats, and the app allows 2: write epsilon = 2 in " in out
    assert "large is off: it needs 10 nats a month, and the metrics above leave 1 of 32: write " in out
    assert "old is off: its collection has ended (on 2001-01-01); write a later `expires` in metrics.toml" in out
    assert cli.main([*arguments, "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["off"]) == ["strong", "large", "old"]


@pytest.mark.slow("for each epsilon that is tried, the worst distribution of a number is searched for")
def test_metrics_that_have_ended_reserve_nothing(capsys, tmp_path):
    """The registry fits if those that are left do."""
    file = tmp_path / "metrics.toml"
    metrics = [metric_toml("old", expires=date(2001, 1, 1)), metric_toml("new")]
    file.write_text(registry_toml(*metrics, budget={"per_month": 32}), "utf-8")
    assert cli.main(["plan", str(file), "--users", "1000"]) == 0
    out = capsys.readouterr().out
    assert (
        "Budget: 31 of 32 nats are reserved in a calendar month; the registry fits. Metrics that have ended reserve none." in out
    )
    assert re.search(r"^Right guess in a year, .* at most: new \d+%; 50% is luck\.$", out, re.MULTILINE)
    assert cli.main(["plan", str(file), "--users", "1000", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["budget"]["metrics"]) == ["new"]


def test_a_registry_backwards(run, declared):
    """Without users it tells how many each metric needs, a sample of whom report; with them the epsilon of each."""
    needed = json.loads(run(declared, "--within", "0.02", "--json")[1])["plan"]
    assert all(each["error"] <= 0.02 for each in needed if not each["cell"])
    assert needed[4]["users"] == 10 * needed[4]["reports"]
    document = json.loads(run(declared, "--users", "1e5", "--within", "0.02", "--json")[1])
    assert all(0.019 < each["error"] <= 0.02 for each in document["plan"] if not each["cell"])
    assert {each["epsilon"] for each in document["plan"] if each["metric"] == "theme"} != {1.0}


@pytest.mark.parametrize("command", [["plan", "--users", "9"], ["simulate", "--users", "9"], ["account"]])
def test_what_cannot_be_planned_is_named_as_lint_names_it(capsys, tmp_path, command):
    """All metrics with a fault are named with their lines, not only the first one."""
    path = tmp_path / "metrics.toml"
    faulty = [metric_toml(f"m{number}", mechanism="rapor") for number in range(2)]
    path.write_text(registry_toml(*faulty))
    assert cli.main([*command, str(path)]) == 2
    words = capsys.readouterr().err
    faults = [str(fault) for fault in lint(path).faults]
    assert len(faults) == 2
    assert all(fault in words for fault in faults)


@pytest.mark.parametrize("epsilon", ["0.5", "1.5", "2"])
def test_quantiles_are_resolved_from_the_number_that_lint_says(run, tmp_path, epsilon):
    """Lint rounds the number, and the plan compares with what lint says."""
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(metric_toml("m", range=[0, 100], unit="l", estimate="distribution", epsilon=float(epsilon))))
    (note,) = lint(path).notes
    numbers = re.fullmatch(
        r"p90 is resolved from about ([\d,]+) reports, p99 from about ([\d,]+) \(rough\)", note.facts["quantiles"]
    )
    for name, written in zip(("p90", "p99"), numbers.groups(), strict=True):
        enough = int(written.replace(",", ""))
        assert f"{name} is resolved" in run(path, "--users", enough)[1]
        assert f"{name} is not resolved" in run(path, "--users", enough - 1)[1]


@pytest.mark.parametrize(
    ("option", "written", "meant"),
    [
        ("--within", "3", "0.03 (3 points)"),
        ("--difference", "1", "0.01 (1 point)"),
        ("--level", "95", "0.95 (95%)"),
        ("--share", "30", "0.3 (30%)"),
    ],
)
def test_a_percentage_without_its_sign_is_understood(run, option, written, meant):
    """The error asks whether hundredths were meant."""
    _, _, words = run("--values", "5", "--epsilon", "1", "--users", "1000", option, written)
    if option == "--within":
        _, _, words = run("--values", "5", "--epsilon", "1", option, written)
    assert words.strip().endswith(f"did you mean {meant}?")


def test_users_of_a_cell(run, declared):
    """So many people are needed that the cell of a row is within the wanted error, as the row says."""
    rows = [each for each in json.loads(run(declared, "--within", "0.02", "--json")[1])["plan"] if each["metric"] == "theme"]
    assert [each["users"] for each in rows] == [each["parts"] * rows[0]["users"] for each in rows]
    assert all(0.0199 < each["error"] <= 0.02 for each in rows)
    assert (
        "\nusers: how many people are needed in all, so that this row is within +-0.02.\n" in run(declared, "--within", "0.02")[1]
    )


def test_why_no_epsilon_is_enough(run, tmp_path):
    """A report is about some options, chance is too much, or the permanent epsilon bounds it, and what is needed."""
    path = tmp_path / "metrics.toml"
    many = metric_toml("many", type="set", values=list("abcdefghi"), epsilon=2.0)
    stays = metric_toml("stays", epsilon=1.0, epsilon_permanent=1.5)
    path.write_text(registry_toml(many, stays))
    out = run(path, "--users", "2000", "--within", "0.01")[1]
    about = "88.9% of the options at most, so 1,777"
    assert re.findall(f"^many: no epsilon is enough for .*: each report is about {about} are about each", out, re.MULTILINE)
    needed = json.loads(run(path, "--within", "0.01", "--json")[1])["plan"][0]["users"]
    assert f"about {float(f'{needed:.3g}'):,.0f} reports are needed at epsilon 2." in out
    assert re.search("^stays: .*: epsilon may be 1.5 at most, which is its epsilon_permanent; about ", out, re.MULTILINE)
    out = run("--values", "8", "--users", "200", "--within", "0.02")[1]
    assert len(re.findall("^no epsilon is enough .*: by chance alone", out, re.MULTILINE)) == 1


def test_numbers_and_sets(run):
    """Errors of a number are in its unit; of a set, they grow as its options share the reports."""
    _, out, _ = run("--range", "0", "60000", "--epsilon", "1", "--users", "1e5", "--json")
    (mean,) = json.loads(out)["plan"]
    assert (mean["of"], mean["share"], mean["detects"]) == ("mean", None, None)
    _, few, _ = run("--options", "4", "--epsilon", "1", "--users", "1e5", "--json")
    _, many, _ = run("--options", "16", "--epsilon", "1", "--users", "1e5", "--json")
    few, many = (json.loads(out)["plan"][0] for out in (few, many))
    assert many["error"] == pytest.approx(2 * few["error"])
    assert many["detects"] > 2 * few["detects"]


def test_a_wanted_error_of_a_number_is_part_of_its_range(run, declared):
    """The table says which length that is, in the unit of the number."""
    out = run("--range", "0", "60000", "--epsilon", "1", "--within", "0.01")[1]
    assert "\nwithin: 0.01 is part of the range: 600.\n" in out
    out = run(declared, "--within", "0.01")[1]
    assert "\nwithin: 0.01 is part of the range of start: 10 ms.\n" in out
    assert "within: " not in run("--values", "8", "--epsilon", "1", "--within", "0.01")[1]


def test_what_the_test_of_all_values_sees(run, declared):
    """Of two values it is what a single one shows, of more values more; sets, numbers and searches have no such test."""
    rows = {}
    for size in (2, 16, 128):
        out = run("--values", size, "--epsilon", "1", "--mechanism", "grr", "--users", "1e6", "--json")[1]
        (rows[size],) = json.loads(out)["plan"]
    assert rows[2]["overall"] == pytest.approx(rows[2]["difference"], rel=0.01)
    assert rows[16]["overall"] > 1.3 * rows[16]["difference"]
    assert rows[128]["overall"] > 2 * rows[128]["difference"]
    document = json.loads(run(declared, "--users", "1e5", "--json")[1])["plan"]
    assert [each["metric"] for each in document if each["overall"] is not None] == ["theme"] * 4
    out = run(declared, "--users", "1e5")[1]
    assert "overall" in out.splitlines()[0]
    assert "\noverall: " in out


def test_how_frequent_a_searched_answer_must_be(run, tmp_path):
    """A plan says it as of listed answers, and how many reports find a common answer."""
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(metric_toml("scanner.error", type="string", discover=True, epsilon=2.0)))
    (row,) = json.loads(run(path, "--users", "1e6", "--json")[1])["plan"]
    assert 0.01 < row["detects"] < 0.02
    out = run(path, "--users", "12")[1]
    assert "\nscanner.error: about 30,000 reports find an answer that 10% of people have, and about 2,700,000 one" in out


def test_arms_are_sized(run):
    """A rise from .10 to .12 needs so many reports an arm, and so many see it."""
    options = ("--values", "128", "--epsilon", "1", "--mechanism", "subset")
    (row,) = json.loads(run(*options, "--users", "1e5", "--difference", "0.02", "--json")[1])["plan"]
    assert row["arm"] == 149_977  # (1.95996 + 0.84162)^2 (V(.10) + V(.12)) / .02^2
    (again,) = json.loads(run(*options, "--users", 2 * row["arm"], "--json")[1])["plan"]
    assert again["difference"] == pytest.approx(0.02, rel=1e-4)
    assert again["arm"] is None
    table = run(*options, "--users", "1e5", "--difference", "0.02")[1]
    assert "an arm" in table.splitlines()[0]
    assert "149,977" in table.splitlines()[1]
    once = next(line for line in table.splitlines() if line.startswith("an arm: "))
    assert "one look" in once
    assert "deniable registry lint" in once


def test_arms_are_sized_without_users(run, declared):
    """How many reports an arm needs does not depend on how many people there are."""
    (document,) = json.loads(run("--values", "8", "--epsilon", "1", "--mechanism", "grr", "--difference", "5%", "--json")[1])[
        "plan"
    ]
    options = ("--values", "8", "--epsilon", "1", "--mechanism", "grr", "--difference", "0.05", "--users", "1e5")
    (with_users,) = json.loads(run(*options, "--json")[1])["plan"]
    assert document["arm"] == with_users["arm"]
    assert document["users"] is None
    assert run(declared, "--difference", "0.05")[0] == 0
    rows = json.loads(run("--values", "200", "--epsilon", "1", "--difference", "0.05", "--json")[1])["plan"]
    assert [row["arm"] for row in rows] == sorted(row["arm"] for row in rows)


@pytest.mark.parametrize(
    ("arguments", "about"),
    [
        (["--users", "many"], "--users: a whole number is needed, such as 100000 or 1e5, not 'many'"),
        (["--users", "1.5"], "--users: a whole number is needed, such as 100000 or 1e5, not '1.5'"),
        (["--within", "narrow"], "--within: a number or a percentage is needed, such as 0.03 or 3%, not 'narrow'"),
        (["--difference", "%"], "--difference: a number or a percentage is needed, such as 0.03 or 3%, not '%'"),
    ],
)
def test_what_is_no_number_is_refused_in_words(run, capsys, arguments, about):
    with pytest.raises(SystemExit) as ended:
        run("--values", "8", "--epsilon", "1", *arguments)
    assert ended.value.code == 2
    assert about in capsys.readouterr().err


def test_a_percentage_is_a_number(run):
    options = ("--values", "8", "--epsilon", "1", "--json")
    assert run(*options, "--within", "3%") == run(*options, "--within", "0.03")


@pytest.mark.parametrize(
    ("arguments", "about"),
    [
        (["--values", "8", "--epsilon", "1"], "state --users, --within, --difference or --leads-by"),
        (["metrics.toml"], "state --users, --within, --difference or --leads-by"),
        ([], "state --users, --within, --difference or --leads-by"),
        (["--values", "8", "--difference", "0.05"], "--difference needs --epsilon"),
        (["--users", "100", "--epsilon", "1"], "--epsilon goes with --values, --options or --range"),
        (["--values", "8", "--options", "8", "--users", "10", "--epsilon", "1"], "--values, --options and --range"),
        (["--values", "1", "--users", "10", "--epsilon", "1"], "2 to 65,536"),
        (["--values", "8", "--users", "10"], "--within"),
        (["--values", "8", "--users", "10", "--epsilon", "1", "--within", ".1"], "--within"),
        (["--values", "8", "--within", ".1"], "--within needs"),
        (["--values", "8", "--users", "0", "--epsilon", "1"], "users = 0: write a whole number of at least 1"),
        (["--values", "8", "--users", "10", "--epsilon", "1", "--share", "1"], "share = 1.0: write a number from 0 to below 1"),
        (["--values", "8", "--users", "10", "--epsilon", "1", "--level", "1"], "level = 1.0: write a confidence between 0 and 1"),
        (
            ["--values", "8", "--users", "10", "--epsilon", "1", "--difference", "0.95"],
            "difference = 0.95: write a number above 0, so that the share with it is at most 1",
        ),
        (["--values", "8", "--within", "2", "--epsilon", "1"], "within = 2.0: write a wanted error between 0 and 1"),
        (
            ["--range", "0", "60000", "--within", "600", "--epsilon", "1"],
            "--within 600: write it as a part of the range; 600 of 60000 is 0.01",
        ),
        (["--values", "8", "--users", "10", "--epsilon", "1", "--per-day", "0"], "reports a day = 0.0: write a number above 0"),
        (["--values", "8", "--users", "10", "--epsilon", "1", "--mechanism", "binary"], "binary"),
        (["--values", "8", "--users", "10", "--epsilon", "99"], "epsilon"),
        (["--values", "8", "--users", "10", "--epsilon", "1", "--segments", "0"], "segment"),
        (["--values", "8", "--users", "10", "--epsilon", "1", "--min-reports", "0"], "--min-reports"),
        (["--values", "8", "--users", "10", "--epsilon", "1", "--distribution"], "--range"),
        (["--range", "5", "5", "--users", "10", "--epsilon", "1"], "--range"),
        (["metrics.toml", "--values", "8", "--users", "10"], "--values goes without FILE: a registry states its own"),
        (["no.toml", "--users", "10"], "no.toml"),
    ],
)
def test_bad_input_is_refused_in_words(run, arguments, about):
    """What makes no sense ends with status 2 and a sentence."""
    status, out, error = run(*arguments)
    assert (status, out) == (2, "")
    assert about in error


def test_without_a_file_it_is_the_registry_here(run, declared, monkeypatch):
    """As of other commands. What describes a metric without a registry needs its kind."""
    monkeypatch.chdir(declared.parent)
    assert run("--users", "1e5") == run(declared, "--users", "1e5")
    status, _, error = run("--users", "1e5", "--epsilon", "1")
    rule = "--epsilon goes with --values, --options or --range: a registry states its own"
    assert (status, error) == (2, f"deniable plan: {rule}\n")
    monkeypatch.chdir("/")
    assert "metrics.toml: " in run("--users", "1e5")[2]


def test_a_number_of_users_is_whole(run):
    """Half a person is refused by the parser."""
    with pytest.raises(SystemExit):
        run("--values", "8", "--epsilon", "1", "--users", "1.5")


def test_terms_are_checked():
    """From Python, too."""
    with pytest.raises(ParameterError):
        Terms(users=0)


def test_an_error_in_the_unit_of_the_range_is_written_as_its_part(run):
    """A number of minutes is no percentage."""
    err = run("--range", "0", "10080", "--epsilon", "1", "--within", "30")[-1]
    assert "--within 30: write it as a part of the range; 30 of 10080 is 0.00298" in err
    assert "did you mean" not in err
