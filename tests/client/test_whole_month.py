"""The page on numbers and times: what a whole month was like is recorded in the next one."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from deniable.client import Client
from deniable.lint import lint

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "times.md").read_text("utf-8")


def block(name, language):
    (text,) = re.findall(rf"<!-- {name} -->\n```{language}\n(.*?)```", PAGE, re.DOTALL)
    return text


@pytest.fixture
def app(tmp_path, monkeypatch, deniable_capture):
    """Return the page's code, the clock that it reads, and what it records."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "metrics.toml"
    path.write_text(f'format = 1\napp = "shop"\nbudget = {{ per_month = 8.0 }}\n{block("whole month registry", "toml")}', "utf-8")
    client = Client(registry=path, consent=True, state=None)
    namespace = {}
    exec(compile(block("whole month", "python"), "times.md", "exec"), namespace)
    today = [datetime(2027, 6, 1, tzinfo=UTC)]
    namespace["datetime"] = type("Clock", (), {"now": staticmethod(lambda _zone: today[0])})
    namespace["deniable"] = client
    yield namespace, today, deniable_capture
    client.close()


def test_the_registry_is_sound(tmp_path):
    """It has neither faults nor warnings."""
    path = tmp_path / "metrics.toml"
    path.write_text(f'format = 1\napp = "shop"\nbudget = {{ per_month = 8.0 }}\n{block("whole month registry", "toml")}', "utf-8")
    findings = lint(path)
    assert (findings.faults, findings.warnings) == ((), ())


def test_a_month_is_recorded_at_the_first_start_of_the_next(app):
    """The count is that of the whole month, however many runs it had; months without a start are left out."""
    code, today, capture = app
    for day, photos in ((1, 2), (9, 3)):
        today[0] = datetime(2027, 6, day, tzinfo=UTC)
        notes = code["start"]()
        for _ in range(photos):
            notes["photos"] += 1
            code["save"](notes)
        code["save"](notes | {"open": False})
    assert capture.answers == []
    today[0] = datetime(2027, 9, 4, tzinfo=UTC)
    code["save"](code["start"]() | {"open": False})
    code["save"](code["start"]() | {"open": False})
    assert (capture.values("photos.last_month"), capture.values("crashed.last_month")) == ([5], [False])


def test_a_run_that_did_not_end_is_a_crash(app):
    """Also the last one of a month; and it is none of the month after."""
    code, today, capture = app
    code["start"]()
    for month in (7, 8):
        today[0] = datetime(2027, month, 1, tzinfo=UTC)
        code["save"](code["start"]() | {"open": False})
    assert capture.values("crashed.last_month") == [True, False]
