"""A server and what its store has to keep: looked at when it starts, or when the store comes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deniable.errors import ConfigurationError
from deniable_aggregator.store import outage
from deniable_aggregator.store.server import durability
from deniable_server import create_app
from deniable_server.settings import Settings

from .conftest import READ


def test_a_server_refuses_a_store_that_keeps_less(settings):
    """With `always` a store that writes every second is refused at the start."""
    with pytest.raises(ConfigurationError, match="appendfsync always"):
        create_app(replace(settings, durability="always"))


def test_uploads_are_refused_while_the_store_keeps_less(served, monkeypatch, caplog):
    """A store that was changed under a running server: 503, and nothing is taken; mended, it is used again."""
    import time

    batch = {"format": 1, "app": "shop", "groups": [served.group("ui.theme", [0, 1])]}
    assert served.post(batch).status_code == 202
    later = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: later)
    served.store._client.config_set("appendonly", "no")
    try:
        answer = served.post(batch)
        assert (answer.status_code, answer.get_json()["code"]) == (503, "store_unavailable")
        assert int(answer.headers["Retry-After"]) > 0
        assert served.store.backlog() == 1
        assert served.http.get("/readyz").status_code == 503
        assert caplog.text.count("set appendonly yes") == 1  # said once, and not for each upload
    finally:
        served.store._client.config_set("appendonly", "yes")
    assert served.post(batch).status_code == 202
    assert served.http.get("/readyz").status_code == 200


def test_a_server_says_that_an_outage_is_over(served, monkeypatch, caplog):
    """When the store takes an upload, or would take one; a query that is answered does not show that."""
    monkeypatch.setattr(outage, "_CALM_SECONDS", 0)
    batch = {"format": 1, "app": "shop", "groups": [served.group("ui.theme", [0, 1])]}
    for works in (lambda: served.post(batch).status_code == 202, lambda: served.http.get("/readyz").status_code == 200):
        caplog.clear()
        served.store._client.config_set("min-replicas-to-write", 1)
        try:
            assert served.post(batch).status_code == served.post(batch).status_code == 503
        finally:
            served.store._client.config_set("min-replicas-to-write", 0)
        served.get("/api/v1/metrics")
        assert [line[:27] for line in caplog.messages] == ["the store at unix:///tmp/de"]
        assert works()
        assert caplog.messages[1:] == ["the store can be used again"]


def test_a_server_starts_before_its_store(registry_file, caplog):
    """A store that is away when the server starts is no reason not to start; until it comes uploads get 503."""
    flask = create_app(
        Settings(
            redis_url="redis://127.0.0.1:1", registry=str(registry_file), ingest_keys="shop:pk_test_12345678", durability="always"
        )
    )
    assert "cannot be used: it does not answer. To mend that: start it" in caplog.text
    assert flask.test_client().get("/readyz").status_code == 503


def test_an_unknown_promise_stops_the_start():
    """The message has the variable and the value."""
    with pytest.raises(ConfigurationError, match=r"DENIABLE_DURABILITY.*'sometimes'"):
        Settings.from_environment({"DENIABLE_DURABILITY": "sometimes"})


@pytest.mark.parametrize("serves", ["query", "ingest"])
def test_a_password_that_is_refused_is_told_once(settings, store_url, caplog, serves):
    """The log says why and what to do, once for many requests and pages; /readyz says why."""
    url = store_url.replace("unix://", f"unix://{serves}:wrong-password@")
    flask = create_app(replace(settings, redis_url=url, serves=serves))
    http = flask.test_client()
    for path in ("/readyz", "/", "/readyz", "/api/v1/metrics", "/v1/registry"):
        http.get(path, headers={"Authorization": "Bearer rk_any_12345678"})
    (line,) = [each for each in caplog.messages if "cannot be used" in each]
    assert "it refuses the user or the password. To mend that: DENIABLE_REDIS_URL" in line
    assert f"names the user '{serves}'" in line
    assert "wrong-password" not in caplog.text
    ready = http.get("/readyz")
    assert (ready.status_code, ready.get_json()["parts"]["store"]) == (
        503,
        {
            "ok": False,
            "reason": "login",
            "detail": "the store cannot be used: it refuses the user or the password; this server's log says what to do",
        },
    )


def test_a_password_that_is_refused_is_told_on_pages_and_in_answers(settings, store_url):
    """Whoever asks learns what /readyz says, too."""
    url = store_url.replace("unix://", "unix://query:wrong-password@")
    http = create_app(replace(settings, redis_url=url, serves="query", dashboard="open")).test_client()
    answer = http.get("/api/v1/metrics", headers={"Authorization": f"Bearer {READ}"})
    assert (answer.status_code, answer.get_json()["detail"]) == (
        503,
        "the store cannot be used: it refuses the user or the password; try again later",
    )
    assert "The store cannot be used: it refuses the user or the password. No report is lost." in http.get("/").text


def test_what_a_store_does_not_show_is_said_with_its_second(caplog):
    """It is of the process, not of a request."""
    durability._warn.__wrapped__("appendfsync", "everysec")
    assert [(record.message, record.of_process) for record in caplog.records] == [
        ("the store does not show appendfsync: check yourself that it keeps durability everysec", True)
    ]
