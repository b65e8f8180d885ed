"""Commands of the first hour: init, explain, sent."""

from __future__ import annotations

import json
import re
import shlex
import sys
from dataclasses import replace
from datetime import date

import pytest
from registries import metric_toml, registry_toml

from deniable.cli import usage
from deniable.cli.decision import Decision
from deniable.client import Client
from deniable.commands import entry as cli
from deniable.commands import explain, init, sent
from deniable.commands.parser import Parser
from deniable.declared import Declared
from deniable.device.journal import Journal
from deniable.device.state import State
from deniable.errors import ConfigurationError, RegistryError
from deniable.limits.admission import admit
from deniable.limits.allowance import MICRO
from deniable.lint import lint
from deniable.registry import load
from deniable.registry.tables import Budget
from deniable.wire.report import Report, Stratum


def run(command, *arguments):
    parser = Parser(prog="deniable x")
    return getattr(command, command.__name__.rpartition(".")[2])(parser)(parser.parse_args(list(map(str, arguments))))


@pytest.mark.parametrize(
    ("options", "metrics", "question"),
    [((), "two", "ui.theme dark"), (("--web",), "two", "ui.theme dark"), (("--cli",), "six", "app.system linux")],
)
def test_init_writes_what_lint_has_nothing_against(tmp_path, monkeypatch, capsys, options, metrics, question):
    """The file has neither faults nor warnings, is named after its folder, and three commands follow, which are read."""
    folder = tmp_path / "My Shop 2"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert run(init, *options) == 0
    findings = lint("metrics.toml")
    assert (findings.faults, findings.warnings) == ((), ())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"metrics.toml: {metrics} metrics of my-shop. Next:"
    assert [line.split("#")[0].strip() for line in lines[1:]] == [
        "deniable registry lint",
        f"deniable explain {question}",
        "deniable serve",
    ]
    assert cli.main(shlex.split(lines[1], comments=True)[1:]) == 0
    assert cli.main(shlex.split(lines[2], comments=True)[1:]) == 0


@pytest.mark.parametrize(("name", "instead"), [("My Shop", "my-shop"), ('a"b', "a-b"), ("7", "app")])
def test_init_of_what_is_no_name(tmp_path, monkeypatch, name, instead):
    """It tells of the option, not of a line in a file that was never written."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        run(init, "--app", name)
    assert str(caught.value) == f"--app {name!r} is no lower-case name; write --app {instead}"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", [(), ("--web",)])
def test_init_says_why_its_budget_is_what_it_is(tmp_path, monkeypatch, options):
    """The budget's comment has what the metrics need, and the bounds without the table."""
    monkeypatch.chdir(tmp_path)
    run(init, *options)
    text = (tmp_path / "metrics.toml").read_text("utf-8")
    (numbers,) = re.findall(r"need ([\d.]+) nats a month.* without this table: (\d+) and (\d+)", text)
    admission = admit(load("metrics.toml"), None, date(2026, 11, 21))
    needed = sum(each.allowance.month for each in admission.metrics.values()) / MICRO
    assert [float(number) for number in numbers] == [needed, Budget().per_month, Budget().lifetime]


@pytest.mark.parametrize(("option", "metric"), [("", "export.used"), ("--cli", "app.command")])
def test_init_leaves_room_for_metrics_of_the_maker(tmp_path, monkeypatch, option, metric):
    """Two more, each as large as one that is there, fit into the budget."""
    monkeypatch.chdir(tmp_path)
    run(init, *filter(None, [option]))
    registry = load("metrics.toml")
    more = {name: replace(registry.metrics[metric], id=name) for name in ("own.first", "own.second")}
    assert not admit(replace(registry, metrics=registry.metrics | more), None, date(2026, 11, 21)).faults


def test_init_for_web_pages_asks_what_a_new_browser_may_answer(tmp_path, monkeypatch):
    """No metric keeps responses: one would be asked only after weeks."""
    monkeypatch.chdir(tmp_path)
    run(init, "--web")
    assert [each.permanent for each in load("metrics.toml").metrics.values()] == [False, False]


@pytest.mark.parametrize("options", [(), ("--cli",)])
def test_init_keeps_to_the_lifetime_of_all_other_registries(tmp_path, monkeypatch, options):
    """It writes none, and its comment says what holds."""
    monkeypatch.chdir(tmp_path)
    run(init, *options)
    budget = load("metrics.toml").budget
    (months,) = re.findall(r"and ever (\d+) times that", (tmp_path / "metrics.toml").read_text("utf-8"))
    assert budget.lifetime == int(months) * budget.per_month == Budget(per_month=budget.per_month).lifetime


def test_usage_has_an_answer_to_each_metric_of_a_tool(tmp_path, monkeypatch):
    """What `record_usage` records is what ``init --cli`` declares, and each system and version of Python is listed."""
    monkeypatch.chdir(tmp_path)
    run(init, "--cli")
    metrics = load("metrics.toml").metrics
    known = usage.answers(Decision(agreed=True, since="2026-01-01"), "0.1.7", "build")
    assert known.keys() == metrics.keys()
    for id_, answer in known.items():
        metrics[id_].position(answer)
    admission = admit(load("metrics.toml"), None, date(2026, 11, 21))
    needed = sum(each.allowance.month for each in admission.metrics.values()) / MICRO
    assert f"The metrics below need {needed:g} nats a month." in (tmp_path / "metrics.toml").read_text("utf-8")


def test_init_needs_no_segments_of_an_app(tmp_path, monkeypatch):
    """An app that gives no more than the registry and consent records at once."""
    monkeypatch.chdir(tmp_path)
    run(init)
    with Client(registry="metrics.toml", consent=True, state=None, strict=True) as client:
        assert client.explain("ui.theme", "dark").segment_bits == 0


def test_init_with_a_trial(tmp_path, monkeypatch, capsys):
    """With --trial the file is that of a trial and else the same, and what comes next names the file."""
    monkeypatch.chdir(tmp_path)
    run(init, "--app", "shop", "--trial", "--file", "trial.toml")
    lines = [line.split("#")[0].strip() for line in capsys.readouterr().out.splitlines()[1:]]
    assert lines[0] == "deniable registry lint trial.toml"
    assert [line.partition(" --registry ")[2] for line in lines[1:]] == ["trial.toml", "trial.toml"]
    run(init, "--app", "shop")
    trial, plain = load("trial.toml"), load("metrics.toml")
    assert (trial.publication.trial, plain.publication.trial) == (True, False)
    assert trial.metrics == plain.metrics


def test_init_with_a_trial_and_segments(tmp_path, monkeypatch):
    """The lines that are commented out are sound as well."""
    monkeypatch.chdir(tmp_path)
    run(init, "--app", "shop", "--file", "shop.toml")
    path = tmp_path / "shop.toml"
    path.write_text(re.sub(r"^# (?=\[|\w+ = )", "", path.read_text("utf-8"), flags=re.MULTILINE), "utf-8")
    findings = lint(path)
    assert not findings.faults
    assert ["trial" in warning.rule for warning in findings.warnings] == [True]
    loaded = load(path)
    assert (loaded.publication.trial, loaded.metrics["ui.theme"].segments) == (True, ("platform",))


def test_init_overwrites_nothing(tmp_path, monkeypatch):
    """A file that is there stays as it is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "metrics.toml").write_text("mine", "utf-8")
    with pytest.raises(ConfigurationError, match="is there already, and is left alone"):
        run(init)
    with pytest.raises(ConfigurationError, match=r"write two lines into it: \[publication\] and trial = true$"):
        run(init, "--trial")
    assert (tmp_path / "metrics.toml").read_text("utf-8") == "mine"
    run(init, "--app", "shop", "--file", "shop.toml")
    with pytest.raises(ConfigurationError, match=r"^shop\.toml is there already, the registry of shop, and is left alone"):
        run(init, "--app", "blog", "--file", "shop.toml")


@pytest.mark.parametrize(
    ("metric", "answer", "values"),
    [
        ("export.used", "perhaps", "an answer to export.used must be yes or no"),
    ],
)
def test_explain_lists_the_values(tmp_path, monkeypatch, metric, answer, values):
    """What is no answer gets those that are; it is not repeated."""
    monkeypatch.chdir(tmp_path)
    run(init)
    with pytest.raises(ConfigurationError) as caught:
        run(explain, metric, answer)
    assert str(caught.value).endswith(values)
    assert answer not in str(caught.value)


def test_explain_of_what_counts_as_something_else(tmp_path, monkeypatch, capsys):
    """It is said as what it counts, and what it may have meant, and then explained."""
    monkeypatch.chdir(tmp_path)
    run(init)
    capsys.readouterr()
    assert run(explain, "ui.theme", "darkk") == 0
    assert capsys.readouterr().out.startswith(
        "'darkk' is not declared, so it counts as 'something else'; did you mean 'dark'?\nui.theme"
    )


def test_explain_names_the_option_that_is_none(tmp_path, capsys):
    """Without `other` it is refused, with the form of an answer; a list in brackets also with it. No option is an answer."""
    path = tmp_path / "metrics.toml"
    keys = {"type": "set", "values": ["news", "comedy", "rest"], "epsilon": 1, "period": "month"}
    path.write_text(registry_toml(metric_toml("used", **keys), metric_toml("open", **keys, other="rest")), "utf-8")
    form = "write options with commas, such as news,comedy, and '' for none. The options are news, comedy, rest"
    for metric, answer, option in [("used", "news,cooking", "cooking"), ("open", '["news"', '["news"'), ("open", "[]", "[]")]:
        with pytest.raises(ConfigurationError) as caught:
            run(explain, metric, answer, "--registry", path)
        assert str(caught.value).startswith(f"{option!r} is no option of {metric}")
        assert str(caught.value).endswith(f": {form}")
    assert run(explain, "open", "news,cooking", "--registry", path) == 0
    assert capsys.readouterr().out.startswith("'cooking' is not declared, so it counts as 'rest'\nopen")
    assert run(explain, "used", "", "--registry", path) == 0
    assert "A report of this answer might look like this" in capsys.readouterr().out


def test_explain_needs_a_metric_only(capsys):
    with pytest.raises(SystemExit):
        run(explain)
    assert capsys.readouterr().err.endswith("the following arguments are required: METRIC\n")


def test_explain_of_an_answer_of_several_words(tmp_path):
    """It is one argument: options with commas, other answers in quotes."""
    path = tmp_path / "metrics.toml"
    used = metric_toml("used", type="set", values=["news", "comedy", "sport"], epsilon=1, period="month")
    path.write_text(registry_toml(used, metric_toml("theme", values=["light", "very dark"], epsilon=1, period="month")), "utf-8")
    with pytest.raises(ConfigurationError, match=r"used is one argument: write it with commas: news,comedy$"):
        run(explain, "used", "news", "comedy", "--registry", path)
    with pytest.raises(ConfigurationError, match=r"theme is one argument: write it as one word in quotes: 'very dark'$"):
        run(explain, "theme", "very", "dark", "--registry", path)
    assert run(explain, "used", "news,comedy", "--registry", path) == 0
    assert run(explain, "theme", "very dark", "--registry", path) == 0


def test_explain_of_a_mistyped_metric(tmp_path, monkeypatch):
    """The nearest metric is named; where none is near, all are."""
    monkeypatch.chdir(tmp_path)
    run(init)
    with pytest.raises(ConfigurationError, match=r"metrics.toml declares no ui.them; did you mean ui.theme\?$"):
        run(explain, "ui.them")
    with pytest.raises(ConfigurationError, match=r"metrics.toml declares no xyzzy, but ui.theme, export.used$"):
        run(explain, "xyzzy")


def test_explain_lists_the_first_of_many(tmp_path):
    """Of many values the first are listed, with the number of the others."""
    path = tmp_path / "metrics.toml"
    head = 'format = 1\napp = "shop"\n[metrics.a]\nepsilon = 1\ndescription = "d"\nowner = "o"\n'
    path.write_text(f'{head}type = "categorical"\nvalues = {[str(i) for i in range(30)]}\n', "utf-8")
    with pytest.raises(ConfigurationError, match=r": 0, 1, .*, 19, and 10 more$"):
        run(explain, "a", "30", "--registry", path)
    path.write_text(f'{head}type = "product"\nfactors = {{ x = ["a", "b"], y = ["c", "d"] }}\n', "utf-8")
    with pytest.raises(ConfigurationError, match=r": a,c; a,d; b,c; b,d$"):
        run(explain, "a", "z", "--registry", path)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Keep the state of an app that has sent two reports where deniable keeps states."""
    monkeypatch.setenv("DENIABLE_STATE_DIR", str(tmp_path / "states"))
    journal = Journal(State(tmp_path / "states" / "shop"))
    stratum = Stratum("ui.theme", 1, "f" * 16, "2026-11", "platform=linux")
    journal.add([Report(stratum, b"\x01"), Report(stratum, b"\x02")])
    return tmp_path / "states"


def test_sent_shows_what_left_the_device(place, capsys):
    """What was sent is a table, the newest first, and JSON for programs; the app is found where there is only one."""
    assert run(sent) == 0
    assert capsys.readouterr().out.splitlines() == [
        "METRIC    VERSION  PERIOD   SEGMENT         SENT AS BYTES",
        "ui.theme  1        2026-11  platform=linux  02",
        "ui.theme  1        2026-11  platform=linux  01",
        "No report waits on this device.",
    ]
    assert run(sent, place / "shop", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert [each["payload"] for each in listed] == ["02", "01"]
    assert listed[0]["metric"] == "ui.theme"


def test_sent_says_what_each_report_names(place, tmp_path, monkeypatch, capsys):
    """With the app's registry, which is read where it is; one of another app, or a damaged one, changes nothing."""
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(metric_toml("ui.theme", values=["light", "dark", "system"], mechanism="grr")), "utf-8")
    stratum = Stratum("ui.theme", 1, Declared.of(load(path).metrics["ui.theme"]).fingerprint, "2026-11", "")
    Journal(State(place / "shop")).add([Report(stratum, b"\x02")])
    monkeypatch.chdir(tmp_path)
    for options in ((), ("--registry", path)):
        assert run(sent, *options) == 0
        assert capsys.readouterr().out.splitlines()[:3] == [
            "METRIC    VERSION  PERIOD   SEGMENT         SENT AS BYTES  SAYS",
            "ui.theme  1        2026-11                  02             system",
            "ui.theme  1        2026-11  platform=linux  02",
        ]
    path.write_text("format = 2", "utf-8")
    assert run(sent) == 0
    assert "SAYS" not in capsys.readouterr().out
    with pytest.raises(RegistryError):
        run(sent, "--registry", path)


def test_sent_makes_nothing_and_guesses_nothing(place, tmp_path, capsys):
    """Where there is no state none is made; of several apps one is named; an empty journal says so."""
    with pytest.raises(ConfigurationError, match="no app keeps its state in"):
        run(sent, tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere").exists()
    other = Journal(State(place / "other"))
    other.add([])
    with pytest.raises(ConfigurationError, match=r"name one: .*other, .*shop"):
        run(sent)
    assert run(sent, place / "other") == 0
    assert capsys.readouterr().out.startswith("nothing was sent")


def test_these_commands_need_nothing_but_the_sdk():
    """They import no module of an extra."""
    assert {module.__name__.partition(".")[0] for module in (explain, init, sent)} == {"deniable"}
    assert sys.modules["deniable.commands.sent"] is sent
