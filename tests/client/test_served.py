"""The fetcher: what it uses, ignores and refuses, what it keeps, and when it comes again."""

from __future__ import annotations

import importlib.util
import json
import os
import stat
from base64 import b64encode
from contextlib import contextmanager, suppress
from datetime import date, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import pytest
from registries import metric_toml

from deniable.errors import ConfigurationError
from deniable.registry import parse
from deniable.served_registry.fetch import Fetcher, HttpGet
from deniable.served_registry.signature import MAX_BYTES
from deniable.transport.dsn import Dsn

TEXT = """
format = 1
revision = {revision}
app = "shop"
[metrics.theme]
type = "categorical"
values = ["light", "dark", "system"]
epsilon = 1
sample = {sample}
description = "d"
owner = "o"
"""
BUNDLED = parse(TEXT.format(revision=1, sample=0.9))
TODAY = date(2026, 11, 23)
DAY, HOUR = 86_400, 3_600
DSN = Dsn.parse("https://pk_12345678@t.example/shop")


def text(revision, sample="0.5", app="shop", **more):
    """Write a restriction: of the one metric, and of more."""
    document = {"app": app, "metrics": {"theme": limit(sample)} | more, "revision": revision}
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def limit(sample="1", until=None):
    return {"sample": sample, "until": until}


class Device:
    """A fetcher with a server that answers as it is told, and a note of what came of it."""

    def __init__(self, sealed, directory=None, bundled=BUNDLED, use=None, day=TODAY):
        self.day = day
        self.answer = (404, b"")
        self.requests = []
        self.used = []
        self.refused = []
        self.fetcher = Fetcher(
            DSN,
            sealed.public,
            bundled,
            directory,
            use=use or self.used.append,
            refuse=self.refused.append,
            get=self,
            today=lambda: self.day,
        )

    def __call__(self, url, headers, timeout):
        self.requests.append((url, dict(headers), timeout))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def gets(self, body, status=200):
        self.answer = (status, body)
        return self.fetcher()

    @property
    def revisions(self):
        return [registry.revision for registry in self.used]


@pytest.fixture
def device(sealed):
    return Device(sealed)


def test_a_good_registry_is_used_and_asked_for_again_in_a_day(device, sealed):
    """It is asked for with the app's key."""
    seconds = {device.gets(sealed(text(2))) for _ in range(20)}
    assert device.revisions == [2]
    assert device.used[0].metrics["theme"].sample == "0.5"
    assert len(seconds) > 10  # jittered
    assert all(0.9 * DAY <= each <= 1.1 * DAY for each in seconds)
    url, headers, timeout = device.requests[0]
    assert url == "https://t.example/v1/registry"
    assert headers == {"Authorization": "Bearer pk_12345678", "Accept": "application/json"}
    assert timeout <= 60
    assert device.gets(sealed(text(3))) >= 0.9 * DAY
    assert device.revisions == [2, 3]
    assert not device.refused
    assert device.fetcher.counts == {"used": 2, "unchanged": 19}


def test_nothing_that_was_served_is_repeated(sealed, tmp_path):
    """Whatever a device was served, however it was written, every request of it is the same, also after a restart."""
    plain = json.loads(sealed(text(2)))
    requests = []
    for number, body in enumerate(
        (
            json.dumps(plain, indent=7).encode(),
            json.dumps(dict(reversed(plain.items()))).encode(),
            sealed(text(2, device7=limit())),
            sealed(text(123_456)),
            b"",
        )
    ):
        directory = tmp_path / str(number)
        directory.mkdir()
        for device in (Device(sealed, directory), Device(sealed, directory)):
            device.gets(body)
            device.gets(body)
            requests += device.requests
    assert len(requests) == 20
    assert all(request == requests[0] for request in requests)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((200, b"<html>Accept our terms</html>"), "no_registry"),
        ((200, b""), "no_registry"),
        ((200, None), "no_registry"),  # larger than any
        ((200, b'{"status": "ok"}'), "no_registry"),
        ((200, TEXT.format(revision=2, sample=0.1).encode()), "no_registry"),
        ((200, text(2, "0.1").encode()), "no_registry"),  # not signed
        ((302, b"elsewhere"), "status"),
        ((304, b""), "status"),  # no request allows it
        ((404, b'{"code": "no_signed_registry"}'), "status"),
        ((500, b""), "status"),
        (OSError("no route"), "unreachable"),
        (ValueError("a broken answer"), "unreachable"),
    ],
)
def test_no_registry_changes_nothing(device, sealed, answer, reason):
    """A captive portal, an error or silence is no tampering: the registry in use stays, and an hour later is the next try."""
    device.answer = answer
    assert 0.9 * HOUR <= device.fetcher() <= 1.1 * HOUR
    assert not device.used
    assert not device.refused
    assert device.fetcher.counts == {reason: 1}
    device.gets(sealed(text(2)))
    assert device.revisions == [2]


def bad(name, sealed):
    """Make a bad envelope."""
    good = json.loads(sealed(text(4)))
    return {
        "another key": lambda: sealed(text(4), "theirs"),
        "another text": lambda: json.dumps(good | {"restriction": text(5)}).encode(),
        "no signature": lambda: json.dumps({name: good[name] for name in ("format", "restriction")}).encode(),
        "an empty signature": lambda: json.dumps(good | {"signature": ""}).encode(),
        "zeros": lambda: json.dumps(good | {"signature": b64encode(bytes(64)).decode()}).encode(),
        "more members": lambda: json.dumps(good | {"seed": 7}).encode(),
        "too large": lambda: b" " * (MAX_BYTES + 1),
        "another app": lambda: sealed(text(4, app="blog")),
        "no revision": lambda: sealed(text(0)),
        "an older revision": lambda: sealed(text(2)),
        "the same revision": lambda: sealed(text(3, "0.4")),
        "a whole registry": lambda: sealed(TEXT.format(revision=4, sample=0.4)),
        "another form": lambda: sealed(text(4) + "\n"),
        "more about a metric": lambda: sealed(text(4, theme={"epsilon": 8, **limit()})),
        "a sample of more than all": lambda: sealed(text(4, "1.5")),
    }[name]()


BAD = {
    "another key": "the signature is of another text, or by another key than the app pins",
    "another text": "the signature is of another text, or by another key than the app pins",
    "no signature": "the members of an envelope = 'format, restriction': write format, restriction, ",
    "an empty signature": "a signature is no base64 of 64 bytes: copy all of it",
    "zeros": "the signature is of another text, or by another key than the app pins",
    "more members": "the members of an envelope = 'format, restriction, seed, signature': write format, restriction, ",
    "too large": "the envelope has 1,048,577 bytes, and 1,048,576 are allowed: list fewer metrics",
    "another app": "app = 'blog': write 'shop', as in the app",
    "no revision": "revision = 0: write a whole number above 0 and below 2^53",
    "an older revision": "revision = 2: write 3 or more, which was served before",
    "the same revision": "revision 3 was published before with another text: raise the revision",
    "a whole registry": "its text is no canonical JSON: write names in order and each once",
    "another form": "its text is no canonical JSON: write names in order and each once",
    "more about a metric": "theme: the members of a metric = 'epsilon, sample, until': write sample, until, and nothing else",
    "a sample of more than all": "theme: sample = '1.5': write 1, or a decimal",
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_registry_is_refused_for_good(device, sealed, name):
    """The reason names the rule; it is not used, and after it nothing is asked for or used any more."""
    device.gets(sealed(text(3)))
    assert device.gets(bad(name, sealed)) == DAY
    assert len(device.refused) == 1
    assert BAD[name] in device.refused[0]
    requests = len(device.requests)
    assert device.gets(sealed(text(9))) == DAY
    assert (device.revisions, len(device.requests), len(device.refused)) == ([3], requests, 1)
    assert device.fetcher.counts == {"used": 1, "refused": 1}


def test_a_registry_that_the_app_cannot_use_is_refused(sealed):
    """An error of the client, such as a segment that the app does not give, ends sending; its text is not shown."""

    def broken(_):
        raise RuntimeError("secret")

    device = Device(sealed, use=broken)
    device.gets(sealed(text(2)))
    assert device.refused == ["the served registry cannot be used: RuntimeError"]


def test_the_last_good_registry_is_kept(sealed, tmp_path):
    """A new process uses it before it asks, and without an answer; only its owner can read it. Earlier ones stay."""
    device = Device(sealed, tmp_path)
    device.gets(sealed(text(2)))
    device.gets(sealed(text(3)))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["registry-2.json", "registry-3.json"]
    if os.name == "posix":
        assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}
    again = Device(sealed, tmp_path)
    again.answer = OSError("offline")
    again.fetcher()
    assert again.revisions == [3]
    assert again.fetcher.counts == {"cache_used": 1, "unreachable": 1}


def test_few_earlier_registries_are_kept(sealed, tmp_path):
    """However often a registry is published, a device keeps the last 32."""
    device = Device(sealed, tmp_path)
    for revision in range(2, 50):
        device.gets(sealed(text(revision)))
    assert {file.name for file in tmp_path.iterdir()} == {f"registry-{revision}.json" for revision in range(18, 50)}


def test_a_restart_does_not_forget_the_revision(sealed, tmp_path):
    """What was served before an app's restart cannot be rolled back after it."""
    Device(sealed, tmp_path).gets(sealed(text(5)))
    for revision, sample, words in (
        (4, "0.5", "write 5 or more"),
        (5, "0.4", "revision 5 was published before with another text: raise the revision"),
    ):
        device = Device(sealed, tmp_path)
        device.gets(sealed(text(revision, sample)))
        assert words in device.refused[0]
    assert [file.name for file in tmp_path.iterdir()] == ["registry-5.json"]


@pytest.mark.parametrize("damage", ["truncated", "empty", "html", "theirs", "edited", "renamed", "directory"])
def test_a_damaged_file_is_ignored_but_its_revision_is_not(sealed, tmp_path, damage):
    """What is on disk is checked like what comes from a server; its fault refuses nothing; an older registry stays refused."""
    Device(sealed, tmp_path).gets(sealed(text(5)))
    file = tmp_path / "registry-5.json"
    good = file.read_bytes()
    if damage == "directory":
        file.unlink()
        file.mkdir()
    else:
        damaged = {
            "truncated": good[:50],
            "empty": b"",
            "html": b"<html>",
            "theirs": sealed(text(5), "theirs"),
            "edited": good.replace(b"0.5", b"0.9"),
            "renamed": sealed(text(4)),
        }[damage]
        file.write_bytes(damaged)
    device = Device(sealed, tmp_path)
    device.answer = OSError("offline")
    device.fetcher()
    assert not device.used
    assert not device.refused
    assert device.fetcher.counts["cache_ignored"] == 1
    rolled_back = Device(sealed, tmp_path)
    rolled_back.gets(sealed(text(4)))
    assert "write 5 or more" in rolled_back.refused[0]
    if damage != "renamed":
        device.gets(sealed(text(5)))  # the same again
        assert device.revisions == [5]


def test_processes_share_what_was_kept(sealed, tmp_path):
    """A process takes over what another one got, and does not put an older one in its place."""
    one, other = Device(sealed, tmp_path), Device(sealed, tmp_path)
    one.gets(sealed(text(2)))
    other.gets(sealed(text(3)))
    one.answer = OSError("offline")
    one.fetcher()
    assert one.revisions == [2, 3]
    one.gets(sealed(text(2)))
    assert "write 3 or more" in one.refused[0]


def test_a_release_of_the_app_is_restricted_by_what_was_kept(sealed, tmp_path):
    """What was served to an earlier one turns off what is new, too, unless the release has a later revision of its own."""
    Device(sealed, tmp_path).gets(sealed(text(2)))
    for revision, used in ((1, [["theme"]]), (3, [])):
        updated = Device(sealed, tmp_path, parse(TWO.format(revision=revision, sample=0.9)))
        updated.answer = OSError("offline")
        updated.fetcher()
        assert [sorted(registry.metrics) for registry in updated.used] == used
        assert not updated.refused


@pytest.mark.parametrize("place", ["missing", "file"])
def test_without_a_place_nothing_is_kept_or_made(sealed, tmp_path, place):
    """The directory is not this module's to make; without it registries are used all the same, while the process lives."""
    directory = tmp_path / "shop"
    if place == "file":
        directory.write_text("in the way", "utf-8")
    before = list(tmp_path.iterdir())
    device = Device(sealed, directory)
    device.gets(sealed(text(2)))
    device.gets(sealed(text(3)))
    assert device.revisions == [2, 3]
    assert list(tmp_path.iterdir()) == before
    assert device.fetcher.counts["cache_unwritable"] == 2
    device.gets(sealed(text(2)))
    assert "write 3 or more" in device.refused[0]


def test_a_disk_that_fills_up_leaves_no_scraps(sealed, tmp_path, monkeypatch):
    """A write that fails is counted, and the file that was there before stays whole."""
    device = Device(sealed, tmp_path)
    device.gets(sealed(text(2)))

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("deniable.served_registry.cache.os.fsync", full)
    device.gets(sealed(text(3)))
    assert device.revisions == [2, 3]
    assert [file.name for file in tmp_path.iterdir()] == ["registry-2.json"]
    assert device.fetcher.counts["cache_unwritable"] == 1


def test_a_wrong_key_or_a_missing_package_is_told_at_once(sealed, monkeypatch):
    """An app that pins a mistyped key, or lacks the extra, learns it when it starts, not when its registry is first changed."""
    make = {"use": print, "refuse": print}
    with pytest.raises(ConfigurationError, match="a public key is no base64 of 32 bytes: copy all of it"):
        Fetcher(DSN, sealed.public[:-2], BUNDLED, None, **make)
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *arguments: None if name == "cryptography" else find(name, *arguments)
    )
    with pytest.raises(ConfigurationError, match=r"pip install 'deniable\[signed\]'"):
        Fetcher(DSN, sealed.public, BUNDLED, None, **make)


@contextmanager
def serving(answer):
    """Serve one page, by a function of the handler."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(dict(self.headers))
            with suppress(OSError):  # the client may hang up
                answer(self)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/registry", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def plain(handler, body, status=200, **headers):
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def test_http_asks_plainly():
    """A request says no more than it must: no cookies, no name but the program's, and it follows no redirect."""
    pytest.importorskip("requests")
    with serving(lambda h: plain(h, b"body", 302, Location="/elsewhere", Set_Cookie="id=7")) as (url, requests):
        get = HttpGet()
        for _ in range(2):
            assert get(url, {"Authorization": "Bearer pk"}, 5) == (302, b"body")
        assert len(requests) == 2
        for headers in requests:
            assert set(headers) <= {"Host", "User-Agent", "Accept-Encoding", "Authorization", "Connection"}
            assert headers["User-Agent"] == "deniable"
            assert headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("status", [200, 302, 401])
def test_http_reads_no_more_than_an_envelope(status):
    """A server that sends without end is cut off after a mebibyte, also where requests would read on by itself."""
    pytest.importorskip("requests")

    def endless(handler):
        handler.send_response(status)
        handler.send_header("Location", "/elsewhere")
        handler.end_headers()
        while True:
            handler.wfile.write(b"x" * 65_536)

    with serving(endless) as (url, _):
        assert HttpGet()(url, {}, 30) == (status, None)


def test_http_waits_no_longer_than_it_says():
    """A server that drips is cut off when the time is up, though each piece comes in time."""
    pytest.importorskip("requests")
    stop = Event()

    def drip(handler):
        handler.send_response(200)
        handler.end_headers()
        while not stop.wait(0.1):
            handler.wfile.write(b" ")
            handler.wfile.flush()

    with serving(drip) as (url, _):
        try:
            with pytest.raises(OSError):
                HttpGet()(url, {}, 0.5)
        finally:
            stop.set()


def test_http_that_breaks_off_is_no_registry(sealed):
    """A body shorter than announced, or none at all, is an answer that did not come."""
    pytest.importorskip("requests")
    good = sealed(text(2))

    def short(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(good) + 1))
        handler.end_headers()
        handler.wfile.write(good[:-100])

    with serving(short) as (url, _):
        device = Device(sealed)
        device.fetcher._get = HttpGet()
        device.fetcher._dsn = Dsn.parse(url.replace("http://", "http://pk_12345678@").replace("/v1/registry", "/shop"))
        device.fetcher()
    assert not device.used
    assert not device.refused
    assert sum(device.fetcher.counts[name] for name in ("unreachable", "no_registry")) == 1


def test_http_brings_a_registry(sealed):
    """Over real sockets: asked for, used, and asked for again as if it had never come, whatever ETag came with it."""
    pytest.importorskip("requests")
    with serving(lambda handler: plain(handler, sealed(text(2)), ETag='"7"')) as (url, requests):
        used = []
        dsn = Dsn.parse(url.replace("http://", "http://pk_12345678@").replace("/v1/registry", "/shop"))
        fetcher = Fetcher(dsn, sealed.public, BUNDLED, None, use=used.append, refuse=pytest.fail)
        fetcher()
        fetcher()
    assert [registry.revision for registry in used] == [2]
    assert fetcher.counts == {"used": 1, "unchanged": 1}
    assert requests[0]["Authorization"] == "Bearer pk_12345678"
    assert requests[1] == requests[0]


# for how long it is valid

TWO = TEXT + metric_toml("other")
BOTH = parse(TWO.format(revision=1, sample=0.9))


def days(number):
    return TODAY + timedelta(days=number)


def on(device):
    return sorted(device.used[-1].metrics)


def test_a_registry_whose_days_are_over_tags_no_new_device(sealed):
    """Of several revisions that were honestly signed, a device takes only those that are still valid; others change nothing."""
    for answer in (sealed(text(2), valid_until=days(-1)), sealed(text(9), valid_until=days(-300))):
        device = Device(sealed)
        assert device.gets(answer) <= 1.1 * HOUR
        assert (device.used, device.refused, device.fetcher.counts) == ([], [], {"expired": 1})
    device = Device(sealed)
    assert device.gets(sealed(text(2), valid_until=TODAY)) >= 0.9 * DAY
    assert device.revisions == [2]


def test_nobody_lengthens_a_registry_s_days(sealed):
    """The signature covers the day: without it, or with another, it is no signature of this text."""
    body = json.loads(sealed(text(2), valid_until=days(-1)))
    for changed in ({**body, "valid_until": days(9).isoformat()}, {k: v for k, v in body.items() if k != "valid_until"}):
        device = Device(sealed)
        device.gets(json.dumps(changed).encode())
        assert device.used == []
        assert "the signature is of another text, or by another key than the app pins" in device.refused[0]
    plain = json.loads(sealed(f" until {days(9)}\n" + text(2)))
    device = Device(sealed)
    device.gets(json.dumps({**plain, "restriction": text(2), "valid_until": days(9).isoformat()}).encode())
    assert device.used == []


@pytest.mark.parametrize("wrong", ["tomorrow", "20261231", "2026-13-01", 7, None, ["2026-12-31"]])
def test_a_day_is_a_day(device, sealed, wrong):
    """Anything else is no envelope, and ends sending."""
    device.gets(json.dumps({**json.loads(sealed(text(2), valid_until=days(9))), "valid_until": wrong}).encode())
    assert "valid_until" in device.refused[0]


def test_what_was_ever_turned_off_is_paused_when_no_registry_is_fresh(sealed, tmp_path):
    """Whoever holds back what turns a metric off gains nothing from an older one: it stays off, also after a restart."""
    device = Device(sealed, tmp_path, BOTH)
    device.gets(sealed(text(2, "0.9"), valid_until=days(1)))
    assert on(device) == ["theme"]
    device.gets(sealed(text(3, "0.4", other=limit()), valid_until=days(5)))
    assert on(device) == ["other", "theme"]
    device.answer = (404, b"")
    device.day = days(6)
    device.fetcher()
    assert on(device) == ["theme"]
    assert device.used[-1].metrics["theme"].sample == "0.4"
    used = len(device.used)
    device.fetcher()
    assert len(device.used) == used  # nothing has changed
    again = Device(sealed, tmp_path, BOTH, day=days(6))
    again.fetcher()
    assert on(again) == ["theme"]
    again.gets(sealed(text(3, "0.4", other=limit()), valid_until=days(30)))  # signed again
    assert on(again) == ["other", "theme"]
    assert device.refused == again.refused == []


def test_what_was_ever_turned_down_is_when_no_registry_is_fresh(sealed, tmp_path):
    """So it is with the lowest sample and the earliest end."""
    device = Device(sealed, tmp_path, BOTH)
    device.gets(sealed(text(2, "0.2", other=limit()), valid_until=days(1)))
    device.gets(sealed(text(3, other=limit("1", "2030-01-01")), valid_until=days(1)))
    device.gets(sealed(text(4, "0.4", other=limit()), valid_until=days(1)))
    assert device.used[-1].metrics["theme"].sample == "0.4"
    device.answer = (404, b"")
    device.day = days(2)
    device.fetcher()
    used = device.used[-1].metrics
    assert (used["theme"].sample, used["other"].sample, used["other"].expires) == ("0.2", "1", date(2030, 1, 1))


def test_a_registry_without_an_end_stays_as_it_is(sealed, tmp_path):
    """It is used for ever, as its publisher wanted."""
    device = Device(sealed, tmp_path, BOTH)
    device.gets(sealed(text(2, "0.9")))
    device.gets(sealed(text(3, "0.4", other=limit())))
    device.day = days(5000)
    device.gets(b"")
    assert on(device) == ["other", "theme"]


def test_a_damaged_file_of_an_earlier_registry_turns_nothing_off(sealed, tmp_path):
    """Only what is signed counts."""
    device = Device(sealed, tmp_path, BOTH)
    device.gets(sealed(text(2, "0.9"), "ours", days(1)))
    device.gets(sealed(text(3, "0.4", other=limit()), "ours", days(1)))
    (tmp_path / "registry-2.json").write_bytes(sealed(text(2, "0.9"), "theirs", days(1)))
    again = Device(sealed, tmp_path, BOTH, day=days(6))
    again.fetcher()
    assert on(again) == ["other", "theme"]
