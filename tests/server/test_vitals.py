"""`/metrics`: counts that are right to the unit, for whoever has the key, in the same few series whatever is sent."""

from __future__ import annotations

import gzip
from base64 import b64encode
from dataclasses import replace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from deniable.errors import ConfigurationError
from deniable_aggregator.store import connect
from deniable_aggregator.store.errors import REASONS
from deniable_aggregator.store.server import snapshot
from deniable_aggregator.store.uploads import health, registries
from deniable_aggregator.store.uploads.registries import Loaded
from deniable_server.api.uploads.batches import REJECTIONS
from deniable_server.settings import Settings

pytestmark = pytest.mark.both_stores

KEY = "mk_test_12345678"


@pytest.fixture
def watch(settings, served):
    """Serve with a metrics key, and with other changed settings."""
    result = []

    def start(**changes):
        result.append(type(served)(replace(settings, metrics_key=KEY, **changes)))
        return result[-1]

    yield start
    for item in result:
        item.store._client.close()


@pytest.fixture
def watched(watch):
    return watch()


def scrape(served, key=KEY, **headers):
    return served.http.get("/metrics", headers={"Authorization": f"Bearer {key}"} | headers)


def samples(served):
    """Return every sample by its name and labels."""
    answer = scrape(served)
    assert answer.status_code == 200
    families = read_text(answer.get_data(as_text=True))
    return {(sample.name, *sorted(sample.labels.items())): sample.value for family in families for sample in family.samples}


def series(name, **labels):
    return (f"deniable_{name}", *sorted(labels.items()))


def counted(before, after):
    """Return what has been counted meanwhile, but for durations."""
    names = [each for each in after if each[0].endswith("_total")]
    return {each: after[each] - before[each] for each in names if after[each] != before[each]}


def test_without_a_key_there_are_no_metrics(served):
    """A server that was given no metrics key has nothing at the address, whatever key is sent."""
    for key in ("", KEY, "rk_test_12345678"):
        answer = scrape(served, key)
        assert answer.status_code == 404
        assert answer.get_json()["code"] == "not_found"


@pytest.mark.parametrize("key", ["", "mk_test_1234567", "mk_test_123456789", "rk_test_12345678", "pk_test_12345678"])
def test_only_the_key_opens(watched, key):
    """No other key opens the metrics, not even the app's own."""
    answer = scrape(watched, key)
    assert answer.status_code == 401
    assert answer.get_json()["code"] == ("unknown_key" if key else "missing_key")
    assert watched.get("/api/v1/metrics", KEY).status_code == 401


def test_who_tries_keys_is_stopped(watch):
    """Wrong keys count as strangers; the right one is let in all the same."""
    watched = watch(rate_limit_source="3/day")
    watched.http.environ_base["REMOTE_ADDR"] = "203.0.113.9"
    assert [scrape(watched, f"mk_wrong_{i}").status_code for i in range(5)] == [401, 401, 401, 429, 429]
    assert samples(watched)[series("rate_limited_total", app="", role="metrics")] == 2


def test_a_key_is_long_and_not_shown():
    """A short key stops the start, and is not repeated; no key is in the settings' text."""
    with pytest.raises(ConfigurationError, match="DENIABLE_METRICS_KEY has 6 characters: write at least 8"):
        Settings.from_environment({"DENIABLE_METRICS_KEY": "mk_xyz"})
    assert KEY not in repr(Settings(metrics_key=KEY))


def test_both_formats_are_spoken(watched):
    """Whoever asks gets the format it accepts, and the same series in both."""
    text = scrape(watched)
    assert text.content_type.startswith("text/plain; version=0.0.4")
    assert text.headers["Cache-Control"] == "no-store"
    opened = scrape(watched, Accept="application/openmetrics-text; version=1.0.0")
    assert opened.content_type.startswith("application/openmetrics-text; version=1.0.0")
    page = [
        {
            (sample.name, *sorted(sample.labels.items()))
            for family in read(answer.get_data(as_text=True))
            for sample in family.samples
        }
        for read, answer in ((read_text, scrape(watched)), (read_openmetrics, opened))
    ]
    assert page[0] >= page[1] > {series("reports_accepted_total", app="shop")}
    assert all(name.startswith("deniable_") for name, *_ in page[1])


def test_uploads_are_counted_to_the_unit(watched):
    """Reports accepted and refused, duplicates and failed uploads are counted as they were answered, and repeats only once."""
    start = samples(watched)
    bits = watched.mechanism("plugin").layout.payload_size
    batch = {
        "format": 1,
        "app": "shop",
        "groups": [
            watched.group("ui.theme", [0, 1, 2, 0, 1]),
            watched.group("country", [3, 4, 5]),
            watched.group("ui.theme", [0, 1], version=9),
            watched.group("export.used", [0] * 7, segment="platform"),
            watched.group("plugin", [1, 2], payloads=b64encode(b"\xff" * bits * 2).decode()),  # bits that there are not
        ],
    }
    body = [watched.post(batch, "one").get_json() for _ in range(3)]
    assert [(each["accepted"], each["rejected"], each["duplicate"]) for each in body] == [
        (8, 11, False),
        (8, 11, True),
        (8, 11, True),
    ]
    refused = {"format": 1, "app": "shop", "groups": [watched.group("ended", [0, 1, 1])]}
    assert watched.post(refused).status_code == 422
    assert watched.post(refused, "one").status_code == 422
    assert watched.post(b"{").status_code == 400
    assert watched.post(gzip.compress(b"{}"), Content_Encoding="gzip").status_code == 400
    assert watched.post(refused, Authorization=None).status_code == 401
    assert watched.post(refused, Authorization="Bearer pk_nobody_12345678").status_code == 401
    assert watched.http.get("/v1/reports").status_code == 405
    assert watched.http.options("/v1/reports").status_code == 200
    uploads = {"accepted": 1, "duplicate": 2, "all_rejected": 1, "idempotency_mismatch": 1, "json": 1, "batch_shape": 1}
    rejected = {"unknown_version": 2, "segment": 7, "padding_bits": 2, "metric_expired": 3}
    assert counted(start, samples(watched)) == {
        series("reports_accepted_total", app="shop"): 8,
        **{series("uploads_total", app="shop", code=code): number for code, number in uploads.items()},
        **{series("uploads_total", app="", code=code): 1 for code in ("missing_key", "unknown_key")},
        **{series("reports_rejected_total", app="shop", code=code): number for code, number in rejected.items()},
    }


def test_reports_that_were_told_to_come_again_are_not_counted(watch):
    """With the backlog full, neither the good nor the bad reports of an upload are counted: they will come again."""
    watched = watch(max_backlog=1)
    batch = {"format": 1, "app": "shop", "groups": [watched.group("ui.theme", [0]), watched.group("ui.theme", [0, 1], version=9)]}
    assert watched.post(batch).status_code == 202
    start = samples(watched)
    assert watched.post(batch, "again").status_code == 503
    assert counted(start, samples(watched)) == {
        series("uploads_total", app="shop", code="backlog_full"): 1,
        series("server_errors_total", code="backlog_full"): 1,
    }
    watched.drain()
    assert watched.post(batch, "again").status_code == 202
    after = samples(watched)
    assert after[series("reports_accepted_total", app="shop")] == 2
    assert after[series("reports_rejected_total", app="shop", code="unknown_version")] == 4


def test_nobody_inflates_what_is_refused(watched):
    """A group that claims more reports than it can hold is counted as what it can hold at most."""
    group = watched.group("ui.theme", [0, 1], version=9)
    body = watched.post({"format": 1, "app": "shop", "groups": [group | {"count": 1_000_000}]}).get_json()
    assert body["rejected"] == 1_000_000
    results = samples(watched)[series("reports_rejected_total", app="shop", code="unknown_version")]
    assert results == len(group["payloads"])


def test_junk_makes_no_series(watched):
    """Whatever clients send, the series are those of before; durations have those of each route and class of status, at most."""
    before = samples(watched)
    word = "junk-f00d"
    for method in ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "JUNK", word.upper()):
        for path in (
            f"/{word}",
            f"/v1/reports/{word}",
            f"/static/{word}",
            "/v1/reports",
            "/login",
            f"/m/{word}",
            "/api/v1/metrics/x",
        ):
            watched.http.open(path, method=method, query_string={word: word}, headers={"User-Agent": word})
    for field in ("metric", "period", "segment", "fingerprint", "payloads"):
        assert (
            watched.post({"format": 1, "app": "shop", "groups": [watched.group("ui.theme", [0]) | {field: word}]}).status_code
            == 422
        )
    for body in (word.encode(), b"{}", b'{"format": "junk-f00d"}', b"[" * 9999, b"\xff"):
        assert watched.post(body).status_code == 400
    for headers in ({"Content_Type": f"text/{word}"}, {"Content_Encoding": word}, {"Authorization": f"Basic {word}"}):
        assert watched.post(b"{}", **headers).status_code in (401, 415)
    for period in (word, "2026", "x=y"):
        watched.get(f"/api/v1/metrics/ui.theme?period={period}&segment={word}&level={word}")
    after = samples(watched)
    new = {each for each in set(after) - set(before) if not each[0].startswith("deniable_request_duration_seconds")}
    assert not new
    assert word not in scrape(watched).get_data(as_text=True).lower()
    routes = {rule.rule for rule in watched.flask.url_map.iter_rules()} | {"unknown"}
    seen = {(dict(each[1:])["route"], dict(each[1:])["status"]) for each in after if each[0].endswith("_seconds_count")}
    assert seen <= {(route, f"{status}xx") for route in routes for status in range(1, 6)}
    assert {("unknown", "4xx"), ("/v1/reports", "4xx"), ("/api/v1/metrics/<id_>", "4xx")} <= seen


def test_every_code_is_there_from_the_start(watched):
    """Rates of every way to refuse begin at 0: nothing appears that was not there."""
    results = samples(watched)
    assert {dict(each[1:])["code"] for each in results if each[0] == "deniable_reports_rejected_total"} == set(REJECTIONS)
    codes = {dict(each[1:])["code"] for each in results if each[0] == "deniable_uploads_total"}
    assert {"accepted", "duplicate", "backlog_full", "unknown_key", "store_unavailable"} <= codes
    assert not any(value for each, value in results.items() if each[0].endswith("_total"))


def test_gauges_tell_the_state(watched):
    """Backlog, workers, dead letters and alarms are those of the store at that moment."""
    start = samples(watched)
    for name in ("backlog_batches", "pending_batches", "dead_letters", "workers", "alarms", "alarm_raised_timestamp_seconds"):
        assert start[series(name, app="shop")] == 0
    assert start[series("store_up")] == 1
    assert start[series("backlog_limit_batches")] == 50
    for _ in range(3):
        assert watched.post({"format": 1, "app": "shop", "groups": [watched.group("ui.theme", [0])]}).status_code == 202
    waiting = samples(watched)
    assert waiting[series("backlog_batches", app="shop")] == 3
    assert series("lag_seconds", app="shop") not in waiting  # no worker ever came
    store = watched.store
    health.beat(store.partitions[0], "somebody")
    store._client.set(store.partitions[0].caught, store._client.time()[0] - 100)
    store._client.xadd(store.partitions[0].dead, {"reason": "x"})
    alarm = {"test": "cell", "p_value": 1e-9, "period": "2026-11-21", "segment": "", "n": 9, "what": "w", "values": []}
    field = "|".join(map(str, watched.app.highest["ui.theme"].definition))
    hours = (3600, 7200)
    stored = [alarm | {"period": f"2026-11-2{i}", "since": hour} for i, hour in enumerate(hours)]
    from json import dumps

    store.alarms.put({field: dumps({"tested": {}, "alarms": stored})})
    results = samples(watched)
    assert results[series("workers", app="shop")] == results[series("dead_letters", app="shop")] == 1
    assert 100 <= results[series("lag_seconds", app="shop")] < 1000
    assert results[series("alarms", app="shop")] == 2
    assert results[series("alarm_raised_timestamp_seconds", app="shop")] == 7200


def test_the_stores_memory_is_shown_beside_its_limit(watched):
    """What is used and the limit, of which uploads get a part; a store without a limit shows neither."""
    server = watched.store._client
    before = server.config_get("maxmemory")["maxmemory"]
    try:
        server.config_set("maxmemory", 1 << 30)
        results = samples(watched)
        assert results[series("store_memory_limit_bytes")] == 1 << 30
        assert results[series("store_memory_bytes")] == pytest.approx(server.info("memory")["used_memory"], rel=0.2)
        server.config_set("maxmemory", 0)
        assert not any(name.startswith("deniable_store_memory") for name, *_ in samples(watched))
    finally:
        server.config_set("maxmemory", before)


def test_a_store_that_is_away_is_told(watch, store_url):
    """Without the store a scrape says so, and still has all that was counted."""
    watched = watch()
    assert watched.post({"format": 1, "app": "shop", "groups": [watched.group("ui.theme", [0, 1])]}).status_code == 202
    assert samples(watched)[series("store_up")] == 1
    with connect(store_url) as operator:
        operator.acl_setuser("default", enabled=True, nopass=True, commands=["-@all", "+acl"], reset_keys=False)
        try:
            results = samples(watched)
            assert watched.post({"format": 1, "app": "shop", "groups": [watched.group("ui.theme", [0])]}).status_code == 503
            after = samples(watched)
        finally:
            operator.acl_setuser("default", enabled=True, nopass=True, commands=["+@all"], reset_keys=False)
    assert results[series("store_up")] == 0
    assert results[series("reports_accepted_total", app="shop")] == 2
    assert not any(each[0] == "deniable_backlog_batches" for each in results)
    assert counted(results, after) == {
        series("uploads_total", app="shop", code="store_unavailable"): 1,
        series("server_errors_total", code="store_unavailable"): 1,
    }
    assert samples(watched)[series("store_up")] == 1


def test_the_time_of_the_last_backup_is_a_number(watched):
    """It is 0 before the first one, so that an alert about its age fires then, too."""
    assert samples(watched)[series("backup_timestamp_seconds")] == 0
    snapshot.note(watched.store._client, 1_800_000_000.7)
    assert samples(watched)[series("backup_timestamp_seconds")] == 1_800_000_000


def test_a_store_that_refuses_writes_is_told_with_the_reason(watched):
    """It can be read, so it is up; the same reason stands in `/readyz`."""
    refuses = {each for each in samples(watched) if each[0] == "deniable_store_refuses"}
    assert {dict(each[1:])["reason"] for each in refuses} == set(REASONS)
    server = watched.store._client
    server.config_set("min-replicas-to-write", 1)
    try:
        results, ready = samples(watched), watched.http.get("/readyz")
    finally:
        server.config_set("min-replicas-to-write", 0)
    assert (ready.status_code, ready.get_json()["parts"]["store"]["reason"]) == (503, "replicas")
    # It says so by its status, and is no request that failed.
    failed = {each: value for each, value in samples(watched).items() if each[0] == "deniable_server_errors_total" and value}
    assert failed == {}
    assert results[series("store_up")] == 1
    assert {each for each in refuses if results[each]} == {series("store_refuses", reason="replicas")}
    assert not any(samples(watched)[each] for each in refuses)


def test_a_registry_that_was_not_taken_is_told(watched):
    """With a fault no server and no worker would start: the number says so, and so does `/readyz`."""
    agrees, digest = series("registry_agrees", app="shop"), watched.app.source.identity
    registries.say(watched.store, Loaded("server", digest, "here:1"))
    assert samples(watched)[agrees] == 1
    registries.take_back(watched.store, Loaded("server", digest, "here:1"))
    registries.say(watched.store, Loaded("server", "0" * 64, "here:1", "metrics.toml:6: page: epsilon is a number"))
    assert samples(watched)[agrees] == 0
    ready = watched.http.get("/readyz")
    assert not ready.get_json()["parts"]["registry:shop"]["ok"]
    assert (ready.status_code, ready.get_json()["status"]) == (200, "degraded")


def test_limits_are_counted_by_app_and_role(watch):
    """Whoever asks too often is counted for its app and by what it wanted; who signs in too often has no app."""
    watched = watch(rate_limit_key="2/day", rate_limit_login="1/day")
    for _ in range(4):
        watched.get("/api/v1/metrics")
        watched.post(b"{}")
    page = watched.http.get("/login").get_data(as_text=True)
    token = page.partition('name="token" value="')[2].partition('"')[0]
    assert [watched.http.post("/login", data={"key": "x", "token": token}).status_code for _ in range(3)] == [401, 429, 429]
    results = samples(watched)
    assert results[series("rate_limited_total", app="shop", role="read")] == 2
    assert results[series("rate_limited_total", app="shop", role="ingest")] == 2
    assert results[series("rate_limited_total", app="", role="login")] == 2
    assert results[series("uploads_total", app="shop", code="rate_limited")] == 2


def test_a_server_that_only_takes_uploads_does_not_look_at_alarms(watch):
    """With `serves` ingest, what its user of the store may not read is not asked for."""
    results = samples(watch(serves="ingest"))
    assert series("backlog_batches", app="shop") in results
    assert series("alarms", app="shop") not in results
