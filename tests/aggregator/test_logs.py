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
    made = logging.makeLogRecord(
        {"name": "deniable.test", "levelno": 30, "levelname": "WARNING", "msg": event, "args": arguments}
    )
    made.exc_info = (type(error), error, error.__traceback__) if error else None
    made.__dict__.update(extra)
    return made


def as_json(made):
    return json.loads(LogSettings(format="json").formatter().format(made))


def as_text(made):
    return LogSettings(format="console").formatter().format(made)


def raised(error):
    try:
        raise error
    except type(error) as caught:
        return caught


def test_a_record_is_one_object():
    """In JSON a record has its hour in UTC, its level, logger and event, and those of the fields that it carries."""
    made = record("%d of %d", 3, 7, app="shop", status=202)
    told = as_json(made)
    assert datetime.fromisoformat(told.pop("time")) == datetime.fromtimestamp(made.created - made.created % 3600, UTC)
    assert told == {
        "level": "warning",
        "logger": "deniable.test",
        "event": "3 of 7",
        "status": 202,
        "app": "shop",
    }


def test_a_record_is_one_line_for_people():
    """On the console a record begins at the margin, and what goes on does not."""
    said = as_text(record("first\nsecond", app="shop"))
    assert said.splitlines()[0].endswith("Z warning  deniable.test: first")
    assert said.splitlines()[1] == "    second app=shop"


@pytest.mark.parametrize("write", [as_text, lambda made: json.dumps(as_json(made))])
def test_what_is_not_listed_is_left_out(write):
    """Whatever a library attaches to a record, or says of an exception, a stack or a thread, is not written."""
    error = raised(ParameterError("a rule", "canary-answer"))
    made = record(error=error, user_agent="canary-agent", stack_info="canary-stack", exc_text="canary-text", address="canary")
    said = write(made)
    assert "canary" not in said
    assert "ParameterError" in said
    assert "test_logs.py" in said
    assert "raised" in said


def test_what_is_wrong_with_the_configuration_is_told():
    """The message of a bad setting is ours, and names the variable: it is told in full."""
    told = as_json(record("no start", error=raised(ConfigurationError("DENIABLE_CLOCK_SKEW is a number"))))
    assert (told["exception"], told["detail"]) == ("ConfigurationError", "DENIABLE_CLOCK_SKEW is a number")


def test_records_carry_what_is_known_of_the_request():
    """From `begin` to `end` every record carries the request's fields; its own go before; other threads carry their own."""
    from threading import Thread

    assert "request" not in as_json(record())
    logs.note(app="nobody's")
    assert logs.current() == {}
    logs.begin(request="r1", route=None)
    logs.note(app="shop")
    assert as_json(record(app="blog")).items() >= {"request": "r1", "app": "blog"}.items()
    told = as_json(record())
    assert told["app"] == "shop"
    assert "route" not in told
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
    with pytest.raises(ConfigurationError, match=rf"DENIABLE_LOG_{name} is \w+.* or \w+; got '{value}'"):
        LogSettings.from_environment({f"DENIABLE_LOG_{name}": value})


def test_settings_come_from_the_environment():
    """Both are read; without them warnings are written, for people."""
    assert LogSettings.from_environment({}) == LogSettings("warning", "console")
    told = LogSettings.from_environment({"DENIABLE_LOG_LEVEL": "debug", "DENIABLE_LOG_FORMAT": "json"})
    assert told == LogSettings("debug", "json")
