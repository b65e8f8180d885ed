"""Limits: what a key, an address and a form may ask for in a window, across processes, without an address being kept."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import monotonic, sleep

import pytest

from deniable.errors import ConfigurationError
from deniable_aggregator.store import Store
from deniable_server.rates import Rate, Volume, parse, parse_volume
from deniable_server.settings import Settings

ELSEWHERE, NEIGHBOUR = "203.0.113.7", "203.0.113.8"
MB = 1 << 20


@pytest.fixture(autouse=True)
def key_of_the_day(real_redis):
    """Make numbers the same in every run: by chance two addresses may have one number."""
    for day in (datetime.now(UTC), datetime.now(UTC) + timedelta(days=1)):
        real_redis.set(f"{{deniable}}:source:{day.date()}", b"always the same", ex=3600)


@pytest.fixture
def limited(served):
    """Serve with other limits, and make requests that come from an address."""
    servers = []

    class Limited(type(served)):
        def ask(self, address=ELSEWHERE, key=None, path="/api/v1/metrics", **options):
            headers = {"Authorization": f"Bearer {key or 'rk_test_12345678'}"} | options.pop("headers", {})
            return self.http.get(path, headers=headers, environ_base={"REMOTE_ADDR": address}, **options)

    def start(**changes):
        servers.append(Limited(replace(served.service.settings, **changes)))
        return servers[-1]

    yield start
    for server in servers:
        server.store._client.close()


def statuses(answers):
    return Counter(answer.status_code for answer in answers)


# Rates


def test_rates_are_read():
    """A rate is a number of requests in a unit, or off."""
    assert parse("X", "600/minute") == Rate(600, 60)
    assert parse("X", "1/second") == Rate(1, 1)
    assert parse("X", "off") is None
    assert str(Rate(600, 60)) == "600 requests a minute"


@pytest.mark.parametrize("text", ["", "600", "0/minute", "600/fortnight", "-1/second", "600 / minute", "1.5/hour", "6e2/minute"])
@pytest.mark.parametrize("name", ["RATE_LIMIT_KEY", "RATE_LIMIT_SOURCE", "RATE_LIMIT_LOGIN"])
def test_a_bad_rate_stops_the_start(name, text):
    """A rate that cannot be read stops the start and names its variable."""
    with pytest.raises(ConfigurationError, match=f"DENIABLE_{name}.*'{text}'"):
        Settings.from_environment({f"DENIABLE_{name}": text})


# Sources and keys


def test_an_address_has_its_limit(limited):
    """The request after the last allowed one is refused with 429 and the seconds to wait; another address is not."""
    server = limited(rate_limit_source="5/hour")
    assert statuses(server.ask() for _ in range(5)) == {200: 5}
    answer = server.ask()
    assert (answer.status_code, answer.mimetype) == (429, "application/problem+json")
    assert answer.get_json()["code"] == "rate_limited"
    assert 3000 <= int(answer.headers["Retry-After"]) <= 3600
    assert server.ask(NEIGHBOUR).status_code == 200


def test_a_key_has_its_limit(limited, settings):
    """The limit of a key holds for all addresses together, and for that key alone."""
    server = limited(rate_limit_key="5/hour", read_keys=f"{settings.read_keys},shop:rk_another_1")
    assert statuses(server.ask(f"203.0.113.{i}") for i in range(7)) == {200: 5, 429: 2}
    assert server.ask(key="rk_another_1").status_code == 200


def test_a_flood_from_one_address_takes_nothing_from_the_others(limited):
    """What is refused for its source is not counted for the key."""
    server = limited(rate_limit_source="3/hour", rate_limit_key="6/hour")
    assert statuses(server.ask() for _ in range(50)) == {200: 3, 429: 47}
    assert statuses(server.ask(NEIGHBOUR) for _ in range(3)) == {200: 3}


def test_a_window_ends(limited):
    """After the seconds that Retry-After named, requests are let through again, though more came meanwhile."""
    server = limited(rate_limit_source="2/second")
    assert 200 in statuses(server.ask() for _ in range(3))
    until = monotonic() + 600
    while (answer := server.ask()).status_code == 429 and monotonic() < until:
        assert answer.headers["Retry-After"] == "1"
        sleep(0.05)
    assert answer.status_code == 200


def test_whoever_tries_keys_is_limited(limited):
    """Requests with unknown keys count for their address."""
    server = limited(rate_limit_source="4/hour")
    assert statuses(server.ask(key=f"rk_guess_{i}") for i in range(10)) == {401: 4, 429: 6}


def test_limits_can_be_off_and_this_machine_is_no_source(limited, real_redis):
    """Without limits nothing is counted; requests from loopback count for their key alone."""
    server = limited(rate_limit_source="off", rate_limit_key="off")
    assert statuses(server.ask() for _ in range(20)) == {200: 20}
    assert not [key for key in real_redis.scan_iter() if b":rate:" in key]
    server = limited(rate_limit_source="1/hour")
    assert statuses(server.ask("127.0.0.1") for _ in range(20)) == {200: 20}


def test_volumes_are_read():
    """A volume is a number of MB in a unit, or off."""
    assert parse_volume("X", "16MB/minute") == Volume(16 << 20, 60)
    assert parse_volume("X", "off") is None
    assert str(Volume(16 << 20, 3600)) == "16 MB an hour"


@pytest.mark.parametrize("text", ["", "16", "16/minute", "0MB/minute", "16MB", "16 MB/minute", "16GB/minute", "16MB/week"])
def test_a_bad_volume_stops_the_start(text):
    """A volume that cannot be read stops the start and names its variable."""
    with pytest.raises(ConfigurationError, match=f"DENIABLE_STORED_LIMIT_SOURCE.*'{text}'"):
        Settings.from_environment({"DENIABLE_STORED_LIMIT_SOURCE": text})


def heavy(server, number):
    """Make an upload of so many reports, of a byte each."""
    payloads = b64encode(b"\0" * number).decode()
    return {"format": 1, "app": "shop", "groups": [server.group("ui.theme", [0], count=number, payloads=payloads)]}


@pytest.mark.both_stores
def test_what_uploads_store_is_limited(limited, real_redis):
    """Uploads that take more of the store than an address may are refused, store nothing, and are taken later."""
    server = limited(stored_limit_source="1MB/hour", trusted_proxies=1)
    body = heavy(server, 150_000)
    answers = [server.post(body, key=str(number), X_Forwarded_For=ELSEWHERE) for number in range(10)]
    assert statuses(answers) == {202: 6, 429: 4}
    assert server.store.backlog() == 6
    assert 3000 <= int(answers[-1].headers["Retry-After"]) <= 3600
    assert answers[-1].get_json()["detail"] == "uploads of this address may take 1 MB an hour of the store; try again later"
    assert server.post(heavy(server, 1), X_Forwarded_For=NEIGHBOUR).status_code == 202
    (counter,) = [key for key in real_redis.scan_iter() if key.endswith(b":bytes") and int(real_redis.get(key)) > MB]
    real_redis.delete(counter)
    assert server.post(body, key="9", X_Forwarded_For=ELSEWHERE).get_json()["duplicate"] is False


def test_a_divided_app_takes_uploads_of_any_size(limited, real_redis):
    """Also one that is larger than the equal part of its partition; an address that goes on is told the limit of the app."""
    Store(real_redis, "shop").divide(16)
    server = limited(stored_limit_source="1MB/hour", rate_limit_source="60/hour", trusted_proxies=1)

    def send(number, key, address):
        body = gzip.compress(json.dumps(heavy(server, number)).encode())
        return server.post(body, key=str(key), Content_Encoding="gzip", X_Forwarded_For=address)

    assert statuses(send(700_000, each, f"203.0.113.{100 + each}") for each in range(10)) == {202: 10}
    sent = [send(300_000, each, NEIGHBOUR) for each in range(55)]
    statement = {answer.get_json()["detail"] for answer in sent if answer.status_code == 429}
    assert statement == {"uploads of this address may take 1 MB an hour of the store; try again later"}
    *_, last = [send(1, "same", ELSEWHERE) for _ in range(60)]
    assert last.get_json()["detail"] == "this address may make 60 requests an hour; try again later"


@pytest.mark.both_stores
def test_nobody_uses_up_what_all_devices_may_store(limited):
    """A few addresses with uploads of zeros, a thousandth of that on the way, do not have all other devices refused."""
    server = limited(trusted_proxies=1, max_backlog=1000)
    body = gzip.compress(json.dumps(heavy(server, 700_000)).encode())
    hostile = [f"203.0.113.{1 + number // 20}" for number in range(120)]
    answers = [server.post(body, Content_Encoding="gzip", X_Forwarded_For=each) for each in hostile]
    assert statuses(answers) == {202: 120}
    assert server.store._client.memory_usage(server.store.partitions[0].stream, samples=0) > 64 * MB
    honest = {"format": 1, "app": "shop", "groups": [server.group("ui.theme", [0])]}
    assert server.post(honest, X_Forwarded_For="198.51.100.7").status_code == 202


def test_only_what_is_stored_counts_for_bytes(limited, real_redis):
    """A repeated upload, and one that finds the backlog full, counts as a request, and for no bytes."""
    server = limited(stored_limit_source="1MB/hour", rate_limit_source="7/hour", max_backlog=2, trusted_proxies=1)
    body = gzip.compress(json.dumps(heavy(server, 400_000)).encode())

    def send(key):
        return server.post(body, key=key, Content_Encoding="gzip", X_Forwarded_For=ELSEWHERE)

    again = [send("one") for _ in range(4)]
    assert [answer.status_code for answer in again] == [202] * 4
    assert send("two").status_code == 202
    (counter,) = [key for key in real_redis.scan_iter() if key.endswith(b":bytes")]
    before = int(real_redis.get(counter))
    assert [send(key).status_code for key in ("three", "one", "one")] == [503, 202, 429]
    assert int(real_redis.get(counter)) == before


@pytest.mark.both_stores
def test_what_cannot_be_counted_takes_nothing_of_the_store(limited, real_redis):
    """Uploads that are refused count as requests, and not for what they would have taken."""
    server = limited()
    assert server.post({"format": 1, "app": "shop", "groups": [server.group("ui.theme", [0], version=9)]}).status_code == 422
    assert [key for key in real_redis.scan_iter() if key.endswith(b":bytes")] == []


def test_uploads_are_limited_too(limited):
    """An upload above the limit is refused with 429, is not in the stream, and can be sent again later."""
    server = limited(rate_limit_key="2/hour")
    body = {"format": 1, "app": "shop", "groups": [server.group("ui.theme", [0])]}
    assert statuses(server.post(body) for _ in range(5)) == {202: 2, 429: 3}
    assert server.store.backlog() == 2


def test_uploads_count_whatever_is_wrong_with_them(limited):
    """Uploads that cannot be read, or of which nothing can be taken, are counted like good ones, once each."""
    server = limited(rate_limit_key="4/hour")
    good = {"format": 1, "app": "shop", "groups": [server.group("ui.theme", [0])]}
    bad = {"format": 1, "app": "shop", "groups": [server.group("ui.theme", [0], version=9)]}
    answers = [server.post(each) for each in (b"{", bad, good)] + [server.post(good, Idempotency_Key=None), server.post(good)]
    assert [answer.status_code for answer in answers] == [400, 422, 202, 400, 429]
    assert server.store.backlog() == 1


def test_an_upload_that_repeats_another_counts(limited):
    """A repeated upload is answered as the first one, and counts like it."""
    server = limited(rate_limit_key="3/hour")
    body = {"format": 1, "app": "shop", "groups": [server.group("ui.theme", [0])]}
    answers = [server.post(body, key="again") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [202, 202, 202, 429]
    assert [answer.get_json()["duplicate"] for answer in answers[:3]] == [False, True, True]


def test_a_flood_costs_neither_reading_nor_the_store(limited, real_redis):
    """Once a source is known to be over its limit the store is not asked, and no upload of it is read, until its window ends."""
    server = limited(rate_limit_source="2/hour", trusted_proxies=1)
    body = {"format": 1, "app": "shop", "groups": [server.group("ui.theme", [0])]}
    assert statuses(server.post(body, X_Forwarded_For=ELSEWHERE) for _ in range(3)) == {202: 2, 429: 1}
    real_redis.config_resetstat()
    answers = [server.post(b"{", X_Forwarded_For=ELSEWHERE) for _ in range(5)]
    assert statuses(answers) == {429: 5}
    assert all(3000 <= int(answer.headers["Retry-After"]) <= 3600 for answer in answers)
    assert "cmdstat_evalsha" not in real_redis.info("commandstats")
    assert server.post(body, X_Forwarded_For=NEIGHBOUR).status_code == 202


def test_a_key_over_its_limit_has_nothing_read(limited, real_redis):
    """Once a key is known to be over its limit, its uploads are counted before they are read, until its window ends."""
    server = limited(rate_limit_key="2/second")
    body = {"format": 1, "app": "shop", "groups": [server.group("ui.theme", [0])]}
    for status in (429, 202):
        until = monotonic() + 600
        while (answer := server.post(body)).status_code != status:
            assert monotonic() < until, answer.get_data()
    real_redis.flushall()
    server = limited(rate_limit_key="2/hour")
    assert [server.post(body).status_code for _ in range(3)] == [202, 202, 429]
    assert server.post(b"{").status_code == 429


def test_nothing_passes_while_limits_cannot_be_held(limited):
    """With the store away, a request whose limit cannot be looked up is answered 503."""
    server = limited(redis_url="redis://127.0.0.1:1")
    answer = server.ask()
    assert (answer.status_code, answer.get_json()["code"]) == (503, "store_unavailable")


def test_a_counter_without_an_end_gets_one(limited, real_redis):
    """A counter that lost its expiry, as a store restored from elsewhere may have it, does not shut anybody out for ever."""
    server = limited(rate_limit_key="5/hour")
    server.ask()
    (counter,) = [key for key in real_redis.scan_iter() if b":rate:key:" in key]
    real_redis.set(counter, 10**6)
    assert server.ask().status_code == 429
    assert 0 < real_redis.ttl(counter) <= 3600


# Proxies


def test_trusted_proxies_tell_the_source(limited):
    """As many proxies as are trusted are believed, and none more: an address that a client made up is not its source."""
    server = limited(rate_limit_source="2/hour", trusted_proxies=1)
    forged = [server.ask("10.0.0.1", headers={"X-Forwarded-For": f"192.0.2.{i}, {ELSEWHERE}"}) for i in range(4)]
    assert statuses(forged) == {200: 2, 429: 2}
    assert server.ask("10.0.0.1", headers={"X-Forwarded-For": NEIGHBOUR}).status_code == 200


def test_untrusted_proxies_are_not_believed_and_are_said_once(limited, caplog):
    """Without trusted proxies the header changes nothing; that there seems to be a proxy is logged once, without an address."""
    server = limited(rate_limit_source="2/hour")
    answers = [server.ask(headers={"X-Forwarded-For": f"192.0.2.{i}"}) for i in range(4)]
    assert statuses(answers) == {200: 2, 429: 2}
    output = [record.getMessage() for record in caplog.records if record.name == "deniable.limits"]
    assert len(output) == 1
    assert "DENIABLE_TRUSTED_PROXIES" in output[0]
    assert "192.0.2" not in caplog.text
    assert ELSEWHERE not in caplog.text


# Signing in


def sign_in(server, key, **environ):
    form = server.http.get("/login").get_data(as_text=True)
    token = form.partition('name="token" value="')[2].partition('"')[0]
    return server.http.post("/login", data={"token": token, "key": key}, environ_base={"REMOTE_ADDR": ELSEWHERE} | environ)


def test_signing_in_is_limited(limited):
    """An address may try keys a few times; then the form says to wait, also to the right key, and when."""
    server = limited(rate_limit_login="3/hour")
    assert [sign_in(server, "rk_guess_1").status_code for _ in range(3)] == [401] * 3
    answer = sign_in(server, "rk_test_12345678")
    assert answer.status_code == 429
    assert 3000 <= int(answer.headers["Retry-After"]) <= 3600
    assert "Too many attempts" in answer.get_data(as_text=True)
    assert sign_in(server, "rk_test_12345678", REMOTE_ADDR=NEIGHBOUR).status_code == 303


@pytest.mark.parametrize(
    ("changes", "headers", "scheme", "secure"),
    [
        ({}, {}, "http", False),
        ({}, {}, "https", True),
        ({}, {"X-Forwarded-Proto": "https"}, "http", False),
        ({"trusted_proxies": 1}, {"X-Forwarded-Proto": "https"}, "http", True),
        ({"secure_cookie": "always"}, {}, "http", True),
    ],
)
def test_the_session_cookie(limited, changes, headers, scheme, secure):
    """The cookie is HttpOnly and SameSite=Lax, and Secure where the page came over https, as a trusted proxy may tell."""
    server = limited(**changes)
    cookie = server.http.get("/login", headers=headers, base_url=f"{scheme}://localhost").headers["Set-Cookie"]
    attributes = {part.strip() for part in cookie.split(";")[1:]}
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= attributes
    assert ("Secure" in attributes) == secure


# Several processes
