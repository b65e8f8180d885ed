"""Telemetry of command line tools: who is asked, what is kept of the answer, and the command of each library."""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
from datetime import UTC, date, datetime, timedelta

import pytest
from registries import metric_toml, registry_toml

import deniable
from deniable.cli import Telemetry, decision, usage
from deniable.cli.decision import Decision
from deniable.client import helper
from deniable.process.surroundings import _CI, state_root
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
    sit(monkeypatch, "y\n")
    assert telemetry.ask() is agreed
    assert sys.stderr.getvalue() == ""
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


@pytest.fixture
def keep(state_directory):
    """Have a report wait on disk, as after a run."""
    directory = state_directory / "shop"
    directory.mkdir(mode=0o700, parents=True)
    spool = Spool(directory / "spool")

    def leave(reports=1):
        assert spool.put(Batch.of([Report(Stratum("app.new", 1, "0" * 16, "2026-11", ""), b"0")] * reports), seen=False)
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
    assert spool.begin(3600)
    clock = time.strftime("%H:%M", time.localtime(spool.begun + 3600))
    assert f"They travel with a run from {clock} on" in telemetry.status()
    monkeypatch.setenv("DO_NOT_TRACK", "1")
    assert telemetry.status().endswith("They do not travel from here: DO_NOT_TRACK is set.")


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
