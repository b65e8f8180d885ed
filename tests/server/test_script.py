"""The script for web pages: whoever may send reports can load it, and the hash that a page names is its own."""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode
from dataclasses import replace

import pytest

from deniable_server import create_app
from deniable_server.api import script

PATH = "/sdk/deniable.js"
PAGE = "https://shop.example"


def test_a_page_can_load_it_by_its_hash(served):
    """The line that `deniable serve` prints names the bytes that are sent, and a browser of another origin may check them."""
    line = re.fullmatch(
        r'<script src="https://t\.example(\S+)" integrity="sha384-(\S+)" crossorigin="anonymous"></script>',
        script.tag("https://t.example"),
    )
    answer = served.http.get(line[1], headers={"Origin": PAGE})
    assert (answer.status_code, answer.mimetype) == (200, "text/javascript")
    assert hashlib.sha384(answer.data).digest() == b64decode(line[2])
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "cross-origin"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "Set-Cookie" not in answer.headers


def test_it_is_kept_for_an_hour_and_asked_for_again(served):
    """A browser that has it gets no second copy."""
    first = served.http.get(PATH)
    assert first.headers["Cache-Control"] == "public, max-age=3600"
    again = served.http.get(PATH, headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")


@pytest.mark.parametrize(("serves", "status"), [("ingest", 200), ("query", 404)])
def test_servers_that_take_reports_have_it(settings, serves, status):
    """It comes from where reports go."""
    flask = create_app(replace(settings, serves=serves))
    assert flask.test_client().get(PATH).status_code == status
    for app in flask.extensions["deniable"].apps.values():
        app.store._client.close()


def test_it_loads_nothing_and_keeps_nothing_of_its_own():
    """It names no address but the documentation's, writes no markup and evaluates no text; its state is in one database."""
    text = script.content().decode("utf-8")
    assert set(re.findall(r"https?://[\w.]+", text)) <= {"https://github.com", "https://PUBLIC_KEY"}
    assert not re.search(r"innerHTML|insertAdjacent|eval\(|document\.write|localStorage|sessionStorage|cookie|Math\.random", text)
