"""Variables of the environment: what a worker is told by them, and names that nothing reads."""

from __future__ import annotations

import logging
from operator import attrgetter
from types import SimpleNamespace

import pytest

from deniable.client.environment import VARIABLES as SDK
from deniable.errors import ConfigurationError
from deniable_aggregator.commands import options
from deniable_aggregator.process import running, variables
from deniable_aggregator.process.variables import WORKER, strays

ALL = {**SDK, **variables.VARIABLES}


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("DENIABLE_REDIS_ULR", "DENIABLE_REDIS_URL"),
        ("DENIABLE_REGISTERY", "DENIABLE_REGISTRY"),
        ("DENIABLE_WORKER_BATCHES", "DENIABLE_WORKER_BATCH"),
        ("DENIABLE_LOGLEVEL", "DENIABLE_LOG_LEVEL"),
        ("DENIABLE_DISABLE", "DENIABLE_DISABLED"),
        ("DENIABLE_INGEST_KEY", "DENIABLE_INGEST_KEYS"),
    ],
)
def test_a_mistyped_name_is_found(name, nearest):
    """A name that nothing reads is pointed out with the one that was meant, of whatever floor."""
    (stray,) = strays({name: "x", "PATH": "/bin"})
    assert (stray.name, stray.nearest) == (name, nearest)
    assert str(stray) == f"nothing reads {name}; is {nearest} meant?"


def test_a_name_that_only_begins_alike_is_not_suggested():
    """What all names begin with makes none of them alike."""
    assert [str(each) for each in strays({"DENIABLE_RETENTION": "x"})] == ["nothing reads DENIABLE_RETENTION"]


def test_a_name_like_no_other_is_found():
    """Where nothing is alike nothing is proposed; the value is never repeated."""
    (stray,) = strays({"DENIABLE_QQQQQQQQQQQQQQQQQQ": "secret"})
    assert stray.nearest is None
    assert str(stray) == "nothing reads DENIABLE_QQQQQQQQQQQQQQQQQQ"


def test_known_names_are_not_pointed_out():
    """What the SDK and workers read is known, and so is what servers read."""
    known = dict.fromkeys(ALL, "x") | {"DENIABLE_MAX_BACKLOG": "7", "DENIABLE_CORS_ORIGINS": "*"}
    assert strays(known) == []


@pytest.mark.parametrize(
    "name",
    [
        "DENIABLE_SERVICE_HOST",
        "DENIABLE_SERVICE_PORT",
        "DENIABLE_INGEST_SERVICE_PORT_HTTP",
        "DENIABLE_PORT",
        "DENIABLE_INGEST_PORT_8080_TCP",
        "DENIABLE_PORT_8080_TCP_ADDR",
    ],
)
def test_what_kubernetes_sets_is_no_mistake(name):
    """A service whose name begins with ours gives every container variables that begin like ours."""
    assert strays({name: "10.0.0.1"}) == []


def test_strays_are_warned_of(caplog):
    """At a start each is a warning, without its value."""
    with caplog.at_level(logging.WARNING):
        variables.warn({"DENIABLE_REDIS_ULR": "redis://:canary@h", "DENIABLE_APPS": "shop"})
    assert [each.getMessage() for each in caplog.records] == ["nothing reads DENIABLE_REDIS_ULR; is DENIABLE_REDIS_URL meant?"]


@pytest.mark.parametrize("number", WORKER, ids=attrgetter("name"))
def test_a_number_is_chosen_by_flag_or_variable(number):
    """A flag goes before the variable, and that before the default."""
    environment = {number.variable: "7"}
    assert number.choose(environment={}) == number.default
    assert number.choose(environment=environment) == 7
    assert number.choose("9", environment) == 9


@pytest.mark.parametrize("number", WORKER, ids=attrgetter("name"))
@pytest.mark.parametrize("text", ["0", "-1", "many", "", "nan", "inf", "1e9"])
def test_a_bad_number_names_where_it_was_told(number, text):
    """The message has the flag or the variable, the rule and the value."""
    for by, choose in (
        (number.variable, lambda: number.choose(None, {number.variable: text})),
        (number.flag, lambda: number.choose(text, {})),
    ):
        with pytest.raises(ConfigurationError, match=rf"^{by} = '{text}': write a .*above 0, at most \d+"):
            choose()


def test_a_whole_number_has_no_fraction():
    """Batches are whole; seconds need not be."""
    batch, _, claim = WORKER
    assert claim.choose("0.5") == 0.5
    with pytest.raises(ConfigurationError, match="whole number"):
        batch.choose("0.5")


def test_apps_come_from_where_they_are_told(monkeypatch, registry_file):
    """Apps are those of --app, else of DENIABLE_APPS, else of the registries; without any the message names all three."""

    def apps(app=None, **settings):
        arguments = SimpleNamespace(redis_url="redis://127.0.0.1:1", data=None, **settings)
        return [store.app for store in options.stores(options.environment(arguments), app)]

    for name in ("DENIABLE_APPS", "DENIABLE_REGISTRY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError, match=r"--app.*DENIABLE_APPS.*DENIABLE_REGISTRY"):
        apps()
    assert apps(registry=str(registry_file)) == ["shop"]
    monkeypatch.setenv("DENIABLE_REGISTRY", str(registry_file))
    assert apps() == ["shop"]
    monkeypatch.setenv("DENIABLE_APPS", "blog, wiki,")
    assert apps() == ["blog", "wiki"]
    assert apps(app=["news"]) == ["news"]


def test_a_store_is_named_once(monkeypatch, tmp_path):
    """The store is that of an option, else of the variable, else of a `deniable serve` in this folder; two are one too many."""

    def named(redis_url=None, data=None):
        return options.environment(SimpleNamespace(redis_url=redis_url, data=data))["DENIABLE_REDIS_URL"]

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DENIABLE_REDIS_URL", raising=False)
    with pytest.raises(ConfigurationError, match=r"and no .* runs in this folder: set DENIABLE_REDIS_URL, or give --redis-url"):
        named()
    here = running.Running("http://here", 1, {"DENIABLE_REDIS_URL": "unix:///here"})
    with running.keep(here, running.FOLDER):
        assert named() == "unix:///here"
        assert named(data=tmp_path / ".deniable") == "unix:///here"
        assert named(redis_url="redis://option") == "redis://option"
        monkeypatch.setenv("DENIABLE_REDIS_URL", "redis://variable")
        assert named() == "redis://variable"
        assert named(redis_url="redis://option") == "redis://option"
        assert named(data=tmp_path / ".deniable") == "unix:///here"
        with pytest.raises(ConfigurationError, match="leave one of them out"):
            named(redis_url="redis://option", data=tmp_path / ".deniable")
    with pytest.raises(ConfigurationError, match="no `deniable serve` runs with --data"):
        named(data=tmp_path / ".deniable")


def test_what_tells_of_a_server_is_its_own(tmp_path):
    """A folder that cannot be made, or a file that cannot be read, is said; a server that came later keeps its file."""
    (tmp_path / "file").touch()
    with running.keep(running.Running("", 1, {}), tmp_path / "file" / "below"):
        pass
    (tmp_path / "data" / "serving.json").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match=r"serving\.json cannot be read: Is a directory"):
        running.find(tmp_path / "data")
    later = running.Running("http://later", 2, {})
    with running.keep(running.Running("http://first", 1, {}), tmp_path / "two"):
        with running.keep(later, tmp_path / "two"):
            assert running.find(tmp_path / "two") == later
        assert running.find(tmp_path / "two") is None
