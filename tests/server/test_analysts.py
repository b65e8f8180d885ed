"""Questions about exact numbers over HTTP: answered with noise, paid for, refused when the budget is spent, and logged."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pytest
import redis

from deniable import period
from deniable_aggregator import census
from deniable_aggregator.entry import whole
from deniable_server.keys import KeyStore, id_of
from deniable_server.openapi import document

from .conftest import INGEST, READ
from .test_openapi import check

TODAY = period.of(datetime.now(UTC), "day")
PARTICIPANTS, POPULAR = "/api/v1/metrics/export.used/participants", "/api/v1/metrics/export.used/popular"
ACTOR = f"key:{id_of(sha256(READ.encode()).digest())}"


@pytest.fixture
def closed(served):
    """Count 300 reports of Linux and 40 of macOS, and close the period."""
    linux = served.group("export.used", [1] * 300, period=TODAY)
    macos = served.group("export.used", [0] * 40, period=TODAY, segment="platform=macos")
    served.post({"format": 1, "groups": [linux, macos, served.group("ui.theme", [0] * 50, period=TODAY)]})
    served.drain()
    served.drain(days=5)
    return served


def post(served, path, key=READ, **body):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return served.http.post(path, json={"period": TODAY, "epsilon": 0.1} | body, headers=headers)


def refusal(answer):
    return answer.status_code, answer.get_json()["code"]


def queries(served):
    lines = served.store.redis.lrange("{shop}:audit", 0, -1)
    found = [whole(line) for line in lines]
    return [(each.event, each.actor, each.details) for each in found if each.event.startswith("query.")]


def test_a_number_is_told_with_noise_and_its_error(closed):
    """The number of reports of a cell is told near the truth, with what it cost and what is left."""
    told = post(closed, PARTICIPANTS, segment="platform=linux", epsilon=0.5).get_json()
    low, high = told["interval"]
    assert abs(told["count"] - 300) < 100
    assert (told["count"] - low, high - told["count"]) == (6, 6)
    assert told["stderr"] == pytest.approx(2.8, abs=0.1)
    assert (told["metric"], told["version"], told["period"], told["segment"]) == ("export.used", 1, TODAY, "platform=linux")
    assert (told["epsilon"], told["spent"], told["left"], told["level"]) == (0.5, 0.5, 0.5, 0.95)
    refills = datetime.fromisoformat(told["refills"]) - datetime.now(UTC)
    assert timedelta(days=29, hours=23) < refills < timedelta(days=30, seconds=1)


def test_numbers_of_all_reports_are_of_the_census(closed):
    """Without a segment all reports of the period are counted, also where the metric has none."""
    assert abs(post(closed, PARTICIPANTS, epsilon=1).get_json()["count"] - 340) < 50
    told = post(closed, "/api/v1/metrics/ui.theme/participants", epsilon=1).get_json()
    assert (abs(told["count"] - 50) < 50, told["segment"]) == (True, None)


def test_the_most_popular_value_is_named(closed):
    """Of platforms the one with many more reports is named, among those that were published."""
    told = post(closed, POPULAR, by="platform", epsilon=0.5).get_json()
    assert (told["value"], told["candidates"], told["by"]) == ("linux", ["linux", "macos"], "platform")
    assert told["margin"] == pytest.approx(7.38, abs=0.01)
    assert (told["spent"], told["left"]) == (0.5, 0.5)


def test_the_same_question_again_is_the_same_answer(closed):
    """A repeated question is answered alike for nothing, whoever asks; an epsilon counts to a millionth, rounded up."""
    key, _ = KeyStore(closed.store.redis, "shop").create("read", "another")
    first = [post(closed, PARTICIPANTS, epsilon=0.01).get_json(), post(closed, POPULAR, by="platform", epsilon=0.02).get_json()]
    for asking, left in ((READ, 0.97), (key, 1.0)):
        again = [
            post(closed, PARTICIPANTS, asking, epsilon=0.01, segment="").get_json(),
            post(closed, POPULAR, asking, by="platform", epsilon=0.01999999999).get_json(),
        ]
        assert [each["spent"] for each in again] == [0, 0]
        assert {each["left"] for each in again} == {left}
        assert [each["count"] for each in (first[0], again[0])] == [first[0]["count"]] * 2
        assert [each["value"] for each in (first[1], again[1])] == [first[1]["value"]] * 2


def test_what_is_spent_is_refused(closed):
    """Above the budget a question is refused with what is left and when to come back; smaller ones and other cells are not."""
    assert post(closed, PARTICIPANTS, segment="platform=linux", epsilon=0.7).status_code == 200
    answer = post(closed, PARTICIPANTS, epsilon=0.4)
    assert refusal(answer) == (403, "budget_spent")
    assert answer.get_json()["left"] == 0.3
    assert 30 * 86_400 - 60 < int(answer.headers["Retry-After"]) <= 30 * 86_400
    assert post(closed, POPULAR, by="platform", epsilon=0.31).get_json()["code"] == "budget_spent"
    assert post(closed, PARTICIPANTS, segment="platform=macos", epsilon=0.4).status_code == 200
    assert post(closed, PARTICIPANTS, epsilon=0.3).get_json()["left"] == 0


def test_the_budget_is_told(closed):
    """A key is told what it has left for each metric and period, and when it has more; another key has all."""
    before = closed.get("/api/v1/budget").get_json()
    assert (before["app"], before["epsilon"], before["window_days"]) == ("shop", 1.0, 30)
    assert {(each["metric"], each["left"], each["refills"]) for each in before["metrics"]} == {
        (id_, 1.0, None) for id_ in closed.app.questions
    }
    post(closed, PARTICIPANTS, segment="platform=linux", epsilon=0.6)
    post(closed, PARTICIPANTS, segment="platform=macos", epsilon=0.2)
    (told,) = [each for each in closed.get("/api/v1/budget").get_json()["metrics"] if each["left"] < 1]
    assert (told["metric"], told["left"], told["refills"]) == ("export.used", 0.4, told["periods"][0]["refills"])
    assert [(each["period"], each["left"]) for each in told["periods"]] == [(TODAY, 0.4)]
    key, _ = KeyStore(closed.store.redis, "shop").create("read", "another")
    assert {each["left"] for each in closed.get("/api/v1/budget", key).get_json()["metrics"]} == {1.0}


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (PARTICIPANTS, {"epsilon": 1.01}, (400, "epsilon")),
        (PARTICIPANTS, {"epsilon": 0.001}, (400, "epsilon")),
        (PARTICIPANTS, {"epsilon": -1}, (400, "epsilon")),
        (PARTICIPANTS, {"epsilon": 1e308}, (400, "epsilon")),
        (PARTICIPANTS, {"epsilon": "0.1"}, (400, "question_shape")),
        (PARTICIPANTS, {"epsilon": True}, (400, "question_shape")),
        (PARTICIPANTS, {"more": 1}, (400, "question_shape")),
        (PARTICIPANTS, {"by": "platform"}, (400, "question_shape")),
        (PARTICIPANTS, {"period": None}, (400, "question_shape")),
        (PARTICIPANTS, {"segment": "platform=beos"}, (400, "segment")),
        (PARTICIPANTS, {"segment": "planet=earth"}, (400, "segment")),
        (PARTICIPANTS, {"period": "2020-01-01"}, (404, "nothing_published")),
        (PARTICIPANTS, {"period": "never"}, (404, "nothing_published")),
        (POPULAR, {}, (400, "question_shape")),
        (POPULAR, {"by": "planet"}, (400, "by")),
        (POPULAR, {"by": "platform", "segment": "platform=linux"}, (400, "by")),
        (POPULAR.replace("export.used", "ui.theme"), {"by": "platform"}, (400, "by")),
        (PARTICIPANTS.replace("export.used", "plugin"), {}, (404, "nothing_published")),
        (PARTICIPANTS.replace("export.used", "ui.color"), {}, (404, "unknown_metric")),
    ],
)
def test_bad_questions_are_refused_and_cost_nothing(closed, path, body, expected):
    """Each kind of bad question has its own status and code, and leaves nothing among answers and spends."""
    answer = post(closed, path, **body)
    assert refusal(answer) == expected
    assert answer.mimetype == "application/problem+json"
    assert not [*closed.store.redis.scan_iter("*:spent:*"), *closed.store.redis.scan_iter("*:answers:*")]


@pytest.mark.parametrize(
    ("key", "sent", "media", "expected"),
    [
        (None, b"{}", "application/json", (401, "missing_key")),
        (INGEST, b"{}", "application/json", (401, "unknown_key")),
        (READ, b"{}", "text/plain", (415, "media_type")),
        (READ, b"{", "application/json", (400, "json")),
        (READ, b'{"period": "\xff"}', "application/json", (400, "json")),
        (READ, b"[]", "application/json", (400, "question_shape")),
    ],
)
def test_what_is_no_question_is_refused(served, key, sent, media, expected):
    """Without a key, or with a body that is no question in JSON, nothing is answered."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    assert refusal(served.http.post(PARTICIPANTS, data=sent, content_type=media, headers=headers)) == expected


def test_questions_count_for_the_limits(closed):
    """They are requests with a key like others."""
    limited = type(closed)(replace(closed.service.settings, rate_limit_key="2/minute"))
    assert [post(limited, PARTICIPANTS).status_code for _ in range(3)] == [200, 200, 429]
    limited.store.redis.close()


def test_what_is_not_closed_is_not_asked_about(served):
    """Also what is published already is only asked about when its period has closed; there is no census before."""
    served.post({"format": 1, "groups": [served.group("export.used", [1] * 30, period=TODAY)]})
    served.drain()
    assert served.get(f"/api/v1/metrics/export.used?period={TODAY}").get_json()["n"] == 30
    assert refusal(post(served, PARTICIPANTS)) == (404, "nothing_published")
    assert not list(served.store.redis.scan_iter("*census*"))
    served.drain(days=5)
    assert post(served, PARTICIPANTS).status_code == 200
    assert refusal(post(served, POPULAR, by="platform")) == (403, "withheld")
    assert refusal(post(served, PARTICIPANTS, segment="platform=macos")) == (403, "withheld")


def test_what_is_withheld_from_queries_is_withheld_here(serve, registry_file):
    """A cell of few reports is refused in the words of a query, and so is a choice among fewer than two published values."""
    served = serve(registry_file.read_text("utf-8").replace("min_reports = 1\ntrial = true", "min_reports = 100"))
    for segment, n in (("platform=linux", 400), ("platform=macos", 40)):
        served.post({"format": 1, "groups": [served.group("export.used", [1] * n, period=TODAY, segment=segment)]})
    served.drain()
    served.drain(days=5)
    asked = served.get(f"/api/v1/metrics/export.used?period={TODAY}&segment=platform%3Dmacos").get_json()
    answer = post(served, PARTICIPANTS, segment="platform=macos")
    assert (refusal(answer), answer.get_json()["detail"]) == ((403, "withheld"), asked["detail"])
    assert refusal(post(served, POPULAR, by="platform")) == (403, "withheld")
    told = post(served, PARTICIPANTS, epsilon=1).get_json()
    assert abs(told["count"] - 440) < 50  # of all that were counted, and not of those that are in the release


def test_answers_outlive_the_census(closed):
    """When exact numbers are gone what was answered is answered again, and nothing else is."""
    first = post(closed, PARTICIPANTS).get_json()
    closed.store.redis.delete(census.key("shop", "export.used"))
    again = post(closed, PARTICIPANTS).get_json()
    assert (again["count"], again["spent"]) == (first["count"], 0)
    assert refusal(post(closed, PARTICIPANTS, epsilon=0.2)) == (404, "not_kept")
    assert refusal(post(closed, POPULAR, by="platform")) == (404, "not_kept")
    assert {each["left"] for each in closed.get("/api/v1/budget").get_json()["metrics"]} == {1.0}


def test_cells_that_have_come_to_mean_something_else_share_one_budget(closed, registry_file):
    """Where the registry's segments changed since the period closed, disjoint cells add up; they may not have been."""
    post(closed, PARTICIPANTS, segment="platform=linux", epsilon=0.7)
    registry_file.write_text(registry_file.read_text().replace('["linux", "macos"]', '["linux", "macos", "beos"]'))
    changed = closed.restarted()
    assert refusal(post(changed, PARTICIPANTS, segment="platform=macos", epsilon=0.7)) == (403, "budget_spent")
    assert post(changed, PARTICIPANTS, segment="platform=macos", epsilon=0.3).status_code == 200
    assert post(changed, PARTICIPANTS, segment="platform=linux", epsilon=0.7).get_json()["spent"] == 0
    changed.store.redis.close()


def test_answers_have_the_shape_they_are_said_to_have(closed):
    """Numbers, choices and budgets are what the document describes, before and after questions."""
    for _ in range(2):
        check("Budget", closed.get("/api/v1/budget").get_json())
        check("Counted", post(closed, PARTICIPANTS).get_json())
        check("Counted", post(closed, PARTICIPANTS, segment="platform=linux").get_json())
        check("MostPopular", post(closed, POPULAR, by="platform").get_json())
    assert post(closed, PARTICIPANTS, epsilon=1).headers["Retry-After"].isdecimal()
    told = document()["paths"]["/api/v1/metrics/{id}/participants"]["post"]["responses"]
    assert {status for status, answer in told.items() if "Retry-After" in answer["headers"]} == {"403", "429", "503"}


def test_a_registry_may_allow_no_questions(serve, registry_file):
    """With an epsilon of 0 nothing is answered."""
    served = serve(f"analysts = {{ epsilon = 0 }}\n{registry_file.read_text('utf-8')}")
    assert refusal(post(served, PARTICIPANTS, epsilon=0.01)) == (400, "epsilon")
    assert served.get("/api/v1/budget").get_json()["epsilon"] == 0


def test_questions_are_logged(closed):
    """What was asked, by whom, and what it cost is in the audit log, also where the budget was spent; never the number."""
    post(closed, PARTICIPANTS, segment="platform=linux", epsilon=0.25)
    post(closed, PARTICIPANTS, segment="platform=linux", epsilon=0.25)
    post(closed, POPULAR, by="platform", epsilon=0.8)
    post(closed, PARTICIPANTS, segment="platform=secret")
    post(closed, PARTICIPANTS, period="secret")
    post(closed, POPULAR, by="secret")
    post(closed, PARTICIPANTS, secret="secret")
    closed.get("/api/v1/budget")
    asked = {"by": "api", "metric": "export.used", "period": TODAY}
    number = asked | {"question": "participants", "segment": "platform=linux", "epsilon": "0.25"}
    refused = {"by": "api", "metric": "export.used"}
    assert queries(closed) == [
        ("query.answered", ACTOR, number | {"spent": "0.25"}),
        ("query.answered", ACTOR, number | {"spent": "0"}),
        (
            "query.refused",
            ACTOR,
            asked | {"question": "popular", "among": "platform", "epsilon": "0.8", "problem": "budget_spent"},
        ),
        ("query.refused", ACTOR, asked | {"question": "participants", "epsilon": "0.1", "problem": "segment"}),
        ("query.refused", ACTOR, refused | {"question": "participants", "epsilon": "0.1", "problem": "nothing_published"}),
        ("query.refused", ACTOR, refused | {"problem": "by"}),
        ("query.refused", ACTOR, refused | {"problem": "question_shape"}),
    ]


def test_an_answer_that_cannot_be_logged_is_not_given_and_not_lost(closed, monkeypatch):
    """Where the audit log cannot be written the answer is 503; asked again it is the one that was paid for."""
    audit = type(closed.app.audit)

    def away(*_, **__):
        raise redis.ConnectionError

    with monkeypatch.context() as patched:
        patched.setattr(audit, "append", away)
        assert post(closed, PARTICIPANTS).status_code == 503
    (kept,) = closed.store.redis.hgetall("{shop}:answers:export.used").values()
    again = post(closed, PARTICIPANTS).get_json()
    assert (again["count"], again["spent"]) == (json.loads(kept)["count"], 0)
