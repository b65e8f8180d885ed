"""A request that reaches a server of the other kind: devices keep their reports, and people learn which server to ask."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deniable.wire import addresses
from deniable_server import create_app


@pytest.fixture
def of_kind(settings):
    """Make a server that serves something only."""
    servers = []

    def make(serves):
        flask = create_app(replace(settings, serves=serves))
        servers.append(flask.extensions["deniable"])
        return flask.test_client()

    yield make
    for known in servers:
        for app in known.apps.values():
            app.store._client.close()


@pytest.mark.parametrize(("method", "path"), [("post", addresses.REPORTS), ("get", addresses.REGISTRY)])
def test_a_server_for_queries_has_devices_try_again(of_kind, method, path):
    """By the wire page 404 would mean that a batch is given up, so a wrong rule of a proxy would cost reports."""
    answer = getattr(of_kind("query"), method)(path, headers={"Origin": "https://shop.example"})
    assert (answer.status_code, answer.get_json()["code"]) == (503, "serves_query")
    assert answer.get_json()["detail"].endswith("send uploads to the one with DENIABLE_SERVES=ingest")
    assert answer.headers["Retry-After"] == "60"
    assert answer.headers["Access-Control-Allow-Origin"] == "*"


@pytest.mark.parametrize("path", ["/api/v1/metrics", "/metrics/ui.theme", "/"])
def test_a_server_for_uploads_says_who_answers_questions(of_kind, path):
    """An analyst who was sent to the wrong server learns which one to ask."""
    answer = of_kind("ingest").get(path)
    assert (answer.status_code, answer.get_json()["code"]) == (404, "serves_ingest")
    assert answer.get_json()["detail"].endswith("ask the one with DENIABLE_SERVES=query")


def test_an_address_that_no_server_has_is_not_found(of_kind):
    """Only what the other kind serves is answered otherwise."""
    answer = of_kind("query").get("/nothing")
    assert (answer.status_code, answer.get_json()["detail"]) == (404, "there is nothing at this address")
