"""Telemetry of command line tools: who is asked, what is kept of the answer, and the command of each library."""

from __future__ import annotations

import argparse
import io
import logging
import os
import re
import sys
import time
from datetime import UTC, date, datetime, timedelta

import pytest
from registries import metric_toml, registry_toml

import deniable
from deniable.cli import Telemetry, command, decision, usage
from deniable.cli.decision import Decision
from deniable.client import helper
from deniable.declared import Declared
from deniable.device.journal import Journal
from deniable.device.state import State
from deniable.messages.log import log
from deniable.process.surroundings import _CI, state_root
from deniable.registry import load
from deniable.transport import Batch, Spool
from deniable.wire.report import Report, Stratum

DSN = "https://key@t.example/shop"


class Terminal(io.StringIO):
    """A terminal at which somebody answers, or nobody."""

    def isatty(self):
        return True


@pytest.fixture
def registry(tmp_path):
    path = tmp_path / "metrics.toml"
    path.write_text(
        registry_toml(
            metric_toml("app.new", description="Whether it is new"),
            metric_toml("app.command", values=["build", "other"], other="other"),
        )
    )
    return path


@pytest.fixture
def telemetry(registry, monkeypatch):
    """Give the telemetry of a tool whose user sits at a terminal and says yes."""
    for name in (*_CI, "DO_NOT_TRACK", "DENIABLE_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "argv", ["shop", "build"])
    monkeypatch.setattr(deniable, "_client", None)
    monkeypatch.setattr("deniable.process.exits.at_exit", lambda *_: None)
    yield Telemetry(DSN, registry=registry, version="1.2.3")
    deniable.close(0)


def sit(monkeypatch, text):
    """Sit at a terminal, with an answer: in each test, since pytest has streams of its own for each phase."""
    monkeypatch.setattr(sys, "stdin", Terminal(text))
    monkeypatch.setattr(sys, "stderr", Terminal())


@pytest.mark.parametrize(
    ("text", "agreed"), [("y\n", True), ("YES\n", True), ("\n", False), ("n\n", False), ("what?\n", False), ("", False)]
)
def test_a_person_is_asked_once(telemetry, monkeypatch, text, agreed):
    """In plain words, what would be asked among them; the default is no, and whatever they say, they are not asked again."""
    sit(monkeypatch, text)
    assert telemetry.ask() is agreed
    question = sys.stderr.getvalue()
    assert "Whether it is new" in question
    assert "[y/N]" in question
    assert "telemetry show" in question
    assert "what was sent cannot be taken back" in question
    taken = "yes. Thank you" if agreed else "no, so nothing is recorded"
    change = f"{telemetry.command} telemetry {'off' if agreed else 'on'}"
    assert question.endswith(f" Yes or no? [y/N] This is a {taken}. To change it: {change}\n")
    sit(monkeypatch, "y\n")
    assert telemetry.ask() is agreed
    assert sys.stderr.getvalue() == ""
    assert telemetry.decision.agreed is agreed


@pytest.mark.parametrize(("text", "agreed"), [("Ja\n", True), ("yes\n", False), ("\n", False)])
def test_an_app_asks_in_its_own_words(telemetry, monkeypatch, text, agreed):
    """They are all that is printed, and it says what means yes."""
    sit(monkeypatch, text)
    assert telemetry.ask("Darf shop zählen, wie es benutzt wird? [j/N]", yes={"j", "ja"}) is agreed
    assert sys.stderr.getvalue() == "Darf shop zählen, wie es benutzt wird? [j/N] "
    assert telemetry.decision.agreed is agreed


@pytest.mark.parametrize(
    "where", [*(f"{name}=1" for name in _CI), "DO_NOT_TRACK=1", "DENIABLE_DISABLED=1", "stdin", "stderr", "none", "telemetry"]
)
def test_where_nobody_is_asked(telemetry, monkeypatch, where):
    """Not in CI, without a terminal, after an opt-out, or by the command that decides: and nothing is recorded or written."""
    sit(monkeypatch, "y\n")
    name, is_variable, value = where.partition("=")
    if is_variable:
        monkeypatch.setenv(name, value)
    elif where == "none":
        monkeypatch.setattr(sys, "stdin", None)
    elif where == "telemetry":
        monkeypatch.setattr(sys, "argv", ["shop", "telemetry", "off"])
    else:
        monkeypatch.setattr(sys, where, io.StringIO("y\n"))
    assert not telemetry.ask()
    assert "[y/N]" not in (sys.stderr.getvalue() if isinstance(sys.stderr, io.StringIO) else "")
    assert not telemetry.record("app.new", value=True)
    telemetry.record_usage("build")
    assert telemetry.decision is None
    assert deniable._client is None


@pytest.mark.parametrize(("name", "ci", "recorded"), [("CI", False, False), ("CI", True, True), ("DO_NOT_TRACK", True, False)])
def test_who_agreed_is_not_counted_everywhere(telemetry, registry, monkeypatch, name, ci, recorded):
    """In CI nothing is recorded unless the app asks for it, and after an opt-out never."""
    telemetry.turn_on()
    monkeypatch.setenv(name, "1")
    assert Telemetry(DSN, registry=registry, ci=ci).record("app.new", value=True) is recorded


def test_usage(telemetry):
    """One call records the ready metrics that the registry still has, each once a period."""
    telemetry.turn_on()
    telemetry.record_usage("build")
    telemetry.record_usage("build")
    assert deniable.stats()["recorded"] == 2
    assert deniable.stats()["dropped"] == {"this_period": 2}


@pytest.mark.parametrize(
    ("dsn", "arguments", "named"),
    [
        ("http://key@127.0.0.1:1/shop", ["rename"], True),
        (DSN, ["rename"], False),
    ],
)
def test_what_is_not_listed_is_other_and_no_mistake(telemetry, caplog, monkeypatch, dsn, arguments, named):
    """It is named once, while the app is developed; a listed one stays."""
    monkeypatch.setattr(sys, "argv", ["shop", *arguments])
    telemetry.turn_on()
    telemetry._dsn = dsn
    telemetry.record_usage(arguments[0])
    telemetry.record_usage("build")
    assert deniable.stats()["recorded"] == 2
    assert deniable.stats()["undeclared"] == 0
    words = "'rename' is not among its values, so 'other' is reported; to see it, add it to metrics.toml"
    undeclared = [line for line in caplog.messages if ": undeclared: " in line]
    assert undeclared == [f"deniable: app.command: undeclared: {words}"] * named
    command = deniable._client._metrics.prepared["app.command"].metric
    assert [usage.listed(command, name, named=False) for name in ("build", "rename")] == ["build", "other"]


def test_what_was_sent_is_shown_with_what_it_says(telemetry, registry):
    """Beside the bytes, so that a person sees that it may be another answer."""
    telemetry.turn_on()
    command = Declared.of(load(registry).metrics["app.command"])
    stratum = Stratum("app.command", 1, command.fingerprint, "2026-W48", "")
    entries = [Report(stratum, command.layout.pack(0, 1)), Report(stratum._replace(fingerprint="0" * 16), b"\x01")]
    Journal(State(state_root() / "shop")).add(entries)
    lines = telemetry.show().splitlines()
    about = load(registry).metrics["app.command"].description
    assert lines[-5:-1] == [
        "Sent, the newest first. What a report says may be true or drawn at random:",
        f"  {about} (app.command)",
        "    2026-W48: sent as bytes 01",
        "    2026-W48: says other, sent as bytes 01",
    ]
    assert re.fullmatch(r"The answers of \d{4}-\d\d have spent 0 of [\d,]+ nats, the unit of what answers give away\.", lines[-1])
    client = deniable.init("http://key@127.0.0.1:1/shop", registry=registry, consent=False)
    assert [entry.names for entry in client.journal()] == ["", "other"]


@pytest.mark.parametrize("action", ["show", "status"])
def test_the_command_prints_no_warning(telemetry, monkeypatch, action):
    """Also while the app is developed: the command itself says what hinders."""
    telemetry._dsn = "http://key@127.0.0.1:1/shop"
    telemetry.turn_on()
    telemetry.record_usage("build")
    assert log.unheard not in logging.getLogger("deniable").handlers
    monkeypatch.setattr(sys, "argv", ["shop", "telemetry", action])
    looking = Telemetry(telemetry._dsn, registry=telemetry._registry)
    deniable._client = None
    looking.record_usage("telemetry")
    looking.status()
    assert deniable._client is None
    assert log.unheard in logging.getLogger("deniable").handlers


@pytest.fixture
def keep(state_directory):
    """Have a report wait on disk, as after a run."""
    directory = state_directory / "shop"
    State(directory).begin(lambda _: None)
    spool = Spool(directory / "spool")

    def leave(reports=1):
        assert spool.put(Batch.of("shop", [Report(Stratum("app.new", 1, "0" * 16, "2026-11", ""), b"0")] * reports), seen=False)
        return spool

    return leave


def test_status_says_what_waits_and_when_it_travels(telemetry, keep, monkeypatch):
    """How many reports wait, that the next run sends them, and after a try from when on; if they do not travel, why."""
    assert telemetry.status().count("\n") == 0  # nobody has agreed
    telemetry.turn_on()
    assert telemetry.status().endswith("No report waits on this device.")
    keep()
    spool = keep(2)
    assert telemetry.status().splitlines()[1:] == [
        "On this device wait: 3 reports.",
        "They travel with the next run, while it works.",
    ]
    assert spool.begin()
    clock, begun = (time.strftime("%H:%M", time.localtime(spool.free_at - ago)) for ago in (0, 3600))
    assert telemetry.status().endswith(f"They travel with a run from {clock} on, while it works: the last try was at {begun}.")
    spool.end(cut=True)
    words = "They travel with the next run, while it works. The last run that tried ended before the server answered"
    assert telemetry.status().endswith(f"{words}.")
    telemetry._dsn = "http://key@localhost/shop"
    wait = 'exit="wait" of the app waits for it, and exit="helper" sends them in the background'
    assert telemetry.status().endswith(f"{words}; {wait}.")
    monkeypatch.setenv("DO_NOT_TRACK", "1")
    assert telemetry.status().endswith("They do not travel from here: DO_NOT_TRACK is set.")


@pytest.mark.parametrize("action", ["show", "status"])
def test_the_command_names_what_is_off(telemetry, registry, action, capsys):
    """In the words of the log, which says what to do. Before a yes nothing is recorded anyway."""
    segmented = metric_toml("app.python", segments=["platform"]) + metric_toml("app.week", segments=["platform"])
    registry.write_text(f'{registry.read_text()}{segmented}[segments]\nplatform = ["linux", "macos"]\n')
    off = 'Not recorded: app.python, app.week: the segment platform is missing: pass segments={"platform": "linux"} to init, '
    assert command.run(telemetry, action) == 0
    assert "Not recorded" not in capsys.readouterr().out
    telemetry.turn_on()
    assert command.run(telemetry, action) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Telemetry of shop is on: you agreed")
    assert lines[1] == f"{off}with one of linux, macos"
    telemetry._options["segments"] = {"platform": "linux"}
    assert "Not recorded" not in telemetry.status()


BROKEN = {
    "an example": ({"dsn": "https://key@telemetry.example.org/shop"}, "the DSN is that of an example"),
    "another app": ({"dsn": "https://key@t.example/other"}, "the DSN is for app 'other' and the registry for app 'shop'"),
    "no DSN": ({"dsn": ""}, "no DSN was given"),
    "no registry": ({"registry": "missing.toml"}, "missing.toml"),
    "exit": ({"exit": "helpr"}, "write one of auto, wait, spool, helper"),
    "folder": ({}, "others can write what a device keeps"),
}


@pytest.mark.usefixtures("telemetry")
@pytest.mark.parametrize("what", BROKEN)
def test_status_says_why_nothing_is_recorded_though_the_person_agreed(registry, state_directory, what, capsys):
    """What the client says, at `on` and `status`; a tool without a DSN has a name all the same, and no state that is missing."""
    changed, why = BROKEN[what]
    if what == "folder":
        if not hasattr(os, "geteuid"):
            pytest.skip("modes are those of POSIX")
        State(state_directory / "shop").begin(lambda _: None)
        (state_directory / "shop").chmod(0o777)
    broken = Telemetry(**{"dsn": DSN, "registry": registry, "command": "tool"} | changed)
    assert command.run(broken, "on") == command.run(broken, "show") == 0
    state, questions = capsys.readouterr().out.split("\n", 1)
    assert "Telemetry of tool is on, but nothing is recorded: " in state
    assert why in state
    assert state.endswith(". To change it: tool telemetry off")
    assert state in questions
    assert "was deleted" not in questions
    assert broken.app in ("shop", "other", "tool")
    assert {path.name for path in state_directory.iterdir()} <= {f"{broken.app}.consent", "shop"}
    assert deniable._client is None  # nothing was begun, so a later `record` begins as ever


@pytest.mark.parametrize("name", ["DO_NOT_TRACK", "DENIABLE_DISABLED", "CI", "GITHUB_ACTIONS"])
def test_where_a_variable_turns_it_off_it_is_to_be_unset(telemetry, monkeypatch, name):
    """Whether the person has agreed or not: `telemetry on` would change nothing."""
    monkeypatch.setenv(name, "1")
    for act in (telemetry.turn_off, telemetry.turn_on):
        act()
        assert f"To change it: unset {name}" in telemetry.status()


@pytest.mark.parametrize("exit_", ["auto", "wait", "spool", "helper"])
@pytest.mark.parametrize("action", ["on", "show", "status"])
def test_a_look_records_nothing(registry, keep, monkeypatch, action, exit_, caplog):
    """The first command of a period is a true one, also of a tool that waits at its end; what waits does so without a word."""
    tool = Telemetry("http://k@127.0.0.1:1/shop", registry=registry, version="1.0", ci=True, exit=exit_)
    tool.turn_on()
    spool = keep()
    monkeypatch.setattr(deniable, "_client", None)
    monkeypatch.setattr(sys, "argv", ["shop", "telemetry", action])
    tool.record_usage("telemetry")
    assert not tool.record("app.command", "telemetry")
    assert (deniable._client, spool.free_at, spool.reports, caplog.messages) == (None, None, 1, [])
    monkeypatch.setattr(sys, "argv", ["shop", "build"])
    tool.record_usage("build")
    assert deniable.stats()["recorded"] > 0
    assert "this_period" not in deniable.stats()["dropped"]
    deniable.close(0)


@pytest.mark.parametrize(
    ("arguments", "looks"),
    [
        ("telemetry", True),
        ("telemetry status", True),
        ("--verbose telemetry off", True),
        ("--config shop.toml telemetry show", True),
        ("--color=no telemetry --help", True),
        ("search telemetry", False),
        ("search telemetry on", False),
        ("build --topic telemetry", False),
        ("--topic telemetry", False),
        ("--topic telemetry build", False),
        ("", False),
    ],
)
def test_only_the_command_itself_is_a_look(telemetry, monkeypatch, arguments, looks):
    """A tool that is asked about something called telemetry sends and asks as ever."""
    monkeypatch.setattr(sys, "argv", ["shop", *arguments.split()])
    assert telemetry._looks is looks


def test_a_tool_that_waits_says_that_this_run_sends(registry, telemetry, keep, monkeypatch):
    """It has recorded, so at its end it sends; without that the next one does."""
    telemetry.turn_on()
    keep()
    waits = Telemetry(DSN, registry=registry, exit="wait")
    assert waits.status().endswith("They travel at the end of the next run, which waits for the server.")
    monkeypatch.setattr(waits, "_client", waits._looking())
    assert waits.status().endswith("They travel at the end of this run, which waits for the server.")


def test_status_says_whether_the_helper_sends_them(registry, telemetry, keep, monkeypatch):
    """With a process in the background: soon, unless it cannot be here, or was started before; and then why."""
    telemetry.turn_on()
    directory = state_root() / "shop"
    keep()
    wants = Telemetry(DSN, registry=registry, exit="helper")
    monkeypatch.setattr(helper, "hindrance", lambda _: None)
    assert wants.status().endswith("They travel soon after the next run, by a process in the background.")
    assert helper._take_day(directory)
    assert wants.status().endswith("; no process in the background sends them: one was started today.")
    monkeypatch.setattr(helper, "hindrance", lambda _: "this is a container, which ends with the program")
    assert wants.status().endswith(
        "with the next run, while it works; no process in the background sends them: "
        "this is a container, which ends with the program."
    )


def days_ago(days):
    return (datetime.now(UTC) - timedelta(days=days)).date().isoformat()


@pytest.mark.parametrize(
    ("today", "week", "new"),
    [
        ("2026-11-25", "first", True),
        ("2026-11-29", "first", True),  # a Sunday
        ("2026-11-30", "second", True),
        ("2026-12-06", "second", False),
        ("2026-12-20", "fourth", False),
        ("2026-12-21", "later", False),
        ("2026-11-01", "later", True),  # the clock was set back
    ],
)
def test_the_weeks_of_a_person(monkeypatch, today, week, new):
    """They are calendar weeks, as the periods of the reports are. They follow from the first day, and all have an answer."""
    monkeypatch.setattr(decision, "_today", lambda: date.fromisoformat(today))
    known = usage.answers(Decision(agreed=True, since="2026-11-25"), "1.2.3", "build")
    assert (known["app.week"], known["app.new"], known["app.version"]) == (week, new, "1.2")
    assert known.keys() == usage.answers(Decision(agreed=True, since="2020-01-01"), "1.2.3", "build").keys()


def test_the_file_does_not_say_how_the_tool_is_used(telemetry, state_directory):
    """It has the day of the first answer, and no later use changes it."""
    telemetry.turn_on()
    decision.write(telemetry._path, telemetry.decision._replace(since=days_ago(9)))
    before = (state_directory / "shop.consent").read_bytes()
    telemetry.record_usage("build")
    assert (state_directory / "shop.consent").read_bytes() == before
    assert before == f"agreed = yes\nsince = {days_ago(9)}\n".encode()


@pytest.mark.parametrize("text", ["", "agreed = yes\n", "agreed = yes\nsince = tomorrow\n", "\0" * 300, "agreed yes\n"])
def test_a_damaged_answer_is_none(tmp_path, text):
    path = tmp_path / "shop.consent"
    path.write_text(text)
    assert decision.read(path) is None


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="modes and owners are those of POSIX")
def test_an_answer_that_others_can_write_is_none(tmp_path):
    path = tmp_path / "shop.consent"
    decision.write(path, Decision(agreed=True, since="2026-11-27"))
    assert decision.read(path).agreed
    path.chmod(0o620)
    assert decision.read(path) is None


def test_off_deletes_what_waits(telemetry, state_directory):
    """Who turns it off leaves nothing behind to be sent; who turns it on again is the same device."""
    telemetry.turn_on()
    assert telemetry.record("app.new", value=True)
    deniable._client._leave(60)
    spool = state_directory / "shop" / "spool"
    assert list(spool.iterdir())
    since = telemetry.decision.since
    telemetry.turn_off()
    assert not list(spool.iterdir())
    assert not telemetry.record("app.new", value=True)
    telemetry.turn_on()
    assert telemetry.decision.since == since


def by_argparse(telemetry, words):
    parser = argparse.ArgumentParser("shop")
    telemetry.add_to(parser.add_subparsers())
    arguments = parser.parse_args(words)
    return arguments.func(arguments)


def by_click(telemetry, words):
    click = pytest.importorskip("click")
    app = click.Group("shop")
    app.add_command(telemetry.click())
    return app.main(words, standalone_mode=False) or 0


def by_typer(telemetry, words):
    typer = pytest.importorskip("typer")
    app = typer.Typer()
    app.add_typer(telemetry.typer())
    return app(words, standalone_mode=False) or 0


def test_a_tool_has_one_name(tmp_path):
    """What a person types, also where its app has another name at the server."""
    tool = Telemetry("https://key@telemetry.example.org/backup-tool", registry=tmp_path / "metrics.toml", command="backup")
    texts = tool.status() + tool._question()
    assert "Telemetry of backup is off" in texts
    assert "May backup count" in texts
    assert "backup-tool" not in texts


@pytest.mark.parametrize("way", [by_argparse, by_click, by_typer])
def test_the_command(telemetry, way, capsys):
    """It turns telemetry on and off, says which it is, and shows what is asked and was sent, in each library."""

    def say(action):
        assert way(telemetry, ["telemetry", action]) == 0
        return capsys.readouterr().out

    assert "Telemetry of shop is off: you were not asked yet. To change it: shop telemetry on" in say("status")
    assert "is on: you agreed" in say("on")
    assert telemetry.off is None
    page = say("show")
    assert "Whether it is new" in page
    assert "Sent, the newest first:\n  nothing" in page
    assert "is off: you said no" in say("off")
    assert "is off: you said no" in say("status")


@pytest.mark.parametrize("way", [by_argparse, by_click, by_typer])
def test_a_decision_that_cannot_be_kept(telemetry, way, monkeypatch, tmp_path, capsys):
    """The command says so and fails; nothing else of the app does."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("DENIABLE_STATE_DIR", str(tmp_path / "file"))
    assert not telemetry.ask()
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    try:
        status = way(telemetry, ["telemetry", "on"])
    except SystemExit as ended:
        status = ended.code
    assert status == 1
    assert "shop telemetry on: " in sys.stderr.getvalue()
    capsys.readouterr()
