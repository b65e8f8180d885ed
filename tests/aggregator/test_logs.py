"""Logs: a line a record, with what it may carry and nothing else."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

import pytest

from deniable.errors import ConfigurationError, ParameterError
from deniable_aggregator.process import logs
from deniable_aggregator.process.logs import LogSettings


@pytest.fixture(autouse=True)
def nothing_carried():
    yield
    logs.end()


def record(event="an event", *arguments, error=None, **extra):
    entry = logging.makeLogRecord(
        {"name": "deniable.test", "levelno": 30, "levelname": "WARNING", "msg": event, "args": arguments}
    )
    entry.exc_info = (type(error), error, error.__traceback__) if error else None
    entry.__dict__.update(extra)
    return entry


def as_json(entry):
    return json.loads(LogSettings(format="json").formatter().format(entry))


def as_text(entry):
    return LogSettings(format="console").formatter().format(entry)


def raised(error):
    try:
        raise error
    except type(error) as caught:
        return caught


def test_a_record_is_one_object():
    """In JSON a record has its hour in UTC, its level, logger and event, and those of the fields that it carries."""
    entry = record("%d of %d", 3, 7, app="shop", status=202)
    fields = as_json(entry)
    assert datetime.fromisoformat(fields.pop("time")) == datetime.fromtimestamp(entry.created - entry.created % 3600, UTC)
    assert fields == {
        "level": "warning",
        "logger": "deniable.test",
        "event": "3 of 7",
        "status": 202,
        "app": "shop",
    }


def test_a_record_is_one_line_for_people():
    """On the console a record begins at the margin, and what goes on does not."""
    line = as_text(record("first\nsecond", app="shop"))
    assert line.splitlines()[0].endswith("Z warning  deniable.test: first")
    assert line.splitlines()[1] == "    second app=shop"


@pytest.mark.parametrize("write", [as_text, lambda entry: json.dumps(as_json(entry))])
def test_what_is_not_listed_is_left_out(write):
    """Whatever a library attaches to a record, or says of an exception, a stack or a thread, is not written."""
    error = raised(ParameterError("a rule", "canary-answer"))
    entry = record(error=error, user_agent="canary-agent", stack_info="canary-stack", exc_text="canary-text", address="canary")
    line = write(entry)
    assert "canary" not in line
    assert "ParameterError" in line
    assert "test_logs.py" in line
    assert "raised" in line


def test_what_is_wrong_with_the_configuration_is_told():
    """The message of a bad setting is ours, and names the variable: it is told in full."""
    fields = as_json(record("no start", error=raised(ConfigurationError("DENIABLE_CLOCK_SKEW is a number"))))
    assert (fields["exception"], fields["detail"]) == ("ConfigurationError", "DENIABLE_CLOCK_SKEW is a number")


def test_records_carry_what_is_known_of_the_request():
    """From `begin` to `end` every record carries the request's fields; its own go before; other threads carry their own."""
    from threading import Thread

    assert "request" not in as_json(record())
    logs.note(app="nobody's")
    assert logs.current() == {}
    logs.begin(request="r1", route=None)
    logs.note(app="shop")
    assert as_json(record(app="blog")).items() >= {"request": "r1", "app": "blog"}.items()
    fields = as_json(record())
    assert fields["app"] == "shop"
    assert "route" not in fields
    elsewhere = []
    thread = Thread(target=lambda: elsewhere.append(as_json(record())))
    thread.start()
    thread.join()
    assert "request" not in elsewhere[0]
    logs.end()
    assert "request" not in as_json(record())


@pytest.mark.parametrize(
    ("name", "value"), [("LEVEL", "loud"), ("LEVEL", "INFO"), ("LEVEL", ""), ("FORMAT", "xml"), ("FORMAT", "")]
)
def test_a_bad_value_names_its_variable(name, value):
    """The message has the variable, what it may be, and the value."""
    with pytest.raises(ConfigurationError, match=rf"DENIABLE_LOG_{name} = '{value}': write \w+.* or \w+"):
        LogSettings.from_environment({f"DENIABLE_LOG_{name}": value})


def test_settings_come_from_the_environment():
    """Both are read; without them warnings are written, for people."""
    assert LogSettings.from_environment({}) == LogSettings("warning", "console")
    settings = LogSettings.from_environment({"DENIABLE_LOG_LEVEL": "debug", "DENIABLE_LOG_FORMAT": "json"})
    assert settings == LogSettings("debug", "json")


@pytest.mark.parametrize(
    ("level", "fields", "answering", "time"),
    [
        ("WARNING", logs.OF_PROCESS, None, "2026-11-21T20:15:42Z"),
        ("WARNING", {}, None, "2026-11-21T20:00Z"),
        ("WARNING", logs.OF_PROCESS, "/v1/reports", "2026-11-21T20:00Z"),
        ("WARNING", logs.OF_PROCESS, "/api/v1/metrics", "2026-11-21T20:00Z"),
        ("WARNING", logs.OF_PROCESS, "/metrics", "2026-11-21T20:15:42Z"),
        ("WARNING", logs.OF_PROCESS, "/readyz", "2026-11-21T20:15:42Z"),
        ("WARNING", {}, "/readyz", "2026-11-21T20:00Z"),
        ("INFO", logs.OF_PROCESS, None, "2026-11-21T20:00Z"),
        ("INFO", logs.OF_PROCESS, "/readyz", "2026-11-21T20:00Z"),
    ],
)
def test_only_what_a_process_says_of_itself_has_a_second(monkeypatch, level, fields, answering, time):
    """Not while a request is answered, nor where each request has a line: it would show when an upload came."""
    monkeypatch.setattr(logging.getLogger(), "level", getattr(logging, level))
    logging.getLogger().manager._clear_cache()
    if answering:
        logs.begin(request="1", route=answering)
    moment = datetime(2026, 11, 21, 20, 15, 42, tzinfo=UTC).timestamp()
    assert as_json(record(created=moment, **fields))["time"] == time
