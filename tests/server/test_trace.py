"""A number for each request: drawn by the server, in the answer, the problem and the log."""

from __future__ import annotations

import json
import logging
from uuid import UUID

import pytest

from deniable_aggregator.answer import measurement
from deniable_aggregator.process import logs
from deniable_server.http.trace import HEADER


@pytest.fixture
def lines():
    """Gather what is logged, as a program reads it."""
    gathered = []
    formatter = logs.LogSettings(format="json").formatter()

    class Gather(logging.Handler):
        def emit(self, record):
            gathered.append(json.loads(formatter.format(record)))

    handler, root = Gather(), logging.getLogger()
    root.addHandler(handler)
    level = root.level
    yield gathered
    root.removeHandler(handler)
    root.setLevel(level)


@pytest.fixture
def events(lines):
    """Gather it from level info on."""
    logging.getLogger().setLevel(logging.INFO)
    return lines


def number(answer):
    assert len(answer.headers.getlist(HEADER)) == 1
    uuid = UUID(answer.headers[HEADER])
    assert uuid.version == 4
    return str(uuid)


def test_every_answer_has_a_number_of_its_own(served):
    """Good and bad answers at every kind of address have a fresh number; one that the client sends is not used."""
    mine = str(UUID(int=7, version=4))
    answers = [
        served.http.open(path, method=method, headers={HEADER: mine}, buffered=True)
        for path in ("/healthz", "/login", "/nowhere", "/v1/reports", "/static/dashboard.css", "/readyz", "/")
        for method in ("GET", "POST", "OPTIONS", "HEAD", "BREW")
    ]
    answers.append(served.http.post("/v1/reports", headers={"Transfer-Encoding": "chunked"}))
    numbers = {number(answer) for answer in answers}
    assert len(numbers) == len(answers)
    assert mine not in numbers


def test_a_problem_names_its_request(served):
    """The member `instance` of a problem is the number of the answer."""
    for answer in (served.post(b"x"), served.post(b"x", Authorization=None), served.http.get("/nowhere")):
        assert answer.status_code >= 400
        assert answer.get_json()["instance"] == f"urn:uuid:{number(answer)}"


def test_a_line_for_each_request(served, events):
    """At level info a request is one line: its rule and not its address, what became of it, and nothing of the client."""
    sent = served.post({"format": 1, "app": "shop", "groups": [served.group("ui.theme", [0])]}, User_Agent="canary-agent")
    refused = served.get("/api/v1/metrics/canary-metric?segment=canary-segment")
    strange = served.http.open("/canary-path", method="CANARY")
    assert [each["event"] for each in events] == ["answered"] * 3
    assert all(each.pop("time") and each.pop("logger") == "deniable.request" for each in events)
    common = {"level": "info", "event": "answered"}
    assert events == [
        common | {"request": number(sent), "route": "/v1/reports", "method": "POST", "status": 202, "app": "shop"},
        common
        | {"request": number(refused), "route": "/api/v1/metrics/<id_>", "method": "GET", "status": 404}
        | {"code": "unknown_metric", "app": "shop"},
        common | {"request": number(strange), "status": 404, "code": "not_found"},
    ]


def test_nothing_is_written_of_good_requests_at_the_default_level(served, lines):
    """At level warning an upload, a query and a page write nothing."""
    logging.getLogger().setLevel(logging.WARNING)
    assert served.post({"format": 1, "app": "shop", "groups": [served.group("ui.theme", [0])]}).status_code == 202
    assert served.get("/api/v1/metrics").status_code == 200
    assert served.http.get("/login").status_code == 200
    assert lines == []


def test_a_bug_is_logged_with_its_request(served, events, monkeypatch):
    """What goes wrong is logged with the number that the client was given, and without its message."""

    def fail(*_, **__):
        raise RuntimeError("canary-answer")

    monkeypatch.setattr(measurement, "measure", fail)
    answer = served.get("/api/v1/metrics/plugin")
    assert answer.status_code == 500
    failure, answered = events
    assert failure["level"] == "error"
    assert "RuntimeError in /api/v1/metrics/<id_>" in failure["event"]
    assert failure["request"] == answered["request"] == number(answer)
    assert answered["code"] == "internal"
    assert "canary" not in json.dumps(events)
    assert logs.current() == {}


def test_probes_are_addresses_of_a_server(served):
    """A line of what these find has its second, so none of them may take uploads."""
    rules = {rule.rule: rule.methods for rule in served.http.application.url_map.iter_rules()}
    assert {probe: rules[probe] - {"HEAD", "OPTIONS"} for probe in logs.PROBES} == {"/metrics": {"GET"}, "/readyz": {"GET"}}
