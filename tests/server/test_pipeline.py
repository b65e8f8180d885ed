"""What becomes of reports, and which look made up: for programs and on the pages."""

from __future__ import annotations

import time
from base64 import b64encode
from datetime import datetime

import numpy as np
import pytest

from deniable_aggregator import alarm, poisoning
from deniable_aggregator.watch import Watch


def send_made_up(served, metric, targets, n):
    """Upload honest reports and half as many that were made for the greatest gain; count them and look."""
    mechanism = served.mechanism(metric)
    made = poisoning.maximal_gain(mechanism, targets, n // 2, np.random.default_rng(3))
    group = served.group(metric, [], count=n // 2, payloads=b64encode(made).decode())
    answer = served.post({"format": 1, "groups": [served.group(metric, [0] * n), group]})
    assert answer.get_json()["accepted"] == n + n // 2
    served.drain()
    return Watch(served.store, served.app.registry).look(int(time.time()))


def test_the_pipeline_of_an_empty_app(served):
    """Before anything came there is nothing to tell, and nobody has looked."""
    body = served.get("/api/v1/pipeline").get_json()
    assert body == {
        "app": "shop",
        "workers": 0,
        "backlog": 0,
        "pending": 0,
        "lag_seconds": body["lag_seconds"],
        "dead_letters": 0,
        "looked": None,
        "alarms": [],
    }


def test_the_pipeline_tells_what_waits(served):
    """Batches that wait and letters that are dead are counted."""
    served.post({"format": 1, "groups": [served.group("ui.theme", [0])]})
    served.store.redis.xadd(served.store.dead, {"reason": "-"})
    body = served.get("/api/v1/pipeline").get_json()
    assert (body["backlog"], body["dead_letters"], body["workers"]) == (1, 1, 0)


@pytest.mark.parametrize(("key", "code"), [(None, "missing_key"), ("pk_test_12345678", "unknown_key")])
def test_the_pipeline_asks_for_a_read_key(served, key, code):
    """Alarms are for those who may read the estimates."""
    answer = served.get("/api/v1/pipeline", key)
    assert (answer.status_code, answer.get_json()["code"]) == (401, code)


def test_alarms_are_told(served):
    """Each alarm has its metric, period, test, p-value and words; its hour, and what one report can do; and values by label."""
    send_made_up(served, "plugin", [1, 3], 2000)
    body = served.get("/api/v1/pipeline").get_json()
    assert datetime.fromisoformat(body["looked"]).timestamp() == pytest.approx(time.time(), abs=60)
    (weight,) = [each for each in body["alarms"] if each["test"] == "weight"]
    assert (weight["metric"], weight["n"], weight["segment"], weight["values"]) == ("plugin", 3000, None, [])
    assert 0 <= weight["p_value"] < alarm.ALPHA
    assert "bits set" in weight["what"]
    assert datetime.fromisoformat(weight["since"]).timestamp() % 3600 == 0
    mechanism = served.mechanism("plugin")
    assert weight["influence"] == pytest.approx(float((1 - mechanism.q) / (mechanism.p - mechanism.q)))


def test_alarms_name_values_by_their_labels(served):
    """Values that were pushed above everybody are named as the registry does."""
    mechanism = served.mechanism("ui.theme")
    group = served.group("ui.theme", [], count=900, payloads=b64encode(mechanism.layout.pack(0, 1) * 900).decode())
    served.post({"format": 1, "groups": [group]})
    served.drain()
    Watch(served.store, served.app.registry).look(int(time.time()))
    alarms = served.get("/api/v1/pipeline").get_json()["alarms"]
    assert ["dark"] in [each["values"] for each in alarms if each["test"] == "set"]


@pytest.fixture
def open_served(serve, registry_file):
    return serve(registry_file.read_text("utf-8"))


def test_pages_tell_of_alarms(open_served):
    """The list names the metrics concerned, the metric's page says what was seen and what to do, the others say nothing."""
    assert "look made up" not in open_served.http.get("/").get_data(as_text=True)
    send_made_up(open_served, "plugin", [1, 3], 2000)
    page = open_served.http.get("/").get_data(as_text=True)
    assert "Some reports look made up" in page
    assert 'What was counted of <a href="/m/plugin">plugin</a> is not' in page
    page = open_served.http.get("/m/plugin").get_data(as_text=True)
    assert "Some of these reports look made up" in page
    assert "bits set" in page
    assert "Honest reports do so with probability" in page
    assert "What to do" in page
    influence = alarm.influence(open_served.mechanism("plugin"))
    assert f"up to {influence:.3g} respondents" in page
    assert "look made up" not in open_served.http.get("/m/country").get_data(as_text=True)


def test_rules_without_a_law_are_told_as_such(open_served):
    """A sudden volume has no p-value, and the page does not invent one."""
    looking = Watch(open_served.store, open_served.app.registry)
    for day, n in enumerate([1000] * 8 + [6000], 1):
        honest = [0, 1] * (n // 2)
        group = open_served.group("ui.theme", honest)
        open_served.post({"format": 1, "groups": [group]})
        open_served.drain()
        tally = next(
            key for key in open_served.store.redis.scan_iter() if b":tally:ui.theme" in key and group["period"].encode() in key
        )
        index = next(key for key in open_served.store.redis.scan_iter() if key.endswith(b":tallies:ui.theme"))
        today, then = group["period"].encode(), f"2026-01-{day:02}".encode()
        open_served.store.redis.rename(tally, tally.replace(today, then))
        (name,) = [name for name in open_served.store.redis.hkeys(index) if today in name]
        open_served.store.redis.hset(index, name.replace(today, then), int(time.time()))
        open_served.store.redis.hdel(index, name)
        looking.look(int(time.time()))
    page = open_served.http.get("/m/ui.theme").get_data(as_text=True)
    assert "6 times as many reports as in the median of the periods before" in page
    assert "No law tells how likely that is." in page
