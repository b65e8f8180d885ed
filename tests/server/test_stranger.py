"""What a stranger without a key can see of an app with public results: every address, by every method, with their headers."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from registries import metric_toml, registry_toml

from deniable_aggregator.store.errors import StoreError

from .conftest import INGEST, READ, Served
from .test_series import send, week

REGISTRY = registry_toml(
    metric_toml("theme", values=["light", "dark"], epsilon=3, period="week", segments=["channel", "place"], public=True),
    metric_toml("hush", values=["yonder", "hither"], epsilon=3, period="week", owner="ann@shop.example"),
    segments={"channel": ["stable", "beta"], "place": ["attic", "cellar"]},
    publication={"min_reports": 50, "grace": "30d"},
)
OTHER = registry_toml(metric_toml("quiz"), app="other", publication={"min_reports": 1, "trial": True})
PUBLIC = ("/results", "/results/theme", "/results/theme/values.csv", "/results/theme/series.csv", "/history", "/history.json")
EXACT = 1637


@pytest.fixture
def stranger(settings, tmp_path):
    """Serve an app with results, whose pages need a key, and a trial beside it."""
    paths = [tmp_path / "metrics.toml", tmp_path / "other.toml"]
    for path, text in zip(paths, (REGISTRY, OTHER), strict=True):
        path.write_text(text, "utf-8")
    served = Served(replace(settings, registry=":".join(map(str, paths)), about="results", dashboard="key"))
    for place in ("attic", "cellar"):
        of = f"channel=stable,place={place}"
        send(served, "theme", [0] * 900 + [1] * (EXACT - 900), week(3), segment=of)
    send(served, "hush", [0] * EXACT, week(3))
    served.drain(days=17)
    yield served
    served.store._client.close()


def addresses(served):
    """Return all addresses that may be read, with the names of both metrics."""
    rules = [rule.rule for rule in served.flask.url_map.iter_rules() if "GET" in rule.methods and "filename" not in rule.rule]
    return sorted({rule.replace("<id_>", id_) for rule in rules for id_ in ("theme", "hush")})


def test_no_address_has_anything_of_other_metrics(stranger):
    """But for `/about`, which says what is asked. No owner, no segment that has no table, no exact number, no key."""
    looked = {}
    for path in addresses(stranger):
        answer = stranger.http.get(path)
        looked[path] = answer.status_code
        text = _plain(f"{answer.get_data(as_text=True)} {answer.headers}")
        allowed = {"hush", "yonder", "hither"} if path == "/about" else {"hush"} if "hush" in path else set()
        words = {"hush", "yonder", "hither", "ann@", "attic", "cellar", f"{EXACT:,}", f"{2 * EXACT:,}", f"{EXACT}", INGEST, READ}
        assert {word for word in words - allowed if word in text} == set(), path
    opened = {path for path, status in looked.items() if status == 200}
    assert set(PUBLIC) <= opened
    assert opened - set(PUBLIC) <= {"/about", "/login", "/healthz", "/readyz", "/openapi.json", "/theme", "/sdk/deniable.js"}


def test_what_is_not_public_answers_as_what_is_not_there(stranger):
    """The same bytes, status and headers, whatever is asked of a metric that is not public."""
    for path in ("/results/{}", "/results/{}/values.csv", "/results/{}/series.csv"):
        answers = [stranger.http.get(path.format(name)) for name in ("hush", "none")]
        one, other = (
            (answer.status_code, *map(_plain, (answer.get_data(as_text=True), str(answer.headers)))) for answer in answers
        )
        assert one == other
        assert one[0] == 404


def _plain(text):
    """Remove what differs between any two answers: the number of the request."""
    return re.sub(r"urn:uuid:[0-9a-f-]+|[0-9a-f-]{32,}|Date: .*", "", text)


def test_what_is_not_public_is_not_read(stranger, monkeypatch):
    """So that the time of an answer does not depend on whether there is such a metric, or on its reports."""
    calls = []
    monkeypatch.setattr("deniable_server.results.page._result", lambda *arguments: calls.append(arguments))
    before = _calls(stranger)
    stranger.http.get("/results/hush")
    first = _calls(stranger) - before
    stranger.http.get("/results/none")
    assert _calls(stranger) - before - first == first
    assert not calls


def _calls(served):
    """Count what the store was asked."""
    return served.store._client.info("stats")["total_commands_processed"]


def test_errors_are_not_kept_and_say_nothing(stranger):
    """A cache keeps what is public, and no refusal: a metric that becomes public is seen at once."""
    for path in PUBLIC:
        answer = stranger.http.get(path)
        assert answer.headers["Cache-Control"] == "max-age=3600"
        for name in ("Set-Cookie", "ETag", "Last-Modified", "Access-Control-Allow-Origin"):
            assert name not in answer.headers
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    for path, status in {
        "/results/none": 404,
        "/results?app=none": 404,
        "/results?app=other": 404,
        "/history?app=other": 404,
        "/results?segment=place%3Dattic": 400,
        "/results/theme?period=2026-W01": 400,
        "/results/theme/values.csv?level=0.5": 400,
        "/results?app=shop&app=other": 400,
        "/results/..%2Fm%2Fhush": 404,
        "/results/theme/segments.csv": 404,
    }.items():
        answer = stranger.http.get(path)
        assert (answer.status_code, answer.headers["Cache-Control"]) == (status, "no-store"), path
        assert "hush" not in answer.get_data(as_text=True).replace(path, "")
    for path in PUBLIC:
        assert stranger.http.post(path).status_code == stranger.http.delete(path).status_code == 405


def test_a_session_changes_nothing(stranger):
    """Whoever is signed in sees the same page, and no cache that others use gets one of theirs."""
    alone = {path: stranger.http.get(path).get_data() for path in PUBLIC}
    form = stranger.http.get("/login").get_data(as_text=True)
    token = re.search(r'name="token" value="([^"]+)"', form)[1]
    assert stranger.http.post("/login", data={"key": READ, "token": token}).status_code == 303
    for path in PUBLIC:
        answer = stranger.http.get(path)
        assert answer.get_data() == alone[path]
        assert "Set-Cookie" not in answer.headers


def test_links_lead_to_what_everybody_may_see(stranger):
    """No address of a page that needs a key stands on a public one."""
    for path in PUBLIC[:2] + PUBLIC[4:5]:
        links = re.findall(r'href="([^"]+)"', stranger.http.get(path).get_data(as_text=True))
        assert {link for link in links if not re.match(r"(/results|/about|/history|/static/|#|https://deniable)", link)} == set()


def test_a_store_that_is_away_says_no_more(stranger, monkeypatch):
    """No reason, no address of the store."""

    def fail(*_):
        raise StoreError("redis://user:password@10.0.0.7 hush")

    monkeypatch.setattr("deniable_server.results.page._result", fail)
    monkeypatch.setattr("deniable_aggregator.audit.history.read", fail)
    for path in PUBLIC:
        answer = stranger.http.get(path)
        assert (answer.status_code, answer.headers["Cache-Control"]) == (503, "no-store")
        assert answer.get_data(as_text=True) == "The results cannot be read. Try again in a moment."
