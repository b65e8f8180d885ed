"""An argument of a wrong type is named in plain words; no error of Python shows."""

from __future__ import annotations

import pytest
from registries import metric_toml, registry_toml

from deniable.cli import Telemetry
from deniable.client import Client
from deniable.client.people import People
from deniable.errors import ParameterError
from deniable.registry import parse

REGISTRY = parse(registry_toml(metric_toml("used"), segments={"platform": ["linux"]}))
YES = True
WRONG = (3, 1.5, "x", b"x", ["linux"], {"epsilon": 1}, object())
NAMES = ("segments", "caps", "state", "registry_key", "post", "clock", "source")
CASES = [
    (name, value)
    for name in NAMES
    for value in WRONG
    if not (isinstance(value, str) and name in ("state", "registry_key")) and (name, type(value)) != ("segments", dict)
]
PYTHONS = ("TypeError", "AttributeError", "ValueError")


def name_of(value):
    return value if isinstance(value, str) else type(value).__name__


def client(**options) -> Client:
    shared = {
        "dsn": "https://k@t.example/shop",
        "registry": REGISTRY,
        "consent": True,
        "state": None,
        "post": lambda *_: (202, {}, None),
    }
    return Client(**(shared | options))


@pytest.mark.parametrize(("name", "value"), CASES, ids=name_of)
def test_an_argument_of_a_wrong_type_is_named(name, value):
    """It turns the client off, with what to pass instead; if strict, it is raised."""
    why = client(**{name: value}).disabled
    assert why.startswith(f"{name}: write ")
    assert why.endswith(f", not an object of type {type(value).__name__}")
    with pytest.raises(ParameterError, match=f"^{name}: write "):
        client(strict=True, **{name: value})


@pytest.mark.parametrize("name", ["dsn", "registry", "consent", "settings", "allow_http", "exit"])
def test_no_argument_shows_an_error_of_python(name, caplog):
    """What is checked where it is read is named as well."""
    for value in WRONG:
        client(**{name: value}).close(0)
    assert not [line for line in caplog.messages if any(word in line for word in PYTHONS)]


def test_what_to_pass_instead():
    assert (
        client(segments=["linux"]).disabled == 'segments: write a dict such as {"platform": "linux"}, not an object of type list'
    )
    assert client(caps={"epsilon": 1}).disabled == "caps: write Caps, such as Caps(epsilon=2), not an object of type dict"


@pytest.mark.parametrize("value", [*WRONG, None, float("nan")], ids=name_of)
def test_no_call_shows_an_error_of_python(value, caplog):
    """Each call takes any argument, and says in the log what is wrong."""
    app = client()
    for call in (app.record, app.record_time):
        assert not call(value, YES)
    app.record("used", value)
    app.explain(value)
    app.explain("used", value)
    app.metric(value).record(YES)
    with app.timed(value):
        pass
    app.set_consent(value)
    app.flush(value)
    app.close(value)
    assert not [line for line in caplog.messages if any(word in line for word in PYTHONS)]
    assert not app.stats()["dropped"].get("error")


@pytest.mark.parametrize("timeout", ["x", None, [1], object()], ids=name_of)
def test_a_timeout_that_is_no_number_sends_all_the_same(timeout, caplog):
    """The default is used instead, so that no report stays because of it."""
    app = client()
    assert app.record("used", YES)
    assert app.flush(timeout).sent == 1
    assert caplog.messages[-1] == "deniable: flush: timeout: write a number of seconds, such as 5.0; 5 seconds are used instead"
    app.close(timeout)


@pytest.mark.parametrize("name", ["dsn", "registry", "version", "command", "segments"])
def test_a_command_line_tool_begins_with_any_argument(name):
    """It is off, and says why."""
    for value in WRONG:
        tool = Telemetry(**({"dsn": "https://k@t.example/shop", "registry": "metrics.toml", "command": "tool"} | {name: value}))
        assert tool.record("used", YES) is False


@pytest.mark.parametrize("value", [value for value in WRONG if not isinstance(value, str)], ids=name_of)
def test_the_store_of_people_is_a_folder_or_a_redis(value):
    """The app hears of another object at once, and not with the first answer."""
    options = {"registry": REGISTRY, "key": "k" * 32, "state": None, "consent": lambda _: True}
    app = People("https://k@t.example/shop", store=value, **options)
    rule = "store: write the path of a folder, or a client of redis-py"
    assert app.stats()["disabled"] == f"{rule}, not an object of type {type(value).__name__}"
    app.close(0)
