"""The gate: limits that hold everywhere, what browsers of other origins may do, and the headers that every answer carries."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deniable_server import create_app

PAGE = "https://shop.example"
SENT = "authorization, content-type, content-encoding, idempotency-key"


@pytest.fixture
def with_origins(settings):
    """Serve scripts of given origins."""
    result = []

    def start(origins):
        flask = create_app(replace(settings, cors_origins=origins))
        result.append(flask)
        return flask.test_client()

    yield start
    for flask in result:
        for app in flask.extensions["deniable"].apps.values():
            app.store._client.close()


def cors(answer):
    return {name: value for name, value in answer.headers if name.startswith("Access-Control-")}


def preflight(client, path, method, origin=PAGE):
    query = {"Origin": origin, "Access-Control-Request-Method": method, "Access-Control-Request-Headers": SENT}
    return client.options(path, headers=query)


def test_any_page_may_send_reports(served):
    """By default a browser lets scripts of every origin upload, keeps the permission for an hour, and shows when to come back."""
    answer = preflight(served.http, "/v1/reports", "POST")
    assert answer.status_code == 200
    assert cors(answer) == {
        "Access-Control-Allow-Origin": "*",
        "Access-Control-Allow-Methods": "POST",
        "Access-Control-Allow-Headers": "Authorization, Content-Type, Content-Encoding, Idempotency-Key",
        "Access-Control-Expose-Headers": "Retry-After, X-Request-ID",
        "Access-Control-Max-Age": "3600",
    }
    sent = served.post({"format": 1, "app": "shop", "groups": [served.group("ui.theme", [0])]}, Origin=PAGE)
    assert (sent.status_code, sent.headers["Access-Control-Allow-Origin"]) == (202, "*")
    assert "Access-Control-Allow-Credentials" not in sent.headers
    assert cors(preflight(served.http, "/v1/registry", "GET"))["Access-Control-Allow-Headers"] == "Authorization"


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "text/plain"}, {"Authorization": "Bearer nobodys-key"}])
def test_a_page_sees_what_was_wrong(served, headers):
    """A refusal is as readable for a script as a success."""
    answer = served.post(b"x", Origin=PAGE, **headers)
    assert answer.status_code >= 400
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert "Retry-After" in answer.headers["Access-Control-Expose-Headers"]


@pytest.mark.parametrize("path", ["/", "/login", "/api/v1/metrics", "/healthz", "/openapi.json", "/nowhere", "/v1/reports/"])
def test_the_rest_is_for_nobody_else(served, path):
    """No other address shares anything with scripts of other origins."""
    for answer in (preflight(served.http, path, "GET"), served.http.get(path, headers={"Origin": PAGE})):
        assert not cors(answer)


def test_only_named_origins(with_origins):
    """Where origins are named, only they are answered, each by its name, and caches are told."""
    client = with_origins(f"{PAGE}, https://other.example")
    named = preflight(client, "/v1/reports", "POST")
    assert named.headers["Access-Control-Allow-Origin"] == PAGE
    assert named.headers["Vary"] == "Origin"
    stranger = preflight(client, "/v1/reports", "POST", "https://stranger.example")
    assert not cors(stranger)
    assert stranger.headers["Vary"] == "Origin"
    assert not cors(preflight(with_origins(""), "/v1/reports", "POST"))


EVERYWHERE = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "TRACE", "PATCH", "BREW"])
def test_every_answer_is_protected(served, method):
    """Whatever is asked how, the answer lets a browser load, frame and guess nothing, and no trace of the code is in it."""
    paths = "/", "/login", "/m/x", "/static/dashboard.css", "/static/x", "/v1/reports", "/healthz", "/x", "//x"
    for path in paths:
        answer = served.http.open(path, method=method, buffered=True)
        assert answer.status_code < 500
        assert {name: answer.headers[name] for name in EVERYWHERE} == EVERYWHERE
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "script-src" not in policy
        assert b"Traceback" not in answer.data
        if answer.status_code == 405:
            assert answer.headers["Allow"]
        if method == "HEAD":
            assert not answer.data
        cached = answer.headers["Cache-Control"]
        assert cached == (
            "no-cache" if path == "/static/dashboard.css" and answer.status_code == 200 and method != "OPTIONS" else "no-store"
        )


@pytest.mark.parametrize("path", ["/login", "/v1/reports", "/healthz", "/nowhere"])
def test_bodies_are_limited_everywhere(served, path):
    """A body that is too large, or of unknown length, is refused before anybody reads it, wherever it is sent."""
    limit = served.service.settings.max_body_bytes
    assert served.http.post(path, data=b"x" * (limit + 1)).status_code == 413
    chunked = served.http.post(path, headers={"Transfer-Encoding": "chunked"})
    assert chunked.status_code == 411


@pytest.mark.parametrize(
    "path",
    ["/api/v1/metrics/ui.theme", "/api/v1/metrics", "/api/v1/live", "/v1/registry", "/healthz", "/openapi.json", "/nowhere"],
)
@pytest.mark.parametrize("query", ["period=2026-11-20&period=2026-11-21", "only=detected&only=detected", "x=&x=1"])
def test_a_parameter_is_given_once(served, path, query):
    """A second value would be ignored, so it is refused, at every address, whether or not it says the same."""
    answer = served.get(f"{path}?{query}")
    assert (answer.status_code, answer.get_json()["code"]) == (400, "repeated_parameter")
    assert query.partition("=")[0] in answer.get_json()["detail"]


def test_a_parameter_of_a_page_is_given_once(serve, registry_file):
    """Pages say so as a page."""
    answer = serve(registry_file.read_text("utf-8")).http.get("/m/ui.theme?period=2026-11-20&period=2026-11-21")
    assert (answer.status_code, answer.mimetype) == (400, "text/html")
    assert "A parameter is given once" in answer.get_data(as_text=True)


def test_an_upload_takes_no_parameter_twice(served):
    """Nor does an upload, of which nothing is taken."""
    answer = served.http.post("/v1/reports?x=1&x=2", json={})
    assert (answer.status_code, answer.get_json()["code"]) == (400, "repeated_parameter")
