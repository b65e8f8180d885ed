"""What a server writes to the audit log: the registry it serves, and every query with its answer or refusal, or no answer."""

from __future__ import annotations

import re
from dataclasses import replace
from hashlib import sha256
from threading import Barrier, Lock, Thread

import pytest
import redis
from werkzeug.routing import Rule

from deniable import registry
from deniable_aggregator.audit.entry import intact_entry
from deniable_aggregator.audit.files import verify
from deniable_aggregator.audit.log import AuditLog
from deniable_aggregator.store import Store
from deniable_server import create_app
from deniable_server.access.keys import KeyStore, id_of

from .conftest import INGEST, READ

ACTOR = f"key:{id_of(sha256(READ.encode()).digest())}"
API = {"by": "api"}
PAGE = {"by": "page"}
SIDES = {"a": "platform=linux", "b": "platform=macos"}


def entries(client):
    return [intact_entry(line) for line in client.lrange("{shop}:audit", 0, -1)]


def queries(client):
    return [(e.event, e.actor, e.details) for e in entries(client) if e.event.startswith("query.")]


def outcome(answer, details, problem=None):
    """Return the entry that an answer must have left."""
    if answer.status_code == 200:
        return ("query.answered", ACTOR, details)
    return ("query.refused", ACTOR, details | {"problem": problem or answer.get_json()["code"]})


@pytest.fixture
def count(served):
    """Count some reports."""
    served.post(
        {"format": 1, "app": "shop", "groups": [served.group("export.used", [1, 0] * 5), served.group("ui.theme", [0, 1, 2] * 5)]}
    )
    served.drain()
    with served.flask.app_context():
        return next(iter(served.store.strata("export.used"))).period


# Queries


def test_queries_are_logged_with_what_they_asked(served, count):
    """An answer is logged with the key, the metric and the parameters; the list of metrics is one entry."""
    assert served.get("/api/v1/metrics").status_code == 200
    assert served.get("/api/v1/metrics/ui.theme").status_code == 200
    query = f"period={count}&segment=platform%3Dlinux&level=0.90&only=detected"
    answer = served.get(f"/api/v1/metrics/export.used?{query}")
    details = {"metric": "export.used", "period": count, "segment": "platform=linux", "level": "0.9", "only": "detected"}
    segments, periods = (
        f"/api/v1/metrics/export.used/compare?{of}"
        for of in ("a=platform%3Dlinux&b=platform%3Dmacos", f"a={count}&b={count}&segment=platform%3Dlinux")
    )
    sides = {"a": "platform=linux", "b": "platform=macos"}, {"a": count, "b": count, "segment": "platform=linux"}
    assert queries(served.store._client) == [
        ("query.answered", ACTOR, API),
        ("query.answered", ACTOR, API | {"metric": "ui.theme"}),
        outcome(answer, API | details),
    ]
    for query, statement in zip((segments, periods), sides, strict=True):
        answer = served.get(query)
        assert queries(served.store._client)[-1] == outcome(answer, API | {"metric": "export.used"} | statement)
    assert not verify(served.app.audit).faults


@pytest.mark.parametrize(
    ("path", "details"),
    [
        ("secret.metric", {"problem": "unknown_metric"}),
        ("export.used?secret=secret", {"metric": "export.used", "problem": "unknown_parameter"}),
        ("export.used?level=secret", {"metric": "export.used", "problem": "level"}),
        ("export.used?level=7", {"metric": "export.used", "problem": "level", "level": "7.0"}),
        ("export.used?only=secret", {"metric": "export.used", "problem": "only"}),
        (
            "export.used/compare?a=platform%3Dlinux&b=secret",
            {"metric": "export.used", "problem": "incomparable", "a": SIDES["a"]},
        ),
        ("export.used?bands=secret", {"metric": "export.used", "problem": "bands"}),
        ("export.used?bands=strict", {"metric": "export.used", "problem": "bands", "bands": "strict"}),
        ("export.used?period=secret", {"metric": "export.used"}),
        ("export.used?period=2026-1-1", {"metric": "export.used"}),
        ("export.used?period=2026-11", {"metric": "export.used"}),
        ("export.used?segment=platform%3Dsecret", {"metric": "export.used"}),
        ("export.used?segment=secret%3Dlinux", {"metric": "export.used"}),
        ("export.used?segment=platform%3Dlinux,platform%3Dlinux", {"metric": "export.used"}),
        ("export.used?segment=platform%3Dli", {"metric": "export.used"}),
        ("export.used?segment=platform%3D", {"metric": "export.used"}),
        ("export.used?segment=platform", {"metric": "export.used"}),
        ("export.used?segment=,", {"metric": "export.used"}),
        ("ui.theme?segment=platform%3Dlinux", {"metric": "ui.theme"}),
    ],
)
def test_a_refusal_repeats_nothing_that_is_not_declared(served, path, details):
    """What was asked is logged as far as it is a declared name or a valid value; else only why it was refused."""
    answer = served.get(f"/api/v1/metrics/{path}")
    assert 400 <= answer.status_code < 500
    assert queries(served.store._client) == [("query.refused", ACTOR, API | {"problem": answer.get_json()["code"]} | details)]
    assert b"secret" not in b"".join(served.store._client.lrange("{shop}:audit", 0, -1))


def test_a_segment_that_is_too_long_is_cut(serve, registry_file):
    """Its length and its SHA-256 stand in place of the rest."""
    word = "x" * 1200
    served = serve(registry_file.read_text("utf-8").replace('"macos"', f'"{word}"'))
    served.get(f"/api/v1/metrics/export.used?segment=platform%3D{word}")
    answer = queries(served.store._client)[-1][2]["segment"]
    cell = f"platform={word}"
    assert len(answer) == 1000
    assert answer.startswith("platform=xxx")
    assert answer.endswith(f"x... (1209 characters, SHA-256 {sha256(cell.encode()).hexdigest()})")


def test_pages_are_logged_once(served, settings, count):
    """A page is one entry, with the key of the session; where pages are open, nobody is named."""
    form = served.http.get("/login").get_data(as_text=True)
    token = re.search(r'name="token" value="([^"]+)"', form)[1]
    assert served.http.get("/").status_code == 303
    assert served.http.post("/login", data={"token": token, "key": READ}).status_code == 303
    assert served.http.get("/").status_code == 200
    answer = served.http.get(f"/m/export.used?period={count}&order=domain&page=1")
    assert answer.status_code in (200, 404)  # whether or not so few reports are published
    assert served.http.get("/m/secret").status_code == 404
    opened = type(served)(replace(settings, dashboard="open"))
    assert opened.http.get("/").status_code == 200
    assert opened.http.get("/?app=secret").status_code == 404
    opened.store._client.close()
    assert queries(served.store._client) == [
        ("query.answered", ACTOR, PAGE),
        outcome(answer, PAGE | {"metric": "export.used", "period": count}, queries(served.store._client)[1][2].get("problem")),
        ("query.refused", ACTOR, PAGE | {"problem": "unknown_metric"}),
        ("query.answered", "open", PAGE),
    ]
    assert b"secret" not in b"".join(served.store._client.lrange("{shop}:audit", 0, -1))


def test_what_is_no_query_is_not_logged(served, count):  # noqa: ARG001 - reports were sent
    """Uploads, health, the description of the API, sign-ins, and requests of nobody who is known leave no entry."""
    for path in ("/healthz", "/readyz", "/openapi.json", "/login", "/nowhere"):
        served.http.get(path)
    for key in (None, "rk_unknown_key_1234", INGEST):
        assert served.get("/api/v1/metrics/ui.theme", key).status_code == 401
    assert served.http.get("/m/ui.theme").status_code == 303
    assert served.http.options("/api/v1/metrics/ui.theme").status_code == 200
    assert not queries(served.store._client)
    assert {entry.event for entry in entries(served.store._client)} == {"registry.served", "release.published"}


def test_who_is_above_a_limit_cannot_fill_the_log(settings, served):
    """Requests that a limit refuses leave no entry."""
    limited = type(served)(replace(settings, rate_limit_key="2/minute"))
    assert [limited.get("/api/v1/metrics").status_code for _ in range(4)] == [200, 200, 429, 429]
    assert len(queries(served.store._client)) == 2
    limited.store._client.close()


def test_nothing_tells_where_a_request_came_from(served):
    """Neither an address nor a header of the request is in the log, nor the key itself."""
    headers = {"Authorization": f"Bearer {READ}", "User-Agent": "agent-secret", "X-Forwarded-For": "203.0.113.7"}
    served.http.get("/api/v1/metrics", headers=headers, environ_base={"REMOTE_ADDR": "203.0.113.9"})
    logged = b"".join(served.store._client.lrange("{shop}:audit", 0, -1))
    assert len(queries(served.store._client)) == 1
    for secret in (b"203.0.113", b"secret", READ.encode()):
        assert secret not in logged


# What cannot be logged


@pytest.fixture
def unlogged(served, monkeypatch):
    """Let the audit log alone be away."""

    def away(*_args, **_kwargs):
        raise redis.ConnectionError("away")

    monkeypatch.setattr(AuditLog, "append", away)
    return served


@pytest.mark.parametrize("path", ["", "/ui.theme", "/unknown", "/ui.theme?period=2001-01-01"])
def test_what_cannot_be_logged_is_not_answered(count, unlogged, path):  # noqa: ARG001 - there is something to tell
    """Neither an answer nor a refusal leaves without its entry."""
    answer = unlogged.get(f"/api/v1/metrics{path}")
    assert (answer.status_code, answer.get_json()["code"]) == (503, "store_unavailable")
    assert answer.headers["Retry-After"]
    assert set(answer.get_json()) <= {"type", "title", "status", "code", "detail", "instance"}


@pytest.mark.parametrize("path", ["/", "/m/ui.theme", "/m/unknown"])
def test_a_page_that_cannot_be_logged_is_not_shown(settings, served, monkeypatch, path):
    """The page says so in place of what it would have shown, as protected as any page."""
    opened = type(served)(replace(settings, dashboard="open"))
    monkeypatch.setattr(AuditLog, "append", lambda *_, **__: (_ for _ in ()).throw(redis.ConnectionError("away")))
    answer = opened.http.get(path)
    opened.store._client.close()
    assert answer.status_code == 503
    assert "The store cannot be used: it does not answer." in answer.text
    assert "Which theme" not in answer.text
    assert "style-src 'self'" in answer.headers["Content-Security-Policy"]
    assert not queries(served.store._client)


def test_uploads_do_not_need_the_log(unlogged):
    """Reports are taken whether or not anything can be logged."""
    assert unlogged.post({"format": 1, "app": "shop", "groups": [unlogged.group("ui.theme", [0])]}).status_code == 202


def test_a_log_that_somebody_else_broke_goes_on(served):
    """What is put at its end by hand is told of by `verify`, and closes no page."""
    served.store._client.rpush("{shop}:audit", "foreign")
    assert served.get("/api/v1/metrics").status_code == 200
    assert [fault.where for fault in verify(served.app.audit).faults] == ["store:2"]


# Registries


def publications(client):
    return [entry for entry in entries(client) if entry.event == "registry.served"]


def test_a_revision_is_logged_where_there_is_one(served, registry_file, real_redis):
    """An entry says the revision of a registry that has one."""
    registry_file.write_text(f"revision = 7\n{registry_file.read_text('utf-8')}", "utf-8")
    served.restarted().store._client.close()
    assert ["revision" in each.details for each in publications(real_redis)] == [False, True]
    assert publications(real_redis)[-1].details["revision"] == 7


def test_a_registry_is_logged_once_for_all_processes(served, registry_file, real_redis):
    """Servers that start with the same text leave one entry; one with another text, or with the old one again, a further one."""
    served.restarted().store._client.close()
    (first,) = publications(real_redis)
    assert first.actor == "server"
    assert first.details == {"digest": sha256(registry_file.read_bytes()).hexdigest(), "metrics": 5}
    text = registry_file.read_text("utf-8")
    for changed, count in ((f"{text}\n# more\n", 2), (f"{text}\n# more\n", 2), (text, 3)):
        registry_file.write_text(changed, "utf-8")
        served.restarted().store._client.close()
        results = publications(real_redis)
        assert len(results) == count
    assert results[0].details == results[2].details != results[1].details


def test_servers_that_start_at_once_log_once(served, registry_file, real_redis, monkeypatch):
    """Whoever is first logs; the others see it, however close they are."""
    # Python 3.11 fails now and then where threads make syntax trees at once, as routes do (CPython issue 106905).
    compiling, one_by_one = Rule.compile, Lock()

    def compiled(rule):
        with one_by_one:
            compiling(rule)

    monkeypatch.setattr(Rule, "compile", compiled)
    registry_file.write_text(registry_file.read_text("utf-8") + "# more\n", "utf-8")
    barrier, result = Barrier(6), []

    def start():
        barrier.wait(600)
        result.append(served.restarted())

    threads = [Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    for item in result:
        item.store._client.close()
    assert len(result) == 6
    assert len(publications(real_redis)) == 2
    assert not verify(served.app.audit).faults


def test_a_registry_is_logged_when_the_store_comes(settings, served, real_redis, monkeypatch):
    """A server that starts without a store says so, and logs its registry before it answers the first query."""
    real_redis.flushall()
    with monkeypatch.context() as patched:
        patched.setattr(AuditLog, "append", lambda *_, **__: (_ for _ in ()).throw(redis.ConnectionError("away")))
        late = type(served)(settings)
        answer = late.http.get("/v1/registry", headers={"Authorization": f"Bearer {INGEST}"})
        assert answer.status_code == 503
    assert not entries(real_redis)
    assert late.get("/api/v1/metrics").status_code == 200
    assert [entry.event for entry in entries(real_redis)] == ["registry.served", "query.answered"]
    late.store._client.close()


def test_what_is_logged_is_what_was_read(settings, monkeypatch, registry_file, real_redis):
    """A file that changes while a server starts is logged as it is served, not as it is by then."""

    def read(path):
        text = reading(path)
        registry_file.write_text(text.replace("Which theme", "What theme"), "utf-8")
        return text

    reading, before = registry.read, sha256(registry_file.read_bytes()).hexdigest()
    monkeypatch.setattr(registry, "read", read)
    create_app(settings)
    assert sha256(registry_file.read_bytes()).hexdigest() != before
    assert [each.details["digest"] for each in entries(real_redis)] == [before]


# Keys


def test_keys_are_logged_as_they_are_made_and_revoked(served, real_redis):
    """Each change of a key has its entry, with who did it, and nothing of the key; what changes nothing has none."""
    keys = KeyStore(Store(real_redis, "shop"))
    text, key = keys.create("read", "Zoë's laptop")
    admin, manager = keys.create("admin", "", 0.25)
    assert not keys.revoke("0" * 16)
    assert not keys.revoke("*")
    answer = served.http.delete(f"/api/v1/keys/{key.id}", headers={"Authorization": f"Bearer {admin}"})
    assert answer.status_code == 204
    assert keys.revoke(manager.id)
    assert [(e.event, e.actor, e.details) for e in entries(real_redis) if e.event.startswith("key.")] == [
        ("key.created", "command", {"id": key.id, "role": "read", "name": "Zoë's laptop"}),
        ("key.created", "command", {"id": manager.id, "role": "admin", "name": "", "epsilon": "0.25"}),
        ("key.revoked", f"key:{manager.id}", {"id": key.id}),
        ("key.revoked", "command", {"id": manager.id}),
    ]
    logged = b"".join(real_redis.lrange("{shop}:audit", 0, -1))
    assert text[3:].encode() not in logged
    assert key.digest.hex().encode() not in logged


def test_a_change_of_keys_that_cannot_be_logged_is_not_made(real_redis):
    """Neither a key comes nor goes where the log cannot be written."""
    keys = KeyStore(Store(real_redis, "shop"))
    _, key = keys.create("read", "")
    real_redis.set("{shop}:audit", "not a list")
    with pytest.raises(redis.RedisError):
        keys.create("read", "")
    with pytest.raises(redis.RedisError):
        keys.revoke(key.id)
    assert [each.id for each in keys.load()] == [key.id]
