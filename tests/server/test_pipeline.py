"""What becomes of reports on their way; and which look made up, told to an admin: for programs and on the pages."""

from __future__ import annotations

import re
import time
from base64 import b64encode
from datetime import datetime

import forgery
import numpy as np
import pytest
from registries import metric_toml, registry_toml

from deniable_aggregator.alarms import checks
from deniable_aggregator.alarms.watcher import Watch
from deniable_server.access.keys import KeyStore

pytestmark = pytest.mark.both_stores


@pytest.fixture
def admin(served):
    """Make an admin key."""
    return KeyStore(served.store).create("admin", "owner")[0]


@pytest.fixture
def page(served, admin):
    """Sign in as an admin; return what gets a page's text."""
    token = re.search(r'name="token" value="([^"]+)"', served.http.get("/login").get_data(as_text=True))[1]
    assert served.http.post("/login", data={"token": token, "key": admin}).status_code == 303
    return lambda path: served.http.get(path).get_data(as_text=True)


def send_made_up(served, metric, targets, n):
    """Upload honest reports and half as many that were made for the greatest gain; count them and look."""
    mechanism = served.mechanism(metric)
    result = forgery.maximal_gain(mechanism, targets, n // 2, np.random.default_rng(3))
    group = served.group(metric, [], count=n // 2, payloads=b64encode(result).decode())
    answer = served.post({"format": 1, "app": "shop", "groups": [served.group(metric, [0] * n), group]})
    assert answer.get_json()["accepted"] == n + n // 2
    served.drain()
    return Watch(served.store, served.app.registry).check(int(time.time()))


def test_the_pipeline_of_an_empty_app(served):
    """Before anything came there is nothing to tell, and nobody has looked."""
    body = served.get("/api/v1/pipeline").get_json()
    assert body == {
        "app": "shop",
        "trial": True,
        "workers": 0,
        "backlog": 0,
        "pending": 0,
        "lag_seconds": body["lag_seconds"],
        "dead_letters": 0,
        "looked": None,
    }


def test_the_pipeline_tells_what_waits(served):
    """Batches that wait and letters that are dead are counted."""
    served.post({"format": 1, "app": "shop", "groups": [served.group("ui.theme", [0])]})
    served.store._client.xadd(served.store.partitions[0].dead, {"reason": "-"})
    body = served.get("/api/v1/pipeline").get_json()
    assert (body["backlog"], body["dead_letters"], body["workers"]) == (1, 1, 0)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({}, "send the header Authorization: Bearer, a space and the app's read key"),
        ({"Authorization": "rk_a_key_alone"}, "'Bearer ' is missing: send the header Authorization: Bearer, a space and the key"),
        ({"Authorization": "Basic rk_a_key"}, "send the header Authorization: Bearer, a space and the app's read key"),
    ],
    ids=["none", "alone", "of another kind"],
)
def test_a_key_that_is_not_sent_is_asked_for(serve, header, words):
    """The words never repeat it."""
    client = serve(registry_toml(metric_toml("used", type="boolean"))).http
    assert client.get("/api/v1/metrics", headers=header).get_json()["detail"] == words


@pytest.mark.parametrize(("key", "code"), [(None, "missing_key"), ("pk_test_12345678", "unknown_key")])
def test_the_pipeline_asks_for_a_read_key(served, key, code):
    """Even how much waits is for those who may read the estimates."""
    answer = served.get("/api/v1/pipeline", key)
    assert (answer.status_code, answer.get_json()["code"]) == (401, code)


def test_alarms_are_told(served, admin):
    """Each alarm has its metric, period, test, p-value and words; its hour, and what one report can do; and values by label."""
    send_made_up(served, "plugin", [1, 3], 2000)
    looked = served.get("/api/v1/pipeline").get_json()["looked"]
    assert datetime.fromisoformat(looked).timestamp() == pytest.approx(time.time(), abs=60)
    body = served.get("/api/v1/live", admin).get_json()
    (weight,) = [each for each in body["alarms"] if each["test"] == "weight"]
    assert (weight["metric"], weight["n"], weight["segment"], weight["values"]) == ("plugin", 3000, None, [])
    assert 0 <= weight["p_value"] < checks.ALPHA
    assert "bits set" in weight["what"]
    assert datetime.fromisoformat(weight["since"]).timestamp() % 3600 == 0
    assert served.get("/api/v1/live/plugin", admin).get_json()["alarms"] == body["alarms"]
    mechanism = served.mechanism("plugin")
    assert weight["influence"] == pytest.approx(float((1 - mechanism.q) / (mechanism.p - mechanism.q)))


def test_alarms_name_values_by_their_labels(served, admin):
    """Values that were pushed above everybody are named as the registry does."""
    mechanism = served.mechanism("ui.theme")
    group = served.group("ui.theme", [], count=900, payloads=b64encode(mechanism.layout.pack(0, 1) * 900).decode())
    served.post({"format": 1, "app": "shop", "groups": [group]})
    served.drain()
    Watch(served.store, served.app.registry).check(int(time.time()))
    alarms = served.get("/api/v1/live", admin).get_json()["alarms"]
    assert ["dark"] in [each["values"] for each in alarms if each["test"] == "set"]


def test_pages_tell_of_alarms(served, page):
    """The list names the metrics concerned, the metric's page says what was seen and what to do, the others say nothing."""
    assert "look made up" not in page("/live")
    send_made_up(served, "plugin", [1, 3], 2000)
    html = page("/live")
    assert "Some reports look made up" in html
    assert 'What was counted of <a href="/m/plugin/live">plugin</a> is not' in html
    html = page("/m/plugin/live")
    assert "Some of these reports look made up" in html
    assert "bits set" in html
    assert re.search(r"<li><b>(Week of )?\d{1,2} [A-Z][a-z]{2} \d{4}(</b>|[:,])", html)  # as dates, and not as 2026-W47
    assert "Honest reports do so with probability" in html
    assert "What to do" in html
    influence = float(served.mechanism("plugin").influence)
    assert f"up to {influence:.3g} reports" in html
    assert "look made up" not in page("/m/country/live")


def test_rules_without_a_law_are_told_as_such(served, page):
    """A sudden volume has no p-value, and the page does not invent one."""
    looking = Watch(served.store, served.app.registry)
    for day, n in enumerate([1000] * 8 + [6000], 1):
        honest = [0, 1] * (n // 2)
        group = served.group("ui.theme", honest)
        served.post({"format": 1, "app": "shop", "groups": [group]})
        served.drain()
        tally = next(
            key for key in served.store._client.scan_iter() if b":tally:ui.theme" in key and group["period"].encode() in key
        )
        index = next(key for key in served.store._client.scan_iter() if key.endswith(b":tallies:ui.theme"))
        today, then = group["period"].encode(), f"2026-01-{day:02}".encode()
        served.store._client.rename(tally, tally.replace(today, then))
        (name,) = [name for name in served.store._client.hkeys(index) if today in name]
        served.store._client.hset(index, name.replace(today, then), int(time.time()))
        served.store._client.hdel(index, name)
        looking.check(int(time.time()))
    html = page("/m/ui.theme/live")
    assert "6 times as many reports as in the median of the periods before" in html
    assert "No probability is known for it." in html
