"""Why nothing is shown of a metric: six conditions in order, and in a trial the last reports as they come."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

import pytest
from registries import metric_toml

from deniable_aggregator.store import schema
from deniable_aggregator.store.uploads import health, latest_reports
from deniable_aggregator.store.uploads.partition import Partition

HOUR = 3600
REGISTRY = 'format = 1\napp = "shop"\nbudget = { per_month = 100.0, lifetime = 1000.0 }\n'
THEME = metric_toml("ui.theme", values=["light", "dark"], epsilon=1.0, period="day")
ENDED = metric_toml("ui.ended", values=["light", "dark"], epsilon=1.0, period="day", expires=date(2020, 1, 1))
TRIAL = "[publication]\ntrial = true\n"


@pytest.fixture
def shop(serve):
    return serve(REGISTRY + THEME + ENDED)


@pytest.fixture
def trial(serve):
    return serve(REGISTRY + TRIAL + THEME)


def diagnosis(served, metric="ui.theme"):
    """Return the cause, and the state of each condition."""
    body = served.get(f"/api/v1/metrics/{metric}/diagnosis").get_json()
    return body["cause"], {each["name"]: each["state"] for each in body["conditions"]}


def wrong(served, **changed):
    """Upload a report that is refused."""
    return served.post({"format": 1, "app": "shop", "groups": [served.group("ui.theme", [0]) | changed]})


def at(served, **ago):
    """Move the hours of refusals into the past."""
    table = served.store.table(schema.REFUSED_HOURS)
    by = int(timedelta(**ago).total_seconds())
    table.put({name.decode(): " ".join(str(int(hour) - by) for hour in hours.split()) for name, hours in table.all().items()})


def test_each_condition_is_a_cause(shop):
    """The first that fails: collection, uploads, a worker; then only the release is waited for."""
    assert diagnosis(shop, "ui.ended")[0] == "collected"
    assert diagnosis(shop) == (
        "uploads",
        {"collected": "holds", "uploads": "fails", "accepted": "holds", "counted": "fails", "enough": "unknown", "due": "waits"},
    )
    shop.post({"format": 1, "app": "shop", "groups": [shop.group("ui.theme", [0])]})
    assert diagnosis(shop)[0] == "counted"
    health.beat(shop.store.partitions[0], "w")
    assert diagnosis(shop)[0] == "due"
    page = shop.http.get("/m/ui.theme").get_data(as_text=True)
    assert "Nothing is shown yet: the next release is due" in page
    assert "<pre>" not in page
    assert re.search(r'<p class="changed">This page will show what people answer, from the first release on\.</p>', page)


def test_refused_reports_are_a_cause_from_the_next_hour_on(shop):
    """With the server's reason and its remedy, and since when. A day after the last one they are none."""
    health.beat(shop.store.partitions[0], "w")
    assert wrong(shop, fingerprint="f" * 16).status_code == 422
    assert diagnosis(shop)[0] == "uploads"  # a look before and one after an upload show nothing of it
    at(shop, hours=1)
    assert diagnosis(shop) == (
        "accepted",
        {"collected": "holds", "uploads": "holds", "accepted": "fails", "counted": "holds", "enough": "unknown", "due": "waits"},
    )
    since = datetime.now(UTC) - timedelta(hours=1)
    page = shop.http.get("/m/ui.theme").get_data(as_text=True)
    assert (
        f"Some are refused since {since.day} {since:%B %Y} (definition_mismatch): the server&#39;s metrics.toml defines" in page
    )
    assert "If you changed the metric, raise its " in page
    assert "deniable registry diff app/metrics.toml server/metrics.toml" in page
    assert diagnosis(shop, "ui.ended")[1]["accepted"] == "holds"  # of no other metric
    at(shop, hours=25)
    cause, states = diagnosis(shop)
    assert (cause, states["accepted"]) == ("uploads", "holds")


def test_a_metric_that_is_not_declared_may_be_misspelt(shop):
    """Its reports are refused under no name, so each page says that some were."""
    wrong(shop, metric="ui.thme")
    at(shop, hours=1)
    body = shop.get("/api/v1/metrics/ui.theme/diagnosis").get_json()
    says = next(each["says"] for each in body["conditions"] if each["name"] == "accepted")
    assert says == "Nothing of it was refused within the last day. But reports of a metric that is not declared here were."
    assert "ui.thme" not in str(shop.store.table(schema.REFUSED_HOURS).all())


def test_hours_go_with_the_metric(shop):
    """They begin anew once a week has passed without any."""
    for _ in range(2):
        wrong(shop, fingerprint="f" * 16)
        at(shop, hours=3)
    (hours,) = shop.store.table(schema.REFUSED_HOURS).all().values()
    first, last = map(int, hours.split())
    assert last - first == 3 * HOUR
    at(shop, days=8)
    wrong(shop, fingerprint="f" * 16)
    (hours,) = shop.store.table(schema.REFUSED_HOURS).all().values()
    assert len({*hours.split()}) == 1


def test_a_trial_shows_the_last_reports(trial):
    """What each fits, and what became of it; ten at most, and none that no registry declares."""
    page = trial.http.get("/m/ui.theme").get_data(as_text=True)
    assert "No report came." in page
    trial.post(
        {"format": 1, "app": "shop", "groups": [trial.group("ui.theme", [0, 1]), trial.group("ui.theme", [0]) | {"version": 2}]}
    )
    wrong(trial, fingerprint="f" * 16)
    wrong(trial, metric="someone@example.org")
    page = trial.http.get("/m/ui.theme").get_data(as_text=True)
    assert page.count("“light” fits 2.72 times as well as “dark”") == 2
    assert page.count("“dark” fits 2.72 times as well as “light”") == 1
    assert page.count("✓ accepted") == 2
    assert "✕ refused: definition_mismatch" in page
    assert "✕ refused: unknown_version" in page
    assert "✕ refused: unknown_metric" in page
    assert "someone" not in page
    for _ in range(3):
        trial.post({"format": 1, "app": "shop", "groups": [trial.group("ui.theme", [0] * 7)]})
    assert len(latest_reports.read(trial.store)) == 10
    assert 0 < trial.store._client.ttl(schema.LATEST.of("shop")) <= HOUR


@pytest.mark.parametrize("mechanism", ["cms", "hcms", "fast_local_hash", "rappor"])
def test_a_report_of_a_text_is_not_compared_with_all_texts(serve, mechanism):
    """There are too many: the page says at once how far a report of any answer goes."""
    text = metric_toml("page", type="string", candidates="words.txt", mechanism=mechanism, epsilon=2.0)
    served = serve(REGISTRY + TRIAL + THEME + text, words="one\ntwo\n")
    served.post({"format": 1, "app": "shop", "groups": [served.group("page", [1])]})
    assert "times as well as" in served.http.get("/m/ui.theme").get_data(as_text=True)


def test_of_a_bad_payload_only_that_report_is_refused(trial):
    """Those beside it in its group are accepted."""
    group = trial.group("ui.theme", [0, 1])
    group |= {"count": 3, "payloads": "AAEH"}
    trial.post({"format": 1, "app": "shop", "groups": [group]})
    assert [report.code for report in latest_reports.read(trial.store)][::-1] == ["", "", "index_range"]


def test_what_is_published_is_not_denied(trial):
    """The answer says that reports are published; nothing is its cause."""
    trial.post({"format": 1, "app": "shop", "groups": [trial.group("ui.theme", [0, 1])]})
    trial.drain()
    body = trial.get("/api/v1/metrics/ui.theme/diagnosis").get_json()
    assert (body["says"], body["cause"]) == ("2 reports are published", "")
    assert {each["name"]: each["state"] for each in body["conditions"]}["enough"] == "holds"


def test_simulated_people_need_no_upload(trial, monkeypatch):
    """Their reports are published without one, so that nothing fails."""
    trial.post({"format": 1, "app": "shop", "groups": [trial.group("ui.theme", [0, 1])]})
    trial.drain()
    monkeypatch.setattr(Partition, "last_upload", lambda _: None)
    assert diagnosis(trial)[1]["uploads"] == "fails"
    trial.store.put(schema.SIMULATED, "2026-01-01 to 2026-01-30")
    body = trial.get("/api/v1/metrics/ui.theme/diagnosis").get_json()
    (uploads,) = [each for each in body["conditions"] if each["name"] == "uploads"]
    assert (uploads["state"], uploads["remedy"]) == ("waits", "")
    assert uploads["says"] == "No upload has come. The reports for 2026-01-01 to 2026-01-30 are of simulated people."


def test_no_report_is_kept_but_in_a_trial(shop):
    """Whoever sees a single report arrive knows who sent it."""
    shop.post({"format": 1, "app": "shop", "groups": [shop.group("ui.theme", [0])]})
    wrong(shop, fingerprint="f" * 16)
    assert latest_reports.read(shop.store) == []
    assert "Reports as they come" not in shop.http.get("/m/ui.theme").get_data(as_text=True)
