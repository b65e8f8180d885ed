"""A registry turned against the people who answer: whatever is done to it, not a byte leaves the device.

Each row is tried on a real client. A text comes from a server, signed by the key that the app pins unless the row says otherwise,
as if whoever holds the key had turned; or a registry lies in the app's place, as if somebody had exchanged the file.
"""

from __future__ import annotations

import json
import sqlite3
from base64 import b64decode, b64encode
from contextlib import closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from time import time

import pytest

from deniable.client import Client
from deniable.registry import parse
from deniable.registry.tables import Budget, Caps
from deniable.transport.settings import SenderSettings

pytest.importorskip("requests")

HONEST = """
format = 1
revision = 3
app = "shop"
[budget]
per_month = 16
lifetime = 160
[metrics.theme]
type = "categorical"
values = ["light", "dark", "system"]
version = 2
epsilon = 1
period = "month"
expires = 2099-12-31
description = "d"
owner = "o"
[metrics.rare]
type = "boolean"
epsilon = 1
period = "month"
sample = 0.5
description = "d"
owner = "o"
[metrics.kept]
type = "categorical"
values = ["a", "b", "c"]
mechanism = "rappor"
parameters = { bits = 8, hashes = 1, cohorts = 4 }
epsilon = 1
epsilon_permanent = 2
description = "d"
owner = "o"
"""
GOOGLE = """
[metrics.page]
type = "string"
candidates = "c.txt"
mechanism = "google_rappor"
epsilon = {epsilon}
{more}
parameters = {{ bits = 16, hashes = 1, cohorts = 2, prob_p = {p}, prob_q = {q}, prob_f = {f} }}
description = "d"
owner = "o"
"""
CAPS = Caps(epsilon=4, permanent=6, domain_size=1000, mechanisms=("grr", "subset", "oue", "rappor", "google_rappor", "binary"))
ANSWERS = {"theme": "dark", "kept": "b", "rare": True, "page": "x.example", "big": "v1"}


class Post:
    """Takes every upload, and keeps what there was."""

    def __init__(self):
        self.bodies = []

    def __call__(self, body, headers, timeout):  # noqa: ARG002
        self.bodies.append(bytes(body))
        return 202, {}, None

    @property
    def size(self):
        return sum(map(len, self.bodies))

    @property
    def reports(self):
        return sum(group["count"] for body in self.bodies for group in json.loads(body)["groups"])


@pytest.fixture
def server():
    """Serve whatever `server.body` is, and count what devices send by other ways than their `post`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            served.gets += 1
            self.send_response(200)
            self.send_header("Content-Length", str(len(served.body)))
            self.end_headers()
            self.wfile.write(served.body)

        def do_POST(self):
            served.posts += 1
            self.send_error(404)

        def log_message(self, *_):
            pass

    served = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.body, served.gets, served.posts = b"", 0, 0
    served.dsn = f"http://pk_12345678@127.0.0.1:{served.server_port}/shop"
    thread = Thread(target=served.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield served
    served.shutdown()
    thread.join()
    served.server_close()
    assert served.posts == 0


@pytest.fixture
def device(server):
    """Make clients of one device, each with a note of its uploads, that send every report at once."""
    clients = []

    def make(registry=HONEST, caps=CAPS, **options):
        post = Post()
        client = Client(
            dsn=server.dsn,
            registry=parse(registry) if isinstance(registry, str) else registry,
            consent=True,
            caps=caps,
            post=post,
            settings=SenderSettings(flush_at=1, flush_interval=0.05),
            **options,
        )
        clients.append(client)
        return client, post

    yield make
    for opened in clients:
        opened.close(2)


def answer_everything(client):
    """Record answers for a while, and do all that could make a client send."""
    for _ in range(5):
        for metric, value in ANSWERS.items():
            client.record(metric, value)
        client.flush(60)
    client.set_consent(False)
    client.set_consent(True)
    for metric, value in ANSWERS.items():
        client.record(metric, value)
    client.flush(60)
    client.close(2)


def changed(*pairs, more=""):
    text = HONEST.replace("revision = 3", "revision = 4")
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text + more


def google(p=0.25, q=0.75, f=0.5, epsilon=4, more=""):
    return changed(more=GOOGLE.format(p=p, q=q, f=f, epsilon=epsilon, more=more))


ENDED = changed(("expires = 2099-12-31", "expires = 2001-01-01")).partition("[metrics.rare]")[0]
BIG = """
[metrics.big]
type = "categorical"
values = [{values}]
epsilon = 1
description = "d"
owner = "o"
"""
THEME = 'epsilon = 1\nperiod = "month"\nexpires'
EXTRA = '[metrics.more]\ntype = "boolean"\ndescription = "d"\nowner = "o"\n'

BOTH_WAYS = {
    # More privacy loss than the app allows
    "epsilon 50": (
        "theme: epsilon = 50: write a number of nats above 0 and at most 16",
        changed((THEME, "epsilon = 50\nexpires")),
    ),
    "epsilon infinite": ("epsilon = inf: write ", changed((THEME, "epsilon = inf\nexpires"))),
    "epsilon not a number": ("epsilon = nan: write ", changed((THEME, "epsilon = nan\nexpires"))),
    "epsilon negative": ("epsilon = -1: write ", changed((THEME, "epsilon = -1\nexpires"))),
    "permanent epsilon below that of a report": (
        "epsilon_permanent: write 1.0 or more, the epsilon of one report, since all reports of an answer say no less than one",
        changed(("epsilon_permanent = 2", "epsilon_permanent = 0.5")),
    ),
    # No noise
    "mechanism none": (
        "theme: a mechanism is one of auto, ",
        changed((THEME, 'mechanism = "none"\nepsilon = 1\nperiod = "month"\nexpires')),
    ),
    "p = 1": ("no bit is certain", google(p=0, q=1, f=0)),
    "q = 1": ("no bit is certain", google(p=0.5, q=1, f=0)),
    "p = 0": ("no bit is certain", google(p=0, q=0.5, f=0)),
    "p and q swapped": (
        r"prob_q = 0\.25: write more than prob_p = 0\.25, or a report says nothing about a bit",
        google(p=0.75, q=0.25),
    ),
    "p and q equal": (
        r"prob_q = 0\.25: write more than prob_p = 0\.25, or a report says nothing about a bit",
        google(p=0.5, q=0.5),
    ),
    "f = 0 of a kept response": ("spends inf nats for all reports of an answer", google(f=0, more="epsilon_permanent = 5")),
    "f = 1": ("prob_f is at most 127/128", google(f=1)),
    "declares less than it spends": (
        "epsilon = 0.1: write 1.02165 or more",
        google(epsilon=0.1),
    ),
    # The domain
    "one value": ("values has 1 answer: list 2 to 65,536", changed(('["light", "dark", "system"]', '["dark"]'))),
    "no values": ("values has 0 answers: list 2", changed(('["light", "dark", "system"]', "[]"))),
    "a value twice": (
        "values has 'a', 'b' more than once: list each answer once",
        changed(('["light", "dark", "system"]', '["dark", "dark"]')),
    ),
    # A seed or cohort of one person's own
    "a seed": ("theme: a key is one of type, ", changed((THEME, 'seed = 7\nepsilon = 1\nperiod = "month"\nexpires'))),
    "a cohort": ("kept: a key is one of type, ", changed(("epsilon_permanent = 2", "epsilon_permanent = 2\ncohort = 3"))),
    "a seed as a parameter": ("options of rappor are bits, hashes, cohorts", changed(("cohorts = 4", "cohorts = 4, seed = 7"))),
    "a cohort as a parameter": (
        "options of rappor are bits, hashes, cohorts",
        changed(("cohorts = 4", "cohorts = 4, cohort = 3")),
    ),
    # Time
    "no period": (
        "period = 'second': write hour, day, week or month",
        changed((THEME, 'period = "second"\nepsilon = 1\nexpires')),
    ),
    "a budget of nothing": ("per_month is a number of nats above 0", changed(("per_month = 16", "per_month = 0"))),
    # Its form
    "no TOML": ("this is no valid TOML: Invalid value (at end of document)", "<html>"),
    "another format": ("format: write 1, which this version reads", changed(("format = 1", "format = 2"))),
    "another app": ("app = 'blog'", changed(('"shop"', '"blog"'))),
    "an unknown key": ("theme: a key is one of type, ", changed((THEME, 'raw = true\nepsilon = 1\nperiod = "month"\nexpires'))),
}

OFF = {
    # Of one metric, which is off: more than the app allows
    "epsilon above the cap": (
        "theme",
        'the app allows 4: write epsilon = 4 in [metrics."theme"]',
        changed((THEME, "epsilon = 4.001\nexpires")),
    ),
    "epsilon above the cap, of a new metric": (
        "more",
        "and the app allows 4: write ",
        changed(more=EXTRA + "epsilon = 4.001\n"),
    ),
    "epsilon above the cap, and caps of its own": (
        "theme",
        'the app allows 4: write epsilon = 4 in [metrics."theme"]',
        changed((THEME, "epsilon = 4.001\nexpires"), ("[budget]", "[caps]\nepsilon = 16\n[budget]")),
    ),
    "permanent epsilon above the cap": (
        "kept",
        'the app allows 6: write epsilon_permanent = 6 in [metrics."kept"]',
        changed(("epsilon_permanent = 2", "epsilon_permanent = 6.001")),
    ),
    "mechanism not allowed": (
        "theme",
        'its mechanism is "hadamard", and the app allows ',
        changed((THEME, 'mechanism = "hadamard"\nepsilon = 1\nperiod = "month"\nexpires')),
    ),
    "mechanism not allowed, by auto": (
        "big",
        'and the app allows "',
        changed(more=BIG.format(values=", ".join(f'"v{i}"' for i in range(900))) + "max_report_bytes = 2\n"),
    ),
    "a huge domain": (
        "big",
        "and the app allows 1000: list 1000 or fewer",
        changed(more=BIG.format(values=", ".join(f'"v{i}"' for i in range(1001))) + 'mechanism = "oue"\n'),
    ),
    "as many cohorts as people": ("kept", "groups, and 4096 are allowed", changed(("cohorts = 4", "cohorts = 5000"))),
    "more than the budget": ("kept", "leave 3 of 5: write ", changed(("per_month = 16", "per_month = 5"))),
}

EVERY = {id_: {"sample": "1", "until": None} for id_ in ("theme", "rare", "kept")}


def restriction(revision=4, app="shop", metrics=EVERY, **more):
    """Write the text that is signed."""
    return json.dumps({"app": app, "metrics": metrics, "revision": revision} | more, sort_keys=True, separators=(",", ":"))


def about(metric, **members):
    return restriction(metrics=EVERY | {metric: EVERY[metric] | members})


# What is no restriction, or not one of this app that is new
SERVED = {
    "a whole registry": ("canonical JSON", changed()),
    "a whole registry of another epsilon": ("canonical JSON", changed((THEME, 'epsilon = 2\nperiod = "month"\nexpires'))),
    "epsilon beside it": (
        "theme: the members of a metric = 'epsilon, sample, until': write sample, until, and nothing else",
        about("theme", epsilon=0.5),
    ),
    "permanent epsilon lowered by little": (
        "kept: the members of a metric = 'epsilon_permanent, sample, until': write sample, until, and nothing else",
        about("kept", epsilon_permanent=1.9999),
    ),
    "fewer answers": (
        "theme: the members of a metric = 'sample, until, values': write sample, until, and nothing else",
        about("theme", values=["dark", "system"]),
    ),
    "a version for one device": (
        "theme: the members of a metric = 'sample, until, version': write sample, until, and nothing else",
        about("theme", version=123456789),
    ),
    "a seed": (
        "theme: the members of a metric = 'sample, seed, until': write sample, until, and nothing else",
        about("theme", seed=7),
    ),
    "a cohort": (
        "kept: the members of a metric = 'cohort, sample, until': write sample, until, and nothing else",
        about("kept", cohort=3),
    ),
    "another period": (
        "theme: the members of a metric = 'period, sample, until': write sample, until, and nothing else",
        about("theme", period="hour"),
    ),
    "a budget": (
        "the members of a restriction = 'app, budget, metrics, revision': write app, metrics, revision, and nothing else",
        restriction(budget={"window": 1}),
    ),
    "a seed for all": (
        "the members of a restriction = 'app, metrics, revision, seed': write app, metrics, revision, and nothing else",
        restriction(seed=7),
    ),
    "a mark in its form": ("canonical JSON", restriction() + " "),
    "no sample": ("theme: sample is missing: write 1, or a decimal below it", about("theme", sample=None)),
    "sample above all": ("theme: sample = '2': write 1, or a decimal below it", about("theme", sample="2")),
    "sample 0": ("theme: sample = '0': write 1, or a decimal below it", about("theme", sample="0")),
    "no day": ("theme: until = 'soon': write a day such as 2026-12-31", about("theme", until="soon")),
    "another app": ("app = 'blog': write 'shop', as in the app", restriction(app="blog")),
    "older than the one in the app": ("revision = 2: write 3 or more; the registry in the app has that", restriction(2)),
    "without revision": ("revision = 0: write a whole number above 0 and below 2^53", restriction(0)),
}


def assert_silent(client, post, server, gets=1):
    assert post.size == 0
    assert server.gets == gets
    assert client.disabled
    assert client.stats()["sent"] == 0


@pytest.mark.parametrize("name", SERVED)
def test_a_tampered_registry_from_the_server_sends_nothing(device, server, sealed, name):
    """Signed by the right key, it is refused as a whole: not even what the app's own registry allows is sent after it."""
    words, text = SERVED[name]
    server.body = sealed(text)
    client, post = device(registry_key=sealed.public)
    answer_everything(client)
    assert_silent(client, post, server)
    assert client.disabled.startswith("the served registry:")
    assert words in client.disabled


MORE = {
    "a metric more": restriction(metrics=EVERY | {"more": {"sample": "1", "until": None}}),
    "a hundred names": restriction(metrics=EVERY | {f"theme{i}": {"sample": "1", "until": None} for i in range(100)}),
    "a name like it": restriction(metrics=EVERY | {"theme.3": {"sample": "1", "until": None}}),
    "sample raised": about("rare", sample="1"),
    "collection prolonged": about("theme", until="2100-01-01"),
    "collection without end": about("theme", until=None),
}


@pytest.mark.parametrize("name", MORE)
def test_a_server_that_asks_for_more_gets_no_more(device, server, sealed, name):
    """The app's own sample and end stay, and nothing else is asked."""
    server.body = sealed(MORE[name])
    client, post = device(registry_key=sealed.public)
    answer_everything(client)
    assert client.disabled is None
    assert post.size > 0
    assert server.gets == 1
    assert client.explain("rare").sample == pytest.approx(0.5)
    own = parse(HONEST).metrics
    assert {id_: replace(metric, expires=own[id_].expires) for id_, metric in client._metrics.registry.metrics.items()} == own
    assert client._metrics.registry.metrics["theme"].expires == own["theme"].expires


def test_everything_turned_off_sends_nothing(device, server, sealed):
    """A text that lists nothing: all that is recorded afterwards is dropped, and nothing is wrong."""
    server.body = sealed(restriction(metrics={}))
    client, post = device(registry_key=sealed.public)
    assert client.record("theme", "dark")  # the first answer is given under the app's own registry
    assert client.flush(60)
    before = post.size
    answer_everything(client)
    assert post.size == before
    assert client.disabled is None


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_a_tampered_registry_in_the_app_sends_nothing(server, tmp_path, name):
    """A file that is no registry turns the client off."""
    path = tmp_path / "metrics.toml"
    path.write_text(BOTH_WAYS[name][1], "utf-8")
    post = Post()
    client = Client(dsn=server.dsn, registry=path, consent=True, caps=CAPS, post=post, settings=SenderSettings(flush_at=1))
    answer_everything(client)
    assert post.size == 0
    assert client.disabled
    assert client.stats()["recorded"] == 0


@pytest.mark.parametrize("name", OFF)
def test_a_metric_that_exceeds_the_caps_sends_nothing(device, name):
    """The caps in the app's code bound the file that it brings along, too, whatever caps the file has. Other metrics go on."""
    metric, words, text = OFF[name]
    client, post = device(text)
    answer_everything(client)
    assert words in client.stats()["off"][metric]
    assert client.disabled is None
    sent = {group["metric"] for body in post.bodies for group in json.loads(body)["groups"]}
    assert metric not in sent
    assert sent


def envelope(name, sealed):
    """Make an envelope that is not what it says."""
    good = json.loads(sealed(restriction()))
    signature = bytearray(b64decode(good["signature"]))
    signature[40] ^= 1
    return {
        "without signature": json.dumps({"format": 1, "restriction": good["restriction"]}).encode(),
        "an empty signature": json.dumps(good | {"signature": ""}).encode(),
        "a bit of the signature": json.dumps(good | {"signature": b64encode(signature).decode()}).encode(),
        "another key": sealed(restriction(), "theirs"),
        "another text": json.dumps(good | {"restriction": about("rare", sample="0.4")}).encode(),
        "a seed beside it": json.dumps(good | {"seed": 7}).encode(),
        "a cohort beside it": json.dumps(good | {"cohort": 3}).encode(),
        "another format": json.dumps(good | {"format": 2}).encode(),
        "a key beside it": json.dumps(good | {"public_key": sealed.public}).encode(),
    }[name]


@pytest.mark.parametrize(
    "name",
    [
        *("without signature", "an empty signature", "a bit of the signature", "another key", "another text"),
        *("a seed beside it", "a cohort beside it", "another format", "a key beside it"),
    ],
)
def test_an_envelope_that_is_not_right_sends_nothing(device, server, sealed, name):
    """However little the text in it asks for."""
    server.body = envelope(name, sealed)
    client, post = device(registry_key=sealed.public)
    answer_everything(client)
    assert_silent(client, post, server)


@pytest.mark.parametrize(
    "text",
    [restriction(5), restriction(6, metrics=EVERY | {"rare": {"sample": "0.4", "until": None}})],
)
def test_an_older_or_exchanged_revision_sends_nothing(device, server, sealed, text):
    """After a restart, a registry that was served before cannot come back, nor another one in its place."""
    server.body = sealed(restriction(6))
    client, post = device(registry_key=sealed.public)
    answer_everything(client)
    assert post.size > 0
    server.body = sealed(text)
    client, post = device(registry_key=sealed.public, clock=lambda: time() + 40 * 86_400)  # when there is a report again
    answer_everything(client)
    assert_silent(client, post, server, gets=2)
    assert "revision" in client.disabled


def test_a_served_registry_without_the_right_key_in_the_app_sends_nothing(device, server, sealed):
    """A mistyped key turns the client off before anything is asked for."""
    server.body = sealed(restriction())
    client, post = device(registry_key=sealed.public[:-1])
    answer_everything(client)
    assert_silent(client, post, server, gets=0)


def test_an_honest_registry_from_the_server_is_used(device, server, sealed):
    """The control of all of this: with a good registry the same device sends, by the server's terms."""
    server.body = sealed(about("theme", sample="0.9"))
    client, post = device(registry_key=sealed.public)
    answer_everything(client)
    assert post.size > 0
    assert client.disabled is None
    assert client.explain("theme").sample == pytest.approx(0.9)


def test_an_honest_registry_in_the_app_is_used(device, server):
    """So it does with the registry of the app alone, and asks the server for none."""
    client, post = device()
    answer_everything(client)
    assert post.size > 0
    assert server.gets == 0


@pytest.mark.parametrize("body", [b"<html>Accept our terms", restriction(metrics={}).encode(), HONEST.encode()])
def test_what_is_no_envelope_changes_nothing(device, server, sealed, body):
    """Behind a captive portal the app's own registry stays in use, and so it does where nothing is signed."""
    server.body = body
    client, post = device(registry_key=sealed.public)
    answer_everything(client)
    assert post.size > 0
    assert client.disabled is None


def test_a_registry_in_the_app_whose_collection_ended_sends_nothing(device):
    """An app that was never updated falls silent by itself."""
    client, post = device(ENDED)
    answer_everything(client)
    assert post.size == 0
    assert client.stats()["dropped"]["expired"] > 0


def test_collection_that_ended_sends_nothing(device, server, sealed):
    """A server may end a collection early: its metric is dropped from then on, the others go on."""
    server.body = sealed(restriction(metrics={"theme": {"sample": "1", "until": "2001-01-01"}}))
    client, post = device(registry_key=sealed.public)
    assert client.record("theme", "dark")  # the first answer is given under the app's own registry
    assert client.flush(60)
    assert server.gets == 1
    before = post.size
    for _ in range(20):
        assert not client.record("theme", "dark")
        assert not client.record("kept", "a")
    client.flush(60)
    client.close(2)
    assert post.size == before
    assert client.stats()["dropped"]["expired"] == 20
    assert client.disabled is None


REST = 'description = "d"\nowner = "o"\n'


def many(number):
    questions = "".join(f'[metrics.m{i}]\ntype = "boolean"\nepsilon = 1\nperiod = "month"\n{REST}' for i in range(number))
    return f'format = 1\nrevision = 4\napp = "shop"\n{questions}'


TIGHT = Caps(budget=Budget(per_month=8, lifetime=8))


def test_a_question_under_a_hundred_names_is_paid_from_one_budget(device):
    """An app asks no more of a hundred metrics than its budget has, whatever it calls its questions."""
    client, post = device(many(100), TIGHT)
    assert sum(client.record(f"m{i}", value=True) for i in range(100)) == 8
    client.close(60)
    assert post.reports == 8
    assert len(client.stats()["off"]) == 92


def test_a_version_raised_again_and_again_is_paid_from_one_budget(device):
    """Nor does a new version of a metric, in a new release of the app, come with a budget of its own."""
    total = 0
    for version in range(1, 20):
        client, post = device(many(1).replace("epsilon", f"version = {version}\nepsilon"), TIGHT)
        for _ in range(3):
            client.record("m0", value=True)
        client.close(60)
        total += post.reports
    assert 1 <= total <= 8
    assert post.size == 0


def test_the_budget_of_a_file_only_tightens_that_of_the_caps(device):
    """Whatever it says, a device spends no more than the app's code allows."""
    text = many(20).replace('app = "shop"', 'app = "shop"\nbudget = { per_month = 1000.0, lifetime = 1000.0 }')
    client, post = device(text, TIGHT)
    for i in range(20):
        client.record(f"m{i}", value=True)
    assert client.stats()["reserved"]["m0"] == {"month": 1, "lifetime": 1}
    client.close(60)
    assert post.reports == 8


WIDE = [("per_month = 16", "per_month = 100"), ("lifetime = 160", "lifetime = 1000")]


def responses_after(device, server, sealed, folder, texts):
    """Serve a device another text on each day; return how many permanent responses it has drawn by then."""
    ours = HONEST
    for old, new in WIDE:
        ours = ours.replace(old, new)
    for day, metrics in enumerate(texts):
        server.body = sealed(restriction(4 + day, metrics={"theme": EVERY["theme"]} | metrics))
        client, _ = device(
            ours,
            Caps(budget=Budget(per_month=100, lifetime=1000)),
            registry_key=sealed.public,
            state=folder,
            clock=lambda: 1_800_000_000.0 + 86_400 * day,  # noqa: B023 - the client is closed before the next day
        )
        for _ in range(2):
            client.record("kept", "b")
            client.flush(60)
        client.close(2)
    with closing(sqlite3.connect(folder / "shop" / "state.db")) as db:
        return db.execute("SELECT count(*) FROM responses").fetchone()[0]


def test_what_a_server_may_do_draws_no_permanent_response_anew(device, server, sealed, tmp_path):
    """A metric is left out, thinned, ended and brought back: its response stays."""
    on, thinned = {"kept": EVERY["kept"]}, {"kept": {"sample": "0.5", "until": None}}
    texts = [{}, on, thinned, on, {"kept": {"sample": "1", "until": "2001-01-01"}}, on]
    assert responses_after(device, server, sealed, tmp_path, 5 * texts) == 1
    assert server.gets == 30
