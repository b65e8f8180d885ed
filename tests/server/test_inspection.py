"""`deniable doctor --settings`: what a server would make of its environment, all faults at once, and no secret."""

from __future__ import annotations

import json
import os
import runpy
import socket

import pytest

from deniable.commands import entry as cli
from deniable_server import create_app, gunicorn_conf
from deniable_server.doctor.config import inspect
from deniable_server.settings import VARIABLES

REDIS = "redis://someone:canary-password@store.example:6379/0"


@pytest.fixture(autouse=True)
def nobody_answers(monkeypatch):
    """Let no address be found."""

    def fails(*_arguments, **_options):
        raise socket.gaierror("nobody is there")

    monkeypatch.setattr(socket, "getaddrinfo", fails)


@pytest.fixture
def environment(registry_file):
    """Describe a server that would start."""
    return {
        "DENIABLE_REDIS_URL": REDIS,
        "DENIABLE_REGISTRY": str(registry_file),
        "DENIABLE_INGEST_KEYS": "shop:pk_canary_1,shop:pk_canary_2",
        "DENIABLE_READ_KEYS": "shop:rk_canary_1",
        "DENIABLE_METRICS_KEY": "canary-secret",
        "DENIABLE_ARCHIVE": "s3://canary-id:canary-secret@bucket/reports",
    }


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command in an environment; return its status and what it printed."""

    def run(environment, *arguments):
        for name in [name for name in os.environ if name.startswith("DENIABLE_")]:
            monkeypatch.delenv(name)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        status = cli.main(["doctor", "--settings", *arguments])
        return status, capsys.readouterr().out

    return run


def test_a_good_environment(run, environment):
    """Every setting is shown with where it came from, and no secret is. A store that is away is told, and is no fault."""
    status, variables = run(environment, "--json")
    assert status == 0
    results = json.loads(variables)
    assert (results["errors"], results["warnings"], results["apps"]) == ([], [], {"shop": 5})
    assert results["store"].startswith("sums and releases take at most ")
    assert results["store"].endswith("the store's maxmemory is not known: its host name is not found")
    page = {each["name"]: (each["value"], each["origin"]) for each in results["settings"]}
    assert set(VARIABLES) <= set(page)
    assert page["DENIABLE_REDIS_URL"] == ("redis://store.example:6379/0", "environment")
    assert page["DENIABLE_INGEST_KEYS"] == ("(hidden) 2 of shop", "environment")
    assert page["DENIABLE_METRICS_KEY"] == ("(hidden)", "environment")
    assert page["DENIABLE_MAX_BACKLOG"] == ("10000", "default")
    assert page["DENIABLE_WORKER_BATCH"] == ("100", "default")
    assert page["DENIABLE_ARCHIVE"] == ("s3://bucket/reports", "environment")
    assert "canary" not in variables
    status, variables = run(environment)
    assert status == 0
    assert "canary" not in variables
    assert "deniable doctor" in variables


def test_an_option_stands_above_a_variable(run, environment):
    """The store that `--redis-url` names is the one that is looked at."""
    status, variables = run(environment, "--json", "--redis-url", "redis://other.example:6379/1")
    assert status == 0
    (store,) = (each["value"] for each in json.loads(variables)["settings"] if each["name"] == "DENIABLE_REDIS_URL")
    assert store == "redis://other.example:6379/1"


FAULTS = {
    "DENIABLE_MAX_BACKLOG": "many",
    "DENIABLE_CLOCK_SKEW": "0",
    "DENIABLE_CORS_ORIGINS": "shop.example",
    "DENIABLE_RATE_LIMIT_KEY": "9/fortnight",
    "DENIABLE_DURABILITY": "sometimes",
    "DENIABLE_LOG_LEVEL": "loud",
    "DENIABLE_INGEST_KEYS": "pk_canary_of_no_app",
    "DENIABLE_METRICS_KEY": "short",
    "DENIABLE_WORKER_CLAIM_AFTER": "never",
    "WEB_CONCURRENCY": "0",
    "DENIABLE_REDIS_URL": "http://canary-password@h",
}


@pytest.mark.parametrize("name", ["DENIABLE_INGEST_KEYS", "DENIABLE_READ_KEYS"])
def test_one_key_of_two_apps_is_an_error(environment, name):
    """It opens one app only. The same key of one app, written twice, does no harm."""
    twice = environment | {name: "shop:canary_1234,shop:canary_1234"}
    assert inspect(twice).errors == []
    (error,) = inspect(environment | {name: "shop:canary_1234,games:canary_5678,blog:canary_1234"}).errors
    assert error == f"{name}: shop and blog have the same key, which opens one app only: give each app its own"


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_named(environment, name):
    """One bad value is one error, which names the variable and never a secret."""
    (error,) = inspect(environment | {name: FAULTS[name]}).errors
    assert name in error
    assert "canary" not in error


def test_all_faults_are_named_at_once(run, environment):
    """What is wrong is all told, and the status is 2."""
    status, variables = run(environment | FAULTS | {"DENIABLE_REDIS_ULR": REDIS})
    assert status == 2
    for name in FAULTS:
        assert f"error: {name}" in variables
    assert "error: nothing reads DENIABLE_REDIS_ULR; is DENIABLE_REDIS_URL meant?" in variables
    assert f"{len(FAULTS) + 1} errors" in variables
    assert "canary" not in variables


def test_every_fault_of_every_registry_is_named(environment, registry_file, tmp_path):
    """Faults of several registries are told together, as is an app that has two."""
    text = registry_file.read_text("utf-8")
    faulty = tmp_path / "faulty.toml"
    faulty.write_text(text.replace('"boolean"', '"bolean"'), "utf-8")
    paths = [str(registry_file), str(faulty), str(tmp_path / "none.toml")]
    errors = inspect(environment | {"DENIABLE_REGISTRY": os.pathsep.join(paths)}).errors
    assert sum("bolean" in error for error in errors) == 2
    assert sum("none.toml" in error for error in errors) == 1
    copy = tmp_path / "copy.toml"
    copy.write_text(text, "utf-8")
    (error,) = inspect(environment | {"DENIABLE_REGISTRY": f"{registry_file}{os.pathsep}{copy}"}).errors
    assert "shop has two" in error
    (error,) = inspect({name: value for name, value in environment.items() if name != "DENIABLE_REGISTRY"}).errors
    assert "DENIABLE_REGISTRY is not set" in error


def test_every_signed_registry_is_compared(environment, tmp_path):
    """Each file that a server would not hand out is told."""
    (tmp_path / "a.json").write_text("{}", "utf-8")
    signed = os.pathsep.join([str(tmp_path / "a.json"), str(tmp_path / "b.json")])
    errors = inspect(environment | {"DENIABLE_SIGNED_REGISTRY": signed}).errors
    assert len(errors) == 2
    assert all("DENIABLE_SIGNED_REGISTRY" in error for error in errors)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"DENIABLE_DASHBOARD": "open"}, "whoever reaches the server"),
        ({"DENIABLE_READ_KEYS": "blog:rk_canary_1"}, "has keys of blog"),
        ({"DENIABLE_APPS": "shop,blog"}, "workers count blog, shop"),
    ],
)
def test_what_is_no_fault_may_be_a_warning(run, environment, change, words):
    """What a server takes and nobody may want is told, with status 0."""
    status, variables = run(environment | change)
    assert status == 0
    assert "warning: DENIABLE_" in variables
    assert words in variables


@pytest.mark.parametrize("name", [name for name in FAULTS if "WORKER" not in name and name != "WEB_CONCURRENCY"])
def test_a_server_refuses_what_is_an_error(environment, name, monkeypatch):
    """What is told to be an error stops the start."""
    for item, value in (environment | {name: FAULTS[name]}).items():
        monkeypatch.setenv(item, value)
    with pytest.raises(ValueError, match=name):
        create_app()


@pytest.mark.parametrize("number", ["0", "-1", "1.5", "zero"])
def test_a_wrong_number_of_processes_ends_the_start(environment, number, monkeypatch, capsys):
    """The configuration of gunicorn says what the doctor says, and has no traceback."""
    monkeypatch.setenv("WEB_CONCURRENCY", number)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(gunicorn_conf.__file__)
    assert ended.value.code == 2
    assert [capsys.readouterr().err] == [f"{error}\n" for error in inspect(environment | {"WEB_CONCURRENCY": number}).errors]


@pytest.mark.parametrize("bind", ["foo", "127.0.0.1:65536"])
def test_the_address_of_a_workers_numbers_is_checked(environment, bind):
    """By the rule of the worker, which would not start."""
    errors = inspect(environment | {"DENIABLE_METRICS_BIND": bind}).errors
    assert errors == [f"DENIABLE_METRICS_BIND (--metrics-bind) {bind!r}: write HOST:PORT, such as 127.0.0.1:9464"]
    assert inspect(environment | {"DENIABLE_METRICS_BIND": ""}).errors == []  # nowhere
