"""Forwarding of pools: each part until the server has taken it, and nothing is deleted before."""

from __future__ import annotations

import json
import logging
from base64 import b64decode
from collections import Counter

import pytest
from relays import FIRST, LAST, SIZE, crowd, sealed

from deniable_relay.forwarding import Forwarder, encode
from deniable_relay.pools import PART, Pools


class Server:
    """Answers as told, then 202, and keeps what it took by key, as a server does."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.taken = {}
        self.seen = []

    def __call__(self, body, headers, _):
        self.seen.append(headers["Idempotency-Key"])
        answer = self.answers.pop(0) if self.answers else 202
        if isinstance(answer, Exception):
            raise answer
        if answer == "cut":  # it arrived, and its answer did not
            self.taken.setdefault(headers["Idempotency-Key"], body)
            raise TimeoutError
        if isinstance(answer, str):
            return 400, {}, {"code": answer}
        if answer != 202:
            return answer, {}, {"code": "pool_too_small"}
        self.taken.setdefault(headers["Idempotency-Key"], body)
        return 202, {}, {}

    def reports(self):
        reports = []
        for body in self.taken.values():
            group = json.loads(body)["group"]
            data = b64decode(group["payloads"])
            reports += [data[start : start + SIZE] for start in range(0, len(data), SIZE)]
            assert len(data) == SIZE * group["count"]
        return reports


@pytest.fixture
def pools(tmp_path):
    pools = Pools(tmp_path / "pools.db")
    yield pools
    pools.close()


@pytest.mark.parametrize("fault", [OSError(), "cut", 401, 403, 404, 413, 422, 429, 500, 503])
def test_after_no_answer_or_a_refusal_the_pool_stays(pools, caplog, fault):
    """It is tried again after a pause that doubles, by the same key and with the same bytes, and counts once."""
    reports = sealed(PART + 1)
    pools.add([(crowd(), reports)])
    server = Server(fault, fault)
    forwarder = Forwarder("shop", pools, server, "rk")
    with caplog.at_level(logging.WARNING, "deniable.relay"):
        for now in (FIRST, FIRST + 9, FIRST + 10, FIRST + 29):
            forwarder.turn(now)
    assert len(server.seen) == 2
    assert len(forwarder.held) == 1
    assert len(caplog.records) == 1  # said once
    forwarder.turn(FIRST + 30)
    assert sorted(server.reports()) == sorted(reports)
    assert len(set(server.seen)) == 2
    assert forwarder.held == {}
    assert pools.totals() == Counter(forwarded=PART + 1)


WEEK = 7 * 86400


@pytest.mark.parametrize(
    ("code", "moment", "stays"),
    [("period_closed", LAST + WEEK, False), ("period_closed", LAST + WEEK - 1, True), ("unknown_metric", LAST + WEEK, True)],
)
def test_a_pool_is_dropped_a_week_after_its_period_is_over(pools, caplog, code, moment, stays):
    """Of two parts one was taken. The other goes if the server says so, and a week has passed; it says how many."""
    pools.add([(crowd(), sealed(PART + 2)), (crowd("other"), sealed(3))])
    pools.close_due(LAST)
    server = Server(202, 202, code)
    forwarder = Forwarder("shop", pools, server, "rk")
    with caplog.at_level(logging.WARNING, "deniable.relay"):
        forwarder.turn(moment)
    assert len(server.reports()) == PART + 3
    dropped = Counter() if stays else Counter(too_late=2)
    assert pools.totals() == Counter(forwarded=PART + 3, closed=2 * stays) + dropped
    assert len(forwarder.held) == stays
    (record,) = caplog.records
    assert stays or record.message.startswith("2 reports were dropped (theme, 2026-11-27): the server had closed their period")
    pools.close_due(moment)
    assert len(pools.parts()) == stays


def test_a_pool_that_is_held_does_not_hold_others(pools):
    """Each transfer has its own pauses."""
    pools.add([(crowd("one"), sealed(3)), (crowd("two"), sealed(3))])
    server = Server(422)
    forwarder = Forwarder("shop", pools, server, "rk")
    forwarder.turn(FIRST)
    assert len(server.taken) == 1
    forwarder.turn(FIRST + 10)
    assert len(server.taken) == 2


def test_an_upload_has_one_group_and_no_address(pools):
    """Its headers are its key, its name, and the size of the pool."""
    pools.add([(crowd(), sealed(3))])
    pools.close_due(FIRST)
    (part,) = pools.parts()
    body = json.loads(encode("shop", part))
    payloads = b64decode(body["group"].pop("payloads"))
    assert payloads == b"".join(part.reports)
    group = {"metric": "theme", "version": 1, "fingerprint": "0" * 16, "period": "2026-11-27", "segment": "", "count": 3}
    assert body == {"format": 1, "app": "shop", "pool": 3, "group": group}
    sent = []
    Forwarder("shop", pools, lambda _, headers, __: sent.append(headers) or (202, {}, {}), "rk").turn(FIRST)
    assert sent[0] == {
        "Authorization": "Bearer rk",
        "Content-Type": "application/json",
        "Idempotency-Key": part.name,
    }
