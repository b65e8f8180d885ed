"""Queries: honest numbers with their uncertainty, for whoever has the key."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from deniable.registry import period
from deniable_aggregator import decode
from deniable_aggregator.answer import figures
from deniable_aggregator.archive.errors import ArchiveError
from deniable_aggregator.counting.faults import Faults
from deniable_aggregator.decode.estimate import plausible
from deniable_aggregator.store import Upload
from deniable_aggregator.store.uploads import health
from deniable_server.access.keys import KeyStore

from .conftest import READ

pytestmark = pytest.mark.divided_too


def plausible_shares(mechanism, body):
    """Return the shares from which the errors of an answer are computed."""
    frequency = np.array([row["estimate"] for row in body["estimates"]])
    return plausible(frequency, np.full(len(frequency), mechanism.variance(0, body["n"]) ** 0.5))


def test_metrics_are_listed(served):
    """The list has every declared metric with its mechanism, epsilon and number of reports."""
    listed = served.get("/api/v1/metrics").get_json()
    assert listed["app"] == "shop"
    by_id = {metric["id"]: metric for metric in listed["metrics"]}
    assert list(by_id) == ["ui.theme", "export.used", "plugin", "country", "ended"]
    theme = by_id["ui.theme"]
    assert theme["mechanism"] == "grr"
    assert theme["epsilon"] == pytest.approx(1, abs=1e-8)
    assert theme["epsilon"] <= 1
    assert (theme["n"], theme["updated"], theme["domain_size"]) == (0, None, 3)
    assert by_id["ended"]["expires"] == "2020-01-01"


def test_a_metric_before_any_report(served):
    """Without reports the numbers are null, not zero."""
    body = served.get("/api/v1/metrics/ui.theme").get_json()
    assert body["n"] == 0
    assert body["estimates"][0]["estimate"] is None
    assert body["estimates"][0]["interval"] == [None, None]
    assert {each["count"] for each in body["estimates"]} == {None}


def test_estimates_are_the_decoders(served):
    """The endpoint gives the decoder's numbers, the declared values in their order, and the hour when it was last counted."""
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    served.post({"format": 1, "app": "shop", "groups": [served.group("ui.theme", [0] * 60 + [1] * 30 + [2] * 10)]})
    served.drain()
    body = served.get("/api/v1/metrics/ui.theme?level=0.9").get_json()
    mechanism = served.mechanism("ui.theme")
    tally = served.store.read(mechanism.layout, list(served.store.strata("ui.theme")))
    estimate = decode.estimate(mechanism, tally)
    detected = estimate.detected(0.1)
    selected, together = estimate.selected_interval(detected, 0.9), estimate.interval(0.9, simultaneous=True)
    assert [row["value"] for row in body["estimates"]] == ["light", "dark", "system"]
    for i, row in enumerate(body["estimates"]):
        assert row["estimate"] == estimate.frequency[i]
        assert row["count"] == estimate.count[i]
        assert row["stderr"] == estimate.stderr[i]
        assert row["interval"] == [selected[0][i], selected[1][i]]
        assert row["interval_kind"] == ("selected" if detected[i] else "pointwise")
        assert row["simultaneous"] == [together[0][i], together[1][i]]
    assert math.isclose(sum(row["estimate"] for row in body["estimates"]), 1)
    assert (body["n"], body["level"]) == (100, 0.9)
    assert body["unallocated"] is None  # all answers are listed
    assert datetime.fromisoformat(body["updated"]) in (hour, hour + timedelta(hours=1))


def test_segments_and_periods_are_read_apart_and_together(served):
    """Reports of different segments and periods are counted apart, and merged unless one is asked for."""
    yesterday = period.of(datetime.now(UTC) - timedelta(days=1), "day")
    served.post(
        {
            "format": 1,
            "app": "shop",
            "groups": [
                served.group("export.used", [1] * 3),
                served.group("export.used", [1] * 4, segment="platform=macos"),
                served.group("export.used", [0] * 5, period=yesterday),
            ],
        }
    )
    served.drain()

    def n(query=""):
        return served.get(f"/api/v1/metrics/export.used{query}").get_json()["n"]

    assert n() == 12
    assert n("?segment=platform=linux") == 8
    assert n("?segment=platform=macos") == 4
    assert n(f"?period={yesterday}") == 5
    assert n(f"?period={yesterday}&segment=platform=linux") == 5
    body = served.get("/api/v1/metrics/export.used").get_json()
    assert body["segments"] == ["platform=linux", "platform=macos"]
    assert {"first": yesterday, "last": yesterday} in body["periods"]
    assert body["closed"] is False
    assert body["included"] == body["periods"]
    assert n(f"?period={yesterday}&segment=platform=macos") == 0


def test_nobody_is_withheld_in_a_trial(served):
    """A segment of which nothing came has no reports where others have some, also if no period is named."""
    served.post({"format": 1, "app": "shop", "groups": [served.group("export.used", [1] * 3)]})
    served.drain()
    for when in ("", f"&period={period.of(datetime.now(UTC), 'day')}"):
        answer = served.get(f"/api/v1/metrics/export.used?segment=platform=macos{when}")
        assert (answer.status_code, answer.get_json()["n"]) == (200, 0)


def test_a_changed_definition_begins_a_new_count(served, registry_file):
    """Counts of another definition of the same version are never decoded with this one."""
    served.post({"format": 1, "app": "shop", "groups": [served.group("ui.theme", [0] * 10)]})
    served.drain()
    registry_file.write_text(registry_file.read_text().replace('"dark", "system"', '"system", "dark"'))
    assert served.restarted().get("/api/v1/metrics/ui.theme").get_json()["n"] == 0


@pytest.mark.parametrize(
    ("path", "key", "expected"),
    [
        ("/api/v1/metrics", None, (401, "missing_key")),
        ("/api/v1/metrics", "rk_test_wrong_one", (401, "unknown_key")),
        ("/api/v1/metrics", "pk_test_12345678", (401, "unknown_key")),
        ("/api/v1/metrics/ui.theme", None, (401, "missing_key")),
        ("/api/v1/metrics/ui.color", "rk_test_12345678", (404, "unknown_metric")),
        ("/api/v1/metrics/ui.theme?level=2", "rk_test_12345678", (400, "level")),
        ("/api/v1/metrics/ui.theme?level=nan", "rk_test_12345678", (400, "level")),
        ("/api/v1/metrics/ui.theme?level=high", "rk_test_12345678", (400, "level")),
        ("/api/v1/metrics/ui.theme?perod=2026", "rk_test_12345678", (400, "unknown_parameter")),
        ("/api/v1/metrics/ui.theme?period=2020-1-1", "rk_test_12345678", (400, "period")),
    ],
)
def test_bad_queries_are_refused(served, path, key, expected):
    """Each kind of bad query has its own status and code."""
    answer = served.get(path, key)
    assert (answer.status_code, answer.get_json()["code"]) == expected
    assert answer.mimetype == "application/problem+json"


def test_health_and_readiness(served):
    """Liveness needs nothing; readiness names each part."""
    assert served.http.get("/healthz").get_json() == {"status": "ok"}
    ready = served.http.get("/readyz")
    assert ready.status_code == 200
    parts = ready.get_json()["parts"]
    assert served.service.apps["shop"].source.identity.startswith(parts["registry:shop"].pop("on_disk"))
    assert parts == {
        "registry:shop": {"ok": True, "status": "ok", "agrees": True, "processes": [], "fault": None},
        "store": {"ok": True},
        "backlog:shop": {"ok": True, "batches": 0, "limit": 50},
        "worker:shop": {"ok": True, "workers": 0, "lag_seconds": 0.0, "dead_letters": 0, "held_up": {}},
    }
    for partition in served.store.partitions:
        health.beat(partition, "worker")
    with Faults(served.store).alone(health.ARCHIVE):
        raise ArchiveError("OSError: No space left on device")
    ready = served.http.get("/readyz")  # reports can be taken meanwhile
    assert (ready.status_code, ready.get_json()["status"]) == (200, "ok")
    assert ready.get_json()["parts"]["worker:shop"]["held_up"] == {"archive": "OSError: No space left on device"}
    served.store.append(Upload(b"batch", key="1", remember=b"", cap=10, ttl=60))
    for partition in served.store.partitions:
        served.store._client.delete(partition.workers)
    ready = served.http.get("/readyz")  # and while one waits and no worker lives
    assert (ready.status_code, ready.get_json()["status"]) == (200, "degraded")
    assert ready.get_json()["parts"]["worker:shop"]["ok"] is False


def test_periods_are_pooled_with_the_error_of_people(serve, registry_file):
    """Over two periods the same people may have answered: errors allow for it, with kept responses and without."""
    text = registry_file.read_text("utf-8")
    registry = text.replace('mechanism = "grr"', 'mechanism = "l_grr"\nepsilon_permanent = 2.0\nsample = 0.5')
    served = serve(registry)
    days = [period.of(datetime.now(UTC) - timedelta(days=ago), "day") for ago in (1, 0)]
    for number, day in zip((30, 40), days, strict=True):
        for metric in ("ui.theme", "export.used"):
            served.post({"format": 1, "app": "shop", "groups": [served.group(metric, [1] * number, period=day)]})
    served.drain()
    admin, _ = KeyStore(served.store).create("admin", "owner")
    repeats = (30 * 4 + 10 * 1) / 70 - 1  # thirty people on both days
    for metric in ("ui.theme", "export.used"):
        declared = served.app.highest[metric]
        for path, key in ((f"metrics/{metric}", READ), (f"live/{metric}", admin)):
            body = served.get(f"/api/v1/{path}", key).get_json()
            assert (body["n"], body["period"], body["target"]) == (70, None, "population")
            shares = plausible_shares(declared.mechanism, body)
            for f, row in zip(shares, body["estimates"], strict=True):
                shared = f * (1 - f) + (declared.mechanism.permanent_variance(f) if declared.metric.permanent else 0)
                variance = declared.mechanism.variance(f, 70) + f * (1 - f) / 70 + repeats * shared / 70
                assert row["stderr"] == pytest.approx(variance**0.5)
        one = served.get(f"/api/v1/metrics/{metric}?period={days[0]}").get_json()
        assert (one["n"], one["period"], one["included"]) == (30, days[0], [{"first": days[0], "last": days[0]}])
        shares = plausible_shares(declared.mechanism, one)
        alone = [declared.mechanism.variance(f, 30) + f * (1 - f) / 30 for f in shares]
        assert [row["stderr"] for row in one["estimates"]] == pytest.approx(np.sqrt(alone))
    body = served.get("/api/v1/metrics/ui.theme").get_json()
    assert body["periods"] == body["included"] == [{"first": day, "last": day} for day in days]
    assert (round(body["epsilon_permanent"], 6), body["sample"]) == (2, 0.5)
    assert served.get("/api/v1/metrics/export.used").get_json()["epsilon_permanent"] is None
    page = served.http.get("/m/ui.theme").get_data(as_text=True)
    assert "All periods" in page
    assert "report it once a day" in page
    assert "All reports of an answer together: ε = 2." in page
    many = "The same people may have answered in several periods"
    assert many in page
    page = served.http.get(f"/m/ui.theme?period={days[0]}").get_data(as_text=True)
    assert "of all who might have answered" in page
    assert many not in page


def test_a_device_may_answer_several_times_a_period(serve, registry_file):
    """Where a metric allows it, the error holds if every device did."""
    registry = registry_file.read_text("utf-8").replace('[metrics."export.used"]', '[metrics."export.used"]\nper_period = 4')
    served = serve(registry)
    served.post({"format": 1, "app": "shop", "groups": [served.group("export.used", [1] * 40 + [0] * 60)]})
    served.drain()
    mechanism = served.app.highest["export.used"].mechanism
    body = served.get("/api/v1/metrics/export.used").get_json()
    for f, row in zip(plausible_shares(mechanism, body), body["estimates"], strict=True):
        assert row["stderr"] == pytest.approx((mechanism.variance(f, 100) + 4 * f * (1 - f) / 100) ** 0.5)


def test_a_release_says_which_periods_it_covers(serve, registry_file):
    """Small periods are published together; who asks for one of them gets the release that it is in, on the page, too."""
    served = serve(registry_file.read_text("utf-8").replace("min_reports = 1\ntrial = true", 'min_reports = 100\ngrace = "3d"'))
    days = [period.of(datetime.now(UTC) - timedelta(days=ago), "day") for ago in (3, 2, 1)]
    empty = served.get("/api/v1/metrics/ui.theme").get_json()
    for day, n in zip(days, (100, 40, 70), strict=True):
        served.post({"format": 1, "app": "shop", "groups": [served.group("ui.theme", [0] * n, period=day)]})
    assert served.get("/api/v1/metrics/ui.theme").get_json() == empty
    served.drain(days=5)
    first, second = {"first": None, "last": days[0]}, {"first": days[1], "last": days[2]}
    answers = [served.get(f"/api/v1/metrics/ui.theme{query}").get_json() for query in ("", *(f"?period={day}" for day in days))]
    assert [(answer["n"], answer["included"]) for answer in answers] == [
        (210, [first, second]),
        (100, [first]),
        (110, [second]),
        (110, [second]),
    ]
    assert answers[0]["periods"] == [first, second]
    # All who answered on the two days that were joined may have answered on both, and on the first.
    mechanism = served.app.highest["ui.theme"].mechanism
    for answer, repeats in zip(answers, (330 / 210, 0, 1, 1), strict=True):
        f = plausible_shares(mechanism, answer)[0]
        variance = mechanism.variance(f, answer["n"]) + (1 + repeats) * f * (1 - f) / answer["n"]
        assert answer["estimates"][0]["stderr"] == pytest.approx(variance**0.5), answer["n"]
    page = served.http.get(f"/m/ui.theme?period={days[1]}").get_data(as_text=True)
    assert f'<option value="{days[2]}" selected>{figures.brief_range(days[1], days[2], "day")}</option>' in page
    assert f'<option value="{days[0]}">up to {figures.brief(days[0], "day")}</option>' in page


def test_what_the_next_release_takes(serve, registry_file):
    """An answer says when the next period closes; in a trial nothing is waited for."""
    trial = registry_file.read_text("utf-8")
    served = serve(trial.replace("min_reports = 1\ntrial = true", "min_reports = 100"))
    due = datetime.fromisoformat(served.get("/api/v1/metrics/ui.theme").get_json()["next_release"])
    assert timedelta() < due - datetime.now(UTC) <= timedelta(days=1)
    assert due.strftime("%H:%M") == "00:00"  # two days after the end of one
    assert serve(trial).get("/api/v1/metrics/ui.theme").get_json()["next_release"] is None


def test_what_is_not_published_has_one_shape(served):
    """A metric without a release, and a period without one, are answered alike: no reports, no numbers, and when to ask again."""
    never = served.get("/api/v1/metrics/ui.theme").get_json()
    period = served.get("/api/v1/metrics/ui.theme?period=2020-01-01").get_json()
    assert (never["n"], never["closed"], never["included"], never["updated"]) == (0, False, [], None)
    assert {each["estimate"] for each in never["estimates"]} == {None}
    assert {name for name in never if never[name] != period[name]} == {"period"}
    listed = served.get("/api/v1/metrics").get_json()["metrics"][0]
    assert {name: listed[name] for name in ("n", "updated", "next_release")} == {
        name: never[name] for name in ("n", "updated", "next_release")
    }


def test_a_mistyped_metric_gets_a_suggestion(served):
    """Whoever mistypes a metric is told the one that may be meant; an unlike one is only refused."""
    assert served.get("/api/v1/metrics/ui.thme").get_json()["detail"].endswith("; did you mean 'ui.theme'?")
    assert "did you mean" not in served.get("/api/v1/metrics/zzz").get_json()["detail"]


def test_epsilon_is_the_declared_one(served):
    """Answers show what the registry declares, not what is left of it after rounding to whole numbers."""
    answer = served.get("/api/v1/metrics/ui.theme").get_json()
    assert answer["epsilon"] == float(served.app.registry.metrics["ui.theme"].epsilon)
