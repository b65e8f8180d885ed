"""Settings: read from the environment, refused by name."""

from __future__ import annotations

import re

import pytest

from deniable.errors import ConfigurationError, RegistryError
from deniable.lint import lint
from deniable_server import create_app
from deniable_server.settings import Keys, Settings


def test_settings_round_trip_through_the_environment():
    """What one process writes another reads."""
    settings = Settings(redis_url="redis://h", registry="a.toml", ingest_keys="a:12345678", max_backlog=7, dashboard="open")
    assert Settings.from_environment(settings.environment()) == settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_BACKLOG", "many"),
        ("MAX_BACKLOG", "0"),
        ("MAX_BODY_BYTES", "-5"),
        ("CLOCK_SKEW", "1.5"),
        ("DASHBOARD", "public"),
        ("HOSTS", "telemetry.lan:8080"),
        ("HOSTS", "http://telemetry.lan"),
        ("CORS_ORIGINS", "shop.example"),
        ("CORS_ORIGINS", "https://shop.example/"),
        ("CORS_ORIGINS", "https://*.shop.example"),
    ],
)
def test_a_bad_value_names_its_variable(name, value):
    """A bad value stops the start, and the message has the variable and the value."""
    with pytest.raises(ConfigurationError, match=f"DENIABLE_{name}.*{re.escape(value)}"):
        Settings.from_environment({f"DENIABLE_{name}": value})


def test_keys_open_their_app_and_are_never_shown():
    """A key opens its own app; neither repr has a key in it."""
    keys = Keys("shop:pk_11111111, blog:pk_22222222")
    assert keys.app("pk_11111111") == "shop"
    assert keys.app("pk_22222222") == "blog"
    assert keys.app("pk_33333333") is None
    assert keys.app("") is None
    assert "pk_" not in repr(keys)
    assert "pk_" not in repr(Settings(ingest_keys="shop:pk_11111111", read_keys="shop:pk_22222222"))


@pytest.mark.parametrize("pairs", ["justakey", "shop:short", ":pk_11111111"])
def test_keys_without_an_app_or_too_short_are_refused(pairs):
    """A pair is app:key; the message does not repeat the key."""
    with pytest.raises(ConfigurationError, match="app:key"):
        Keys(pairs)


def test_a_server_needs_a_registry_and_a_store(registry_file):
    """Without either the server does not start, and says what to set."""
    with pytest.raises(ConfigurationError, match="DENIABLE_REDIS_URL"):
        create_app(Settings(registry=str(registry_file)))
    with pytest.raises(ConfigurationError, match="DENIABLE_REGISTRY"):
        create_app(Settings(redis_url="redis://127.0.0.1:1"))
    with pytest.raises(RegistryError, match="missing"):
        create_app(Settings(redis_url="redis://127.0.0.1:1", registry="/no/such.toml"))
    with pytest.raises(ConfigurationError, match="shop has two"):
        create_app(Settings(redis_url="redis://127.0.0.1:1", registry=f"{registry_file}:{registry_file}"))


UNFIT = """
format = 1
app = "shop"
[metrics.many]
type = "boolean"
epsilon = 5
period = "month"
description = "d"
owner = "o"
[metrics.few]
type = "boolean"
epsilon = 4
description = "d"
owner = "o"
"""


def test_a_server_refuses_what_an_app_would_turn_off(tmp_path):
    """Each metric that would be off is named, in the words of lint and of the SDK, with its line."""
    path = tmp_path / "metrics.toml"
    path.write_text(UNFIT, "utf-8")
    with pytest.raises(RegistryError) as refused:
        Settings(registry=str(path)).registries()
    assert refused.value.faults == lint(path).faults
    assert [fault.line for fault in refused.value.faults] == [6, 10]
    path.write_text(UNFIT.replace("[metrics.many]", "[caps]\nepsilon = 5\n[budget]\nper_month = 129\n[metrics.many]"), "utf-8")
    assert set(Settings(registry=str(path)).registries()["shop"].metrics) == {"many", "few"}


def test_of_a_folder_the_newest_registry_counts(tmp_path):
    """What earlier apps ask cannot be changed any more, and their reports are taken."""
    fitting = UNFIT.replace("epsilon = 5", "epsilon = 1\nversion = 2").replace("epsilon = 4", "epsilon = 0.5\nversion = 2")
    (tmp_path / "0001.toml").write_text(UNFIT, "utf-8")
    (tmp_path / "0002.toml").write_text(fitting, "utf-8")
    assert len(Settings(registry=str(tmp_path)).registries()["shop"].definitions) == 4
    (tmp_path / "0003.toml").write_text(fitting.replace("epsilon = 0.5\nversion = 2", "epsilon = 4\nversion = 3"), "utf-8")
    with pytest.raises(RegistryError, match=r"0003\.toml:11: few: it needs 124 nats a month, and .* 31 of 32: write "):
        Settings(registry=str(tmp_path)).registries()
